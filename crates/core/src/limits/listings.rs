//! Bounds of what listings of queues do at once.

/// Listings of queues with filters that are under way for one account. One may look at all names of a project.
pub const LISTINGS_AT_ONCE: usize = 2;
/// Such listings under way and in line; one more is refused.
pub const LISTINGS_IN_LINE: usize = 128;
