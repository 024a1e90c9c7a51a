//! Bounds of the recount of entries after a crash.

/// Max entries of a pool that one step of a recount reads. With the pause between two steps this is at most 20,000
/// entries and 20 MiB a second.
pub const RECOUNT_ENTRIES: usize = 1_000;
/// Max bytes of the values of these entries.
pub const RECOUNT_BYTES: usize = 1 << 20;
/// Max number of times that a queue with corrected totals is counted again, and that all lenders are counted again
/// after a correction. Once is enough, unless totals reached zero during the count.
pub const RECOUNT_AGAIN: usize = 4;
