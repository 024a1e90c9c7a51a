//! Bounds of the count of entries after a crash.

/// Entries of a pool that one step of a count after a crash reads, and bytes of their values. With a pause between two steps
/// it is at most 20,000 entries and 20 MiB a second.
pub const RECOUNT_ENTRIES: usize = 1_000;
/// See [`RECOUNT_ENTRIES`].
pub const RECOUNT_BYTES: usize = 1 << 20;
/// How often a queue whose totals were corrected is counted again. Once is enough, unless the totals fell to nothing while it
/// was counted.
pub const RECOUNT_AGAIN: usize = 4;
