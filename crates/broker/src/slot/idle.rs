//! Closing of idle queues ([`crate::sweeps::idle_queues`]).

use std::sync::Arc;

use angarium_core::ids::QueueId;
use angarium_core::names::QueueRef;
use angarium_engine::WaitLines;

use crate::limits;
use crate::slot::state::{OpenQueue, Slot, SlotState};
use crate::slot::wait_line::Waiter;

impl OpenQueue {
    /// Whether the queue can be closed: no operation is in progress in it, memory has no state that the pool has not,
    /// and pages of metrics have read its last changes, or had twice the time to do so.
    pub(crate) fn is_idle(&self) -> bool {
        self.idle_rounds >= limits::IDLE_ROUNDS
            && self.uses.is_empty()
            && self.readers.is_empty()
            && self.migration.is_none()
            && !self.is_moving
            && !self.has_task
            && self.engine.is_idle()
            && self.settle_notes.is_idle()
            // The metric counts it.
            && !self.backlog.as_ref().is_some_and(|backlog| backlog.is_suspended())
            && (self.shown.is_seen() || self.idle_rounds >= 2 * limits::IDLE_ROUNDS)
    }
}

/// The result of a round of closing.
pub(crate) struct IdleRound {
    pub(crate) closed: usize,
    /// Queues that are still open.
    pub(crate) open: usize,
}

impl Slot {
    /// Closes the idle queues.
    pub(crate) fn close_idle(self: &Arc<Self>) -> IdleRound {
        let mut state = self.lock();
        let closed = state.close_idle();
        IdleRound { closed, open: state.queues.len() }
    }
}

impl SlotState {
    /// Returns the id of a queue, if it is open, and counts as a use of it.
    pub(in crate::slot) fn use_queue(&mut self, at: &QueueRef) -> Option<QueueId> {
        let queue = self.queues.get_mut(at)?;
        queue.idle_rounds = 0;
        Some(queue.id)
    }

    /// Closes the idle queues. Returns how many.
    pub(crate) fn close_idle(&mut self) -> usize {
        let lines: &WaitLines<QueueRef, Waiter> = &self.lines;
        let mut closed = Vec::new();
        for (at, queue) in &mut self.queues {
            queue.idle_rounds = queue.idle_rounds.saturating_add(1);
            if queue.is_idle() && lines.len_of(at) == 0 {
                closed.push(at.clone());
            }
        }
        for at in &closed {
            let Some(mut queue) = self.queues.remove(at) else { continue };
            queue.count_removals();
            let retention = queue.engine.retention();
            self.resting.rest(&queue.placement.pool, queue.id, retention, queue.retained);
            if queue.engine.is_known_empty() {
                self.figures.rest_empty(at, queue.id);
            } else {
                self.figures.rest(at, queue.id, &queue.shown);
            }
        }
        if !closed.is_empty() {
            self.queues.shrink_to(2 * self.queues.len());
        }
        closed.len()
    }
}
