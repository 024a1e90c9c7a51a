//! The state of a queue at its slot for an explanation, read in one step under the lock. It counts as no claim, and leaves
//! the ready cache, the failure of the last read and all counters as they are.

use std::sync::Arc;

use angarium_catalogue::Placement;
use angarium_core::error::Error;
use angarium_core::group::GroupName;
use angarium_core::ids::{MessageId, SubscriptionId};
use angarium_core::names::{QueueName, QueueRef};
use angarium_core::overflow::Gap;
use angarium_core::subscription::Subscription;
use angarium_core::time::Timestamp;
use angarium_engine::{MessageFacts, QueueFacts};

use crate::slot::queue_handle::QueueHandle;
use crate::slot::slot_queue::SlotQueue;
use crate::slot::state::{OpenQueue, Slot, SlotState};
use crate::slot::transfer_targets::TransferTarget;
use crate::stores::read_failure::ReadFailure;

/// An open queue at one moment.
pub(crate) struct QueueMoment {
    /// The pools that its record names.
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
    /// The gap of the subscription whose queue it is, while that is suspended.
    pub(crate) gap: Option<Gap>,
    /// Its suspended subscriptions, as far as their queues are open.
    pub(crate) suspended: Vec<SubscriptionId>,
    /// Its subscriptions that are not confirmed; for the queue of a subscription, that one, as far as its source is open.
    pub(crate) unconfirmed: Vec<SubscriptionId>,
    /// Whether messages that wait in the source are still to be copied.
    pub(crate) is_filling: bool,
    /// Whether claims get nothing until then.
    pub(crate) is_barred_by_fill: bool,
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
            placement: queue.recorded_placement(),
            facts: queue.engine.facts(now),
            dead_letter_queue: queue.other_dead_letter_queue(&self.at),
            read_failure: queue.pool_failed.clone(),
            targets: queue.targets.clone(),
            dedup_ids: queue.engine.dedup_count(),
            claim_refusal: queue.claim_refusal.clone(),
            gap: queue.backlog.as_ref().and_then(|backlog| backlog.current_gap()),
            suspended: state.suspended_of(queue),
            unconfirmed: state.unconfirmed_of(&self.at, queue, now),
            is_filling: queue.is_filling(),
            is_barred_by_fill: state.is_filling_in_order(&self.at),
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

impl SlotState {
    /// The subscriptions of a queue that are not confirmed; for the queue of a subscription, that one.
    fn unconfirmed_of(&self, at: &QueueRef, queue: &OpenQueue, now: Timestamp) -> Vec<SubscriptionId> {
        let own = at.name.subscription();
        let source = at.source().and_then(|source| self.queues.get(&source)).map(Box::as_ref);
        let table = source.unwrap_or(queue).subscriptions.iter().map(|known| &*known.subscription);
        let is_unconfirmed = |found: &&Subscription| found.is_live(now) && !found.is_confirmed();
        let wanted = |found: &Subscription| own.is_none_or(|own| own == found.id);
        table.filter(is_unconfirmed).filter(|found| wanted(found)).map(|found| found.id).collect()
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
            slot_waiters: state.lines.behind(),
        }
    }
}
