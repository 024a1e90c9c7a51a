//! Messages of a queue in transfer to another one: what the task that moves them asks of the slot.

use std::sync::Arc;

use tokio::sync::Notify;

use angarium_catalogue::Placement;
use angarium_core::error::Error;
use angarium_core::ids::{MessageId, QueueId};
use angarium_core::limits;
use angarium_core::message::{Header, MessageTtl, Peer, Retention, State};
use angarium_core::names::QueueRef;

use crate::slot::follow_ups::{FollowUp, QueueWork};
use crate::slot::locked::LockedSlot;
use crate::slot::queue_handle::QueueHandle;
use crate::slot::state::{OpenQueue, SlotState};
use crate::stores::queue_store::QueueStore;
use crate::writer::change::Change;
use crate::writer::pending::settled;
use crate::writer::purpose::Purpose;

impl LockedSlot<'_> {
    /// Sets messages aside that were claimed as often as they may be; once that is durable they are moved.
    pub(in crate::slot) fn mark_in_transfer(&mut self, at: &QueueRef, dead: Vec<Header>, target: QueueRef) {
        let peer = Arc::new(Peer { at: target, queue: None });
        let moving = |header: Header| Header { state: State::Moving(Arc::clone(&peer)), ..header };
        // The slot writer tells the engine how it went.
        drop(self.submit(at, Change::mark_in_transfer(dead.into_iter().map(moving).collect())));
    }

    /// Begins to carry on the transfers of a queue, if it has any and no task does already.
    pub(crate) fn start_mover(&mut self, at: &QueueRef) {
        let Some(queue) = self.state.queues.get_mut(at) else { return };
        if !queue.engine.has_in_transfer() {
            return;
        }
        // One that waits for a target that cannot be reached looks at what has another one.
        queue.marked.notify_one();
        if !std::mem::replace(&mut queue.is_moving, true) {
            let queue = QueueHandle::new(Arc::clone(self.slot), at.clone(), queue.id);
            self.slot.around.follow_ups.add(FollowUp { queue, work: QueueWork::Transfer });
        }
    }
}

impl QueueHandle {
    /// Begins to carry on the transfers of the queue, if it has any and no task does already.
    pub(crate) fn start_mover(&self) {
        let mut state = self.slot.lock();
        if state.queue_mut(&self.at, self.id).is_some() {
            state.start_mover(&self.at);
        }
    }

    /// The queue and its storage; none when it is not open any more.
    pub(crate) fn side(&self) -> Result<Option<Side>, Error> {
        Ok(self.store()?.map(|store| Side { queue: self.clone(), store }))
    }

    /// Notes that the mover went over all messages in transfer once.
    pub(crate) fn note_transfer_pass(&self) {
        self.lock_queue(|queue| queue.move_passes += 1);
    }

    /// Whether the mover, which found nothing on its way, may end.
    pub(crate) fn may_stop_mover(&self) -> bool {
        self.slot.lock().may_stop_mover(&self.at, self.id)
    }

    /// Wakes the mover when messages are marked in transfer. None when the queue is closed.
    pub(crate) fn marked_in_transfer(&self) -> Option<Arc<Notify>> {
        self.lock_queue(|queue| Arc::clone(&queue.marked))
    }

    /// What memory knows to be in transfer, and how many it knows of. None when the queue is closed.
    pub(crate) fn known_in_transfer(&self) -> Option<KnownTransfers> {
        self.decide(|engine| KnownTransfers {
            ids: engine.in_transfer(limits::IN_TRANSFER_KNOWN),
            count: engine.transfer_count(),
        })
    }

    /// Forgets messages that are in transfer no more, and serves the claims that wait: what blocked its group may be gone.
    pub(crate) fn clear_in_transfer(&self, gone: &[MessageId]) {
        let mut state = self.slot.lock();
        if let Some(queue) = state.queue_mut(&self.at, self.id) {
            queue.engine.clear_in_transfer(gone);
        }
        state.serve(&self.at);
    }

    /// Notes that nothing is in transfer any more, if memory knew of no more than `count` since.
    pub(crate) fn clear_all_in_transfer(&self, count: u64) {
        self.decide(|engine| engine.clear_all_in_transfer(count));
    }

    /// What the target of a transfer is told of the queue. None when it is closed.
    pub(crate) fn transfer_terms(&self) -> Option<TransferTerms> {
        self.lock_queue(|queue| TransferTerms {
            placement: queue.placement.clone(),
            dead_letter_ttl: queue.attributes.dead_letter_ttl,
            is_ordered: queue.engine.is_ordered(),
            retention: queue.engine.retention(),
        })
    }

    /// Whether the queue keeps its messages in the order of their groups.
    pub(crate) fn is_ordered(&self) -> bool {
        self.decide(|engine| engine.is_ordered()).unwrap_or(false)
    }

    /// Tells the claims that wait that messages have arrived at their target.
    pub(crate) fn transfers_arrived(&self, ids: &[MessageId]) {
        self.lock_queue(|queue| queue.transfers.arrived(ids));
    }

    /// How far some messages that were marked in transfer are. None when the queue is closed.
    pub(crate) fn transfer_progress(&self, ids: &[MessageId]) -> Option<TransferProgress> {
        self.lock_queue(|queue| TransferProgress {
            is_outgoing: queue.engine.are_leaving(ids),
            passes: queue.move_passes,
            is_moving: queue.is_moving,
        })
    }

    /// Counts dead letters that have left.
    pub(crate) fn count_dead_letters(&self, dead: u64) {
        self.lock_queue(|queue| queue.counters.dead_lettered.inc_by(dead));
    }

    /// A change of one side of a transfer, durable when this returns.
    pub(crate) async fn transfer_change(&self, change: Change) -> Result<(), Error> {
        let arriving: Vec<MessageId> = match change.purpose() {
            Purpose::Prepare => change.changes().headers().map(|header| header.id).collect(),
            _ => Vec::new(),
        };
        let outcome = {
            let mut state = self.slot.lock();
            let queue = state.queue_mut(&self.at, self.id).ok_or_else(|| self.closed())?;
            if let Some(newest) = arriving.iter().max() {
                queue.engine.expect_in_transfer(&arriving);
                // What is posted from now on follows them.
                state.ids.skip_to(*newest);
            }
            state.submit(&self.at, change)?
        };
        let outcome = settled(outcome).await;
        if !arriving.is_empty() {
            self.decide(|engine| engine.expect_in_transfer(&arriving));
        }
        outcome
    }
}

/// A queue with entries in transfer, at its owner.
pub(crate) struct Side {
    pub(crate) queue: QueueHandle,
    pub(crate) store: QueueStore,
}

/// What memory knows to be in transfer.
pub(crate) struct KnownTransfers {
    /// None when memory does not know all.
    pub(crate) ids: Option<Vec<MessageId>>,
    pub(crate) count: u64,
}

/// How far messages in transfer are.
pub(crate) struct TransferProgress {
    /// Whether some of them are on their way; none when memory does not know.
    pub(crate) is_outgoing: Option<bool>,
    /// How often the mover went over all messages in transfer.
    pub(crate) passes: u64,
    /// Whether there is a mover.
    pub(crate) is_moving: bool,
}

/// What the target of a transfer is told of its source.
pub(crate) struct TransferTerms {
    pub(crate) placement: Placement,
    /// Of dead letters, where it is set.
    pub(crate) dead_letter_ttl: Option<MessageTtl>,
    pub(crate) is_ordered: bool,
    pub(crate) retention: Retention,
}

impl OpenQueue {
    /// The queue that takes its dead letters.
    pub(crate) fn dead_letter_target(&self, at: &QueueRef) -> Option<QueueRef> {
        let (name, _) = self.attributes.dead_letters()?;
        Some(QueueRef { project: at.project.clone(), name: name.clone() })
    }
}

impl SlotState {
    /// Whether the mover of a queue, which found nothing on its way, may end.
    pub(crate) fn may_stop_mover(&mut self, at: &QueueRef, id: QueueId) -> bool {
        let Some(queue) = self.queue_mut(at, id) else { return true };
        queue.is_moving = queue.engine.has_in_transfer();
        !queue.is_moving
    }
}
