//! The state of a queue at its slot for an explanation, read in one step under the lock. It counts as no claim, and leaves
//! the ready cache, the failure of the last read and all counters as they are.

use std::sync::Arc;

use angarium_catalogue::Placement;
use angarium_core::error::Error;
use angarium_core::group::GroupName;
use angarium_core::ids::MessageId;
use angarium_core::names::{QueueName, QueueRef};
use angarium_core::time::Timestamp;
use angarium_engine::{MessageFacts, QueueFacts};

use crate::slot::queue_handle::QueueHandle;
use crate::slot::slot_queue::SlotQueue;
use crate::slot::state::{OpenQueue, Slot};
use crate::slot::transfer_targets::TransferTarget;
use crate::stores::read_failure::ReadFailure;

/// An open queue at one moment.
pub(crate) struct QueueMoment {
    pub(crate) placement: Placement,
    pub(crate) facts: QueueFacts,
    /// Where its dead letters go, if they may go anywhere.
    pub(crate) dead_letter_queue: Option<QueueName>,
    /// Why the last page could not be read.
    pub(crate) read_failure: Option<ReadFailure>,
    pub(crate) targets: Vec<TransferTarget>,
    /// Number of deduplication ids that it remembers.
    pub(crate) dedup_ids: usize,
    pub(crate) claim_refusal: Option<ClaimRefusal>,
}

/// A claim that was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimRefusal {
    /// When.
    pub at: Timestamp,
    /// The code of its error.
    pub code: &'static str,
    /// The text of its error, as its client got it.
    pub why: String,
}

/// A message of an open queue at one moment.
pub(crate) struct MessageMoment {
    pub(crate) facts: MessageFacts,
    /// Where it becomes a dead letter, if it may.
    pub(crate) dead_letter_queue: Option<QueueName>,
    /// Why it could not leave for its target.
    pub(crate) transfer_refusal: Option<String>,
}

/// The load of a slot, for the bounds of its queues.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlotLoad {
    /// Claims of all queues of the slot.
    pub(crate) claims: usize,
    /// Claims that wait for the queue.
    pub(crate) queue_waiters: usize,
    /// Claims that wait for any queue of the slot.
    pub(crate) slot_waiters: usize,
}

impl QueueHandle {
    /// Returns the queue as it is now. Fails when the queue is closed.
    pub(crate) fn moment(&self, now: Timestamp) -> Result<QueueMoment, Error> {
        let state = self.slot.lock();
        let queue = state.queue(&self.at, self.id).ok_or_else(|| self.closed())?;
        Ok(QueueMoment {
            placement: queue.placement.clone(),
            facts: queue.engine.facts(now),
            dead_letter_queue: queue.other_dead_letter_queue(&self.at),
            read_failure: queue.pool_failed.clone(),
            targets: queue.targets.clone(),
            dedup_ids: queue.engine.dedup_count(),
            claim_refusal: queue.claim_refusal.clone(),
        })
    }
}

impl QueueHandle {
    /// Returns a message of the queue as it is now, by its id, its group, and the queue that it is in transfer to. Fails
    /// when the queue is closed.
    pub(crate) fn message_moment(
        &self,
        id: MessageId,
        group: Option<&GroupName>,
        target: Option<&QueueName>,
        now: Timestamp,
    ) -> Result<MessageMoment, Error> {
        let state = self.slot.lock();
        let queue = state.queue(&self.at, self.id).ok_or_else(|| self.closed())?;
        let own = target.and_then(|target| queue.targets.iter().find(|other| other.at.name == *target));
        Ok(MessageMoment {
            facts: queue.engine.message_facts(id, group, now),
            dead_letter_queue: queue.other_dead_letter_queue(&self.at),
            transfer_refusal: own.and_then(|target| target.why.clone()),
        })
    }
}

impl OpenQueue {
    /// Returns the queue that receives its dead letters, if it is another one.
    fn other_dead_letter_queue(&self, at: &QueueRef) -> Option<QueueName> {
        let target = self.dead_letter_target(at).filter(|target| target != at)?;
        Some(target.name)
    }
}

impl SlotQueue {
    /// Notes that a claim of the queue was refused, if the queue is open.
    pub(crate) fn note_claim_refusal(&self, error: &Error, at: Timestamp) {
        if let Some(queue) = self.slot().lock().queues.get_mut(self.at()) {
            queue.claim_refusal = Some(ClaimRefusal { at, code: error.code(), why: error.to_string() });
        }
    }
}

impl Slot {
    /// Returns the load of the slot, beside that of a queue.
    pub(crate) fn load(self: &Arc<Self>, at: &QueueRef) -> SlotLoad {
        let state = self.lock();
        SlotLoad {
            claims: state.live_claims,
            queue_waiters: state.lines.len_of(at),
            slot_waiters: state.lines.len(),
        }
    }
}
