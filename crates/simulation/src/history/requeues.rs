//! Requeues: a message that is done or failed and kept returns to its queue, a delayed one is ready earlier.

use std::time::Duration;

use super::records::{Arrival, Delete, LATEST, MessageHistory, Removal, shortest};
use super::{Certainty, History, Span};

/// A request that makes a message available again in its queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Requeue {
    queue: usize,
    span: Span,
    certainty: Certainty,
    /// Seconds until the message can be claimed.
    delay: u64,
}

/// A request for a task that moves dead letters back to their queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Redrive {
    queue: usize,
    span: Span,
}

impl Requeue {
    /// Whether it may have been carried out.
    fn is_possible(&self) -> bool {
        self.certainty != Certainty::NotDone
    }

    /// Returns the latest time at which it was carried out.
    fn latest(&self) -> Duration {
        if self.certainty == Certainty::Done { self.span.ended } else { self.span.began + LATEST }
    }
}

fn returned(queue: usize, began: Duration) -> Arrival {
    Arrival { queue, span: Span::open(began), certainty: Certainty::Unknown, is_new: false }
}

impl MessageHistory {
    /// Whether a requeue may have brought the message back after a delete.
    pub(super) fn may_be_requeued_after(&self, delete: &Delete) -> bool {
        let is_after = |requeue: &&Requeue| requeue.latest() >= delete.span.began;
        self.possible_requeues(delete.queue).any(|requeue| is_after(&requeue))
    }

    /// Whether any requeue of the message may have been carried out.
    pub(super) fn may_be_requeued(&self) -> bool {
        self.requeues.iter().any(Requeue::is_possible)
    }

    /// Whether a requeue certainly found the message after a delete, so that this has not removed it.
    pub(super) fn is_requeued_after(&self, delete: &Delete) -> bool {
        let ended = match (delete.certainty, delete.why) {
            // A move has an effect later.
            (_, Removal::Move) => return false,
            (Certainty::Unknown, _) => delete.span.began + LATEST,
            (Certainty::Done | Certainty::NotDone, _) => delete.span.ended,
        };
        self.requeues.iter().any(|requeue| {
            requeue.queue == delete.queue
                && requeue.certainty == Certainty::Done
                && requeue.span.began > ended
        })
    }

    /// Whether a message that was delivered by a request had been delayed by a requeue, for certain.
    pub(super) fn is_delayed_by_requeue(&self, queue: usize, request: Span) -> bool {
        let delays = |requeue: &&Requeue| {
            requeue.certainty == Certainty::Done
                && requeue.queue == queue
                && requeue.span.ended <= request.began
                && request.ended < requeue.span.began + shortest(requeue.delay)
        };
        let Some(last) = self.requeues.iter().find(delays) else { return false };
        let others = self.possible_requeues(queue).filter(|other| other.latest() >= last.span.began);
        others.count() == 1
    }

    fn possible_requeues(&self, queue: usize) -> impl Iterator<Item = &Requeue> {
        self.requeues.iter().filter(move |requeue| requeue.queue == queue && requeue.is_possible())
    }
}

impl History {
    /// Notes that a task may begin that moves the dead letters of a queue back to it. Returns its number.
    pub fn begin_redrive(&mut self, queue: usize, began: Duration) -> usize {
        self.redrives.push(Redrive { queue, span: Span::open(began) });
        for message in self.messages.values_mut().filter(|message| message.may_be_in(queue)) {
            message.arrivals.push(returned(queue, began));
        }
        self.redrives.len() - 1
    }

    /// Notes the outcome of that request. The task moves what it has found at its begin, and ends later.
    pub fn end_redrive(&mut self, redrive: usize, ended: Duration, certainty: Certainty) {
        if let Some(Redrive { span, .. }) = self.redrives.get_mut(redrive) {
            span.ended = if certainty == Certainty::Unknown { span.began + LATEST } else { ended };
        }
    }

    /// Returns the arrivals by tasks that may find a message posted now among the dead letters.
    pub(super) fn pending_redrives(&self, queue: usize, now: Duration) -> Vec<Arrival> {
        let pending = |one: &&Redrive| one.queue == queue && now <= one.span.ended;
        self.redrives.iter().filter(pending).map(|one| returned(queue, one.span.began)).collect()
    }

    /// Notes that a requeue begins. Returns its number among those of the message.
    pub fn begin_requeue(&mut self, queue: usize, number: u64, began: Duration, delay: u64) -> usize {
        let Some(message) = self.messages.get_mut(&number) else { return 0 };
        let (span, certainty) = (Span::open(began), Certainty::Unknown);
        message.requeues.push(Requeue { queue, span, certainty, delay });
        let place = message.requeues.len() - 1;
        self.begin_late_copies(queue, number, began);
        place
    }

    /// Notes the outcome of a requeue. Only a message that is there is requeued.
    pub fn end_requeue(&mut self, number: u64, place: usize, ended: Duration, certainty: Certainty) {
        let may_have_lost = self.may_have_lost() || self.may_be_stored_again(number);
        let Some(message) = self.messages.get_mut(&number) else { return };
        let Some(requeue) = message.requeues.get_mut(place) else { return };
        // It is no reason for itself.
        (requeue.span.ended, requeue.certainty) = (ended, Certainty::NotDone);
        let (began, queue) = (requeue.span.began, requeue.queue);
        let is_gone = |delete: &Delete| {
            delete.queue == queue
                && delete.why == Removal::Delete
                && !delete.may_keep
                && delete.certainty == Certainty::Done
                && delete.span.ended <= began
                && !message.may_have_returned(delete)
        };
        let was_gone = message.deletes.iter().any(is_gone);
        if let Some(requeue) = message.requeues.get_mut(place) {
            requeue.certainty = certainty;
        }
        if certainty == Certainty::Done && !may_have_lost && was_gone {
            self.violation(format!("message {number} was requeued after its delete"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{HeldClaim, HeldMessage, PostTerms};
    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn span(began: u64, ended: u64) -> Span {
        Span { began: at(began), ended: at(ended) }
    }

    /// A history with message 0, which was deleted from 3 to 4, or settled and perhaps kept.
    fn history(may_keep: bool) -> History {
        let mut history = History::new(false, false);
        history.begin_post(0, &PostTerms::default(), at(1));
        history.end_post(0, at(2), Certainty::Done);
        let delete = history.begin_delete(0, 0, at(3));
        history.end_delete(0, delete, at(4), Certainty::Done);
        if let Some(message) = history.messages.get_mut(&0) {
            message.deletes[delete].may_keep = may_keep;
        }
        history
    }

    fn requeue(history: &mut History, request: Span, delay: u64) {
        let requeue = history.begin_requeue(0, 0, request.began, delay);
        history.end_requeue(0, requeue, request.ended, Certainty::Done);
    }

    fn deliver(history: &mut History, request: Span) -> Vec<String> {
        let message = HeldMessage { number: 0, id: "m".into(), attempts: None };
        let claim = HeldClaim { id: format!("c{:?}", request.began), messages: vec![message] };
        history.deliver(0, &claim, request, at(0), 1);
        history.take_violations()
    }

    #[test]
    fn deleted_message_cannot_be_requeued() {
        let mut history = history(false);
        requeue(&mut history, span(5, 6), 0);
        assert_eq!(history.take_violations().len(), 1);
    }

    #[test]
    fn kept_message_returns_by_requeue() {
        assert_eq!(deliver(&mut history(true), span(5, 6)).len(), 1);
        // Not before its new delay, and once more at the end.
        for (request, violations) in [(span(9, 10), 1), (span(150, 151), 0)] {
            let mut history = history(true);
            requeue(&mut history, span(7, 8), 100);
            assert!(history.take_violations().is_empty());
            assert_eq!(deliver(&mut history, request).len(), violations);
        }
        let mut history = history(true);
        requeue(&mut history, span(7, 8), 0);
        history.check_all_delivered(at(200));
        assert_eq!(history.take_violations(), ["message 0 is lost"]);
    }
}
