//! Seam 2, the tree: small versioned nodes under slash-separated paths, changed by fenced commits.
//!
//! Its interface follows ZooKeeper's tree, so that ZooKeeper can serve it; the embedded tree serves a single process.
//! It knows nothing of queues. Each error tells the caller whether nothing was written, or whether the outcome is
//! unknown.

#![warn(missing_docs)]

pub mod embedded;
pub mod limits;
mod path;
mod watch;
pub mod zookeeper;

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use thiserror::Error as ThisError;
use tokio::sync::watch::Receiver;

pub use embedded::nodes as nodes_on_disk;
pub use watch::{Event, Mailbox, Watch};

use angarium_core::limits as core_limits;
use angarium_core::time::Timestamp;

/// A node at the time of a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// The bytes that the last commit set.
    pub data: Bytes,
    /// Number of sets since the node was created.
    pub version: u32,
    /// The transaction that last changed its data. It is greater than that of every earlier change.
    pub modified: u64,
    /// Number of children.
    pub children: u32,
    /// Time of the last change of its data, by the clock of the tree.
    pub time: Timestamp,
}

/// A condition on the whole commit: the node at `path` has `version`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Fence {
    /// Path of the node.
    pub path: String,
    /// The version it must have.
    pub version: u32,
}

/// One change of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Creates a node. Its parent must exist, and the node must not.
    Create {
        /// Path of the node.
        path: String,
        /// The initial value.
        data: Bytes,
        /// Lifetime and naming of the node.
        mode: Mode,
    },
    /// Replaces the value of an existing node.
    Set {
        /// Path of the node.
        path: String,
        /// The new value.
        data: Bytes,
        /// The version the node must have; any version when absent.
        version: Option<u32>,
    },
    /// Removes a node without children.
    Delete {
        /// Path of the node.
        path: String,
    },
}

/// Lifetime of a node, and whether the tree completes its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Lives until it is deleted.
    Persistent,
    /// Lives at most as long as the session that created it. It has no children.
    Ephemeral,
    /// Like ephemeral. In addition the tree appends a growing number to the name: see [`Stat::number`].
    Numbered,
}

impl Op {
    /// Returns the creation of a persistent node.
    pub fn create(path: impl Into<String>, data: impl Into<Bytes>) -> Self {
        Self::Create { path: path.into(), data: data.into(), mode: Mode::Persistent }
    }

    /// Returns the path of the node that the operation changes.
    pub fn path(&self) -> &str {
        match self {
            Self::Create { path, .. } | Self::Set { path, .. } | Self::Delete { path } => path,
        }
    }

    /// Returns the bytes of the path and the value, which count towards the bound of a commit.
    pub fn size(&self) -> usize {
        match self {
            Self::Create { path, data, .. } | Self::Set { path, data, .. } => path.len() + data.len(),
            Self::Delete { path } => path.len(),
        }
    }
}

/// Result of a commit, one entry per operation: the new version and transaction of each node that was set, the number
/// of each created numbered node, none for other operations.
pub type CommitResult = Vec<Option<Stat>>;

/// Version and last transaction of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// See [`Node::version`].
    pub version: u32,
    /// See [`Node::modified`].
    pub modified: u64,
    /// The number in the name of a numbered node; none for other nodes. Numbers grow within a directory.
    pub number: Option<u64>,
}

/// Returns the path of a numbered node: the path of the operation, followed by at least ten digits.
pub fn numbered(path: &str, number: u64) -> String {
    format!("{path}{number:010}")
}

/// State of the connection to the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// The tree can be reached.
    Connected,
    /// The tree cannot be reached for now. Ephemeral nodes stay for a while.
    Suspended,
    /// The session has ended. Its ephemeral nodes are removed, now or soon; the next session has a greater generation.
    Lost,
}

/// The session that owns ephemeral nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Session {
    /// Number of the session of this handle, growing; 0 before the first session.
    pub generation: u64,
    /// Whether the session can be used now.
    pub link: Link,
}

/// Why an operation of a commit was refused. Nothing of the commit was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The node to create exists.
    NodeExists,
    /// The node, or the parent of the node to create, does not exist.
    NoNode,
    /// The node has another version.
    BadVersion,
    /// The node to delete has children.
    NotEmpty,
    /// The parent has the max number of children.
    Full,
}

/// Errors of reads and commits.
#[derive(Debug, ThisError)]
pub enum TreeError {
    /// A fence did not match. Nothing was written.
    #[error("fence {0} did not hold")]
    Fenced(usize),
    /// An operation was refused. Nothing was written.
    #[error("operation {op} was refused: {why:?}")]
    Refused {
        /// Index of the operation in the commit.
        op: usize,
        /// The reason.
        why: Refusal,
    },
    /// A path, value or commit exceeds a bound. Nothing was written.
    #[error("outside the bounds of the tree: {0}")]
    Bounds(&'static str),
    /// The tree cannot be reached now. Nothing was written.
    #[error("the tree is unavailable: {0}")]
    NotSent(String),
    /// The outcome of the commit is unknown.
    #[error("the outcome is unknown: {0}")]
    Unknown(String),
    /// The value is sealed, and this process has no key to open it. Nothing was written.
    #[error("{0}")]
    Locked(String),
    /// The stored data is damaged, so the same call fails again. Nothing was written.
    #[error("{0}")]
    Damaged(String),
}

impl TreeError {
    /// Returns whether it is certain that nothing was written.
    pub fn nothing_written(&self) -> bool {
        match self {
            Self::Fenced(_)
            | Self::Refused { .. }
            | Self::Bounds(_)
            | Self::NotSent(_)
            | Self::Locked(_)
            | Self::Damaged(_) => true,
            Self::Unknown(_) => false,
        }
    }
}

/// The tree. The conformance suite tests every promise of these methods on every implementation.
#[async_trait]
pub trait Coordination: Send + Sync + 'static {
    /// Returns the node at `path`, or none. The result includes every commit that was acknowledged through this handle.
    async fn get(&self, path: &str) -> Result<Option<Node>, TreeError>;

    /// Returns the nodes at `paths`, in this order. Each is read as by [`Coordination::get`], but not all at one
    /// instant.
    async fn get_many(&self, paths: &[String]) -> Result<Vec<Option<Node>>, TreeError>;

    /// Returns the names of the children of `path`, sorted; an empty list when `path` does not exist.
    async fn children(&self, path: &str) -> Result<Vec<String>, TreeError>;

    /// Returns the names of at most `max` children of `path` after the name `after`, sorted; from the first child when
    /// `after` is absent. An implementation that can read a part of a directory overrides this.
    async fn children_behind(
        &self,
        path: &str,
        after: Option<&str>,
        max: usize,
    ) -> Result<Vec<String>, TreeError> {
        let children = self.children(path).await?;
        let begin = after.map_or(0, |after| children.partition_point(|name| name.as_str() <= after));
        Ok(children.into_iter().skip(begin).take(max).collect())
    }

    /// Waits until reads through this handle show every commit that was acknowledged before, by any process. The
    /// default is for implementations whose reads always do.
    async fn sync(&self) -> Result<(), TreeError> {
        Ok(())
    }

    /// Checks `fences`, then applies `ops` in order, each with the result of the operations before it: all or none,
    /// durable on return. Concurrent commits may share their cost, but a failure of one never fails another.
    async fn commit(&self, fences: &[Fence], ops: &[Op]) -> Result<CommitResult, TreeError>;

    /// Watches `path`, which need not exist, and everything below it. Every committed change, including those of this
    /// handle, raises an event or a [`Event::Resync`] that covers it. A read after the event returns that change or a
    /// later one.
    fn watch_tree(&self, path: &str) -> Result<Watch, TreeError>;

    /// Returns the session. The receiver is notified of each change of its link, however short.
    fn session(&self) -> Receiver<Session>;

    /// Returns how long a session may be silent before it ends; none if it lasts as long as the process.
    fn session_timeout(&self) -> Option<Duration> {
        None
    }

    /// Returns the number of calls that met damage, and a text for the operator; none when no call met damage.
    fn damage(&self) -> Option<(u64, String)> {
        None
    }

    /// Returns a warning for the operator about the access of others to the tree; none when there is nothing to warn of.
    fn warning(&self) -> Option<String> {
        None
    }

    /// Checks that a commit made now can succeed.
    fn check_open(&self) -> Result<(), TreeError>;

    /// Checks that data which only this session changes still holds: no other process can have taken it over since it
    /// was read. Call this just before an answer that relies on memory alone (P8).
    fn check_lease(&self) -> Result<(), TreeError>;

    /// Returns whether [`Node::time`] is from a clock of the tree itself.
    fn keeps_time(&self) -> bool;

    /// Checks that the tree can recover by itself. It fails when only a restart of the process helps.
    fn check_alive(&self) -> Result<(), TreeError>;

    /// Finishes the running commits and closes the tree. Later commits are not sent. The default is for trees that keep
    /// nothing open.
    async fn close(&self) {}
}

/// Returns the bytes of the paths and values of a commit.
fn size(fences: &[Fence], ops: &[Op]) -> usize {
    fences.iter().map(|fence| fence.path.len()).chain(ops.iter().map(Op::size)).sum()
}

/// Checks a commit against the bounds of every implementation, before anything is sent: its number of operations, its
/// size, its paths and its values.
pub fn check_bounds(fences: &[Fence], ops: &[Op]) -> Result<(), TreeError> {
    if fences.len() + ops.len() > core_limits::TREE_BATCH_OPS {
        return Err(TreeError::Bounds("more than 100 operations in a commit"));
    }
    if size(fences, ops) > core_limits::TREE_BATCH_BYTES {
        return Err(TreeError::Bounds("more than 256 KiB in a commit"));
    }
    for op in ops {
        path::check(op.path())?;
        if op.path() == "/" && !matches!(op, Op::Set { .. }) {
            return Err(TreeError::Bounds("the root is always there"));
        }
        if let Op::Create { data, .. } | Op::Set { data, .. } = op
            && data.len() > core_limits::TREE_VALUE_BYTES
        {
            return Err(TreeError::Bounds("more than 128 KiB in a value"));
        }
    }
    fences.iter().try_for_each(|fence| path::check(&fence.path))
}
