//! Seam 2, the message pools: where headers and bodies are kept, behind a trait of a few verbs.
//!
//! A pool keeps entries in order of id, per queue. It knows nothing of claims, visibility or the tree: what an
//! entry means is for the engine to say. Drivers are named once, in [`open`].

pub mod embedded;
pub mod open;

use async_trait::async_trait;
use thiserror::Error as ThisError;
use uuid::Uuid;

use crate::domain::ids::{MessageId, QueueId, Slot};
use crate::domain::message::{Header, Message};

/// Grows with each owner of a slot: how often the tree was rebuilt, then the transaction that took the slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Epoch {
    /// `generation` of `/meta/system`.
    pub generation: u32,
    /// The transaction that made the owner.
    pub transaction: u64,
}

/// Changes of one slot that become durable together or not at all.
///
/// Batches of one (slot, epoch) are numbered from 1 without a gap, and the next is sent when the outcome of
/// the last is known. A batch may be repeated under its number: it takes effect once.
#[derive(Clone, Debug)]
pub struct Batch {
    /// The slot of all its queues.
    pub slot: Slot,
    /// Who sends it.
    pub epoch: Epoch,
    /// Its number.
    pub seq: u64,
    /// What it does, one element a queue.
    pub queues: Vec<QueueChanges>,
}

/// What a batch does to one queue, in this order: appends, updates, removes.
#[derive(Clone, Debug)]
pub struct QueueChanges {
    /// The queue.
    pub queue: QueueId,
    /// New entries. Their ids were never used before.
    pub appends: Vec<Message>,
    /// Headers that replace those of their entries. An entry that is absent stays absent.
    pub updates: Vec<Header>,
    /// Entries that go. Absent ones, and ones named twice, do no harm.
    pub removes: Vec<MessageId>,
    /// No entry below this id is left, as far as the owner knows: scans from the head begin here, so that
    /// they do not walk over what was removed.
    pub low: MessageId,
}

impl QueueChanges {
    /// No changes of a queue that has nothing below `low`.
    pub fn of(queue: QueueId, low: MessageId) -> Self {
        Self { queue, appends: Vec::new(), updates: Vec::new(), removes: Vec::new(), low }
    }
}

/// What a pool knows of a queue without counting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Entries.
    pub messages: u64,
    /// Bytes of their bodies.
    pub bytes: u64,
}

/// One page of a scan.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// Entries in the order asked for.
    pub messages: Vec<Message>,
    /// Whether there is nothing beyond them.
    pub is_last: bool,
}

/// Which way a scan goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the oldest upwards.
    Up,
    /// From the newest downwards.
    Down,
}

/// Says whose pool a storage is, so that nobody serves an empty or a foreign one in its place (P9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The installation.
    pub system: Uuid,
    /// The pool.
    pub pool: Uuid,
}

/// Why a pool did not do what it was asked.
#[derive(Debug, ThisError)]
pub enum StoreError {
    /// The storage belongs to another pool. Nothing was written.
    #[error("the storage is stamped as pool {} of installation {}", .0.pool, .0.system)]
    Stamped(Stamp),
    /// A later owner has the slot. Nothing was written.
    #[error("the slot belongs to a later owner ({0:?})")]
    Fenced(Epoch),
    /// The batch is older than the last one. Nothing was written by this call.
    #[error("the batch comes after its successor")]
    Stale,
    /// The pool is behind what its owner wrote: it lost its tail, or it is another pool.
    #[error("the pool went back to an earlier state")]
    WentBack,
    /// The pool cannot be used now. Nothing was written.
    #[error("the pool is unavailable: {0}")]
    NotSent(String),
    /// The batch may have been applied.
    #[error("the outcome is unknown: {0}")]
    Unknown(String),
}

impl StoreError {
    /// Whether it is certain that nothing was written.
    pub fn nothing_written(&self) -> bool {
        match self {
            Self::Stamped(_) | Self::Fenced(_) | Self::Stale | Self::NotSent(_) => true,
            Self::WentBack | Self::Unknown(_) => false,
        }
    }
}

/// A storage pool. Each sentence below is a test of the conformance suite, which every driver passes.
#[async_trait]
pub trait PoolStore: Send + Sync + 'static {
    /// Whose pool this storage is; none when it was never registered. Writes nothing.
    async fn stamp(&self) -> Result<Option<Stamp>, StoreError>;

    /// Makes the storage that of a pool, durably. One that has another stamp is refused; the same again is no
    /// change.
    async fn register(&self, stamp: Stamp) -> Result<(), StoreError>;

    /// Makes `epoch` the only one that may write to `slot` and begins its numbering. Returns the greatest id
    /// that was ever appended to the slot. An epoch below the stored one is refused; the stored one itself is
    /// accepted and goes on with a numbering of its own.
    async fn fence(&self, slot: Slot, epoch: Epoch) -> Result<MessageId, StoreError>;

    /// Applies a batch: all or none, durable on return. A batch of another than the stored epoch, or with
    /// another number than the next, changes nothing; the last number again is a success that changes nothing.
    async fn commit(&self, batch: &Batch) -> Result<(), StoreError>;

    /// Entries of a queue beyond `after` in the direction (all, when absent): at most `messages` of them, and
    /// no more once their bodies exceed `bytes`. It shows every batch that was acknowledged.
    async fn scan(
        &self,
        queue: QueueId,
        direction: Direction,
        after: Option<MessageId>,
        messages: usize,
        bytes: usize,
    ) -> Result<Page, StoreError>;

    /// The entries among `ids` that exist, in the order of `ids`.
    async fn get(&self, queue: QueueId, ids: &[MessageId]) -> Result<Vec<Message>, StoreError>;

    /// How much a queue holds, at the cost of one read.
    async fn totals(&self, queue: QueueId) -> Result<Totals, StoreError>;

    /// Whether a batch sent now has a chance. Writes nothing.
    fn check_open(&self) -> Result<(), StoreError>;
}
