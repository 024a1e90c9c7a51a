//! Bounds of the journal: its work, its log, its tables, and the disk below it.

use std::time::Duration;

/// Pieces of work that wait for the journal's committer; one more is refused, certainly unwritten.
pub const JOURNAL_QUEUE: usize = 16_384;
/// Pieces of work that share one sync.
pub const JOURNAL_GROUP: usize = 4_096;
/// How often the free space is asked for at most. What the journal writes in between counts as used.
pub const ROOM_LOOK: Duration = Duration::from_millis(250);
/// A reserve of fewer bytes may be used up by what the store still writes below it: its recent
/// writes once more as tables, and the log of removals.
pub const SMALL_RESERVE: u64 = 128 << 20;
/// The pause between two rounds of getting room back on a disk that is nearly full: each writes out what is in memory.
pub const RECLAIM_PAUSE: Duration = Duration::from_secs(3);
/// How long such a round waits until that is on disk.
pub const RECLAIM_FLUSH: Duration = Duration::from_secs(30);
/// Bytes that merging tables must give back to be done on such a disk.
pub const RECLAIM_GAIN: u64 = 8 << 20;
/// Bytes that must be free for it beside what is left: the log continues meanwhile.
pub const RECLAIM_MARGIN: u64 = 32 << 20;
/// The first pause after a try to open a journal again that failed, and the longest; each is twice the one before.
pub const REOPEN_PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

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
/// Bytes of recent writes that an embedded store keeps in memory, for each of its key spaces.
pub const STORE_TABLE_BYTES: u64 = 16 << 20;
/// Bytes of blocks that an embedded store has read from the disk and keeps in memory.
pub const STORE_CACHE_BYTES: u64 = 32 << 20;

/// How long a commit of the journal may take before new work is refused, and its waiters are answered that its outcome is
/// unknown. The default of a setting: a disk that flushes takes seconds, a stalled one never ends.
pub const COMMIT_DEADLINE: Duration = Duration::from_secs(10);
/// How often the journal looks whether a commit is late: a tenth of its deadline, within these.
pub const COMMIT_LOOK: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(500));
