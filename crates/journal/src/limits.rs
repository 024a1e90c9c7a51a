//! Bounds of the journal: its work, its log, its tables, and the disk below it.

use std::time::Duration;

/// Max pieces of work that wait for the committer. Further work is refused, and certainly not written.
pub const JOURNAL_QUEUE: usize = 16_384;
/// Max pieces of work that share one sync.
pub const JOURNAL_GROUP: usize = 4_096;
/// Min time between two looks at the free space. Bytes that the journal writes in between count as used.
pub const ROOM_CHECK: Duration = Duration::from_millis(250);
/// The journal warns of a reserve with fewer bytes. The store's own writes below the reserve may use it up: it
/// writes its recent writes once more as tables, and logs removals.
pub const SMALL_RESERVE: u64 = 128 << 20;
/// Pause between two reclaim rounds on a disk that is nearly full. Each round flushes all memory tables.
pub const RECLAIM_PAUSE: Duration = Duration::from_secs(3);
/// Max time that a reclaim round, or a view of a moment, waits until its flushes are on disk.
pub const RECLAIM_FLUSH: Duration = Duration::from_secs(30);
/// Min bytes that a merge of tables must free. A reclaim round skips smaller gains.
pub const RECLAIM_GAIN: u64 = 8 << 20;
/// Free bytes that a merge needs beside twice the remaining data, because the log grows meanwhile.
pub const RECLAIM_MARGIN: u64 = 32 << 20;
/// First and max pause between attempts to open a failed journal again. Each pause is twice the one before.
pub const REOPEN_PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// Max time for which commits stop while views of one moment are taken. An attempt that takes longer is given up.
pub const MOMENT_STOP: Duration = Duration::from_millis(50);
/// Max time for all attempts, and the pause between two.
pub const MOMENT_DEADLINE: Duration = Duration::from_secs(10);
pub const MOMENT_PAUSE: Duration = Duration::from_millis(50);

/// Min time between two writes of the log witness.
pub const WITNESS_PAUSE: Duration = Duration::from_millis(500);

/// Max damaged places of one embedded store that are remembered and logged. Reads that meet further places are only
/// counted.
pub const DAMAGED_PLACES: usize = 64;
/// Min time between two scans of all tables for damage after failed merges.
pub const MEND_PAUSE: Duration = Duration::from_secs(60);
/// How long the disk must refuse parts of a table before the table is rewritten without them. A temporary fault must
/// not cost any data.
pub const MEND_REFUSED: Duration = Duration::from_secs(600);
/// How long a warning reports a read that the disk refused.
pub const READ_FAILURE_REPORT: Duration = Duration::from_secs(60);
/// Max length of a table that is rewritten. A rewrite holds the table in memory.
pub const MEND_BYTES: u64 = 512 << 20;
/// Length of the key that represents the end of a table whose last key is unknown. It is longer than any run of equal
/// leading bytes in a real key.
pub const MEND_KEY_BYTES: usize = 64;
/// Max bytes that are read of a small file of a store (a list of tables, the log witness). A longer file is damaged.
pub const STORE_FILE_BYTES: u64 = 16 << 20;
/// Bytes of recent writes that an embedded store keeps in memory per key space.
pub const STORE_TABLE_BYTES: u64 = 16 << 20;
/// Bytes of its block cache.
pub const STORE_CACHE_BYTES: u64 = 32 << 20;
/// Min and max number of threads that flush and merge its tables; between them it has one for each processor. The first
/// thread only flushes: while all others merge, it puts each further merge back into the queue without a pause. With
/// two threads it would do so during every merge.
pub const STORE_WORKERS: (usize, usize) = (3, 4);

/// Default of the commit deadline: max time for a commit before new work is refused and the waiters are told that the
/// outcome is unknown. A disk that flushes takes seconds, a stalled one may take forever.
pub const COMMIT_DEADLINE: Duration = Duration::from_secs(10);
/// Min and max time between two checks for a late commit. The time is a tenth of the deadline within these bounds.
pub const COMMIT_CHECK: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(500));
