//! Removal of expired messages of a slot: the part of the slot's memory in it. Engines spare messages under claims.

use std::sync::Arc;

use angarium_core::error::Error;
use angarium_core::ids::{MessageId, QueueId};
use angarium_core::maps::{HashMap, HashSet};
use angarium_core::message::{Header, State};
use angarium_core::mutation::{Mutation, is_on};
use angarium_core::names::{PoolName, QueueRef};
use angarium_core::time::Timestamp;

use crate::slot::figure_sums::Contents;
use crate::slot::remainder::ClosedChange;
use crate::slot::state::{Slot, SlotState};
use crate::writer::change::Change;
use crate::writer::pending::WriteOutcome;

/// Expired messages by their queue.
pub(crate) type ExpiredByQueue = HashMap<QueueId, Vec<Header>>;

/// A submitted removal from a queue that is not open.
pub(crate) struct UnopenedRemoval {
    pub(crate) outcome: WriteOutcome,
    pub(crate) queue: QueueId,
    /// Number of messages that it removes.
    pub(crate) count: u64,
}

impl Slot {
    /// Has the open queues of a pool record changes of their messages until the pool was read.
    pub(crate) fn begin_sweeps(self: &Arc<Self>, pool: &PoolName) {
        self.lock().begin_sweeps(pool);
    }

    /// Submits the removal of expired messages of open queues, and takes these queues out of `expired`.
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

    /// Leaves a queue that is about to be closed out of sweeps until the slot is recovered.
    pub(crate) fn spare_from_sweeps(self: &Arc<Self>, queue: QueueId) {
        self.lock().spared.insert(queue);
    }

    /// Submits the removal of expired messages of queues that are not open, except deleted and spared ones.
    pub(crate) fn remove_unopened_expired(
        self: &Arc<Self>,
        pool: &PoolName,
        expired: ExpiredByQueue,
    ) -> Vec<UnopenedRemoval> {
        let mut removals = Vec::new();
        let mut state = self.lock();
        for (queue, gone) in state.removable(expired) {
            let count = gone.len() as u64;
            state.figures.lessen(queue, contents_of(&gone));
            let gone = gone.iter().map(|header| header.id).collect();
            match state.submit_unopened(pool, queue, gone) {
                Some(outcome) => removals.push(UnopenedRemoval { outcome, queue, count }),
                None => state.figures.changed_closed(queue),
            }
        }
        removals
    }

    /// Notes that a sweep is about to change a queue that is not open. Returns whether the figures need its contents
    /// before and after.
    pub(crate) fn begin_sweep(self: &Arc<Self>, queue: QueueId) -> bool {
        self.lock().figures.begin_sweep(queue)
    }

    /// Notes the end of a sweep that did not have to read the contents.
    pub(crate) fn end_sweep(self: &Arc<Self>, queue: QueueId) {
        self.lock().figures.end_sweep(queue);
    }

    /// Notes the end of a sweep that had to read the contents; `change` is none when it is uncertain.
    pub(crate) fn end_sweep_with(self: &Arc<Self>, queue: QueueId, change: Option<ClosedChange>) {
        self.lock().figures.end_sweep_with(queue, change);
    }

    /// Notes that a closed queue was changed in its pool.
    pub(crate) fn note_changed_closed(self: &Arc<Self>, queue: QueueId) {
        self.lock().figures.changed_closed(queue);
    }
}

/// The numbers of expired messages of a queue that is not open.
fn contents_of(headers: &[Header]) -> Contents {
    let count = |is_counted: fn(&State) -> bool| {
        headers.iter().filter(|header| is_counted(&header.state)).count() as u64
    };
    let (delayed, kept) = (count(|state| *state == State::Scheduled), count(State::is_kept));
    Contents { ready: headers.len() as u64 - delayed - kept, delayed, kept, ..Contents::default() }
}

impl SlotState {
    fn begin_sweeps(&mut self, pool: &PoolName) {
        for queue in self.queues.values_mut().filter(|queue| queue.placement.contains(pool)) {
            queue.engine.begin_sweep(pool);
        }
    }

    /// Returns the messages to remove from the open queues, and takes these queues out of `expired`.
    fn finish_sweeps(
        &mut self,
        pool: &PoolName,
        expired: &mut ExpiredByQueue,
        now: Timestamp,
    ) -> Vec<(QueueRef, Vec<MessageId>)> {
        let mut gone = Vec::new();
        for (at, queue) in &mut self.queues {
            // A pool that a migration has left meanwhile shows copies.
            let is_there = queue.placement.contains(pool);
            let headers = if is_there { expired.remove(&queue.id).unwrap_or_default() } else { Vec::new() };
            let ids = queue.engine.finish_sweep(pool, headers, now);
            if !ids.is_empty() {
                gone.push((at.clone(), ids));
            }
        }
        gone
    }

    /// Returns the expired messages of queues that are not open, except deleted and spared ones, and except messages
    /// under claims. A queue that was opened since is swept at the next tick.
    fn removable(&self, expired: ExpiredByQueue) -> Vec<(QueueId, Vec<Header>)> {
        let mut others: HashSet<QueueId> = self.queues.values().map(|queue| queue.id).collect();
        others.extend(self.dropped.union(&self.spared));
        let mut removable = Vec::new();
        for (queue, mut headers) in expired.into_iter().filter(|(queue, _)| !others.contains(queue)) {
            let claimed = self.claimed_unopened(queue);
            headers.retain(|header| !claimed.contains(&header.id) || is_on(Mutation::SweepUnderClaim));
            if !headers.is_empty() {
                removable.push((queue, headers));
            }
        }
        removable
    }

    /// Returns the messages under claims of a queue that is not open.
    pub(in crate::slot) fn claimed_unopened(&self, queue: QueueId) -> HashSet<MessageId> {
        let claims = self.unopened.get(&queue).into_iter().flatten();
        claims.flat_map(|(_, record)| &record.messages).map(|message| message.id).collect()
    }
}

#[cfg(test)]
mod tests {
    use angarium_catalogue::{ClaimRecord, ClaimedMessage};
    use angarium_core::ids::ClaimId;
    use angarium_core::message::Life;
    use angarium_core::names::{ProjectId, QueueName};

    use super::*;
    use crate::replica::alarm::Alarms;

    fn queue(number: u8) -> QueueId {
        QueueId::from_bytes([number; 16])
    }

    fn message(number: u8) -> MessageId {
        MessageId::from_bytes([number; 16])
    }

    fn expired(id: MessageId) -> Header {
        Header {
            id,
            created: Timestamp::default(),
            ready: Timestamp::default(),
            life: Life::Own { ttl: 60, expires: Timestamp::from_millis(60_000) },
            attempts: 0,
            client: None,
            size: 1,
            state: State::Ready,
            group: None,
            first_claimed: None,
            extras: None,
        }
    }

    /// A claim of a queue that is not open.
    fn claim_of(held: MessageId) -> ClaimRecord {
        let at = QueueRef { project: ProjectId::new("").unwrap(), name: QueueName::new("q").unwrap() };
        ClaimRecord {
            at,
            queue: queue(3),
            messages: vec![ClaimedMessage { id: held, attempt: 1 }],
            ttl: 60,
            grace: 60,
            created: 0,
            expires: 60_000,
            client: None,
            attempt: None,
            by: None,
        }
    }

    #[test]
    fn sweep_spares_deleted_and_left_queues_and_claimed_messages() {
        let mut state = SlotState::empty(&Alarms::default());
        state.dropped.insert(queue(1));
        state.spared.insert(queue(2));
        state.unopened.insert(queue(3), vec![(ClaimId::from_bytes([1; 16]), claim_of(message(1)))]);
        state.unopened.insert(queue(4), vec![(ClaimId::from_bytes([2; 16]), claim_of(message(1)))]);
        let of_each: ExpiredByQueue = (1..=3)
            .map(|number| (queue(number), vec![expired(message(1)), expired(message(2))]))
            .chain([(queue(4), vec![expired(message(1))])])
            .collect();
        let removable: Vec<(QueueId, Vec<MessageId>)> = state
            .removable(of_each)
            .into_iter()
            .map(|(queue, headers)| (queue, headers.iter().map(|header| header.id).collect()))
            .collect();
        assert_eq!(removable, [(queue(3), vec![message(2)])]);
    }
}
