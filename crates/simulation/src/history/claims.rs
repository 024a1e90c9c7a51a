//! Releases and renewals of claims, and changes of the visibility of their messages.

use std::time::Duration;

use super::records::{Delay, Delivery, Visibility, longest, shortest};
use super::{HeldClaim, History, Span, count};

impl History {
    /// Notes that the holder of a claim begins to give it up.
    pub fn release(&mut self, claim: &str, began: Duration) {
        self.change_deliveries(claim, |delivery| {
            delivery.released.get_or_insert(began);
        });
    }

    /// Notes that the release of a claim that began at `began` was refused: its holder keeps it.
    pub fn keep(&mut self, claim: &str, began: Duration) {
        self.change_deliveries(claim, |delivery| {
            if delivery.released == Some(began) {
                delivery.released = None;
            }
        });
    }

    /// Notes that a claim was released, so that its messages can be claimed again after `delay` seconds. A release of a
    /// claim that has ended by itself has the same answer, and delays nothing.
    pub fn end_release(&mut self, claim: &str, span: Span, delay: u64) {
        for message in self.messages.values_mut() {
            let deliveries = message.deliveries.iter_mut().filter(|delivery| delivery.claim == claim);
            for delivery in deliveries {
                let (until, over) = (span.began + shortest(delay), span.ended + longest(delay));
                let lease = delivery.lease.min(delivery.doubtful_lease);
                let is_whole = !delivery.is_settled && !delivery.may_be_split;
                let is_held = is_whole && span.ended < delivery.span.began.saturating_add(lease);
                let since = if is_held { span.ended } else { Duration::MAX };
                if delay > 0 {
                    message.delays.push(Delay { queue: delivery.queue, since, until, over });
                }
                delivery.over = delivery.over.min(span.ended);
            }
        }
    }

    /// Notes that the renewal of a claim for `ttl` seconds begins: from here on the claim may end with the new time.
    pub fn begin_renewal(&mut self, claim: &str, began: Duration, lease: Duration, ttl: u64) {
        self.change_deliveries(claim, |delivery| {
            delivery.lease = delivery.lease.min(began.saturating_sub(delivery.span.began) + lease);
            delivery.extend(began, ttl);
        });
    }

    /// Notes that a renewal that began at `began` has no answer.
    pub fn doubt_renewal(&mut self, claim: &str, began: Duration, lease: Duration) {
        self.change_deliveries(claim, |delivery| {
            let end = began.saturating_sub(delivery.span.began) + lease;
            delivery.doubtful_lease = delivery.doubtful_lease.min(end);
        });
    }

    /// Notes that a claim was renewed by a request that began at `began`.
    pub fn renew(&mut self, claim: &str, began: Duration, lease: Duration) {
        self.change_deliveries(claim, |delivery| {
            if !delivery.may_be_split {
                delivery.lease = began.saturating_sub(delivery.span.began) + lease;
            }
        });
    }

    /// Notes that a change of the visibility of a message to `ttl` seconds begins. It concerns each holder of the
    /// message. Returns its number among the changes of the message.
    pub fn begin_visibility(&mut self, number: u64, began: Duration, lease: Duration, ttl: u64) -> usize {
        let Some(message) = self.messages.get_mut(&number) else { return 0 };
        let change = Visibility { span: Span::open(began), lease, ttl };
        for delivery in &mut message.deliveries {
            delivery.change(&change);
        }
        message.visibilities.push(change);
        message.visibilities.len() - 1
    }

    /// Notes that a change of visibility has an outcome: it concerns no claim that begins later.
    pub fn end_visibility(&mut self, number: u64, change: usize, ended: Duration) {
        let message = self.messages.get_mut(&number);
        if let Some(change) = message.and_then(|message| message.visibilities.get_mut(change)) {
            change.span.ended = ended;
        }
    }

    /// A repeated receive had other messages than before, although these were hidden all the time.
    pub fn differ_again(&mut self, first: &[HeldClaim], again: &[HeldClaim]) {
        let numbers = |claims: &[HeldClaim]| -> Vec<u64> {
            claims.iter().flat_map(|claim| &claim.messages).map(|message| message.number).collect()
        };
        if !self.may_have_lost() {
            let (first, again) = (numbers(first), numbers(again));
            self.violation(format!("a receive of messages {first:?} was repeated, and had {again:?}"));
        }
    }

    /// Notes that a claim in a queue has no answer: it may hold messages.
    pub fn doubt_claim(&mut self, queue: usize, began: Duration) {
        self.claims_in_doubt.push((queue, began));
    }

    fn change_deliveries(&mut self, claim: &str, change: impl Fn(&mut Delivery)) {
        let deliveries = self.messages.values_mut().flat_map(|message| &mut message.deliveries);
        deliveries.filter(|delivery| delivery.claim == claim).for_each(change);
    }

    /// Checks that no message was counted as claimed more often than claims may have had it.
    pub fn check_attempts(&mut self) {
        let mut broken = Vec::new();
        for (number, message) in &self.messages {
            for delivery in &message.deliveries {
                let may_be_before = |other: &&Delivery| {
                    other.claim != delivery.claim && other.span.began <= delivery.span.ended
                };
                let before = message.deliveries.iter().filter(may_be_before);
                let doubtful = self
                    .claims_in_doubt
                    .iter()
                    .filter(|(queue, began)| message.may_be_in(*queue) && *began <= delivery.span.ended);
                let claims = 1 + count(before) + count(doubtful);
                if let Some(attempts) = delivery.attempts.filter(|attempts| *attempts > claims) {
                    broken.push(format!(
                        "message {number} counts {attempts} claims at {}, and had at most {claims}",
                        delivery.claim
                    ));
                }
            }
        }
        broken.into_iter().for_each(|text| self.violation(text));
    }
}
