//! Deleted queues of a slot: refusing settles before a deletion, closing a queue for it, and when to clean up after
//! deleted queues.

use std::sync::Arc;

use tokio::time::timeout;

use angarium_core::error::{Error, Part};
use angarium_core::ids::{ClaimId, QueueId};
use angarium_core::maps::HashSet;
use angarium_core::mutation::{Mutation, is_on};
use angarium_core::names::QueueRef;
use angarium_core::time::Timestamp;

use crate::limits;
use crate::slot::closed_figures::OpenedContents;
use crate::slot::orphans::OrphanedClaims;
use crate::slot::queue_handle::QueueHandle;
use crate::slot::state::{OpenQueue, Slot};
use crate::writer::change::Change;
use crate::writer::pending::settled;

/// A queue that was taken out of memory: no operation begins in it any more.
pub(crate) struct ClosedOpenQueue(OpenQueue);

impl ClosedOpenQueue {
    /// Waits until all operations that had begun in the queue have ended.
    pub(crate) async fn unused(&self) {
        self.0.uses.wait().await;
    }

    pub(crate) fn claims(&self) -> Vec<ClaimId> {
        self.0.engine.claim_ids().collect()
    }
}

/// While this exists, settles of the queue are refused: none adds a forwarded message to a queue that is being deleted.
pub(crate) struct SettleRefusal {
    queue: QueueHandle,
    /// Whether settles were in progress when it began. None when the queue is not open.
    is_settling: Option<bool>,
}

impl QueueHandle {
    /// Refuses settles of the queue until the result is dropped.
    pub(crate) fn refuse_settles(&self) -> SettleRefusal {
        let is_settling = self.lock_queue(|queue| {
            queue.refuses_settles = true;
            queue.engine.has_settles()
        });
        SettleRefusal { queue: self.clone(), is_settling }
    }
}

impl SettleRefusal {
    /// Whether the pool may have messages in transfer, once the settles that were in progress have an outcome. A queue
    /// that is not open gets no more of them.
    pub(crate) async fn may_have_transfers(&self) -> Result<bool, Error> {
        let Some(is_settling) = self.is_settling else { return Ok(false) };
        if is_settling {
            // Their batches are submitted, and settled before this one.
            let ended =
                timeout(limits::CLOSE_DEADLINE, settled(self.queue.submit(Change::update(Vec::new()))?));
            let late = |_| Err(Error::unavailable(Part::Storage, "a settle has no outcome yet"));
            ended.await.unwrap_or_else(late)?;
        }
        Ok(self.queue.decide(|engine| engine.has_in_transfer()).unwrap_or(false))
    }
}

impl Drop for SettleRefusal {
    fn drop(&mut self) {
        self.queue.lock_queue(|queue| queue.refuses_settles = false);
    }
}

impl Slot {
    /// Closes a queue that is about to be deleted. `contents` are those of a queue that is not open. Claims that wait
    /// for its messages find none from here on.
    pub(crate) fn close_queue(
        self: &Arc<Self>,
        at: &QueueRef,
        id: QueueId,
        contents: OpenedContents,
    ) -> Option<ClosedOpenQueue> {
        let mut state = self.lock();
        let closed = state.close_queue(at, id, contents);
        state.serve(at);
        drop(state);
        // Requests that wait for a change of a claim of the queue find it closed.
        self.changed.notify_waiters();
        closed.map(ClosedOpenQueue)
    }

    /// Records claims of a deleted queue whose records are in the tree.
    pub(crate) fn add_orphans(self: &Arc<Self>, queue: QueueId, claims: Vec<ClaimId>) {
        self.lock().orphans.entry(queue).or_default().extend(claims);
    }

    /// Removes the records of the claims on deleted queues. The slot has the ids of those claims in memory, so it reads
    /// no record.
    pub(crate) async fn clear_orphans(self: &Arc<Self>, queues: &[QueueId]) -> Result<(), Error> {
        if is_on(Mutation::KeepOrphanClaims) {
            return Ok(());
        }
        let orphans = self.lock().take_orphans(queues);
        let claims: Vec<ClaimId> = orphans.iter().flat_map(|orphans| &orphans.claims).copied().collect();
        let outcome = self.around.replica.catalogue.claims_delete(&self.owned, &claims).await;
        let mut state = self.lock();
        if outcome.is_err() {
            // A record that is gone already does no harm at the next try.
            for OrphanedClaims { queue, claims } in orphans {
                state.orphans.entry(queue).or_default().extend(claims);
            }
            return outcome;
        }
        // `clear_spent_claims` counts the spent claims when it removes their records.
        let spent: HashSet<ClaimId> = state.spent.iter().copied().collect();
        let counted = claims.iter().filter(|claim| !spent.contains(claim)).count();
        state.live_claims = state.live_claims.saturating_sub(counted);
        Ok(())
    }

    /// Schedules the cleaning of deleted queues for `at`.
    pub(crate) fn clean_at(self: &Arc<Self>, at: Timestamp) {
        self.lock().next_cleaning = Some(at);
    }

    /// Like [`Slot::clean_at`], unless the cleaning is scheduled for an earlier time.
    pub(crate) fn clean_again_at(self: &Arc<Self>, again: Timestamp) {
        let mut state = self.lock();
        state.next_cleaning = Some(state.next_cleaning.map_or(again, |sooner| sooner.min(again)));
    }

    /// Whether the cleaning of deleted queues is due. If so, the caller must do it.
    pub(crate) fn begin_cleaning(self: &Arc<Self>, now: Timestamp) -> bool {
        self.lock().begin_cleaning(now)
    }

    /// Records the deleted queues of a cleaning: sweeps of expired messages leave them out.
    pub(crate) fn note_dropped(self: &Arc<Self>, queues: &[QueueId]) {
        self.lock().dropped = queues.iter().copied().collect();
    }

    /// Whether the caller must read the contents of a closed queue before it deletes the queue, to keep the figures
    /// right.
    pub(crate) fn may_be_in_remainder(self: &Arc<Self>, at: &QueueRef, id: QueueId) -> bool {
        let state = self.lock();
        !state.queues.contains_key(at) && state.figures.may_be_in_remainder(at, id)
    }

    /// Takes a deleted queue out of the figures.
    pub(crate) fn note_deleted(self: &Arc<Self>, at: &QueueRef) {
        self.lock().figures.progress.deleted(at);
    }
}
