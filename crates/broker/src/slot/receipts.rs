//! Receipts of SQS: the slot's steps for the handles of received messages.

use std::collections::BTreeSet;
use std::sync::Arc;

use angarium_core::error::Error;
use angarium_core::ids::MessageId;
use angarium_core::names::QueueRef;
use angarium_core::receipt::Receipt;
use angarium_core::time::Timestamp;
use angarium_engine::ReceiptStatus;

use crate::slot::delete::DeleteStart;
use crate::slot::queue_handle::QueueHandle;
use crate::slot::state::Slot;
use crate::writer::change::Change;
use crate::writer::pending::WriteOutcome;

/// Claimed messages whose removal has begun.
pub(crate) struct ClaimedRemoval {
    pub(crate) ids: BTreeSet<MessageId>,
    /// None when there is no such message.
    pub(crate) outcome: Option<WriteOutcome>,
}

impl QueueHandle {
    /// Begins to remove those of these messages that are claimed, all in one change. In an ordered queue a message also
    /// needs a receipt that still holds.
    pub(crate) fn remove_claimed<'a>(
        &self,
        asked: impl Iterator<Item = &'a Receipt>,
        now: Timestamp,
    ) -> Result<ClaimedRemoval, Error> {
        let mut state = self.slot.lock();
        let engine = &mut state.queue_mut(&self.at, self.id).ok_or_else(|| self.closed())?.engine;
        let mut ids = BTreeSet::new();
        for Receipt { message, attempt, received, .. } in asked {
            let is_good = !engine.is_ordered()
                || matches!(engine.worth(*message, *attempt, *received, now), ReceiptStatus::Holds(_));
            if is_good && engine.begin_remove_claimed(*message) {
                ids.insert(*message);
            }
        }
        if ids.is_empty() {
            return Ok(ClaimedRemoval { ids, outcome: None });
        }
        let outcome = state.submit(&self.at, Change::remove(ids.iter().copied().collect()))?;
        Ok(ClaimedRemoval { ids, outcome: Some(outcome) })
    }

    /// Begins to remove a message that was received. Returns none while the message is being claimed.
    pub(crate) fn remove_received(
        &self,
        id: MessageId,
        now: Timestamp,
    ) -> Result<Option<DeleteStart>, Error> {
        let mut state = self.slot.lock();
        let queue = state.queue_mut(&self.at, self.id).ok_or_else(|| self.closed())?;
        match queue.engine.begin_remove_received(id, now)? {
            Some(removal) => state.submit_removal(&self.at, id, removal).map(Some),
            None => Ok(None),
        }
    }
}

impl Slot {
    /// Number of messages under claims in a queue; 0 when it is not open.
    pub(crate) fn claimed_in(self: &Arc<Self>, at: &QueueRef) -> u64 {
        self.lock().queues.get(at).map_or(0, |queue| queue.engine.claimed())
    }

    /// Whether a queue has a policy. True also for a queue that is not open: memory does not know.
    pub(crate) fn may_have_policy(self: &Arc<Self>, at: &QueueRef) -> bool {
        self.lock().queues.get(at).is_none_or(|queue| queue.attributes.has_policy)
    }
}
