//! Bounds of the log of the embedded store.

use std::time::Duration;

/// The last synced group is witnessed beside the log at most this often.
pub const WITNESS_PAUSE: Duration = Duration::from_millis(500);

/// Damaged places that are remembered, and logged, of one embedded store. Beyond them reads that meet damage are only counted.
pub const DAMAGED_PLACES: usize = 64;
/// After a merge of tables failed, all tables are read to find damage at most this often.
pub const MEND_PAUSE: Duration = Duration::from_secs(60);
/// A table of which the disk refuses parts is mended without them only when it has refused them for so long: a fault that passes
/// must take nothing.
pub const MEND_REFUSED: Duration = Duration::from_secs(600);
/// For how long a warning tells of a read that the disk refused.
pub const READ_FAILURE_REPORT: Duration = Duration::from_secs(60);
/// A table longer than this is not mended: it would be held in memory.
pub const MEND_BYTES: u64 = 512 << 20;
/// Bytes of the key that represents the end of a table which does not say its last one: more than begin alike in any
/// key.
pub const MEND_KEY_BYTES: usize = 64;
/// Bytes of a small file of a store (a list of tables, the log witness) that are read at most: more is damage.
pub const STORE_FILE_BYTES: u64 = 16 << 20;
