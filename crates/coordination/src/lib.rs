//! Seam 2, the tree: small versioned nodes under slash-separated paths, changed by fenced commits.
//!
//! It has the shape of ZooKeeper's tree, so that either can serve: the embedded one for a process alone. It
//! knows nothing of queues. Callers learn from an error whether a write certainly did not happen or may have.

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

/// A node as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// The bytes that the last commit set.
    pub data: Bytes,
    /// How often it has been set since it was created.
    pub version: u32,
    /// The transaction that last changed its data: greater than that of any change before.
    pub modified: u64,
    /// How many children it has.
    pub children: u32,
    /// When its data was last changed, by the clock of the tree.
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
    /// Makes a node; its parent must exist and it must not.
    Create {
        /// Path of the node.
        path: String,
        /// The first value.
        data: Bytes,
        /// How long it lives.
        mode: Mode,
    },
    /// Replaces the value of a node that exists.
    Set {
        /// Path of the node.
        path: String,
        /// Its new value.
        data: Bytes,
        /// The version it must have; any when absent.
        version: Option<u32>,
    },
    /// Removes a node without children.
    Delete {
        /// Path of the node.
        path: String,
    },
}

/// How long a node lives, and who chooses its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Until it is deleted.
    Persistent,
    /// At most as long as the session that made it. It has no children.
    Ephemeral,
    /// As ephemeral; a number that grows is added to its name: see [`Stat::number`].
    Numbered,
}

impl Op {
    /// Makes a node that lives until it is deleted.
    pub fn create(path: impl Into<String>, data: impl Into<Bytes>) -> Self {
        Self::Create { path: path.into(), data: data.into(), mode: Mode::Persistent }
    }

    /// The node it changes.
    pub fn path(&self) -> &str {
        match self {
            Self::Create { path, .. } | Self::Set { path, .. } | Self::Delete { path } => path,
        }
    }

    /// Bytes of its path and its value, which count for the bound on a commit.
    pub fn size(&self) -> usize {
        match self {
            Self::Create { path, data, .. } | Self::Set { path, data, .. } => path.len() + data.len(),
            Self::Delete { path } => path.len(),
        }
    }
}

/// What a commit did: of each operation that set a node, the node's new version and transaction, and of each that
/// made a numbered one the number.
pub type CommitResult = Vec<Option<Stat>>;

/// A node's version and last transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// See [`Node::version`].
    pub version: u32,
    /// See [`Node::modified`].
    pub modified: u64,
    /// The number in the name of a node that was made so; none of others. It grows in the directory.
    pub number: Option<u64>,
}

/// The path of a numbered node: what the operation named, then at least ten digits.
pub fn numbered(path: &str, number: u64) -> String {
    format!("{path}{number:010}")
}

/// Whether the tree is in reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// It is.
    Connected,
    /// It is not, for now: ephemeral nodes stay for a while.
    Suspended,
    /// The session has ended. Its ephemeral nodes are gone, or will be soon; the next session has a greater number.
    Lost,
}

/// The session that ephemeral nodes belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Session {
    /// Grows with each session of this handle; 0 before the first.
    pub generation: u64,
    /// Whether the session can be used now.
    pub link: Link,
}

/// Why an operation of a commit was refused. Then nothing of the commit happened.
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
    /// The parent has as many children as a directory may have.
    Full,
}

/// Why the tree did not do what it was asked.
#[derive(Debug, ThisError)]
pub enum TreeError {
    /// A fence did not hold; nothing was written.
    #[error("fence {0} did not hold")]
    Fenced(usize),
    /// An operation was refused; nothing was written.
    #[error("operation {op} was refused: {why:?}")]
    Refused {
        /// Its place among the operations of the commit.
        op: usize,
        /// What of it did not hold.
        why: Refusal,
    },
    /// A path, value or commit breaks a bound; nothing was written.
    #[error("outside the bounds of the tree: {0}")]
    Bounds(&'static str),
    /// The tree cannot be reached now; nothing was written.
    #[error("the tree is unavailable: {0}")]
    NotSent(String),
    /// The commit may have happened.
    #[error("the outcome is unknown: {0}")]
    Unknown(String),
    /// What is stored of this is damaged, so the same call fails again; nothing was written.
    #[error("{0}")]
    Damaged(String),
}

impl TreeError {
    /// Whether it is certain that nothing was written.
    pub fn nothing_written(&self) -> bool {
        match self {
            Self::Fenced(_)
            | Self::Refused { .. }
            | Self::Bounds(_)
            | Self::NotSent(_)
            | Self::Damaged(_) => true,
            Self::Unknown(_) => false,
        }
    }
}

/// The tree. Every method's promise is a test of the conformance suite, which every implementation passes.
#[async_trait]
pub trait Coordination: Send + Sync + 'static {
    /// The node at `path`, or none. It shows at least every commit that was acknowledged through this handle.
    async fn get(&self, path: &str) -> Result<Option<Node>, TreeError>;

    /// The nodes at `paths`, in this order; each as [`Coordination::get`] shows it, and not all of one instant.
    async fn get_many(&self, paths: &[String]) -> Result<Vec<Option<Node>>, TreeError>;

    /// The names of the children of `path`, in order; none when it does not exist.
    async fn children(&self, path: &str) -> Result<Vec<String>, TreeError>;

    /// The names of at most `most` children of `path` behind `after`, in order; all of them from the first one when
    /// `after` is absent. One that reads a part of a directory alone does so.
    async fn children_behind(
        &self,
        path: &str,
        after: Option<&str>,
        most: usize,
    ) -> Result<Vec<String>, TreeError> {
        let children = self.children(path).await?;
        let begin = after.map_or(0, |after| children.partition_point(|name| name.as_str() <= after));
        Ok(children.into_iter().skip(begin).take(most).collect())
    }

    /// Waits until reads through this handle show every commit that was acknowledged before, no matter which process
    /// made it. One whose reads always do has nothing to wait for.
    async fn sync(&self) -> Result<(), TreeError> {
        Ok(())
    }

    /// Checks `fences`, then applies `ops` in order, each seeing those before it: all or none, durable on
    /// return. Commits made at the same time may share their cost and never each other's failure.
    async fn commit(&self, fences: &[Fence], ops: &[Op]) -> Result<CommitResult, TreeError>;

    /// Watches `path`, which need not exist, and all that is below it. Every change that a commit makes is told,
    /// or a [`Event::Resync`] that covers it; who reads a node after its event sees the change or a later one.
    /// Changes that this handle makes itself are told too.
    fn watch_tree(&self, path: &str) -> Result<Watch, TreeError>;

    /// The session, and a notice of each change of its link, of short ones too.
    fn session(&self) -> Receiver<Session>;

    /// How long a session may be silent until it has ended; none where it lasts as long as the process.
    fn session_timeout(&self) -> Option<Duration> {
        None
    }

    /// The damage that calls have met: how many, and what to tell an operator. None when they met none.
    fn damage(&self) -> Option<(u64, String)> {
        None
    }

    /// Whether a commit made now has a chance.
    fn check_open(&self) -> Result<(), TreeError>;

    /// Whether what was read and never changed by others still holds: no process can have taken what belongs to this
    /// session since. To be asked just before an answer that rests on memory alone (P8).
    fn check_lease(&self) -> Result<(), TreeError>;

    /// Whether [`Node::time`] is from a clock of the tree's own.
    fn keeps_time(&self) -> bool;

    /// Whether it can recover by itself. Not when only a restart of the process helps.
    fn check_alive(&self) -> Result<(), TreeError>;

    /// Ends what has begun and closes the tree; commits from then on are not sent. One that keeps nothing open
    /// has nothing to do.
    async fn close(&self) {}
}

/// Bytes of paths and values in a commit.
fn size(fences: &[Fence], ops: &[Op]) -> usize {
    fences.iter().map(|fence| fence.path.len()).chain(ops.iter().map(Op::size)).sum()
}

/// Checks a commit against the bounds that every implementation has, before anything is sent.
fn check_bounds(fences: &[Fence], ops: &[Op]) -> Result<(), TreeError> {
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
