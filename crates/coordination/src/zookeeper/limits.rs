//! Bounds of the work that waits for ZooKeeper, and of how long it may take.

use std::time::Duration;

/// Commits that wait for ZooKeeper; one more is refused, certainly unsent.
pub const TREE_QUEUE: usize = 4_096;
/// Reads of ZooKeeper that wait or are on their way; one more is refused.
pub const TREE_READS: usize = 4_096;
/// An operation of ZooKeeper without an answer after this time has failed. A leader is elected well before.
pub const TREE_DEADLINE: Duration = Duration::from_secs(8);
/// How long a start waits for ZooKeeper before it gives up.
pub const TREE_START: Duration = Duration::from_secs(30);
