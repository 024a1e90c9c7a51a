//! Bounds of what a page of metrics shows.

/// Default number of queues with their own metrics. At a dozen series per queue, this is a reasonable size for one
/// scrape.
pub const NAMED_QUEUES: usize = 200;
/// Max number of queues with their own metrics that the settings allow: some hundred thousand series.
pub const NAMED_QUEUES_MAX: usize = 10_000;
