//! Subscriptions and their copies. A copy is a message of its own, with a number that tells its subscription.
//!
//! What a subscription may get is entered when the post begins, or the subscription: a copy that was not entered has no
//! source. What it must have got is decided at the end, when it is known which subscriptions are there, and which posts were
//! stored: each one of a post is stored if the message is, or another copy of it.

use std::collections::BTreeMap;
use std::time::Duration;

use super::places::{SINKS, SUBSCRIPTIONS, copy_number, is_sink, is_topic, kind_of, subscription_of};
use super::records::{Delete, MessageHistory, Removal, longest};
use super::subscription_terms::{CopyCounts, FoundSubscription, FullEffect, SubscriptionTerms};
use super::{Certainty, History, LATEST, PostTerms, Span, count};

/// The longest time for which an ended subscription stays because its slot is not served.
pub(super) const MAX_STAY: Duration = Duration::from_secs(120);

/// The history of a subscription.
#[derive(Clone, Debug)]
pub(super) struct SubscriptionHistory {
    pub(super) terms: SubscriptionTerms,
    created: Span,
    certainty: Certainty,
    id: Option<String>,
    /// When the first request began that may delete it.
    deleted: Option<Duration>,
    /// When it had certainly ended.
    gone: Option<Duration>,
}

impl SubscriptionHistory {
    /// Whether it certainly has a copy of a message that waits in its own queue, as soon as the post is answered.
    fn is_certain(&self, post_began: Duration) -> bool {
        let may_leave_out = self.terms.bound.is_some_and(|bound| bound.overflow != FullEffect::Refuse);
        self.certainty == Certainty::Done
            && self.created.ended <= post_began
            && self.deleted.is_none()
            && self.terms.ttl.is_none()
            && !self.terms.is_sent_on
            && !may_leave_out
    }

    fn accepts(&self, number: u64) -> bool {
        self.terms.filter.is_none_or(|kind| kind == kind_of(number))
    }

    fn is_gone(&self, now: Duration) -> bool {
        self.certainty == Certainty::NotDone || self.gone.is_some_and(|gone| gone <= now)
    }
}

impl History {
    /// Notes that the creation of a subscription begins. Returns its number.
    pub fn begin_subscription(&mut self, terms: SubscriptionTerms, began: Duration) -> usize {
        let subscription = self.subscriptions.len();
        let waiting: Vec<u64> = self
            .messages
            .iter()
            .filter(|(_, message)| message.terms.queue == terms.source && may_come(message, &terms, began))
            .map(|(number, _)| *number)
            .collect();
        // The queue may be deleted afterwards.
        let deleted = (!self.pending_removals(terms.source, began).is_empty()).then_some(began);
        self.subscriptions.push(SubscriptionHistory {
            terms,
            created: Span::open(began),
            certainty: Certainty::Unknown,
            id: None,
            deleted,
            gone: None,
        });
        waiting.into_iter().for_each(|number| self.begin_copy(subscription, number, began));
        subscription
    }

    /// Notes the outcome of the creation of a subscription, with its id.
    pub fn end_subscription(
        &mut self,
        number: usize,
        ended: Duration,
        created: Certainty,
        id: Option<String>,
    ) {
        let Some(subscription) = self.subscriptions.get_mut(number) else { return };
        let began = subscription.created.began;
        subscription.created.ended = if created == Certainty::Unknown { began + LATEST } else { ended };
        (subscription.certainty, subscription.id) = (created, id);
        if let Some(ttl) = subscription.terms.ttl {
            let ends = subscription.created.ended + longest(ttl) + MAX_STAY;
            subscription.gone = Some(subscription.gone.map_or(ends, |gone| gone.min(ends)));
        }
    }

    /// Notes the id of a subscription that was found.
    pub fn note_subscription(&mut self, number: usize, id: &str) {
        if let Some(subscription) = self.subscriptions.get_mut(number) {
            subscription.id.get_or_insert_with(|| id.to_owned());
        }
    }

    /// Notes that a request begins that deletes a subscription, its source, or the pool of both.
    pub fn begin_unsubscription(&mut self, number: usize, began: Duration) {
        let Some(subscription) = self.subscriptions.get_mut(number) else { return };
        subscription.deleted.get_or_insert(began);
        for (copy, message) in &mut self.messages {
            if subscription_of(*copy) == Some(number) {
                message.deletes.push(Delete::begun(message.terms.queue, began, Removal::All));
            }
        }
    }

    /// Whether the deletion has begun of a subscription that a request names.
    pub fn deletes_subscription_of(&self, request: &str) -> bool {
        let is_named = |id: &String| request.contains(id.as_str());
        self.subscriptions.iter().any(|one| one.deleted.is_some() && one.id.as_ref().is_some_and(is_named))
    }

    /// Notes the outcome of that request.
    pub fn end_unsubscription(&mut self, number: usize, request: Span, deleted: Certainty) {
        let Some(subscription) = self.subscriptions.get_mut(number) else { return };
        // A creation without an answer may still be carried out.
        let was_there =
            subscription.certainty == Certainty::Done && subscription.created.ended < request.began;
        if deleted == Certainty::Done && was_there {
            subscription.gone = Some(subscription.gone.map_or(request.ended, |gone| gone.min(request.ended)));
        }
    }

    /// Returns the subscriptions of a queue or a topic.
    pub fn subscriptions_of(&self, source: usize) -> Vec<usize> {
        let all = self.subscriptions.iter().enumerate();
        all.filter(|(_, one)| one.terms.source == source).map(|(number, _)| number).collect()
    }

    /// Whether a subscription may be there: all have not certainly been deleted.
    pub fn has_subscription(&self) -> bool {
        self.subscriptions.iter().any(|one| one.certainty != Certainty::NotDone && one.gone.is_none())
    }

    /// Returns the number of subscriptions, which may not have been created.
    pub fn subscription_count(&self) -> usize {
        self.subscriptions.len()
    }

    /// Returns the terms of a subscription, with its id if that is known.
    pub fn subscription(&self, number: usize) -> Option<(&SubscriptionTerms, Option<&str>)> {
        let subscription = self.subscriptions.get(number)?;
        Some((&subscription.terms, subscription.id.as_deref()))
    }

    /// Returns the queues in which consumers find copies: subscriptions with a known id, and queues that are filled.
    pub fn readers(&self) -> Vec<usize> {
        let reader = |(number, one): (usize, &SubscriptionHistory)| match one.terms.is_sent_on {
            true => Some(SINKS + number),
            false => one.id.is_some().then_some(SUBSCRIPTIONS + number),
        };
        self.subscriptions.iter().enumerate().filter_map(reader).collect()
    }

    /// Enters the copies that a post may bring.
    pub(super) fn begin_copies(&mut self, number: u64, began: Duration) {
        let Some(queue) = self.messages.get(&number).map(|message| message.terms.queue) else { return };
        for subscription in self.subscriptions_of(queue) {
            if self.subscriptions.get(subscription).is_some_and(|one| !one.is_gone(began)) {
                self.begin_copy(subscription, number, began);
            }
        }
    }

    /// Enters the copies that a fill, or the end of a suspension, may bring of a message that waits again.
    pub(super) fn begin_late_copies(&mut self, queue: usize, number: u64, began: Duration) {
        for subscription in self.subscriptions_of(queue) {
            let reads_queue = self.subscriptions.get(subscription).is_some_and(|one| {
                !one.is_gone(began) && (one.terms.is_from_oldest || one.terms.bound.is_some())
            });
            if reads_queue {
                self.begin_copy(subscription, number, began);
            }
        }
    }

    fn begin_copy(&mut self, subscription: usize, number: u64, began: Duration) {
        let (Some(one), Some(message)) = (self.subscriptions.get(subscription), self.messages.get(&number))
        else {
            return;
        };
        if !one.accepts(number) {
            return;
        }
        let queue = if one.terms.is_sent_on { SINKS + subscription } else { SUBSCRIPTIONS + subscription };
        let is_fifo = message.terms.is_fifo && !one.terms.is_sent_on;
        let terms = PostTerms { queue, is_fifo, ..message.terms.clone() };
        let (post_began, deletes) = (message.post.began, self.pending_removals(queue, began));
        let copy = self.messages.entry(copy_number(subscription, number)).or_insert_with(|| {
            let mut copy = MessageHistory::begun(terms, post_began);
            copy.deletes = deletes;
            copy
        });
        if copy.posted == Certainty::NotDone {
            copy.posted = Certainty::Unknown;
        }
        self.begin_copies(copy_number(subscription, number), began);
    }

    /// Enters the outcome of a post for its copies.
    pub(super) fn end_copies(&mut self, number: u64, ended: Duration, posted: Certainty) {
        let Some(message) = self.messages.get(&number) else { return };
        let (queue, began) = (message.terms.queue, message.post.began);
        for subscription in self.subscriptions_of(queue) {
            let copy = copy_number(subscription, number);
            let is_certain = self.subscriptions.get(subscription).is_some_and(|one| one.is_certain(began));
            match posted {
                Certainty::Done if is_certain && !is_sink(queue) => self.set_posted(copy, ended, posted),
                Certainty::NotDone => {
                    self.set_posted(copy, ended, posted);
                    self.end_copies(copy, ended, posted);
                }
                Certainty::Done | Certainty::Unknown => {}
            }
        }
    }

    /// Enters a copy that was delivered and is none of a post, if its message may have arrived in its source.
    pub(super) fn admit_copy(&mut self, number: u64, delivered: Duration) {
        if self.messages.contains_key(&number) {
            return;
        }
        let Some(subscription) = subscription_of(number) else { return };
        let Some(source) = self.source_of(number) else { return };
        self.admit_copy(source, delivered);
        let is_there = self.subscriptions.get(subscription).is_some_and(|one| {
            let arrives = self.messages.get(&source).is_some_and(|message| message.arrives(one.terms.source));
            arrives || subscription_of(source).is_some() && self.may_be_copied_again(source)
        });
        if is_there {
            self.begin_copy(subscription, source, delivered);
        }
    }

    /// Returns the number of the message that a copy is of; none for a message of a client.
    fn source_of(&self, number: u64) -> Option<u64> {
        let source = self.subscriptions.get(subscription_of(number)?)?.terms.source;
        Some(super::places::number_in(source, super::places::body_number(number)))
    }

    /// Whether a message may be stored more than once: a repeated post has stored it again, or it is the copy of a message
    /// that has been new in its queue more than once.
    pub(super) fn may_be_stored_again(&self, number: u64) -> bool {
        let again = self.messages.get(&number).is_some_and(MessageHistory::may_be_stored_again);
        again || self.may_be_copied_again(number)
    }

    fn may_be_copied_again(&self, number: u64) -> bool {
        let Some(one) = subscription_of(number).and_then(|of| self.subscriptions.get(of)) else {
            return false;
        };
        let Some(source) = self.source_of(number) else { return false };
        let arrives = self.messages.get(&source).is_some_and(|message| message.arrives(one.terms.source));
        arrives || self.may_be_stored_again(source)
    }

    /// A copy is delivered by a subscription that was created.
    pub(super) fn check_copy(&mut self, number: u64, claim: &str, request: Span) {
        let Some(of) = subscription_of(number) else { return };
        let Some(one) = self.subscriptions.get(of) else { return };
        if one.certainty == Certainty::NotDone {
            self.violation(format!("subscription {of} was refused, and claim {claim} has its copy {number}"));
        }
        self.check_overtaken(number, request);
    }

    /// In a FIFO subscription no copy is delivered for the first time after a later one of its group, whether it came with
    /// its post or by a fill.
    fn check_overtaken(&mut self, number: u64, request: Span) {
        if self.has_dead_letters || self.may_have_lost() || self.may_be_stored_again(number) {
            return;
        }
        let Some(copy) = self.messages.get(&number).filter(|copy| copy.is_ordered()) else { return };
        let source = self.source_of(number).and_then(|source| self.messages.get(&source));
        let posted = source.filter(|source| source.posted == Certainty::Done).map(|source| source.post.ended);
        let Some(posted) = posted.filter(|_| copy.deliveries.is_empty() && copy.deletes.is_empty()) else {
            return;
        };
        let is_later = |(other, message): &(&u64, &MessageHistory)| {
            **other > number
                && message.terms.queue == copy.terms.queue
                && message.terms.group == copy.terms.group
                && posted <= message.post.began
                && message.is_ordered()
                && message.deliveries.iter().any(|delivery| delivery.span.ended <= request.began)
        };
        let later = self.messages.range(number..).find(is_later).map(|(other, _)| *other);
        if let Some(other) = later {
            self.violation(format!("copy {number} came after {other} of its group"));
        }
    }

    /// Checks what each subscription has got, once all copies were taken out. `found` are the subscriptions that are there;
    /// no message of a source was taken out since `since`.
    pub fn check_subscriptions(&mut self, found: &BTreeMap<usize, FoundSubscription>, since: Duration) {
        for FoundSubscription { left_out, dropped } in found.values() {
            self.omitted.left_out += left_out;
            self.omitted.dropped += dropped;
        }
        if self.may_have_lost() {
            return;
        }
        let mut broken = Vec::new();
        for (number, one) in self.subscriptions.iter().enumerate() {
            let may_be_gone = one.deleted.is_some() || one.terms.ttl.is_some();
            match found.get(&number) {
                None if one.certainty == Certainty::Done && !may_be_gone => {
                    broken.push(format!("subscription {number} is lost"));
                }
                None => {}
                Some(_) if one.is_gone(since) => {
                    broken.push(format!("subscription {number} is there, and should not be"));
                }
                Some(found) => broken.extend(self.check_copies(number, *found, since)),
            }
        }
        broken.into_iter().for_each(|text| self.violation(text));
    }

    /// Compares the copies of a subscription that was there all the time with the messages of its source.
    fn check_copies(&self, number: usize, found: FoundSubscription, since: Duration) -> Option<String> {
        let one = self.subscriptions.get(number)?;
        let of_source = self.messages.iter().filter(|(_, message)| message.terms.queue == one.terms.source);
        let accepted = of_source.filter(|(source, _)| one.accepts(**source));
        let catches_up = one.terms.catches_up();
        let (mut missing, mut undelivered, mut possible, mut is_vague) = (Vec::new(), 0, 0, false);
        let mut passed_over = None;
        for (source, message) in accepted {
            let Some(copy) = self.messages.get(&copy_number(number, *source)) else { continue };
            is_vague |= self.may_be_copied_again(copy_number(number, *source));
            if copy.posted == Certainty::NotDone {
                continue;
            }
            possible += 1;
            undelivered += u64::from(copy.deliveries.is_empty());
            let may_be_removed = copy.deletes.iter().any(|delete| delete.certainty != Certainty::NotDone);
            let may_expire = copy.terms.ttl.is_some();
            let is_due = self.must_be_copied(one, *source, message, since);
            if is_due && copy.deliveries.is_empty() && !may_be_removed && !may_expire {
                missing.push(*source);
                if catches_up && self.stays(message, since) {
                    passed_over = Some(*source);
                }
            }
        }
        let (arrived, undelivered_arrivals) = self.arrivals_of(number, one);
        (possible, undelivered) = (possible + arrived, undelivered + undelivered_arrivals);
        if let Some(source) = passed_over {
            return Some(format!("subscription {number} lacks message {source}, which its queue has"));
        }
        let FoundSubscription { left_out, dropped } = found;
        let missed = count(missing.iter());
        if missed > left_out + dropped {
            let first = missing.first().copied().unwrap_or(0);
            return Some(format!(
                "subscription {number} lacks {missed} messages, among them {first}: {left_out} left out, {dropped} dropped"
            ));
        }
        let is_too_much = left_out > undelivered || dropped > possible;
        (is_too_much && !is_vague).then(|| {
            format!(
                "subscription {number} counts {left_out} left out, {dropped} dropped, of {possible}, {undelivered} undelivered"
            )
        })
    }

    /// The messages that may have moved to the source of a subscription from another queue: how often, and how often without
    /// a delivery of a copy.
    fn arrivals_of(&self, number: usize, one: &SubscriptionHistory) -> (u64, u64) {
        let of_others = self.messages.iter().filter(|(_, message)| message.terms.queue != one.terms.source);
        let (mut arrived, mut undelivered) = (0, 0);
        for (source, message) in of_others.filter(|(source, _)| one.accepts(**source)) {
            let times = count(message.arrivals_at(one.terms.source));
            let copy = self.messages.get(&copy_number(number, *source));
            let is_delivered = copy.is_some_and(|copy| !copy.deliveries.is_empty());
            arrived += times;
            undelivered += times.saturating_sub(is_delivered.into());
        }
        (arrived, undelivered)
    }

    /// Whether a subscription that is there at the end must have had a copy of a message of its source.
    fn must_be_copied(
        &self,
        one: &SubscriptionHistory,
        number: u64,
        message: &MessageHistory,
        since: Duration,
    ) -> bool {
        let is_stored = message.posted == Certainty::Done || self.is_seen(number);
        // A message of a queue that a subscription fills is there when it was seen.
        if !is_stored || is_sink(one.terms.source) && message.deliveries.is_empty() {
            return false;
        }
        let is_removed = message.deletes.iter().any(|delete| delete.certainty != Certainty::NotDone);
        // A forwarded message may have been removed before it arrived.
        if message.forwarded_by.is_some() && message.deliveries.is_empty() && is_removed {
            return false;
        }
        if message.post.began >= one.created.ended {
            return true;
        }
        one.terms.is_from_oldest && !is_topic(one.terms.source) && self.stays(message, since)
    }

    /// Whether a message of a client has waited in its queue all the time.
    fn stays(&self, message: &MessageHistory, since: Duration) -> bool {
        let leaves = |delete: &Delete| delete.certainty != Certainty::NotDone && delete.span.began < since;
        message.forwarded_by.is_none()
            && message.arrivals.is_empty()
            && message.requeues.is_empty()
            && message.terms.ttl.is_none()
            && !message.deletes.iter().any(leaves)
            && (!self.has_dead_letters || message.deliveries.is_empty())
    }

    /// Counts the copies that were delivered.
    pub(super) fn copy_counts(&self) -> CopyCounts {
        let created = self.subscriptions.iter().filter(|one| one.certainty == Certainty::Done);
        let mut counts = CopyCounts { subscriptions: count(created), ..self.omitted };
        for (number, copy) in self.messages.iter().filter(|(_, copy)| !copy.deliveries.is_empty()) {
            let Some(one) = subscription_of(*number).and_then(|of| self.subscriptions.get(of)) else {
                continue;
            };
            let source = self.source_of(*number).and_then(|source| self.messages.get(&source));
            let is_forwarded = source.is_some_and(|source| source.forwarded_by.is_some());
            if is_forwarded || is_sink(one.terms.source) || self.may_be_copied_again(*number) {
                counts.of_arrivals += 1;
            } else if copy.post.ended.min(source.map_or(Duration::MAX, |source| source.post.ended))
                <= one.created.began
            {
                counts.of_fills += 1;
            } else {
                counts.of_posts += 1;
            }
            counts.sent_on += u64::from(one.terms.is_sent_on);
        }
        counts
    }

    /// Whether a message or a copy of it was delivered: then all of them are stored, by one batch.
    fn is_seen(&self, number: u64) -> bool {
        let is_delivered =
            |number: u64| self.messages.get(&number).is_some_and(|message| !message.deliveries.is_empty());
        let copies = 0..self.subscriptions.len();
        is_delivered(number) || copies.map(|of| copy_number(of, number)).any(is_delivered)
    }
}

/// Whether a subscription whose creation begins may get a message of its source that has been posted.
fn may_come(message: &MessageHistory, terms: &SubscriptionTerms, began: Duration) -> bool {
    let is_left = |delete: &Delete| {
        delete.certainty == Certainty::Done
            && delete.span.ended <= began
            && !message.may_have_returned(delete)
    };
    let is_waiting = terms.is_from_oldest && !is_topic(terms.source) && !message.deletes.iter().any(is_left);
    let is_to_come = message.posted == Certainty::Unknown
        || message.open_posts > 0
        || message.forwarded_by.is_some()
        || is_sink(terms.source);
    message.posted != Certainty::NotDone && (is_waiting || is_to_come)
}
