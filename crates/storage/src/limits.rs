//! Bounds that hold for every driver. Those of one driver are in its folder.

/// Bytes of the name of a note in a pool: a dedup id of SQS has 128 characters.
pub const NOTE_KEY_BYTES: usize = 1_024;
/// Bytes of what a note in a pool states.
pub const NOTE_BYTES: usize = 65_536;
/// Buckets of time that one look for what is due in a pool clears away; the next look continues.
pub const DUE_BUCKETS: usize = 4_096;
/// Entries or buckets of other queues that one look for what lives by a queue's retention passes over, in pools that file queues
/// beside each other: what it costs does not depend on what the others hold; the next look continues.
pub const RETAINED_WALK: usize = 4_096;
