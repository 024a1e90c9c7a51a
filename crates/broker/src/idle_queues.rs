//! Queues that no caller uses are closed: memory holds what is at work, whatever there is. The next use opens one
//! again, at the cost of a read.
//!
//! ```text
//!          used                     nothing under way, and unused for [`limits::IDLE_ROUNDS`] rounds
//! open ◀──────────── open, idle ───────────────────────────────────────────────────────────▶ closed
//!  ▲                                                                                            │
//!  └──────────────────────────────────── used, or a claim's end ─────────────────────────────────┘
//! ```
//!
//! A task that looks a queue up under the lock of its slot counts as its user, and has far less than the rounds to
//! come back to it.

use super::Broker;
use super::slot::{OpenQueue, SlotState};
use super::waiters::Waiter;
use angarium_core::limits;
use angarium_core::names::QueueRef;
use angarium_engine::WaitLines;

impl OpenQueue {
    /// Whether it can be closed: nothing is under way in it, nothing of it is in memory that the pool does not have, and
    /// pages of metrics have seen it as it is, or have had their time.
    fn is_idle(&self) -> bool {
        self.idle_rounds >= limits::IDLE_ROUNDS
            && self.uses.is_empty()
            && self.readers.is_empty()
            && self.migration.is_none()
            && !self.is_moving
            && !self.has_task
            && self.engine.is_idle()
            && (self.shown.is_seen() || self.idle_rounds >= 2 * limits::IDLE_ROUNDS)
    }
}

impl SlotState {
    /// Whether a queue is open. It is in use then.
    pub(super) fn is_open(&mut self, at: &QueueRef) -> bool {
        self.queues.get_mut(at).map(|queue| queue.idle_rounds = 0).is_some()
    }

    /// Closes the queues that are at rest. Returns how many.
    pub(super) fn close_idle(&mut self) -> usize {
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
            let retained = (queue.engine.retention(), queue.retained);
            self.resting.rest(&queue.placement.pool, queue.id, retained);
            self.figures.rest(at, queue.id, &queue.shown, queue.engine.is_known_empty());
        }
        if !closed.is_empty() {
            self.queues.shrink_to(2 * self.queues.len());
        }
        closed.len()
    }
}

impl Broker {
    /// Closes the queues that no caller uses until the service stops.
    pub(super) async fn close_idle_queues(&self) {
        while self.sleep_tick(limits::IDLE_TICK).await {
            self.close_idle_round();
        }
    }

    /// One round of it. Returns how many queues were closed, and how many are open.
    pub fn close_idle_round(&self) -> (usize, usize) {
        let (mut closed, mut open) = (0, 0);
        for slot in self.0.slot_table.owned() {
            let mut state = slot.state.lock();
            closed += state.close_idle();
            open += state.queues.len();
        }
        (closed, open)
    }
}
