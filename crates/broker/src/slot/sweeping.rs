//! Removing expired messages of a slot, as its memory has a part in it: engines spare messages under claims.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use angarium_core::error::Error;
use angarium_core::ids::{MessageId, QueueId};
use angarium_core::message::{Header, State};
use angarium_core::names::{PoolName, QueueRef};
use angarium_core::time::Timestamp;

use crate::slot::remainder::ClosedChange;
use crate::slot::state::{Slot, SlotState};
use crate::writer::change::Change;
use crate::writer::pending::WriteOutcome;

/// Expired messages by their queue.
pub(crate) type ExpiredByQueue = HashMap<QueueId, Vec<Header>>;

/// A removal from a queue that is not open, on its way.
pub(crate) struct UnopenedRemoval {
    pub(crate) outcome: WriteOutcome,
    pub(crate) queue: QueueId,
    /// Messages that it removes.
    pub(crate) count: u64,
}

impl Slot {
    /// The open queues of a pool note from now on what happens to their messages, until the pool was read.
    pub(crate) fn begin_sweeps(self: &Arc<Self>, pool: &PoolName) {
        self.lock().begin_sweeps(pool);
    }

    /// Puts the removal of what has expired in open queues on its way, and takes it out of `expired`.
    pub(crate) fn remove_expired(
        self: &Arc<Self>,
        pool: &PoolName,
        expired: &mut ExpiredByQueue,
        now: Timestamp,
    ) -> Result<Vec<WriteOutcome>, Error> {
        let mut state = self.lock();
        let gone = state.finish_sweeps(pool, expired, now);
        gone.into_iter().map(|(at, gone)| state.submit(&at, Change::remove(gone))).collect()
    }

    /// Puts the removal of what has expired in queues that are not open on its way, except from deleted ones.
    pub(crate) fn remove_unopened_expired(
        self: &Arc<Self>,
        pool: &PoolName,
        expired: ExpiredByQueue,
    ) -> Vec<UnopenedRemoval> {
        let mut removals = Vec::new();
        let mut state = self.lock();
        // It has been opened since, and is swept at the next turn.
        let mut others: HashSet<QueueId> = state.queues.values().map(|queue| queue.id).collect();
        others.extend(&state.dropped);
        for (queue, headers) in expired.into_iter().filter(|(queue, _)| !others.contains(queue)) {
            let claimed = state.claimed_unopened(queue);
            let gone: Vec<&Header> = headers.iter().filter(|header| !claimed.contains(&header.id)).collect();
            if gone.is_empty() {
                continue;
            }
            let count = gone.len() as u64;
            let scheduled = gone.iter().filter(|header| header.state == State::Scheduled).count() as u64;
            state.figures.lessen(queue, count, scheduled);
            let gone = gone.iter().map(|header| header.id).collect();
            match state.submit_unopened(pool, queue, gone) {
                Some(outcome) => removals.push(UnopenedRemoval { outcome, queue, count }),
                None => state.figures.changed_closed(queue),
            }
        }
        removals
    }

    /// A sweep is about to change a queue that is not open. Whether the figures need what it holds before and after.
    pub(crate) fn begin_sweep(self: &Arc<Self>, queue: QueueId) -> bool {
        self.lock().figures.begin_sweep(queue)
    }

    /// A sweep has ended that was to read nothing.
    pub(crate) fn end_sweep(self: &Arc<Self>, queue: QueueId) {
        self.lock().figures.end_sweep(queue);
    }

    /// A sweep has ended that was to read what the queue holds.
    pub(crate) fn end_sweep_with(self: &Arc<Self>, queue: QueueId, change: Option<ClosedChange>) {
        self.lock().figures.end_sweep_with(queue, change);
    }

    /// A closed queue was changed in its pool.
    pub(crate) fn note_changed_closed(self: &Arc<Self>, queue: QueueId) {
        self.lock().figures.changed_closed(queue);
    }
}

impl SlotState {
    fn begin_sweeps(&mut self, pool: &PoolName) {
        for queue in self.queues.values_mut().filter(|queue| queue.placement.contains(pool)) {
            queue.engine.begin_sweep();
        }
    }

    /// What is to be removed from the open queues, which are taken out of `expired`.
    fn finish_sweeps(
        &mut self,
        pool: &PoolName,
        expired: &mut ExpiredByQueue,
        now: Timestamp,
    ) -> Vec<(QueueRef, Vec<MessageId>)> {
        let mut gone = Vec::new();
        for (at, queue) in self.queues.iter_mut().filter(|(_, queue)| queue.placement.contains(pool)) {
            let headers = expired.remove(&queue.id).unwrap_or_default();
            let ids = queue.engine.finish_sweep(headers, now);
            if !ids.is_empty() {
                gone.push((at.clone(), ids));
            }
        }
        gone
    }

    /// Messages under claims of a queue that is not open.
    pub(in crate::slot) fn claimed_unopened(&self, queue: QueueId) -> HashSet<MessageId> {
        let claims = self.unopened.get(&queue).into_iter().flatten();
        claims.flat_map(|(_, record)| &record.messages).map(|message| message.id).collect()
    }
}
