//! Bounds of what one queue keeps in memory while its pool is read, and of counting pools again.

use std::time::Duration;

/// Changes of messages that are noted while a page of due ones is read: 1 MiB of ids. After more the page is read again.
pub const WAKE_CHANGES: usize = 65_536;

/// Entries of a pool that one step of a count after a crash reads, and bytes of their values. With a pause between two steps
/// it is at most 20,000 entries and 20 MiB a second.
pub const RECOUNT_ENTRIES: usize = 1_000;
/// See [`RECOUNT_ENTRIES`].
pub const RECOUNT_BYTES: usize = 1 << 20;
/// How often a queue whose totals were corrected is counted again. Once is enough, unless the totals fell to nothing while it
/// was counted.
pub const RECOUNT_AGAIN: usize = 4;
/// The pause between two steps.
pub const RECOUNT_STEP: Duration = Duration::from_millis(50);
/// How often it is looked whether a pool is to be counted.
pub const RECOUNT_REST: Duration = Duration::from_secs(60);
