//! Bounds of what a page of metrics shows.

/// Queues with figures of their own among the metrics, unless the settings say otherwise: at a dozen series each it is what
/// one scrape should bring.
pub const NAMED_QUEUES: usize = 200;
/// The most that the settings may say: some hundred thousand series.
pub const NAMED_QUEUES_MAX: usize = 10_000;
