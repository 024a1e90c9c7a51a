//! Deadlines of the claims of a slot, in the memory of its owner.

use std::cmp::Reverse;

use angarium_core::ids::ClaimId;
use angarium_core::names::QueueRef;
use angarium_core::time::Timestamp;

use crate::slot::state::SlotState;

/// Max deadlines of ended claims that a slot keeps beside those of the live ones.
const SPARE_DEADLINES: usize = 1_024;

/// When a claim of a queue expires.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Deadline {
    pub(crate) at: Timestamp,
    pub(crate) claim: ClaimId,
    pub(crate) queue: QueueRef,
}

impl SlotState {
    /// Records when a claim expires. Removes the deadlines of claims that have ended or were extended, before they
    /// outnumber the others.
    pub(crate) fn note_deadline(&mut self, deadline: Deadline) {
        if self.deadlines.len() > 2 * self.live_claims + SPARE_DEADLINES {
            let mut deadlines = std::mem::take(&mut self.deadlines);
            let has_unopened = !self.unopened.is_empty();
            deadlines.retain(|Reverse(deadline)| self.is_awaited(deadline).unwrap_or(has_unopened));
            self.deadlines = deadlines;
        }
        self.alarms.claims.set(deadline.at);
        self.deadlines.push(Reverse(deadline));
    }

    /// Whether the claim of a deadline expires at or before it; none when the queue is not open. False when the claim
    /// has ended or was extended.
    pub(crate) fn is_awaited(&self, deadline: &Deadline) -> Option<bool> {
        let queue = self.queues.get(&deadline.queue)?;
        Some(queue.engine.expires(deadline.claim).is_some_and(|end| end <= deadline.at))
    }

    /// Whether claims are due and no task is expiring claims. If so, the caller must start one, which calls
    /// [`SlotState::finish_expiry`].
    pub(crate) fn begin_expiry(&mut self, now: Timestamp) -> bool {
        let begins = !self.is_expiring && self.next_deadline().is_some_and(|first| first <= now);
        self.is_expiring |= begins;
        begins
    }

    /// Notes that the task has expired all claims that were due when it began.
    pub(crate) fn finish_expiry(&mut self) {
        self.is_expiring = false;
        self.set_expiry_alarm();
    }

    /// Sets the alarm to the next deadline, unless a task is expiring claims: it sets the alarm when it is done.
    pub(crate) fn set_expiry_alarm(&mut self) {
        if let Some(next) = self.next_deadline().filter(|_| !self.is_expiring) {
            self.alarms.claims.set(next);
        }
    }

    /// Returns the next deadline. The deadline of a claim of a queue that is not open counts: at that time opening the
    /// queue releases the claim, or shows that the queue does not exist.
    pub(crate) fn next_deadline(&mut self) -> Option<Timestamp> {
        while let Some(Reverse(first)) = self.deadlines.peek() {
            if self.is_awaited(first) != Some(false) {
                return Some(first.at);
            }
            self.deadlines.pop();
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits;
    use crate::replica::alarm::Alarms;
    use crate::slot::state::OpenQueue;
    use angarium_clock::Clock;
    use angarium_cluster::random::Random;
    use angarium_core::claim::ClaimTerms;
    use angarium_core::ids::MessageId;
    use angarium_core::message::{Header, Life, State};
    use angarium_core::names::{ProjectId, QueueName};
    use angarium_engine::{QueueEngine, StoredTotals};

    fn header(id: MessageId) -> Header {
        let (created, expires) = (Timestamp::from_millis(1), Timestamp::from_millis(3_600_001));
        let (ttl, attempts, client, size, state) = (3_600, 0, None, 0, State::Ready);
        Header {
            id,
            created,
            ready: created,
            life: Life::Own { ttl, expires },
            attempts,
            client,
            size,
            state,
            group: None,
            first_claimed: None,
            extras: None,
        }
    }

    fn queue() -> QueueRef {
        QueueRef { project: ProjectId::new("").unwrap(), name: QueueName::new("q").unwrap() }
    }

    /// A queue with claims of one message each that expire at these instants.
    fn open(ends: &[(ClaimId, Timestamp)]) -> Box<OpenQueue> {
        let found =
            StoredTotals { tail: MessageId::ZERO, has_ready: false, is_scheduled: false, has_aside: false };
        let mut engine = QueueEngine::open(found);
        for (number, (claim, end)) in (1..).zip(ends) {
            let message = (header(MessageId::from_bytes([number; 16])), 1);
            let over = engine.restore_claim(*claim, ClaimTerms::stored(60, 60), *end, vec![message]);
            assert!(over.is_empty());
        }
        Box::new(OpenQueue::of(engine))
    }

    #[test]
    fn repeatedly_renewed_claim_keeps_few_deadlines() {
        let mut state = SlotState::empty(&Alarms::default());
        let at = queue();
        let (claim, terms) = (ClaimId::new(&mut Random::seeded(1)), ClaimTerms::stored(60, 60));
        state.queues.insert(at.clone(), open(&[(claim, Timestamp::from_millis(60_000))]));
        state.live_claims = 1;
        let mut last = Timestamp::default();
        for renewal in 0..20_000 {
            last = Timestamp::from_millis(60_000 + renewal);
            if let Some(queue) = state.queues.get_mut(&at) {
                queue.engine.renewed(claim, terms, last);
            }
            state.note_deadline(Deadline { at: last, claim, queue: at.clone() });
        }
        assert!(state.deadlines.len() <= SPARE_DEADLINES + 4, "{}", state.deadlines.len());
        assert!(state.deadlines.iter().any(|Reverse(deadline)| deadline.at == last), "it ends in time");
    }

    /// The next actions of the task that expires claims, by a clock that is moved by hand.
    #[test]
    fn next_look_is_when_the_next_live_claim_ends() {
        let (clock, alarms) = (Clock::manual(1_000), Alarms::default());
        let mut state = SlotState::empty(&alarms);
        let mut random = Random::seeded(1);
        let claims: Vec<ClaimId> = (0..3).map(|_| ClaimId::new(&mut random)).collect();
        let end = |millis: u64| Timestamp::from_millis(1_000 + millis);
        let ends = [(claims[0], end(120)), (claims[1], end(80)), (claims[2], end(90_000))];
        state.queues.insert(queue(), open(&ends));
        for (claim, at) in ends {
            state.note_deadline(Deadline { at, claim, queue: queue() });
        }
        // A claim that has ended has left a deadline behind.
        let gone = ClaimId::new(&mut random);
        state.note_deadline(Deadline { at: end(10), claim: gone, queue: queue() });
        let pause = |clock: &Clock| alarms.claims.pause(clock.now(), limits::EXPIRY_TICK).as_millis();
        assert_eq!(pause(&clock), 10, "nobody has looked yet whose it is");
        alarms.claims.forget();
        assert!(!state.begin_expiry(clock.now()));
        state.set_expiry_alarm();
        assert_eq!(pause(&clock), 80, "the deadline of the claim that is gone is forgotten");
        clock.advance(80);
        alarms.claims.forget();
        assert!(state.begin_expiry(clock.now()), "it is due to the millisecond");
        state.set_expiry_alarm();
        assert_eq!(pause(&clock), limits::EXPIRY_TICK.as_millis(), "a task is ending it");
        assert!(!state.begin_expiry(clock.now()), "one at a time does");
        if let Some(queue) = state.queues.get_mut(&queue()) {
            assert!(queue.engine.begin_release(claims[1], angarium_engine::Release::COUNTED).is_some());
            queue.engine.finish_release(claims[1]);
        }
        state.finish_expiry();
        assert_eq!(pause(&clock), 40, "then the next one");
        // Of a queue that no caller has opened yet only the deadline is known.
        let other = QueueRef { name: QueueName::new("other").unwrap(), ..queue() };
        state.note_deadline(Deadline { at: end(100), claim: gone, queue: other });
        alarms.claims.forget();
        state.set_expiry_alarm();
        assert_eq!(pause(&clock), 20, "it is kept");
    }
}
