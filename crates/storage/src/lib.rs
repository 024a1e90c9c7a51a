//! Seam 1, the message pools: where headers and bodies are kept, behind a trait of a few verbs: [`PoolStore`].
//!
//! A pool keeps entries per queue, each in a state: ready ones in order of id, scheduled ones by their time, others
//! aside. It knows nothing of claims, visibility or the tree: what an entry means is for the engine to say, and no
//! entry changes or follows itself. Drivers are named once, in [`open`].

#![warn(missing_docs)]

mod batch;
pub mod embedded;
mod header;
pub mod limits;
pub mod merged;
pub mod open;
mod page;
pub mod postgres;
pub mod redis;
mod retained;
mod stamp;

use async_trait::async_trait;
use bytes::Bytes;
use thiserror::Error as ThisError;

pub use batch::{Batch, Epoch, KnownEntry, Note, QueueChanges};
pub use page::{
    Correction, Direction, DropResult, Due, GroupHead, Health, Order, Page, Position, Recount, Totals, Usage,
};
pub use retained::{RetainedEntries, RetainedPlace};
pub use stamp::Stamp;

use angarium_core::durability::Durability;
use angarium_core::group::GroupName;
use angarium_core::ids::{MessageId, QueueId, Slot};
use angarium_core::message::{Header, Message};
use angarium_core::time::Timestamp;

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
    #[error("the batch follows its successor")]
    Stale,
    /// The pool is behind what its owner wrote: it lost its tail, or it is another pool.
    #[error("the pool went back to an earlier state")]
    WentBack,
    /// There is no room for new messages. Nothing was written, and the same batch without its appends may be
    /// sent under the same number (P12).
    #[error("the pool has no room for new messages")]
    Full,
    /// The pool cannot be used now. Nothing was written.
    #[error("the pool is unavailable: {0}")]
    NotSent(String),
    /// The batch may have been applied.
    #[error("the outcome is unknown: {0}")]
    Unknown(String),
    /// What is stored of this is damaged, so the same call fails again. Nothing was written.
    #[error("{0}")]
    Damaged(String),
}

impl StoreError {
    /// Whether it is certain that nothing was written.
    pub fn nothing_written(&self) -> bool {
        match self {
            Self::Stamped(_)
            | Self::Fenced(_)
            | Self::Stale
            | Self::Full
            | Self::NotSent(_)
            | Self::Damaged(_) => true,
            Self::WentBack | Self::Unknown(_) => false,
        }
    }
}

/// Damage of what a pool or a tree stores, as far as calls have met it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredDamage {
    /// Calls that failed for it.
    pub reads: u64,
    /// What to tell an operator.
    pub text: String,
}

/// A storage pool. Each sentence below and in the traits that it consists of is a test of the conformance suite, which
/// every driver passes.
#[async_trait]
pub trait PoolStore: PoolWrites + PoolReads + PoolDeadlines {
    /// Whose pool this storage is; none when it was never registered. Writes nothing.
    async fn stamp(&self) -> Result<Option<Stamp>, StoreError>;

    /// Writes the stamp, durably and in one step, where the storage has none. Returns the one that it has then.
    async fn put_stamp(&self, stamp: Stamp) -> Result<Stamp, StoreError>;

    /// Makes the storage that of a pool, durably. One that has another stamp is refused; the same again is no
    /// change. No driver has an implementation of its own.
    async fn register(&self, stamp: Stamp) -> Result<(), StoreError> {
        stamp.check(self.put_stamp(stamp).await?)
    }

    /// Counts a part of the entries again, where a crash may have left totals wrong, and corrects those. It continues
    /// with the next call until it is done, beside all other work; each call reads a bounded part. A queue that cannot
    /// be read is logged and passed; after an error the next call continues where this one was. A driver that never
    /// keeps totals apart from entries has nothing to count.
    async fn recount(&self) -> Result<Recount, StoreError> {
        Ok(Recount::Done)
    }

    /// The most durable class of writes that the pool can reach.
    fn reach(&self) -> Durability;

    /// Whether the pool can be reached and how it does. Writes nothing.
    async fn health(&self) -> Result<Health, StoreError>;

    /// Whether a batch sent now has a chance. Writes nothing.
    fn check_open(&self) -> Result<(), StoreError>;

    /// The damage that calls have met since the pool was opened; none when they met none. A driver whose servers watch over
    /// what they store knows of none.
    fn damage(&self) -> Option<StoredDamage> {
        None
    }

    /// The same of a batch with new messages: not below the reserve, where the pool can tell without trying.
    fn check_room(&self) -> Result<(), StoreError> {
        self.check_open()
    }
}

/// What the owner of a slot writes to a pool.
#[async_trait]
pub trait PoolWrites: Send + Sync + 'static {
    /// Makes `epoch` the only one that may write to `slot` and begins its numbering. Returns the greatest id that was
    /// ever appended to the slot. An epoch below the stored one is refused; the stored one itself is accepted and
    /// continues with a numbering of its own: a batch of the numbering before is not taken for one of it, however late
    /// it arrives.
    async fn fence(&self, slot: Slot, epoch: Epoch) -> Result<MessageId, StoreError>;

    /// Applies a batch: all or none, on return as durable as it asks for. A batch of another than the stored epoch,
    /// or with another number than the next, changes nothing; the last number again is a success that changes
    /// nothing. Below the reserve a batch with appends is refused, and one without them is not.
    async fn commit(&self, batch: &Batch) -> Result<(), StoreError>;

    /// Removes at most `limit` entries of a queue, and with the last of them all else that it has. It may be
    /// repeated; when it is done nothing of the queue is left. Another than the stored epoch is refused. No batch of
    /// this queue may be under way; other queues of the slot go on.
    async fn drop_queue(
        &self,
        slot: Slot,
        epoch: Epoch,
        queue: QueueId,
        limit: usize,
    ) -> Result<DropResult, StoreError>;
}

/// What a pool shows of a queue, or of all.
#[async_trait]
pub trait PoolReads: Send + Sync + 'static {
    /// Entries of a queue in an order, beyond `after` in the direction (all, when absent): at most `messages` of
    /// them, and no more once their bodies exceed `bytes`. It shows every batch that was acknowledged.
    async fn scan(
        &self,
        queue: QueueId,
        order: Order,
        direction: Direction,
        after: Option<Position>,
        messages: usize,
        bytes: usize,
    ) -> Result<Page, StoreError>;

    /// Entries of a group in order of id and in any state, beyond `after` (all, when absent): at most `messages` of them, and
    /// no more once their bodies exceed `bytes`. It costs what it shows, however many entries of other groups lie between
    /// them.
    async fn group(
        &self,
        queue: QueueId,
        group: &GroupName,
        after: Option<MessageId>,
        messages: usize,
        bytes: usize,
    ) -> Result<Page, StoreError>;

    /// The first entries, in any state, of the groups of a queue that have one, in order of the groups' names, beyond
    /// `after` (all, when absent), at most `limit`. It costs what it shows, however many entries each group has.
    async fn groups(
        &self,
        queue: QueueId,
        after: Option<GroupName>,
        limit: usize,
    ) -> Result<Vec<GroupHead>, StoreError>;

    /// The entries among `ids` that exist, in any state, in the order of `ids`.
    async fn get(&self, queue: QueueId, ids: &[MessageId]) -> Result<Vec<Message>, StoreError>;

    /// How much a queue holds, at the cost of one read.
    async fn totals(&self, queue: QueueId) -> Result<Totals, StoreError>;

    /// Notes of a queue and kind in order of their keys, beyond `after` (all, when absent), at most `limit`.
    async fn notes(
        &self,
        queue: QueueId,
        kind: u8,
        after: Option<Bytes>,
        limit: usize,
    ) -> Result<Vec<Note>, StoreError>;

    /// What all queues hold together. It costs a walk over the queues, not over their entries. Writes nothing.
    async fn usage(&self) -> Result<Usage, StoreError>;
}

/// How a pool finds entries whose time has come.
#[async_trait]
pub trait PoolDeadlines: Send + Sync + 'static {
    /// Headers of a slot, over all its queues, at most `limit`: of what is scheduled for `before` or earlier, the
    /// earliest first; or of what has a life of its own that ends at `before` or earlier, in no order, and in any state but
    /// prepared and moving. A scheduled entry is shown as soon as it is due. An expired one may be shown late by 8 seconds, or by
    /// a thirty-second part of its ttl if that is more. Those that stay where they are do not keep others out for
    /// ever: calls take turns. It costs no walk over entries that live on.
    async fn due(
        &self,
        slot: Slot,
        due: Due,
        before: Timestamp,
        limit: usize,
    ) -> Result<Vec<(QueueId, Header)>, StoreError>;

    /// Headers of a queue that live by its retention, with a base time of `before` or earlier and in any state but
    /// prepared and moving: the earliest base times first, at most `limit`. One may be shown late by 8 seconds. It
    /// costs what it shows, whatever lives on, and in whatever order ids and base times are. Of other queues it passes
    /// over a bounded number of entries; where that ends it before it has found anything, it states where the next look
    /// begins (`from`).
    async fn retained(
        &self,
        queue: QueueId,
        from: Option<RetainedPlace>,
        before: Timestamp,
        limit: usize,
    ) -> Result<RetainedEntries, StoreError>;
}
