//! The judges at the end of a run: no message was delivered after its life, and no claim waited in vain beside a ready
//! message.

use std::time::Duration;

use super::records::{Delivery, LATEST, MessageHistory, longest, shortest};
use super::{Certainty, DEAD_LETTERS, GRACE, HeldClaim, HeldMessage, History, Span};

/// The longest claim of a run, in seconds.
const LONGEST_CLAIM: u64 = 300;

/// The longest time for which claims and lives stay as they are because a slot is suspended: a sync that takes a minute,
/// and the recovery after it.
const MAX_SUSPENSION: Duration = Duration::from_secs(90);

/// A claim that waited and got no message, while no fault could happen.
#[derive(Clone, Copy, Debug)]
pub struct EmptyWait {
    /// The queue.
    pub queue: usize,
    /// When it began, and when it was answered.
    pub span: Span,
}

impl History {
    /// Notes a claim that waited and got no message.
    pub fn wait_in_vain(&mut self, wait: EmptyWait) {
        if self.is_calm() {
            self.empty_waits.push(wait);
        }
    }

    /// Checks that no message was delivered after its life. A claim that holds a message extends its life, also one
    /// whose client has no answer. A message that is moved may begin another life.
    pub fn check_lives(&mut self) {
        let is_late = |message: &MessageHistory, delivery: &Delivery| {
            let doubtful = self
                .claims_in_doubt
                .iter()
                .filter(|(queue, began)| message.may_be_in(*queue) && *began < delivery.span.ended);
            let doubtful = doubtful.map(|(_, began)| *began + LATEST + longest(LONGEST_CLAIM + GRACE));
            let before = message.deliveries.iter().filter(|other| other.span.began < delivery.span.ended);
            let others = before.filter(|other| other.claim != delivery.claim).map(|other| other.life);
            let end = others.chain(doubtful).chain(life_of_post(message)).max();
            let may_live_again =
                delivery.queue >= DEAD_LETTERS || !message.arrivals.is_empty() || message.may_be_requeued();
            !may_live_again && end.is_some_and(|end| delivery.span.began > end + MAX_SUSPENSION)
        };
        let mortal = self.messages.iter().filter(|(_, message)| message.terms.ttl.is_some());
        let late: Vec<u64> = mortal
            .filter(|(_, message)| message.deliveries.iter().any(|delivery| is_late(message, delivery)))
            .map(|(number, _)| *number)
            .collect();
        for number in late {
            self.violation(format!("message {number} was delivered after its life"));
        }
    }

    /// Whether a message that a claim for `ttl` seconds has held certainly exists: that claim has extended its life
    /// beyond `now`, and no request may have taken it out of its queue.
    pub fn must_live(&self, number: u64, claim: &str, ttl: u64, now: Duration) -> bool {
        let Some(message) = self.messages.get(&number) else { return false };
        let stays = !self.has_dead_letters
            && !self.may_have_lost()
            && message.arrivals.is_empty()
            && !message.may_be_requeued();
        let is_extended = |delivery: &Delivery| {
            delivery.claim == claim && now < delivery.span.began + shortest(ttl + GRACE)
        };
        stays
            && message.deletes.iter().all(|delete| delete.certainty == Certainty::NotDone)
            && message.deliveries.iter().any(is_extended)
    }

    /// Checks that a message was delivered that is stored, once its queue is empty, unless a client may have removed it.
    pub fn check_found(&mut self, number: u64) {
        let is_lost = self.messages.get(&number).is_some_and(|message| {
            message.posted == Certainty::Done
                && message.deliveries.is_empty()
                && message.deletes.iter().all(|delete| delete.certainty == Certainty::NotDone)
        });
        if is_lost && !self.may_have_lost() {
            self.violation(format!("message {number} is lost"));
        }
    }

    /// Checks, while no fault can happen, that a claim which may wait got its messages as soon as they were there:
    /// within `most`, if nothing kept them from it since their post.
    pub fn check_promptness(&mut self, queue: usize, claim: &HeldClaim, span: Span, most: Duration) {
        if !self.is_calm() || self.has_dead_letters || queue >= DEAD_LETTERS {
            return;
        }
        let mut late = Vec::new();
        for HeldMessage { number, .. } in &claim.messages {
            let is_free = |message: &&MessageHistory| is_free_since_post(message, queue, &claim.id);
            let free = self.messages.get(number).filter(is_free);
            let since = free.map(|message| message.post.ended.max(span.began));
            late.extend(since.filter(|since| span.ended > *since + most).map(|_| *number));
        }
        for number in late {
            let text = format!("a claim of queue {queue} waited beside message {number}, which was free");
            self.violation(text);
        }
    }

    /// Checks that no claim waited in vain while a message was ready for the second half of its wait.
    pub fn check_waits(&mut self) {
        if self.has_dead_letters || self.may_have_lost() {
            return;
        }
        let mut missed = Vec::new();
        for EmptyWait { queue, span } in &self.empty_waits {
            let second_half = Span { began: span.began + (span.ended - span.began) / 2, ended: span.ended };
            let ready = self.messages.iter().find(|(_, message)| is_ready(message, *queue, second_half));
            missed.extend(ready.map(|(number, _)| (*queue, *number)));
        }
        for (queue, number) in missed {
            self.violation(format!(
                "a claim of queue {queue} waited in vain, and message {number} was ready"
            ));
        }
    }
}

/// Returns the latest end of the life of a message without claims, if it has one within the run.
fn life_of_post(message: &MessageHistory) -> Option<Duration> {
    let ttl = message.terms.ttl?;
    let posted = match message.posted {
        Certainty::Done => message.post.ended,
        Certainty::NotDone | Certainty::Unknown => message.post.began + LATEST,
    };
    Some(posted + longest(message.terms.delay + ttl))
}

/// Whether nothing but one claim has had a message of a standard queue since its post.
fn is_free_since_post(message: &MessageHistory, queue: usize, claim: &str) -> bool {
    message.terms.queue == queue
        && message.terms.group.is_none()
        && !message.terms.is_fifo
        && message.forwarded_by.is_none()
        && message.arrivals.is_empty()
        && message.posted == Certainty::Done
        && message.posts == 1
        && message.terms.delay == 0
        && message.delays.is_empty()
        && message.requeues.is_empty()
        && message.visibilities.is_empty()
        && message.deliveries.iter().all(|delivery| delivery.claim == claim)
}

/// Whether a message of a standard queue could certainly be claimed during a whole time.
fn is_ready(message: &MessageHistory, queue: usize, time: Span) -> bool {
    let is_free = |delivery: &Delivery| delivery.over <= time.began || delivery.span.began >= time.ended;
    message.terms.queue == queue
        && message.terms.group.is_none()
        && message.terms.ttl.is_none()
        && message.forwarded_by.is_none()
        && message.arrivals.is_empty()
        && message.posted == Certainty::Done
        && message.post.ended <= time.began
        && message.requeues.is_empty()
        && message.delays.iter().all(|delay| delay.over <= time.began)
        && message
            .deletes
            .iter()
            .all(|delete| delete.certainty == Certainty::NotDone || delete.span.began >= time.ended)
        && message.deliveries.iter().all(is_free)
}
