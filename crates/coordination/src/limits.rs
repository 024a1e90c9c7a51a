//! Bounds of both trees.

/// Max events queued for a watcher. More events are replaced by one event to read everything again.
pub const WATCH_EVENTS: usize = 256;
