//! Deleted queues: closing one, and cleaning away what it leaves (P4).
//!
//! ```text
//! open ──closed: nothing begins, what is under way ends──▶ one commit: record gone, note there ──▶ deleted
//! note ──pools emptied──▶ claims gone ──▶ note gone
//! ```
//!
//! After the commit the queue is gone for every caller, and another one may have its name, under another id. The note
//! makes sure that its messages and claims go too, no matter which caller owns the slot by then.

use crate::queues::Queues;
use std::sync::Arc;

use tokio::time::timeout;
use tracing::debug;

use crate::limits;
use crate::slot::slot_queue::SlotQueue;
use crate::slot::state::Slot;
use angarium_catalogue::DroppedQueue;
use angarium_core::error::{Error, Part};
use angarium_core::ids::{ClaimId, QueueId};
use angarium_core::names::QueueRef;
use angarium_storage::DropResult;

/// Seconds until cleaning that failed is tried again.
const PAUSE: u32 = 5;

impl Queues {
    /// Deletes a queue with all its messages and claims. One that does not exist is deleted already.
    pub async fn queue_delete(&self, at: &QueueRef) -> Result<(), Error> {
        // Nothing is closed in vain.
        self.0.replica.catalogue.check_open()?;
        let (queues, at) = (self.clone(), at.clone());
        let delete = async move {
            // What is on its way into the queue arrives first, or stays where it is.
            let _moves = queues.0.slots.hold_transfers(&at).await?;
            let queue = queues.0.slots.queue(&at).await?;
            queues.0.transfers.keep_at_sources(&queue).await?;
            let _gate = queue.hold_gate().await;
            queues.delete_gated(&queue).await
        };
        self.0.replica.carry_out(delete).await
    }

    /// As `queue_delete`, for a caller that holds the gate of the queue: no caller opens or creates it
    /// meanwhile.
    async fn delete_gated(&self, queue: &SlotQueue) -> Result<(), Error> {
        let (slot, at) = (queue.slot(), queue.at());
        let Some(record) = queue.record().await? else {
            return self.0.slots.check_ours(slot);
        };
        // No sweep takes it for a queue that no caller has opened.
        let _pools = slot.pool_gates.hold_all(&record.placement()?).await;
        let closed = slot.close_queue(at, record.id);
        if let Some(queue) = &closed
            && timeout(limits::CLOSE_DEADLINE, queue.unused()).await.is_err()
        {
            slot.lose("a queue was closed with unfinished work");
            return Err(Error::unavailable(Part::Storage, "the unfinished work of the queue does not end"));
        }
        if let Some(queue) = &closed {
            slot.add_orphans(record.id, queue.claims());
        }
        let _roll = slot.roll.lock().await;
        let deleted = self.0.replica.catalogue.queue_delete(&slot.owned, at, &record).await;
        self.0.replica.meter.forget_queue(at);
        slot.clean_at(self.0.replica.clock.now());
        match &deleted {
            // What is left of it is no caller's any more.
            Ok(()) => {
                self.0.ledger.remove_queue(record.id);
                slot.note_deleted(at);
            }
            // It may be there still, and what memory had of it is gone.
            Err(_) => slot.lose("a queue was closed and perhaps not deleted"),
        }
        deleted
    }

    /// Cleans away what deleted queues leave, no matter which caller deleted them.
    pub(crate) async fn clean_dropped(&self) {
        while self.0.replica.sleep_tick(limits::DROPPED_TICK).await {
            let now = self.0.replica.clock.now();
            for slot in self.0.slots.owned() {
                if slot.begin_cleaning(now) {
                    let (queues, on) = (self.clone(), Arc::clone(&slot));
                    slot.spawn(async move { queues.clean_slot(&on).await });
                }
            }
        }
    }

    /// Cleans a slot. What cannot be cleaned now holds up nothing else, and has its turn again after a pause.
    async fn clean_slot(&self, slot: &Arc<Slot>) {
        if let Err(error) = self.try_clean_slot(slot).await {
            self.0.replica.task_failed(
                "clean deleted queues",
                format_args!("slot {}", slot.owned.slot.0),
                &error,
            );
            let again = self.0.replica.clock.now().plus_seconds(PAUSE);
            slot.clean_again_at(again);
        }
    }

    async fn try_clean_slot(&self, slot: &Arc<Slot>) -> Result<(), Error> {
        let dropped = self.0.replica.catalogue.dropped(&slot.owned).await?;
        if dropped.is_empty() {
            return Ok(());
        }
        let ids: Vec<QueueId> = dropped.iter().map(|queue| queue.id).collect();
        slot.note_dropped(&ids);
        self.clean_claims(slot, &ids).await?;
        let mut failure = Ok(());
        for queue in dropped {
            match self.empty_pools(slot, &queue).await {
                Ok(()) => {
                    self.0.replica.catalogue.move_tasks_delete(&slot.owned, queue.id).await?;
                    self.0.replica.catalogue.dropped_delete(&slot.owned, queue.id).await?;
                }
                Err(error) => failure = Err(error),
            }
            debug!(slot = slot.owned.slot.0, queue = %queue.id, "deleted queue cleaned");
        }
        failure
    }

    /// Removes the records of the claims on deleted queues. Memory knows which they are, so none is read.
    async fn clean_claims(&self, slot: &Arc<Slot>, queues: &[QueueId]) -> Result<(), Error> {
        let orphans = slot.take_orphans(queues);
        let claims: Vec<ClaimId> = orphans.iter().flat_map(|(_, claims)| claims).copied().collect();
        if let Err(error) = self.0.replica.catalogue.claims_delete(&slot.owned, &claims).await {
            // A record that is gone already does no harm at the next try.
            slot.return_orphans(orphans);
            return Err(error);
        }
        slot.orphans_cleared(&claims);
        Ok(())
    }

    /// Removes what a deleted queue has in its pools, a part at a time.
    async fn empty_pools(&self, slot: &Arc<Slot>, queue: &DroppedQueue) -> Result<(), Error> {
        for name in &queue.placement {
            let pool = self.0.pools.pool_of_record(name).await?;
            slot.open_writer(name, &pool).await?;
            let store = pool.store()?;
            loop {
                // A sweep may be removing messages of it that have expired: one or the other.
                let gate = slot.pool_gates.hold(name).await;
                let dropped = store.drop_queue(slot.owned.slot, slot.epoch, queue.id, limits::DROPPED_TURN);
                let dropped = dropped.await.map_err(|error| store.failed(error))?;
                drop(gate);
                match dropped {
                    DropResult::Done => break,
                    DropResult::More if self.0.replica.stop.is_cancelled() => return Err(stopping()),
                    DropResult::More => tokio::task::yield_now().await,
                }
            }
        }
        Ok(())
    }
}

pub(crate) fn stopping() -> Error {
    Error::Unavailable { part: Part::Server, cause: None }
}
