//! Deleted queues of a slot: closing one, and the list of queues to clean away.

use std::collections::HashSet;
use std::sync::Arc;

use angarium_core::error::Error;
use angarium_core::ids::{ClaimId, QueueId};
use angarium_core::names::QueueRef;
use angarium_core::time::Timestamp;

use crate::slot::closed_figures::OpenedContents;
use crate::slot::orphans::OrphanedClaims;
use crate::slot::state::{OpenQueue, Slot};

/// A queue that was taken out of memory: nothing more begins there.
pub(crate) struct ClosedOpenQueue(OpenQueue);

impl ClosedOpenQueue {
    /// Waits until what was under way in it has ended.
    pub(crate) async fn unused(&self) {
        self.0.uses.wait().await;
    }

    pub(crate) fn claims(&self) -> Vec<ClaimId> {
        self.0.engine.claim_ids().collect()
    }
}

impl Slot {
    /// Closes a queue that is about to be deleted; one that is not open holds `contents`. The claims that wait for messages
    /// that are there wait in vain from here on.
    pub(crate) fn close_queue(
        self: &Arc<Self>,
        at: &QueueRef,
        id: QueueId,
        contents: OpenedContents,
    ) -> Option<ClosedOpenQueue> {
        let mut state = self.lock();
        let closed = state.close_queue(at, id, contents);
        state.serve(at);
        closed.map(ClosedOpenQueue)
    }

    /// Notes claims of a deleted queue whose records are in the tree.
    pub(crate) fn add_orphans(self: &Arc<Self>, queue: QueueId, claims: Vec<ClaimId>) {
        self.lock().orphans.entry(queue).or_default().extend(claims);
    }

    /// Removes the records of the claims on deleted queues. The slot has the ids of the claims in memory, so it reads
    /// no record.
    pub(crate) async fn clear_orphans(self: &Arc<Self>, queues: &[QueueId]) -> Result<(), Error> {
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
        // Records that wait to be cleared away are counted when they are.
        let spent: HashSet<ClaimId> = state.spent.iter().copied().collect();
        let counted = claims.iter().filter(|claim| !spent.contains(claim)).count();
        state.live_claims = state.live_claims.saturating_sub(counted);
        Ok(())
    }

    /// Has deleted queues cleaned away from this time on.
    pub(crate) fn clean_at(self: &Arc<Self>, at: Timestamp) {
        self.lock().next_cleaning = Some(at);
    }

    /// As [`Slot::clean_at`], unless it is to be done sooner.
    pub(crate) fn clean_again_at(self: &Arc<Self>, again: Timestamp) {
        let mut state = self.lock();
        state.next_cleaning = Some(state.next_cleaning.map_or(again, |sooner| sooner.min(again)));
    }

    /// Whether deleted queues are to be cleaned away now; the caller then does so.
    pub(crate) fn begin_cleaning(self: &Arc<Self>, now: Timestamp) -> bool {
        self.lock().begin_cleaning(now)
    }

    /// Notes the deleted queues of a cleaning: nothing is removed from them in any other way.
    pub(crate) fn note_dropped(self: &Arc<Self>, queues: &[QueueId]) {
        self.lock().dropped = queues.iter().copied().collect();
    }

    /// Whether what a closed queue holds is to be read before it is deleted, for the pages of figures.
    pub(crate) fn may_be_in_remainder(self: &Arc<Self>, at: &QueueRef, id: QueueId) -> bool {
        let state = self.lock();
        !state.queues.contains_key(at) && state.figures.may_be_in_remainder(at, id)
    }

    /// Counts a queue that was deleted, for the pages of figures.
    pub(crate) fn note_deleted(self: &Arc<Self>, at: &QueueRef) {
        self.lock().figures.progress.deleted(at);
    }
}
