//! Deletion of queues: closing a queue, and removing its data (P4).
//!
//! ```text
//! open ──forwards have left, closed: nothing begins, operations in progress end──▶ one commit: record gone, note there ──▶ deleted
//! note ──pools emptied──▶ claims gone ──▶ note gone
//! ```
//!
//! Messages that a settle has forwarded or moved leave first; while they cannot, the deletion is refused. A deletion
//! that discards them needs no pool that answers. After the commit the queue is gone for every caller, and a new queue
//! may have its name, under another id. The note makes sure that its messages and claims are removed too, by any later
//! owner of the slot.

use std::sync::Arc;

use tokio::time::{Instant, timeout, timeout_at};
use tracing::{debug, info, warn};

use angarium_catalogue::{DroppedQueue, HeldRecords, QueueRecord, Schema};
use angarium_core::error::{Error, Part};
use angarium_core::ids::{MessageId, QueueId};
use angarium_core::maps::HashSet;
use angarium_core::mutation::{Mutation, is_on};
use angarium_core::names::{PoolName, QueueRef};
use angarium_core::subscription::Subscriber;
use angarium_storage::DropResult;

use crate::limits;
use crate::open_queues::copies::WaitingCopies;
use crate::queues::Queues;
use crate::slot::cleaning::SettleRefusal;
use crate::slot::closed_figures::OpenedContents;
use crate::slot::slot_queue::SlotQueue;
use crate::slot::state::Slot;
use crate::stores::is_of_storage;
use crate::stores::table::NamedStore;
use crate::transfer::sources::{LeavingForwards, QueueTransfers, is_forward};

/// Pause before failed cleaning is tried again, in seconds.
const PAUSE: u32 = 5;

/// The fate of forwarded messages that have not left a queue when it is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Forwards {
    /// The deletion waits for them, and is refused while they cannot leave.
    Awaited,
    /// They are deleted with the queue, and their number is logged. The pool of the queue need not be reachable.
    Discarded,
}

impl Forwards {
    /// Returns what was read in the pools of a queue; none when they cannot be read and its messages are discarded.
    async fn read<T>(self, read: impl Future<Output = Result<T, Error>>) -> Result<Option<T>, Error> {
        let read = match self {
            Self::Awaited => read.await,
            Self::Discarded => match timeout(limits::LEAVE_READ, read).await {
                Ok(read) => read,
                Err(_) => return Ok(None),
            },
        };
        match read {
            Ok(read) => Ok(Some(read)),
            Err(error) if self == Self::Discarded && is_of_storage(&error, |_| true) => {
                debug!(%error, "pool of a queue not read");
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

/// Result of an attempt to delete a queue.
enum DeletionAttempt {
    /// There is no such queue any more.
    Deleted,
    /// Nothing has changed: these forwarded messages have not left the queue.
    Waits(SlotQueue, Vec<MessageId>),
}

impl Queues {
    /// Deletes a queue with all its messages and claims. It is no error when the queue does not exist.
    ///
    /// # Errors
    ///
    /// Busy, with nothing changed, when forwarded messages are awaited and cannot leave the queue.
    pub(crate) async fn queue_delete(&self, at: &QueueRef, forwards: Forwards) -> Result<(), Error> {
        self.queue_delete_by(at, forwards, Instant::now() + limits::FORWARDS_LEAVE).await
    }

    /// As `queue_delete`, with a time until which forwarded messages are awaited.
    pub(crate) async fn queue_delete_by(
        &self,
        at: &QueueRef,
        forwards: Forwards,
        end: Instant,
    ) -> Result<(), Error> {
        // The queue is not closed when the commit cannot succeed.
        self.0.replica.catalogue.check_open()?;
        let (queues, at) = (self.clone(), at.clone());
        let delete = async move {
            loop {
                match queues.try_delete(&at, forwards).await? {
                    DeletionAttempt::Deleted => return Ok(()),
                    DeletionAttempt::Waits(queue, left) => queues.await_forwards(&queue, &left, end).await?,
                }
            }
        };
        self.0.replica.carry_out(delete).await
    }

    async fn try_delete(&self, at: &QueueRef, forwards: Forwards) -> Result<DeletionAttempt, Error> {
        // Messages in transfer into the queue arrive first, or stay in their source queue.
        let _moves = self.0.slots.hold_transfers(at).await?;
        let queue = self.0.slots.queue(at).await?;
        // None when forwards are discarded and the pool cannot be read.
        let left = forwards.read(self.find_transfers(&queue)).await?;
        if let Some(transfers) = &left {
            self.0.transfers.keep_at_sources(&queue, transfers).await?;
        }
        let left = left.map(|transfers| transfers.forwards);
        if forwards == Forwards::Awaited && left.as_ref().is_some_and(|left| !left.is_empty()) {
            return Ok(DeletionAttempt::Waits(queue, left.unwrap_or_default()));
        }
        let _gate = match forwards {
            Forwards::Awaited => queue.hold_gate().await,
            Forwards::Discarded => queue.hold_gate_soon().await?,
        };
        let _placement = match forwards {
            Forwards::Awaited => queue.hold_placement().await,
            Forwards::Discarded => queue.hold_placement_soon().await?,
        };
        let Some(record) = queue.record().await? else {
            self.0.open_queues.check_missing(&queue).await?;
            return self.0.slots.check_ours(queue.slot()).map(|()| DeletionAttempt::Deleted);
        };
        // From here on no settle adds a forward.
        let refusal = queue.with_id(record.id).refuse_settles();
        let found = match left {
            Some(left) => forwards.read(self.find_forwards(&queue, &record, &refusal, &left)).await?,
            None => None,
        };
        if forwards == Forwards::Awaited && found.as_ref().is_some_and(|found| found.count > 0) {
            return Ok(DeletionAttempt::Waits(queue, found.unwrap_or_default().first));
        }
        // The gates keep a sweep from taking it for a queue that is merely closed.
        let placement = record.placement()?;
        let _pools = match forwards {
            Forwards::Awaited => queue.slot().pool_gates.hold_all(&placement).await,
            Forwards::Discarded => queue.hold_pools_soon(&placement).await?,
        };
        let copies = self.delete_gated(&queue, &record).await?;
        let (project, name) = (&at.project, &at.name);
        if copies.is_none_or(|copies| copies.messages > 0) {
            let (messages, in_transfer) = copies.map(|copies| (copies.messages, copies.in_transfer)).unzip();
            info!(%project, queue = %name, messages, in_transfer, "copies discarded with their queue");
        }
        match found {
            Some(LeavingForwards { count: 0, .. }) => {}
            Some(found) => {
                warn!(%project, queue = %name, messages = found.count, "forwarded messages discarded");
            }
            None => warn!(%project, queue = %name, "queue deleted without reading its pool"),
        }
        Ok(DeletionAttempt::Deleted)
    }

    /// Whether a settle has forwarded or moved messages of a queue that have not left it, as far as its pool answers.
    async fn has_forwards(&self, at: &QueueRef) -> Result<bool, Error> {
        let queue = self.0.slots.queue(at).await?;
        let found = Forwards::Discarded.read(self.find_transfers(&queue)).await?;
        Ok(found.is_some_and(|transfers| !transfers.forwards.is_empty()))
    }

    async fn find_transfers(&self, queue: &SlotQueue) -> Result<QueueTransfers, Error> {
        match queue.record().await? {
            Some(record) => self.0.transfers.transfers_of(queue, &record).await,
            None => Ok(QueueTransfers::default()),
        }
    }

    /// Returns the forwarded messages that have not left a queue whose settles are refused. `left` are some of them.
    async fn find_forwards(
        &self,
        queue: &SlotQueue,
        record: &QueueRecord,
        refusal: &SettleRefusal,
        left: &[MessageId],
    ) -> Result<LeavingForwards, Error> {
        if refusal.may_have_transfers().await? || !left.is_empty() {
            return self.0.transfers.forwards_of(queue, record).await;
        }
        Ok(LeavingForwards::default())
    }

    /// Waits until some forwarded messages have left their queue, or until `end`.
    async fn await_forwards(&self, queue: &SlotQueue, left: &[MessageId], end: Instant) -> Result<(), Error> {
        let leave = async {
            let Some(open) = self.0.open_queues.open(queue).await? else { return Ok(()) };
            // A target that could not be reached is tried again at once.
            open.start_mover();
            loop {
                let found = open.store()?.get(open.id(), left).await?;
                if !found.iter().any(|message| is_forward(&message.header)) {
                    return Ok(());
                }
                tokio::time::sleep(limits::FORWARDS_CHECK).await;
            }
        };
        let why = "forwarded messages have not left the queue, because their targets cannot take them: try again later, or \
                   discard them with ?force=true";
        timeout_at(end, leave).await.unwrap_or(Err(Error::Busy(why)))
    }

    /// Deletes the queue of a record. The caller holds the gate of the queue and those of its pools: no other caller opens
    /// or creates it meanwhile. Returns the number of copies that end with its subscriptions; none when they cannot be
    /// counted.
    async fn delete_gated(
        &self,
        queue: &SlotQueue,
        record: &QueueRecord,
    ) -> Result<Option<WaitingCopies>, Error> {
        let (slot, at) = (queue.slot(), queue.at());
        let contents = self.closed_contents(queue, record).await;
        let closed = slot.close_queue(at, record.id, contents);
        if let Some(queue) = &closed
            && !is_on(Mutation::DeleteQueueInUse)
            && timeout(limits::CLOSE_DEADLINE, queue.unused()).await.is_err()
        {
            slot.lose("a queue was closed with unfinished work");
            return Err(Error::unavailable(Part::Storage, "the unfinished work of the queue does not end"));
        }
        if let Some(queue) = &closed {
            slot.add_orphans(record.id, queue.claims());
        }
        let copies = self.0.open_queues.count_copies(queue, record, &record.placement()?).await;
        let _roll = slot.roll.lock().await;
        let held = HeldRecords { queue: slot.has_hold(at), groups: slot.has_group_holds(at) };
        let deleted = self.0.replica.catalogue.queue_delete(&slot.owned, at, record, held).await;
        self.0.replica.meter.forget_queue(at);
        slot.clean_at(self.0.replica.clock.now());
        match &deleted {
            // No caller can reach the remaining data any more.
            Ok(()) => {
                self.0.ledger.remove_queue(record.id);
                slot.forget_hold(at);
                slot.forget_group_holds(at);
                slot.note_deleted(at);
            }
            // The queue may still exist, and its state in memory is gone.
            Err(_) => slot.lose("a queue was closed and perhaps not deleted"),
        }
        deleted.map(|()| copies)
    }

    /// Returns the contents of a closed queue that is about to be deleted, as far as the figures of its slot need them.
    async fn closed_contents(&self, queue: &SlotQueue, record: &QueueRecord) -> OpenedContents {
        let slot = queue.slot();
        if !slot.may_be_in_remainder(queue.at(), record.id) {
            return OpenedContents::Unsure;
        }
        let Ok(placement) = record.placement() else { return OpenedContents::Unsure };
        let read =
            timeout(limits::COUNTING_WAIT, self.0.open_queues.read_closed(slot, record.id, &placement));
        match read.await {
            Ok(Ok(read)) if placement.older.is_none() => OpenedContents::Read(read.contents),
            _ => OpenedContents::Unsure,
        }
    }

    /// Removes the data of deleted queues, also of queues that an earlier owner deleted.
    pub(crate) async fn clean_dropped(&self) {
        while self.0.replica.sleep_tick(limits::DROPPED_TICK).await {
            let now = self.0.replica.clock.now();
            for slot in self.0.slots.owned() {
                if slot.begin_cleaning(now) {
                    let cleaning = SlotCleaning { queues: self.clone(), slot: Arc::clone(&slot) };
                    slot.spawn(async move { cleaning.run().await });
                }
            }
        }
    }
}

/// Removal of the data of deleted queues of a slot.
struct SlotCleaning {
    queues: Queues,
    slot: Arc<Slot>,
}

impl SlotCleaning {
    /// Cleans the slot. A queue that cannot be cleaned now delays no other, and is cleaned again after a pause.
    async fn run(&self) {
        if let Err(error) = self.clean().await {
            let (replica, slot) = (&self.queues.0.replica, &self.slot);
            replica.task_failed("clean deleted queues", format_args!("slot {}", slot.owned.slot.0), &error);
            slot.clean_again_at(replica.clock.now().plus_seconds(PAUSE));
        }
    }

    async fn clean(&self) -> Result<(), Error> {
        let (catalogue, slot) = (&self.queues.0.replica.catalogue, &self.slot);
        let dropped = catalogue.dropped(&slot.owned).await?;
        if dropped.is_empty() {
            return Ok(());
        }
        let ids: Vec<QueueId> = dropped.iter().map(|queue| queue.id).collect();
        slot.note_dropped(&ids);
        slot.clear_orphans(&ids).await?;
        let (mut failure, mut gone) = (Ok(()), HashSet::default());
        for queue in dropped {
            if let Err(error) = self.delete_subscriptions(&queue).await {
                failure = Err(error);
                continue;
            }
            match self.empty_pools(&queue, &mut gone).await {
                Ok(()) => {
                    catalogue.move_tasks_delete(&slot.owned, queue.id).await?;
                    catalogue.dropped_delete(&slot.owned, queue.id).await?;
                }
                Err(error) => failure = Err(error),
            }
            debug!(slot = slot.owned.slot.0, queue = %queue.id, "deleted queue cleaned");
        }
        failure
    }

    /// Deletes the subscriptions of a deleted queue. A queue of the same name that was created since keeps its own. What
    /// consumers of `pull:` have forwarded leaves first: for all of them together as long as one deletion waits.
    async fn delete_subscriptions(&self, queue: &DroppedQueue) -> Result<(), Error> {
        let Some(at) = queue.source.as_ref().filter(|_| !is_on(Mutation::ForgetDroppedSubscriptions)) else {
            return Ok(());
        };
        let (catalogue, end) = (&self.queues.0.replica.catalogue, Instant::now() + limits::FORWARDS_LEAVE);
        for subscription in catalogue.subscriptions(&self.slot.owned, at, queue.id).await? {
            let own = at.of_subscription(subscription.id);
            let is_pulled = matches!(subscription.subscriber, Subscriber::Pull(_));
            if is_pulled && Instant::now() < end && self.delete_without_forwards(&own).await? {
                continue;
            }
            self.queues.queue_delete(&own, Forwards::Discarded).await?;
        }
        Ok(())
    }

    /// Deletes a queue with forwarded messages once they have left. Returns false, with nothing changed, when it has none
    /// or when they cannot leave.
    async fn delete_without_forwards(&self, at: &QueueRef) -> Result<bool, Error> {
        if !self.queues.has_forwards(at).await? {
            return Ok(false);
        }
        match self.queues.queue_delete(at, Forwards::Awaited).await {
            Ok(()) => Ok(true),
            Err(Error::Busy(_)) => Ok(false),
            Err(error) if is_of_storage(&error, |_| true) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Removes the data of a deleted queue from its pools, a part at a time. Pools that were removed with the messages in
    /// them are added to `gone`.
    async fn empty_pools(&self, queue: &DroppedQueue, gone: &mut HashSet<PoolName>) -> Result<(), Error> {
        let (parts, slot) = (&self.queues.0, &self.slot);
        for name in &queue.placement {
            if gone.contains(name) || is_on(Mutation::SkipCleaningOfPools) {
                continue;
            }
            if parts.pools.is_lost(name) {
                return Err(Error::unavailable(Part::Pool(name.clone()), "it is being removed"));
            }
            let Some(pool) = parts.pools.pool_of_deleted(name).await? else {
                gone.insert(name.clone());
                continue;
            };
            slot.open_writer(name, &pool).await?;
            let store = pool.store()?;
            let shares = self.may_share_bodies(&store, queue.id).await;
            let emptied = self.empty_pool(&store, queue.id).await;
            if shares {
                // Also after a failure: a part may be removed.
                slot.enter(|ledger| ledger.make_lenders_stale(slot.owned.slot, slot.epoch));
            }
            emptied?;
        }
        Ok(())
    }

    /// Whether a deleted queue may have shared bodies in a pool. The removal of its copies changes what their source
    /// counts in the quota, and the record that names the source is gone.
    async fn may_share_bodies(&self, store: &NamedStore, queue: QueueId) -> bool {
        if !self.queues.0.replica.catalogue.is_in_force(Schema::SHARED_BODIES) {
            return false;
        }
        match store.totals(queue).await {
            Ok(totals) => totals.shared > 0,
            Err(_) => true,
        }
    }

    /// Removes the data of a deleted queue from one pool, a part at a time.
    async fn empty_pool(&self, store: &NamedStore, queue: QueueId) -> Result<(), Error> {
        let slot = &self.slot;
        loop {
            // A sweep may be removing expired messages of the queue: the gate admits one of the two.
            let gate = slot.pool_gates.hold(store.name()).await;
            let dropped = store.drop_queue(slot.owned.slot, slot.epoch, queue, limits::dropped_turn());
            let dropped = dropped.await.map_err(|error| store.failed(error))?;
            drop(gate);
            match dropped {
                DropResult::Done => return Ok(()),
                DropResult::More if self.queues.0.replica.stop.is_cancelled() => return Err(stopping()),
                DropResult::More => tokio::task::yield_now().await,
            }
        }
    }
}

pub(crate) fn stopping() -> Error {
    Error::Unavailable { part: Part::Server, cause: None }
}
