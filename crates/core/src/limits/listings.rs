//! Bounds of concurrent listings of queues.

/// Max listings of queues with filters that run at once for one account. Such a listing may read all names of a
/// project.
pub const LISTINGS_AT_ONCE: usize = 2;
/// Max listings with filters of one account that run or wait; one more is refused.
pub const LISTINGS_IN_LINE: usize = 128;
