//! Holds of queues: no claim that begins after the answer to a hold gets a message.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Certainty, History, Span};

/// The holds of one queue.
#[derive(Debug, Default)]
struct QueueHolds {
    /// When the last hold was answered; none when the queue may be released.
    since: Option<Duration>,
    /// From the answer to a hold to the begin of the next release.
    ended: Vec<Span>,
    /// Whether a release without an answer may be carried out at any time.
    is_doubtful: bool,
}

impl QueueHolds {
    /// Whether the queue was held all the time from the begin of a claim to its answer.
    fn covers(&self, claim: Span) -> bool {
        let is_held = self.since.is_some_and(|since| since <= claim.began);
        is_held || self.ended.iter().any(|hold| hold.began <= claim.began && claim.ended <= hold.ended)
    }
}

/// The holds of all queues.
#[derive(Debug, Default)]
pub(super) struct Holds(BTreeMap<usize, QueueHolds>);

impl History {
    /// Notes that a hold of a queue was answered.
    pub fn hold(&mut self, queue: usize, now: Duration) {
        let holds = self.holds.0.entry(queue).or_default();
        if !holds.is_doubtful {
            holds.since.get_or_insert(now);
        }
    }

    /// Notes that a release of a queue begins.
    pub fn begin_release_of_queue(&mut self, queue: usize, now: Duration) {
        let holds = self.holds.0.entry(queue).or_default();
        if let Some(began) = holds.since.take() {
            holds.ended.push(Span { began, ended: now });
        }
    }

    /// Notes the outcome of a release. A hold that was answered while the release was in progress may have ended by it.
    pub fn end_release_of_queue(&mut self, queue: usize, released: Certainty) {
        let holds = self.holds.0.entry(queue).or_default();
        holds.since = None;
        holds.is_doubtful |= released == Certainty::Unknown;
    }

    /// A claim of a held queue gets no message.
    pub(super) fn check_hold(&mut self, queue: usize, claim: &str, span: Span) {
        if self.holds.0.get(&queue).is_some_and(|holds| holds.covers(span)) {
            self.violation(format!("claim {claim} of held queue {queue} was granted messages"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn violations(history: &mut History, (began, ended): (u64, u64)) -> usize {
        history.check_hold(0, "c", Span { began: at(began), ended: at(ended) });
        history.take_violations().len()
    }

    #[test]
    fn claim_within_hold_is_noticed() {
        let mut history = History::new(false, false);
        history.hold(0, at(10));
        assert_eq!([(9, 12), (10, 12), (11, 99)].map(|claim| violations(&mut history, claim)), [0, 1, 1]);
        history.begin_release_of_queue(0, at(20));
        history.end_release_of_queue(0, Certainty::Done);
        assert_eq!([(12, 19), (12, 21), (21, 22)].map(|claim| violations(&mut history, claim)), [1, 0, 0]);
    }

    #[test]
    fn release_in_doubt_ends_the_judgement() {
        let mut history = History::new(false, false);
        history.begin_release_of_queue(0, at(1));
        history.end_release_of_queue(0, Certainty::Unknown);
        history.hold(0, at(10));
        assert_eq!(violations(&mut history, (11, 12)), 0);
    }
}
