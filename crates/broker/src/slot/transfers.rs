//! Messages of a queue in transfer to another one: the slot's steps for the task that transfers them.

use std::sync::Arc;

use tokio::sync::{Notify, RwLockReadGuard};

use angarium_catalogue::Placement;
use angarium_core::error::{Error, Part};
use angarium_core::ids::{MessageId, QueueId};
use angarium_core::limits;
use angarium_core::maps::HashSet;
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
    /// Marks messages in transfer that have reached their max number of claims; once that is durable they are
    /// transferred.
    pub(in crate::slot) fn mark_in_transfer(&mut self, at: &QueueRef, dead: Vec<Header>, target: QueueRef) {
        let peer = Arc::new(Peer { at: target, queue: None });
        let moving = |header: Header| Header { state: State::Moving(Arc::clone(&peer)), ..header };
        // The slot writer tells the engine the outcome.
        drop(self.submit(at, Change::mark_in_transfer(dead.into_iter().map(moving).collect())));
    }

    /// Starts a task for the transfers of a queue, if it has any and there is no task.
    pub(crate) fn start_mover(&mut self, at: &QueueRef) {
        let Some(queue) = self.state.queues.get_mut(at) else { return };
        if !queue.engine.has_in_transfer() {
            return;
        }
        // A task that waits because it cannot reach a target now checks the messages for other targets.
        queue.marked.notify_one();
        if !std::mem::replace(&mut queue.is_moving, true) {
            let queue = QueueHandle::new(Arc::clone(self.slot), at.clone(), queue.id);
            self.slot.around.follow_ups.add(FollowUp { queue, work: QueueWork::Transfer });
        }
    }
}

impl QueueHandle {
    /// Starts a task for the transfers of the queue, if it has any and there is no task.
    pub(crate) fn start_mover(&self) {
        let mut state = self.slot.lock();
        if state.queue_mut(&self.at, self.id).is_some() {
            state.start_mover(&self.at);
        }
    }

    /// Returns the queue and its store.
    pub(crate) fn side(&self) -> Result<Side, Error> {
        Ok(Side { queue: self.clone(), store: self.store()? })
    }

    /// Whether no message leaves the pools of the queue, because of a hold.
    pub(crate) fn transfers_are_held(&self) -> bool {
        let (holds, now) = (&self.slot.around.holds, self.slot.around.replica.clock.now());
        self.lock_queue(|queue| queue.placement.clone())
            .is_some_and(|placement| holds.bars_transfers(&placement, now))
    }

    /// Begins a step that takes messages out of a pool of the queue. The hold of the transfers of a pool waits for its
    /// end.
    ///
    /// # Errors
    ///
    /// Unavailable, with nothing written, while they are held.
    pub(crate) async fn begin_leaving(&self) -> Result<RwLockReadGuard<'_, ()>, Error> {
        let leaving = self.slot.around.holds.transfers.read().await;
        if self.transfers_are_held() {
            let why = format!("transfers out of queue {} wait: its pool is held", self.at.name);
            return Err(Error::unavailable(Part::Server, why));
        }
        Ok(leaving)
    }

    /// Counts a pass of the mover over all messages in transfer.
    pub(crate) fn note_transfer_pass(&self) {
        self.lock_queue(|queue| queue.move_passes += 1);
    }

    /// Whether the mover may end. It asks when it found no message in transfer.
    pub(crate) fn may_stop_mover(&self) -> bool {
        self.slot.lock().may_stop_mover(&self.at, self.id)
    }

    /// Returns the notice that wakes the mover when messages are marked in transfer; none when the queue is closed.
    pub(crate) fn marked_in_transfer(&self) -> Option<Arc<Notify>> {
        self.lock_queue(|queue| Arc::clone(&queue.marked))
    }

    /// Returns the messages in transfer that memory knows. None when the queue is closed.
    pub(crate) fn known_in_transfer(&self) -> Option<KnownTransfers> {
        self.decide(|engine| KnownTransfers {
            ids: engine.in_transfer(limits::IN_TRANSFER_KNOWN),
            count: engine.transfer_count(),
        })
    }

    /// Forgets messages that are in transfer no more, and serves the waiting claims: those messages may have blocked
    /// their groups.
    pub(crate) fn clear_in_transfer(&self, gone: &[MessageId]) {
        let mut state = self.slot.lock();
        if let Some(queue) = state.queue_mut(&self.at, self.id) {
            queue.engine.clear_in_transfer(gone);
        }
        state.serve(&self.at);
    }

    /// Forgets all messages in transfer, if memory knew of no more than `count` since.
    pub(crate) fn clear_all_in_transfer(&self, count: u64) {
        self.decide(|engine| engine.clear_all_in_transfer(count));
    }

    /// Returns the data of the queue that the target of a transfer needs. None when the queue is closed.
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

    /// Tells the waiting claims that messages have arrived in their target queue.
    pub(crate) fn transfers_arrived(&self, ids: &[MessageId]) {
        self.lock_queue(|queue| queue.transfers.arrived(ids));
    }

    /// Notes messages that stay, because the target of their redrive is gone.
    pub(crate) fn note_returned(&self, ids: impl Iterator<Item = MessageId>) {
        self.lock_queue(|queue| queue.transfers.returned.extend(ids));
    }

    /// Returns the messages that stay since the last call, because the target of their redrive is gone.
    pub(crate) fn take_returned(&self) -> HashSet<MessageId> {
        self.lock_queue(|queue| std::mem::take(&mut queue.transfers.returned)).unwrap_or_default()
    }

    /// Returns the progress of some messages that were marked in transfer. None when the queue is closed.
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

    /// Applies a change to one side of a transfer. It is durable when this returns.
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
                // Messages that are posted from now on follow them.
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

/// The messages in transfer that memory knows.
pub(crate) struct KnownTransfers {
    /// None when memory does not know all of them.
    pub(crate) ids: Option<Vec<MessageId>>,
    pub(crate) count: u64,
}

/// Progress of messages in transfer.
pub(crate) struct TransferProgress {
    /// Whether some of them are still in transfer; none when memory does not know.
    pub(crate) is_outgoing: Option<bool>,
    /// Number of the mover's passes over all messages in transfer.
    pub(crate) passes: u64,
    /// Whether there is a mover.
    pub(crate) is_moving: bool,
}

/// Data of the source of a transfer for the target.
pub(crate) struct TransferTerms {
    pub(crate) placement: Placement,
    /// TTL of dead letters, where it is set.
    pub(crate) dead_letter_ttl: Option<MessageTtl>,
    pub(crate) is_ordered: bool,
    pub(crate) retention: Retention,
}

impl OpenQueue {
    /// Returns the queue that receives its dead letters.
    pub(crate) fn dead_letter_target(&self, at: &QueueRef) -> Option<QueueRef> {
        let (name, _) = self.attributes.dead_letters()?;
        Some(QueueRef { project: at.project.clone(), name: name.clone() })
    }
}

impl SlotState {
    /// Whether the mover of a queue may end. It asks when it found no message in transfer.
    pub(crate) fn may_stop_mover(&mut self, at: &QueueRef, id: QueueId) -> bool {
        let Some(queue) = self.queue_mut(at, id) else { return true };
        queue.is_moving = queue.engine.has_in_transfer();
        !queue.is_moving
    }
}
