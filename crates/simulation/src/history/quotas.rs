//! The quota of the project: no post takes the messages that certainly are there beyond it.

use std::collections::BTreeSet;
use std::time::Duration;

use angarium_core::quota::{Amount, Quota};

use super::places::{body_number, is_topic};
use super::records::MessageHistory;
use super::{Certainty, History, Span};
use crate::requests::body_of;

/// The quotas of a run, and how far they can be judged.
#[derive(Debug, Default)]
pub(super) struct Quotas {
    /// Each quota, with the time from which it is in force.
    set: Vec<(Duration, Quota)>,
    /// Number of replicas.
    replicas: u64,
    /// Number of faults that had happened by the last look.
    faults: u64,
    /// No fault has happened since. What a replica holds in a queue is certainly counted once a post to that queue has
    /// succeeded after this time: a pool that has not answered since a start counts for nothing.
    steady_since: Duration,
}

impl History {
    /// Notes the number of replicas: each enforces its part of the quota.
    pub fn note_replicas(&mut self, replicas: usize) {
        self.quotas.replicas = u64::try_from(replicas).unwrap_or(u64::MAX);
    }

    /// Notes that a quota is in force from now on.
    pub fn set_quota(&mut self, quota: Quota, now: Duration) {
        self.quotas.set.push((now, quota));
    }

    /// Checks the quota after a successful post of messages to a queue: what was certainly there during all of the
    /// request, and the messages, are within it. `faults` have happened so far outside of clients. Slots that change
    /// hands let replicas exceed a quota together, so several of them are judged only while no fault can happen.
    pub fn check_quota(&mut self, queue: usize, numbers: &[u64], request: Span, faults: u64) {
        if self.quotas.set.is_empty() {
            return;
        }
        if faults > self.quotas.faults {
            (self.quotas.faults, self.quotas.steady_since) = (faults, request.ended);
        }
        let is_judged = self.quotas.replicas == 1 || self.is_calm();
        if !is_judged || is_topic(queue) || self.may_have_lost() {
            return;
        }
        let is_new = |number: &&u64| {
            let message = self.messages.get(number);
            message.is_some_and(|message| message.posts == 1 && message.posted == Certainty::Done)
        };
        let posted =
            numbers.iter().filter(is_new).fold(Amount::default(), |sum, new| sum.plus(amount_of(*new)));
        let there = self.certain_amount(request).plus(posted);
        let rounding = self.quotas.replicas.saturating_sub(1);
        let (messages, bytes) = self.bounds_within(request);
        let exceeds = |bound: Option<u64>, amount: u64| bound.is_some_and(|bound| amount > bound + rounding);
        if exceeds(messages, there.messages) || exceeds(bytes, there.bytes) {
            self.violation(format!(
                "a post to queue {queue} was stored, and there are {there:?} within {messages:?} messages, {bytes:?} bytes"
            ));
        }
    }

    /// Returns the greatest bounds of messages and bytes that were in force at a time of a request.
    fn bounds_within(&self, request: Span) -> (Option<u64>, Option<u64>) {
        let mut bounds: Option<(Option<u64>, Option<u64>)> = None;
        for (place, (since, quota)) in self.quotas.set.iter().enumerate() {
            let until = self.quotas.set.get(place + 1).map_or(Duration::MAX, |(next, _)| *next);
            if *since > request.ended || until < request.began {
                continue;
            }
            let greater = |one: Option<u64>, other: Option<u64>| Some(one?.max(other?));
            bounds = Some(bounds.map_or((quota.messages, quota.bytes), |(messages, bytes)| {
                (greater(messages, quota.messages), greater(bytes, quota.bytes))
            }));
        }
        bounds.unwrap_or_default()
    }

    /// Returns the amount that certainly was stored from the begin of a request to its end, and counted.
    fn certain_amount(&self, request: Span) -> Amount {
        let is_stored = |message: &&MessageHistory| {
            message.posted == Certainty::Done
                && message.post.ended <= request.began
                && message.terms.ttl.is_none()
                && !is_topic(message.terms.queue)
        };
        let stored = self.messages.values().filter(is_stored);
        let is_counted = |message: &&MessageHistory| message.post.began >= self.quotas.steady_since;
        let counted: BTreeSet<usize> = stored.filter(is_counted).map(|message| message.terms.queue).collect();
        let stays = |message: &MessageHistory| {
            message
                .deletes
                .iter()
                .all(|delete| delete.certainty == Certainty::NotDone || delete.span.began >= request.ended)
        };
        let there = self.messages.iter().filter(|(_, message)| {
            is_stored(message) && stays(message) && counted.contains(&message.terms.queue)
        });
        there.fold(Amount::default(), |sum, (number, _)| sum.plus(amount_of(*number)))
    }
}

fn amount_of(number: u64) -> Amount {
    let bytes = body_of(body_number(number)).to_string().len();
    Amount { messages: 1, bytes: u64::try_from(bytes).unwrap_or(0) }
}

#[cfg(test)]
mod tests {
    use super::super::PostTerms;
    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn span(began: u64, ended: u64) -> Span {
        Span { began: at(began), ended: at(ended) }
    }

    fn quota(messages: u64) -> Quota {
        Quota { messages: Some(messages), ..Quota::NONE }
    }

    /// A history of one replica with messages 0 and 1, and a quota of two messages.
    fn history() -> History {
        let mut history = History::new(false, false);
        history.note_replicas(1);
        history.set_quota(quota(2), at(0));
        [0, 1].into_iter().for_each(|number| post(&mut history, number, span(1, 2)));
        history
    }

    fn post(history: &mut History, number: u64, request: Span) {
        history.begin_post(number, &PostTerms::default(), request.began);
        history.end_post(number, request.ended, Certainty::Done);
    }

    fn is_noticed(history: &mut History, request: Span, faults: u64) -> bool {
        post(history, 2, request);
        history.check_quota(0, &[2], request, faults);
        !history.take_violations().is_empty()
    }

    #[test]
    fn post_beyond_quota_is_noticed() {
        assert!(is_noticed(&mut history(), span(3, 4), 0));
        // A message may be removed before the post.
        let mut history = history();
        history.begin_delete(0, 0, at(3));
        assert!(!is_noticed(&mut history, span(3, 4), 0));
    }

    #[test]
    fn greatest_quota_within_a_post_counts() {
        let mut history = history();
        history.set_quota(quota(3), at(4));
        assert!(!is_noticed(&mut history, span(3, 5), 0));
        let mut other = self::history();
        other.set_quota(quota(3), at(4));
        other.set_quota(quota(2), at(5));
        assert!(is_noticed(&mut other, span(6, 7), 0));
    }

    #[test]
    fn messages_before_a_fault_may_not_be_counted() {
        assert!(!is_noticed(&mut history(), span(3, 4), 1));
        let mut history = history();
        history.note_replicas(2);
        assert!(!is_noticed(&mut history, span(3, 4), 0));
    }
}
