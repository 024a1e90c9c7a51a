//! Bounds of every driver. Bounds of one driver are in its folder.

/// Max bytes of the key of a note in a pool: a dedup id of SQS has 128 characters.
pub const NOTE_KEY_BYTES: usize = 1_024;
/// Max bytes of the value of a note in a pool.
pub const NOTE_BYTES: usize = 65_536;
/// Max buckets that one look-up of due entries in a pool removes; the next look-up continues.
pub const DUE_BUCKETS: usize = 4_096;
/// Max entries or buckets of other queues that one look-up of entries by queue skips, in pools that store queues next
/// to each other: its cost does not depend on the other queues. The next look-up continues.
pub const RETAINED_WALK: usize = 4_096;
/// Bytes from which a body that several entries of a batch have is stored once. A shorter one takes hardly more room than
/// its id and the number of its readers.
pub const SHARED_BODY_BYTES: usize = 512;
