//! What clients did and learnt, message by message, and the promises that each answer must keep.

use std::collections::BTreeMap;
use std::time::Duration;

mod claims;
mod holds;
mod lives;
mod places;
mod pops;
mod quotas;
mod records;
mod requeues;
mod settles;
mod subscription_changes;
mod subscription_terms;
mod subscriptions;
#[cfg(test)]
mod tests;

use records::{Delay, Delete, Delivery, MessageHistory, Removal, longest, shortest};
use settles::Settle;
use subscriptions::SubscriptionHistory;

pub use holds::{HeldPosts, HeldResource, HoldTerms};
pub use lives::EmptyWait;
pub use places::{
    DEAD_LETTERS, KINDS, SINKS, SQS_FIFO, SUBSCRIPTIONS, TOPIC_COUNT, TOPICS, filled_by, kind_of, number_in,
};
pub use records::{Certainty, HeldClaim, HeldMessage, LATEST, PostTerms, Span};
pub use settles::{Effect, EntryAnswer, SettleTerms};
pub use subscription_changes::{ChangeHistory, ChangedTerms};
pub use subscription_terms::{
    Bound, CopyCounts, FoundSubscription, FullEffect, POST_MESSAGES, SubscriptionTerms,
};

/// Seconds that a message lives at least after its claim has ended.
const GRACE: u64 = 60;

/// The histories of all messages of a run.
#[derive(Debug, Default)]
pub struct History {
    messages: BTreeMap<u64, MessageHistory>,
    violations: Vec<String>,
    operations: u64,
    /// How many requests had each outcome.
    outcomes: BTreeMap<String, u64>,
    /// Whether messages leave their queue by themselves, so that a later one of their group may be next.
    has_dead_letters: bool,
    /// Whether pools may lose what they have answered.
    is_relaxed: bool,
    /// Whether a storage has lost writes that were not synced.
    has_lost_writes: bool,
    /// Requests that remove all messages of a queue, or some of them.
    removals: Vec<RemovalOfMany>,
    /// Tasks that move dead letters back to a queue.
    redrives: Vec<requeues::Redrive>,
    /// Number of pops.
    pops: u64,
    /// The entries of all settles.
    settles: Vec<Settle>,
    /// When claims without an answer began, with their queue.
    claims_in_doubt: Vec<(usize, Duration)>,
    /// Claims that waited and got no message, while no fault could happen.
    empty_waits: Vec<EmptyWait>,
    holds: holds::Holds,
    quotas: quotas::Quotas,
    subscriptions: Vec<SubscriptionHistory>,
    /// What the subscriptions that were there at the end counted as left out and dropped.
    omitted: CopyCounts,
    /// Whether no fault can happen now, so that every request succeeds in time.
    is_calm: bool,
}

/// A request that may remove any message of a queue.
#[derive(Clone, Copy, Debug)]
struct RemovalOfMany {
    queue: usize,
    span: Span,
    why: Removal,
}

/// Numbers of a history.
#[derive(Clone, Copy, Debug, Default)]
pub struct HistoryCounts {
    /// Requests with an answer, of any kind.
    pub operations: u64,
    /// Messages whose post succeeded.
    pub posted: u64,
    /// Deliveries of messages.
    pub delivered: u64,
    /// Messages whose delete succeeded.
    pub deleted: u64,
    /// What subscriptions got.
    pub copies: CopyCounts,
}

impl HistoryCounts {
    /// Adds the numbers of another history.
    pub fn merge(&mut self, other: Self) {
        self.operations += other.operations;
        self.posted += other.posted;
        self.delivered += other.delivered;
        self.deleted += other.deleted;
        self.copies.merge(other.copies);
    }
}

impl History {
    /// Creates a history without messages. With dead letters the order within groups is not checked. In relaxed queues
    /// neither that is checked nor what a loss may undo, once a storage has lost writes.
    pub fn new(has_dead_letters: bool, is_relaxed: bool) -> Self {
        Self { has_dead_letters, is_relaxed, ..Self::default() }
    }

    /// Notes that a storage has lost writes that were not synced.
    pub fn note_lost_writes(&mut self) {
        self.has_lost_writes = true;
    }

    /// Whether answered writes may be lost, so that messages are lost or return.
    fn may_have_lost(&self) -> bool {
        self.is_relaxed && self.has_lost_writes
    }

    /// Counts a request.
    pub fn count_operation(&mut self) {
        self.operations += 1;
    }

    /// Counts the outcome of a request.
    pub fn count_outcome(&mut self, outcome: &str) {
        *self.outcomes.entry(outcome.to_owned()).or_default() += 1;
    }

    /// Returns how many requests had each outcome.
    pub fn outcomes(&self) -> &BTreeMap<String, u64> {
        &self.outcomes
    }

    /// Notes a broken promise.
    pub fn violation(&mut self, text: String) {
        self.violations.push(text);
    }

    /// Takes the broken promises.
    pub fn take_violations(&mut self) -> Vec<String> {
        std::mem::take(&mut self.violations)
    }

    /// Sets whether no fault can happen from now on.
    pub fn set_calm(&mut self, is_calm: bool) {
        self.is_calm = is_calm;
    }

    /// Whether no fault can happen now.
    pub fn is_calm(&self) -> bool {
        self.is_calm
    }

    /// Notes that the post of a message begins, or is repeated with its deduplication id.
    pub fn begin_post(&mut self, number: u64, terms: &PostTerms, began: Duration) {
        let deletes = self.pending_removals(terms.queue, began);
        let arrivals = self.pending_redrives(terms.queue, began);
        let message = self.messages.entry(number).or_insert_with(|| {
            let mut message = MessageHistory::begun(terms.clone(), began);
            (message.deletes, message.arrivals) = (deletes, arrivals);
            message
        });
        message.posts += 1;
        message.open_posts += 1;
        if message.posted == Certainty::NotDone {
            message.posted = Certainty::Unknown;
        }
        self.begin_copies(number, began);
    }

    /// Returns the removals of many messages of a queue which may reach one that arrives now.
    fn pending_removals(&self, queue: usize, now: Duration) -> Vec<Delete> {
        let removals =
            self.removals.iter().filter(|removal| removal.queue == queue && now <= removal.span.ended);
        let delete = |removal: &RemovalOfMany| Delete {
            span: removal.span,
            ..Delete::begun(removal.queue, removal.span.began, removal.why)
        };
        removals.map(delete).collect()
    }

    /// Notes the outcome of a post. Several posts of one message may be in progress: it is refused when all are.
    pub fn end_post(&mut self, number: u64, ended: Duration, posted: Certainty) {
        let Some(message) = self.messages.get_mut(&number) else { return };
        let request = Span { began: message.post.began, ended };
        message.open_posts = message.open_posts.saturating_sub(1);
        message.is_post_in_doubt |= posted == Certainty::Unknown;
        let is_in_doubt = message.is_post_in_doubt || message.open_posts > 0;
        let outcome = match posted {
            Certainty::NotDone if is_in_doubt => Certainty::Unknown,
            other => other,
        };
        self.set_posted(number, ended, outcome);
        // The outcome of all of its posts together.
        let stored = self.messages.get(&number).map_or(outcome, |message| message.posted);
        self.end_copies(number, ended, stored);
        if posted == Certainty::Done {
            self.check_post_holds(number, request);
        }
    }

    /// Sets the outcome of a post or a forward, unless it is known to be stored.
    fn set_posted(&mut self, number: u64, ended: Duration, posted: Certainty) {
        let Some(message) = self.messages.get_mut(&number) else { return };
        message.post.ended = ended;
        if message.posted != Certainty::Done {
            message.posted = posted;
            if posted == Certainty::Done && message.terms.delay > 0 {
                let PostTerms { queue, delay, .. } = message.terms;
                let over = ended + longest(delay);
                let until = message.post.began + shortest(delay);
                message.delays.push(Delay { queue, since: Duration::ZERO, until, over });
            }
        }
        if message.posted == Certainty::NotDone && !message.deliveries.is_empty() {
            self.violation(format!("message {number} was delivered, and its post was refused"));
        }
    }

    /// Notes the messages of a claim for `ttl` seconds, in the order of the answer. `lease` is the least time that the
    /// claim lives.
    pub fn deliver(&mut self, queue: usize, claim: &HeldClaim, span: Span, lease: Duration, ttl: u64) {
        self.deliver_behind(queue, claim, &[], span, lease, ttl);
    }

    /// As `deliver`, for a claim behind others of the same answer, which have the messages `before`.
    pub fn deliver_behind(
        &mut self,
        queue: usize,
        claim: &HeldClaim,
        before: &[u64],
        span: Span,
        lease: Duration,
        ttl: u64,
    ) {
        self.check_claim_holds(queue, claim, span);
        let mut numbers = before.to_vec();
        numbers.extend(claim.messages.iter().map(|message| message.number));
        for (place, HeldMessage { number, id, attempts }) in claim.messages.iter().enumerate() {
            self.check_id(*number, id);
            let claim = claim.id.as_str();
            self.admit_copy(*number, span.began);
            self.learn_from_delivery(queue, claim, *number, span);
            self.check_delivery(queue, claim, *number, span);
            self.check_delays(queue, *number, span);
            self.check_copy(*number, claim, span);
            if !self.has_dead_letters && !self.may_have_lost() {
                self.check_order(queue, *number, &numbers[..before.len() + place], span);
            }
            let Some(message) = self.messages.get_mut(number) else { continue };
            let mut delivery = Delivery {
                queue,
                claim: claim.to_owned(),
                span,
                attempts: *attempts,
                lease,
                doubtful_lease: Duration::MAX,
                released: None,
                is_settled: false,
                may_be_split: false,
                over: span.ended + longest(ttl),
                life: span.ended + longest(ttl + GRACE),
            };
            let changes = message.visibilities.iter().filter(|change| change.span.ended >= span.began);
            changes.for_each(|change| delivery.change(change));
            message.deliveries.push(delivery);
        }
    }

    /// A delayed message is not delivered before its time.
    fn check_delays(&mut self, queue: usize, number: u64, span: Span) {
        let Some(message) = self.messages.get(&number).filter(|_| !self.may_have_lost()) else { return };
        let is_early =
            |delay: &Delay| delay.queue == queue && span.began >= delay.since && span.ended < delay.until;
        // A repeated post that a purge has made a new one has a delay of its own.
        let is_early = message.is_delayed_by_requeue(queue, span)
            // A requeue ends the delay before.
            || message.delays.iter().any(is_early)
                && !message.may_be_requeued()
                && !message.may_return_from_dead();
        if is_early && !self.may_be_stored_again(number) {
            self.violation(format!("message {number} was delivered before its time"));
        }
    }

    /// Notes the id of a message in an answer. A message with a deduplication id is stored once.
    pub fn check_id(&mut self, number: u64, id: &str) {
        let may_differ = self.may_have_lost() || self.may_be_stored_again(number);
        let Some(message) = self.messages.get_mut(&number) else { return };
        let first = message.id.get_or_insert_with(|| id.to_owned());
        let differs = first != id;
        // A fail-over can undo a post with its deduplication id.
        if differs && !may_differ {
            let first = message.id.clone().unwrap_or_default();
            let text = format!("message {number} is stored twice, as {first} and {id}");
            self.violation(text);
        }
    }

    fn check_delivery(&mut self, queue: usize, claim: &str, number: u64, span: Span) {
        let Some(message) = self.messages.get(&number) else {
            let text = match filled_by(queue) {
                Some(of) => {
                    format!("message {number} was delivered, and subscription {of} copies no such message")
                }
                None => format!("message {number} was delivered, and no client posted it"),
            };
            self.violation(text);
            return;
        };
        let mut broken = Vec::new();
        // The queue of dead letters of a queue has its messages.
        if !message.may_be_in(queue) {
            broken
                .push(format!("message {number} of queue {} was delivered by {queue}", message.terms.queue));
        }
        if message.posted == Certainty::NotDone {
            broken.push(format!("message {number} was delivered, and its post was refused"));
        }
        let is_deleted = |delete: &Delete| {
            delete.queue == queue
                && delete.certainty == Certainty::Done
                && delete.span.ended <= span.began
                && !message.may_have_returned(delete)
        };
        let may_return = self.may_have_lost() || self.may_be_stored_again(number);
        if message.deletes.iter().any(is_deleted) && !may_return {
            broken.push(format!("message {number} was delivered by claim {claim} after its delete"));
        }
        let is_held = |other: &&Delivery| {
            let ends = other
                .released
                .unwrap_or(other.span.began.saturating_add(other.lease.min(other.doubtful_lease)));
            other.claim != claim && other.span.ended <= span.began && span.ended < ends
        };
        // A delete that a pool has lost ended the claim, and the message returns.
        let may_return = may_return && !message.deletes.is_empty();
        if let Some(other) = message.deliveries.iter().find(is_held).filter(|_| !may_return) {
            broken.push(format!("message {number} is under two claims, {} and {claim}", other.claim));
        }
        // A post that was lost and repeated may have sent a copy to another queue each time, and a message that was moved
        // to the source of a subscription more than once is copied each time.
        let may_be_twice =
            self.may_have_lost() && filled_by(queue).is_some() || self.may_be_stored_again(number);
        if message.deliveries.iter().any(|other| other.claim == claim) && !may_be_twice {
            broken.push(format!("message {number} was delivered twice by claim {claim}"));
        }
        self.violations.extend(broken);
    }

    /// Within a group of a FIFO queue no message is delivered before an earlier one that is certainly there.
    fn check_order(&mut self, queue: usize, number: u64, before: &[u64], span: Span) {
        let Some(message) = self.messages.get(&number).filter(|message| message.is_ordered()) else { return };
        let Some(group) = &message.terms.group else { return };
        let overtakes = |(other, earlier): &(&u64, &MessageHistory)| {
            let is_there = earlier.posted == Certainty::Done
                && earlier.post.ended <= message.post.began
                && earlier
                    .deletes
                    .iter()
                    .all(|delete| delete.certainty == Certainty::NotDone || delete.span.began >= span.ended);
            // Numbers are given in the order in which posts begin.
            **other < number
                && earlier.terms.queue == queue
                && earlier.terms.group.as_ref() == Some(group)
                && earlier.is_ordered()
                && is_there
                && !before.contains(other)
        };
        let overtaken = self.messages.iter().find(overtakes).map(|(other, _)| *other);
        if let Some(other) = overtaken {
            self.violation(format!("message {number} overtook {other} of its group"));
        }
    }

    /// Notes that a delete of a message begins. Returns its number among the deletes of the message.
    pub fn begin_delete(&mut self, queue: usize, number: u64, began: Duration) -> usize {
        let Some(message) = self.messages.get_mut(&number) else { return 0 };
        message.deletes.push(Delete::begun(queue, began, Removal::Delete));
        message.deletes.len() - 1
    }

    /// Notes that a request which removes all messages of a queue begins: each one that is there, or is posted before
    /// the end of the request, may be removed.
    pub fn begin_removal_of_all(&mut self, queue: usize, began: Duration) {
        self.removals.push(RemovalOfMany { queue, span: Span::open(began), why: Removal::All });
        let removed = self.messages.values_mut().filter(|message| message.may_be_in(queue));
        for message in removed {
            message.deletes.push(Delete::begun(queue, began, Removal::All));
        }
    }

    /// Notes the outcome of that request. Once it is done, every message that was there before it is gone.
    pub fn end_removal_of_all(
        &mut self,
        queue: usize,
        began: Duration,
        ended: Duration,
        certainty: Certainty,
    ) {
        let is_that = |removal: &&mut RemovalOfMany| {
            removal.why == Removal::All && removal.queue == queue && removal.span.began == began
        };
        if let Some(removal) = self.removals.iter_mut().find(is_that) {
            removal.span.ended = if certainty == Certainty::Unknown { began + LATEST } else { ended };
        }
        if certainty == Certainty::Unknown {
            return;
        }
        for message in self.messages.values_mut() {
            // A message that was forwarded arrives some time after the answer.
            let has_arrived = message.forwarded_by.is_none()
                || message
                    .deliveries
                    .iter()
                    .any(|delivery| delivery.queue == queue && delivery.span.ended <= began);
            let was_there = has_arrived
                && message.terms.queue == queue
                && message.posted == Certainty::Done
                && message.post.ended <= began;
            let is_of_removal = |delete: &&mut Delete| {
                delete.why == Removal::All && delete.queue == queue && delete.span.began == began
            };
            let of_removal = message.deletes.iter_mut().find(is_of_removal);
            if let Some(delete) = of_removal
                && (was_there || certainty == Certainty::NotDone)
            {
                delete.span.ended = ended;
                delete.certainty = certainty;
            }
        }
    }

    /// Notes the outcome of a delete.
    pub fn end_delete(&mut self, number: u64, delete: usize, ended: Duration, certainty: Certainty) {
        let delete = self.messages.get_mut(&number).and_then(|message| message.deletes.get_mut(delete));
        if let Some(delete) = delete {
            delete.span.ended = ended;
            delete.certainty = certainty;
        }
    }

    /// Checks, once nothing is left to claim, that every message that should be there was delivered after `since`, or
    /// may have been deleted.
    pub fn check_all_delivered(&mut self, since: Duration) {
        if self.may_have_lost() {
            return;
        }
        let is_lost = |message: &MessageHistory| {
            let is_deleted = message.deletes.iter().any(|delete| {
                delete.certainty != Certainty::NotDone
                    && delete.why != Removal::Move
                    && !message.is_requeued_after(delete)
            });
            let is_delivered = message.deliveries.iter().any(|delivery| delivery.span.began >= since);
            let is_long = message.terms.ttl.is_none();
            let is_kept = !places::is_topic(message.terms.queue);
            message.posted == Certainty::Done && is_kept && is_long && !is_deleted && !is_delivered
        };
        let lost: Vec<u64> =
            self.messages.iter().filter(|(_, message)| is_lost(message)).map(|(number, _)| *number).collect();
        for number in lost {
            self.violation(format!("message {number} is lost"));
        }
    }

    /// Returns the numbers of the history.
    pub fn counts(&self) -> HistoryCounts {
        let messages = self.messages.values();
        HistoryCounts {
            operations: self.operations,
            posted: count(messages.clone().filter(|message| message.posted == Certainty::Done)),
            copies: self.copy_counts(),
            delivered: messages.clone().map(|message| count(message.deliveries.iter())).sum(),
            deleted: count(
                messages.filter(|message| {
                    message.deletes.iter().any(|delete| delete.certainty == Certainty::Done)
                }),
            ),
        }
    }
}

fn count<T>(items: impl Iterator<Item = T>) -> u64 {
    u64::try_from(items.count()).unwrap_or(u64::MAX)
}
