//! Bounds of both trees.

/// Events that wait for who watches a part of the tree; more of them become one that states to read all again.
pub const WATCH_EVENTS: usize = 256;
