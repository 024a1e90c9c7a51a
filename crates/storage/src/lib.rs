//! Seam 1, the message pools: storage of headers and bodies, behind the trait [`PoolStore`].
//!
//! A pool has entries for each queue, each in a state: ready entries in order of id, scheduled ones in order of time,
//! kept ones (done or failed) in order of their settlement. The scan of [`Order::Aside`] returns all that are neither
//! ready nor kept. A pool knows nothing of claims, visibility or the tree. The engine decides what an entry means, and
//! no entry changes by itself. Drivers are named once, in [`open`].

#![warn(missing_docs)]

mod batch;
pub mod embedded;
mod extras;
mod header;
pub mod limits;
pub mod merged;
pub mod open;
mod page;
pub mod postgres;
pub mod redis;
mod retained;
mod shared;
mod stamp;
mod tenant;

use async_trait::async_trait;
use bytes::Bytes;
use thiserror::Error as ThisError;

pub use batch::{Batch, Changes, Epoch, Note, QueueChanges, RemoveHint};
pub use page::{
    Correction, Direction, DropResult, Due, GroupHead, Health, Order, Page, Position, Recount, Totals, Usage,
};
pub use retained::{RetainedEntries, RetainedPlace};
pub use shared::is_shareable;
pub use stamp::Stamp;
pub use tenant::Tenant;

use angarium_core::durability::Durability;
use angarium_core::group::GroupName;
use angarium_core::ids::{MessageId, QueueId, Slot};
use angarium_core::message::{Header, Message};
use angarium_core::mutation::{Mutation, is_on};
use angarium_core::time::Timestamp;

/// Reason why a pool did not carry out a call.
#[derive(Debug, ThisError)]
pub enum StoreError {
    /// The storage belongs to another pool. Nothing was written.
    #[error("the storage is stamped as pool {} of installation {}", .0.pool, .0.system)]
    Stamped(Stamp),
    /// No pool was registered in the storage. Nothing was written.
    #[error("its storage was never registered: it is empty, or another one")]
    Unregistered,
    /// A later owner has fenced the slot. Nothing was written.
    #[error("the slot belongs to a later owner ({0:?})")]
    Fenced(Epoch),
    /// The batch is older than the last applied one. This call wrote nothing.
    #[error("the batch follows its successor")]
    Stale,
    /// The pool lacks batches that its owner wrote: it lost its last writes, or it is another pool.
    #[error("the pool went back to an earlier state")]
    WentBack,
    /// The pool has no room for new messages. Nothing was written. The owner may send the same batch without its
    /// appends under the same number (P12).
    #[error("the pool has no room for new messages")]
    Full,
    /// The pool cannot be used now. Nothing was written.
    #[error("the pool is unavailable: {0}")]
    NotSent(String),
    /// The outcome is unknown: the batch may have been applied.
    #[error("the outcome is unknown: {0}")]
    Unknown(String),
    /// The stored data is damaged, so the same call fails again. Nothing was written.
    #[error("{0}")]
    Damaged(String),
}

impl StoreError {
    /// Whether it is certain that nothing was written.
    pub fn nothing_written(&self) -> bool {
        match self {
            Self::Stamped(_)
            | Self::Unregistered
            | Self::Fenced(_)
            | Self::Stale
            | Self::Full
            | Self::NotSent(_)
            | Self::Damaged(_) => true,
            Self::WentBack | Self::Unknown(_) => false,
        }
    }
}

/// Damage of the data of a pool or a tree, as far as calls have found it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredDamage {
    /// Number of calls that failed because of the damage.
    pub reads: u64,
    /// Description for the operator.
    pub text: String,
}

/// The free space of a disk that is below its reserve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shortage {
    /// Free bytes.
    pub free: u64,
    /// Bytes that are kept for deletions, claims and the like.
    pub reserve: u64,
}

/// A storage pool. The conformance suite, which every driver passes, has a test for each sentence below and in the
/// traits that this one consists of.
#[async_trait]
pub trait PoolStore: PoolWrites + PoolReads + PoolDeadlines {
    /// Returns the stamp of the storage; none when it was never registered. Writes nothing.
    async fn stamp(&self) -> Result<Option<Stamp>, StoreError>;

    /// Writes the stamp, durably and in one step, if the storage has none. Returns the stamp that it has after that.
    async fn put_stamp(&self, stamp: Stamp) -> Result<Stamp, StoreError>;

    /// Registers the storage for a pool, durably. A storage with another stamp is refused; one with the same stamp is
    /// not changed. Drivers do not implement this method.
    async fn register(&self, stamp: Stamp) -> Result<(), StoreError> {
        stamp.check(self.put_stamp(stamp).await?)
    }

    /// Checks that the storage is that of a pool: it has the stamp of the pool. Writes nothing, so an empty storage under
    /// the name of a pool is refused (P9). No driver has an implementation of its own.
    async fn verify(&self, stamp: Stamp) -> Result<(), StoreError> {
        let found = self.stamp().await?;
        if is_on(Mutation::IgnoreStamp) {
            return Ok(());
        }
        stamp.check(found.ok_or(StoreError::Unregistered)?)
    }

    /// Returns the record of the process that uses the storage alone, as [`PoolStore::replace_tenant`] has written it; none when
    /// there is none. A storage that one process locks has none.
    async fn tenant(&self) -> Result<Option<String>, StoreError> {
        Ok(None)
    }

    /// Replaces the record of the tenant by `record`, durably and in one step, if it is `found`, and none if that is none.
    /// Returns whether it did. Writes nothing else. A storage that one process locks keeps no record.
    async fn replace_tenant(&self, found: Option<&str>, record: &str) -> Result<bool, StoreError> {
        let _ = (found, record);
        Ok(true)
    }

    /// Counts a bounded part of the entries again, and corrects totals that a crash left wrong. The next call continues
    /// where this one ended, also after an error, until all is counted. Other calls continue meanwhile. A queue that
    /// cannot be read is logged and skipped. A driver that never stores totals apart from entries has nothing to count.
    async fn recount(&self) -> Result<Recount, StoreError> {
        Ok(Recount::Done)
    }

    /// The most durable class of writes that the pool reaches now.
    fn reach(&self) -> Durability;

    /// Reads whether the pool can be reached, and its figures. Writes nothing.
    async fn health(&self) -> Result<Health, StoreError>;

    /// Checks whether a batch that is sent now can succeed, as far as the driver knows without a request. Writes
    /// nothing.
    fn check_open(&self) -> Result<(), StoreError>;

    /// The damage that calls have found since the pool was opened; none when they found none. A driver whose servers
    /// check their data themselves knows of none.
    fn damage(&self) -> Option<StoredDamage> {
        None
    }

    /// The free space, if it is below the reserve; none when it is not, or when the driver knows no reserve.
    fn shortage(&self) -> Option<Shortage> {
        None
    }

    /// Like [`PoolStore::check_open`], for a batch with new messages: also fails below the reserve, if the driver knows
    /// the free space without a request.
    fn check_room(&self) -> Result<(), StoreError> {
        self.check_open()
    }
}

/// The writes of a slot's owner to a pool.
#[async_trait]
pub trait PoolWrites: Send + Sync + 'static {
    /// Makes `epoch` the only epoch that may write to `slot`, and begins a new numbering. Returns the greatest id that
    /// was ever appended to the slot. An epoch below the stored one is refused. The stored epoch itself is accepted and
    /// gets a new numbering: a late batch of the old numbering is never taken for one of the new.
    async fn fence(&self, slot: Slot, epoch: Epoch) -> Result<MessageId, StoreError>;

    /// Applies a batch as a whole or not at all; on return it is as durable as it demands. A batch with another epoch
    /// than the stored one, or another number than the next one, changes nothing. A repetition of the last number
    /// succeeds and changes nothing. Below the reserve a batch with appends is refused, and one without them is
    /// applied.
    async fn commit(&self, batch: &Batch) -> Result<(), StoreError>;

    /// Removes at most `limit` entries of a queue, and together with the last one all its other data. It may be
    /// repeated; when it is done nothing of the queue is left. Another epoch than the stored one is refused. No batch
    /// of this queue may be in progress; other queues of the slot may be written meanwhile.
    async fn drop_queue(
        &self,
        slot: Slot,
        epoch: Epoch,
        queue: QueueId,
        limit: usize,
    ) -> Result<DropResult, StoreError>;
}

/// The reads of a pool, of one queue or of all.
#[async_trait]
pub trait PoolReads: Send + Sync + 'static {
    /// Reads entries of a queue in an order, after `after` in the direction (from the begin, when absent): at most
    /// `messages`, and none after their bodies exceed `bytes`. A page of entries with extras may end earlier, once bodies
    /// and extras exceed `bytes`. The page includes every acknowledged batch.
    async fn scan(
        &self,
        queue: QueueId,
        order: Order,
        direction: Direction,
        after: Option<Position>,
        messages: usize,
        bytes: usize,
    ) -> Result<Page, StoreError>;

    /// Reads entries of a group in order of id, in any state but the kept ones, after `after` (from the begin, when
    /// absent): at most `messages` and `bytes`, like [`PoolReads::scan`]. The cost depends on the returned entries only,
    /// not on the entries of other groups or the kept ones between them.
    async fn group(
        &self,
        queue: QueueId,
        group: &GroupName,
        after: Option<MessageId>,
        messages: usize,
        bytes: usize,
    ) -> Result<Page, StoreError>;

    /// Reads the first entry, in any state but the kept ones, of each group of a queue, in order of the groups' names,
    /// after `after` (from the begin, when absent), at most `limit`. The cost does not depend on the number of entries
    /// of a group, or of kept ones.
    async fn groups(
        &self,
        queue: QueueId,
        after: Option<GroupName>,
        limit: usize,
    ) -> Result<Vec<GroupHead>, StoreError>;

    /// Reads the entries among `ids` that exist, in any state, in the order of `ids`.
    async fn get(&self, queue: QueueId, ids: &[MessageId]) -> Result<Vec<Message>, StoreError>;

    /// Returns whether a queue has an entry, in any state. The answer describes one moment: scans of one order after the
    /// other would miss an entry that changes its state meanwhile. It does not depend on the counts of the totals.
    async fn holds_any(&self, queue: QueueId) -> Result<bool, StoreError>;

    /// Reads the totals of a queue, at the cost of one read.
    async fn totals(&self, queue: QueueId) -> Result<Totals, StoreError>;

    /// Reads notes of a queue and kind in order of their keys, after `after` (from the begin, when absent), at most
    /// `limit`.
    async fn notes(
        &self,
        queue: QueueId,
        kind: u8,
        after: Option<Bytes>,
        limit: usize,
    ) -> Result<Vec<Note>, StoreError>;

    /// Reads the totals of all queues together. The cost is a walk over the queues, not over their entries. Writes
    /// nothing.
    async fn usage(&self) -> Result<Usage, StoreError>;
}

/// The look-ups of a pool for due and expired entries.
#[async_trait]
pub trait PoolDeadlines: Send + Sync + 'static {
    /// Reads headers of a slot, over all its queues, at most `limit`: either those scheduled for `before` or earlier,
    /// the earliest first; or those with a life of their own that ends at `before` or earlier, in no order, and in any
    /// state but prepared and moving. A scheduled entry is returned as soon as it is due. An expired one may be
    /// returned late by 8 seconds, or by a thirty-second part of its ttl if that is more. Entries that are not removed
    /// do not exclude others for ever: each call continues after the last one. The cost does not depend on entries that
    /// have not expired.
    async fn due(
        &self,
        slot: Slot,
        due: Due,
        before: Timestamp,
        limit: usize,
    ) -> Result<Vec<(QueueId, Header)>, StoreError>;

    /// Reads headers of entries that live by queue, with a base time of `before` or earlier, and in any state but
    /// prepared and moving: the earliest base times first, at most `limit`. An entry may be returned late by 8 seconds.
    /// The cost depends on the returned entries only, for any order of ids and base times, and not on entries that have
    /// not expired. A call skips a bounded number of entries of other queues; if it reaches that bound before it finds
    /// an entry, it returns the place where the next call begins (`from`).
    async fn retained(
        &self,
        queue: QueueId,
        from: Option<RetainedPlace>,
        before: Timestamp,
        limit: usize,
    ) -> Result<RetainedEntries, StoreError>;
}
