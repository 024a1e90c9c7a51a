//! Bounds of the work that waits for ZooKeeper, and of its duration.

use std::time::Duration;

/// Max commits that wait for ZooKeeper. Further commits are refused, and certainly not sent.
pub const TREE_QUEUE: usize = 4_096;
/// Max reads of ZooKeeper that wait or are in flight. Further reads are refused.
pub const TREE_READS: usize = 4_096;
/// An operation of ZooKeeper fails without an answer after this time. The election of a leader takes much less.
pub const TREE_DEADLINE: Duration = Duration::from_secs(8);
/// Max time that a start waits for ZooKeeper.
pub const TREE_START: Duration = Duration::from_secs(30);
/// Nodes of a walk through the tree that are asked for at once.
pub const WALK_AT_ONCE: usize = 64;
/// Max time for the replicas to learn that their tree is closed: a session learns of it within a sixth of its timeout.
pub const CLOSE_WAIT: Duration = Duration::from_secs(60);
/// Max passes through a tree that is closed. The second one finds all that was created during the first.
pub const CLOSE_PASSES: u32 = 8;
