//! Claims of queues that do not exist any more: their records are in the tree until they are removed.

use angarium_core::ids::{ClaimId, QueueId};

use crate::slot::state::SlotState;

/// Claims of a deleted queue.
pub(crate) struct OrphanedClaims {
    pub(crate) queue: QueueId,
    pub(crate) claims: Vec<ClaimId>,
}

impl SlotState {
    /// Marks a claim as spent because its queue does not exist any more: it has no message to release.
    pub(crate) fn spend_orphan(&mut self, claim: ClaimId) {
        for claims in self.unopened.values_mut() {
            let before = claims.len();
            claims.retain(|(id, _)| *id != claim);
            if claims.len() < before {
                self.spent.push(claim);
            }
        }
        self.unopened.retain(|_, claims| !claims.is_empty());
    }

    /// Records a claim that may have a record in the tree, of a queue that was closed for its deletion meanwhile. The
    /// record is to be removed.
    pub(crate) fn note_orphan(&mut self, claim: ClaimId) {
        self.live_claims += 1;
        self.spent.push(claim);
    }

    /// Records a claim of a queue that was closed meanwhile. Its record is removed when the queue has been deleted.
    pub(crate) fn note_orphan_of(&mut self, queue: QueueId, claim: ClaimId) {
        self.live_claims += 1;
        self.orphans.entry(queue).or_default().push(claim);
    }

    /// Takes the claims of deleted queues whose records may be in the tree. Memory has all of them: older ones were
    /// read when the slot was acquired.
    pub(crate) fn take_orphans(&mut self, queues: &[QueueId]) -> Vec<OrphanedClaims> {
        let mut taken = Vec::new();
        for &queue in queues {
            let mut claims = self.orphans.remove(&queue).unwrap_or_default();
            let unopened = self.unopened.remove(&queue).unwrap_or_default();
            claims.extend(unopened.into_iter().map(|(claim, _)| claim));
            if !claims.is_empty() {
                taken.push(OrphanedClaims { queue, claims });
            }
        }
        taken
    }
}
