//! Deleted queues: closing one, and cleaning away what it leaves (P4).
//!
//! ```text
//! open ──closed: nothing begins, what is under way ends──▶ one commit: record gone, note there ──▶ deleted
//! note ──pools emptied──▶ claims gone ──▶ note gone
//! ```
//!
//! After the commit the queue is gone for every caller, and another one may have its name, under another id. The note
//! makes sure that its messages and claims go too, no matter which caller owns the slot by then.

use std::collections::HashSet;
use std::sync::Arc;

use tokio::time::timeout;
use tracing::debug;

use super::Broker;
use super::slot::Slot;
use angarium_catalogue::DroppedQueue;
use angarium_core::error::{Error, Part};
use angarium_core::ids::{ClaimId, QueueId};
use angarium_core::limits;
use angarium_core::names::QueueRef;
use angarium_storage::DropResult;

/// Seconds until cleaning that failed is tried again.
const PAUSE: u32 = 5;

impl Broker {
    /// Deletes a queue with all its messages and claims. One that does not exist is deleted already.
    pub async fn queue_delete(&self, at: &QueueRef) -> Result<(), Error> {
        // Nothing is closed in vain.
        self.0.catalogue.check_open()?;
        let (broker, at) = (self.clone(), at.clone());
        let delete = async move {
            // What is on its way into the queue arrives first, or stays where it is.
            let _moves = broker.hold_transfers(&at).await?;
            let slot = broker.slot(&at).await?;
            broker.keep_at_sources(&slot, &at).await?;
            let _gate = slot.queue_gates.hold(&at).await;
            broker.delete_gated(&slot, &at).await
        };
        self.carry_out(delete).await
    }

    /// As [`Broker::queue_delete`], for a caller that holds the gate of the queue: no caller opens or creates it
    /// meanwhile.
    async fn delete_gated(&self, slot: &Arc<Slot>, at: &QueueRef) -> Result<(), Error> {
        let Some(record) = self.0.catalogue.queue(&slot.owned, at).await? else {
            return self.check_ours(slot);
        };
        // No sweep takes it for a queue that no caller has opened.
        let _pools = slot.pool_gates.hold_all(&record.placement()?).await;
        let closed = {
            let mut state = slot.state.lock();
            let closed = state.close_queue(at, record.id);
            // Who waits for messages that are there waits in vain from here on.
            self.serve(slot, &mut state, at);
            closed
        };
        if let Some(queue) = &closed
            && timeout(limits::CLOSE_DEADLINE, queue.uses.wait()).await.is_err()
        {
            slot.lose("a queue was closed with unfinished work");
            return Err(Error::unavailable(Part::Storage, "the unfinished work of the queue does not end"));
        }
        if let Some(queue) = &closed {
            let claims: Vec<ClaimId> = queue.engine.claim_ids().collect();
            slot.state.lock().orphans.entry(record.id).or_default().extend(claims);
        }
        let _roll = slot.roll.lock().await;
        let deleted = self.0.catalogue.queue_delete(&slot.owned, at, &record).await;
        self.0.meter.forget_queue(at);
        slot.state.lock().next_cleaning = Some(self.0.clock.now());
        match &deleted {
            // What is left of it is no caller's any more.
            Ok(()) => {
                self.0.ledger.remove_queue(record.id);
                slot.state.lock().figures.progress.deleted(at);
            }
            // It may be there still, and what memory had of it is gone.
            Err(_) => slot.lose("a queue was closed and perhaps not deleted"),
        }
        deleted
    }

    /// Cleans away what deleted queues leave, no matter which caller deleted them.
    pub(super) async fn clean_dropped(&self) {
        while self.sleep_tick(limits::DROPPED_TICK).await {
            let now = self.0.clock.now();
            for slot in self.0.slot_table.owned() {
                if !slot.state.lock().begin_cleaning(now) {
                    continue;
                }
                let broker = self.clone();
                self.spawn_in(&Arc::clone(&slot), async move { broker.clean_slot(&slot).await });
            }
        }
    }

    /// Cleans a slot. What cannot be cleaned now holds up nothing else, and has its turn again after a pause.
    async fn clean_slot(&self, slot: &Arc<Slot>) {
        if let Err(error) = self.try_clean_slot(slot).await {
            self.task_failed("clean deleted queues", format_args!("slot {}", slot.owned.slot.0), &error);
            let again = self.0.clock.now().plus_seconds(PAUSE);
            let mut state = slot.state.lock();
            state.next_cleaning = Some(state.next_cleaning.map_or(again, |sooner| sooner.min(again)));
        }
    }

    async fn try_clean_slot(&self, slot: &Arc<Slot>) -> Result<(), Error> {
        let dropped = self.0.catalogue.dropped(&slot.owned).await?;
        if dropped.is_empty() {
            return Ok(());
        }
        let ids: Vec<QueueId> = dropped.iter().map(|queue| queue.id).collect();
        slot.state.lock().dropped = ids.iter().copied().collect();
        self.clean_claims(slot, &ids).await?;
        let mut failure = Ok(());
        for queue in dropped {
            match self.empty_pools(slot, &queue).await {
                Ok(()) => {
                    self.0.catalogue.move_tasks_delete(&slot.owned, queue.id).await?;
                    self.0.catalogue.dropped_delete(&slot.owned, queue.id).await?;
                }
                Err(error) => failure = Err(error),
            }
            debug!(slot = slot.owned.slot.0, queue = %queue.id, "deleted queue cleaned");
        }
        failure
    }

    /// Removes the records of the claims on deleted queues. Memory knows which they are, so none is read.
    async fn clean_claims(&self, slot: &Slot, queues: &[QueueId]) -> Result<(), Error> {
        let orphans = slot.state.lock().take_orphans(queues);
        let claims: Vec<ClaimId> = orphans.iter().flat_map(|(_, claims)| claims).copied().collect();
        let deleted = self.0.catalogue.claims_delete(&slot.owned, &claims).await;
        let mut state = slot.state.lock();
        if let Err(error) = deleted {
            // A record that is gone already does no harm at the next try.
            for (queue, claims) in orphans {
                state.orphans.entry(queue).or_default().extend(claims);
            }
            return Err(error);
        }
        // Those that wait to be cleared away are counted when they are.
        let spent: HashSet<ClaimId> = state.spent.iter().copied().collect();
        let counted = claims.iter().filter(|claim| !spent.contains(claim)).count();
        state.live_claims = state.live_claims.saturating_sub(counted);
        Ok(())
    }

    /// Removes what a deleted queue has in its pools, a part at a time.
    async fn empty_pools(&self, slot: &Arc<Slot>, queue: &DroppedQueue) -> Result<(), Error> {
        for name in &queue.placement {
            let pool = self.pool_of_record(name).await?;
            self.open_writer(slot, name, &pool).await?;
            let store = pool.store()?;
            loop {
                // A sweep may be removing messages of it that have expired: one or the other.
                let gate = slot.pool_gates.hold(name).await;
                let dropped = store.drop_queue(slot.owned.slot, slot.epoch, queue.id, limits::DROPPED_TURN);
                let dropped = dropped.await.map_err(|error| store.failed(error))?;
                drop(gate);
                match dropped {
                    DropResult::Done => break,
                    DropResult::More if self.0.stop.is_cancelled() => return Err(stopping()),
                    DropResult::More => tokio::task::yield_now().await,
                }
            }
        }
        Ok(())
    }
}

fn stopping() -> Error {
    Error::Unavailable { part: Part::Server, cause: None }
}
