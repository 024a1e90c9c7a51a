//! Sends and receives of SQS in a FIFO queue. A receive whose outcome is not known is repeated with its attempt id.

use std::collections::BTreeSet;
use std::time::Duration;

use super::receipts::received_in;
use super::{Client, certainty, lease, queue_name};
use crate::history::{Certainty, HeldClaim, PostTerms, SQS_FIFO, Span};
use crate::requests::{ApiRequest, FifoReceive, Outcome};

/// How often a send or a receive without a certain outcome is made.
const ATTEMPTS: usize = 3;

/// After this time a send is not repeated: see the posts of REST.
const REPEATABLE: Duration = Duration::from_secs(30);

impl Client {
    /// Sends a message of a group, with its number as the deduplication id.
    pub async fn send_in_group(&self, number: u64, group: String) {
        let terms =
            PostTerms { queue: SQS_FIFO, group: Some(group.clone()), is_fifo: true, ..PostTerms::default() };
        let (first, request) =
            (self.world().elapsed(), ApiRequest::send_in_group(&queue_name(SQS_FIFO), number, &group));
        for _ in 0..ATTEMPTS {
            let began = self.world().elapsed();
            if began > first + REPEATABLE {
                return;
            }
            self.history.lock().begin_post(number, &terms, began);
            let outcome = self.send(&request).await;
            let sent = certainty(&outcome);
            self.history.lock().end_post(number, self.world().elapsed(), sent);
            if let Outcome::Done(body) = &outcome
                && let Some(id) = body["MessageId"].as_str()
            {
                self.history.lock().check_id(number, id);
                self.check_quota(SQS_FIFO, std::iter::once(number), began);
            }
            if sent != Certainty::Unknown {
                return;
            }
            tokio::time::sleep(Duration::from_millis(self.world().below(3_000))).await;
        }
    }

    /// Receives messages, each with a receipt. Repeats a receive without an outcome, and sometimes one with messages: it
    /// must have the same answer as long as these are hidden.
    pub async fn receive_in_order(&self, receive: &FifoReceive) -> Vec<HeldClaim> {
        let first = self.world().elapsed();
        for _ in 0..ATTEMPTS {
            let began = self.world().elapsed();
            let request = ApiRequest::receive_in_order(&queue_name(SQS_FIFO), receive);
            match self.send(&request).await {
                Outcome::Done(body) => {
                    let claims = received_in(&body);
                    // Each of the requests may have received them.
                    let span = Span { began: first, ended: self.world().elapsed() };
                    self.note_in_order(&claims, span, receive.ttl);
                    if !claims.is_empty() && self.world().below(3) == 0 {
                        return self.receive_again(receive, claims, first).await;
                    }
                    return claims;
                }
                Outcome::Missing | Outcome::Refused(_) => return Vec::new(),
                Outcome::Unknown => self.history.lock().doubt_claim(SQS_FIFO, began),
            }
            tokio::time::sleep(Duration::from_millis(self.world().below(3_000))).await;
        }
        Vec::new()
    }

    fn note_in_order(&self, claims: &[HeldClaim], span: Span, ttl: u64) {
        let mut before = Vec::new();
        for claim in claims {
            self.history.lock().deliver_behind(SQS_FIFO, claim, &before, span, lease(ttl), ttl);
            before.extend(claim.messages.iter().map(|message| message.number));
        }
        self.world().note(|| format!("{} received {before:?} in order", self.name));
    }

    /// Repeats a receive that had an answer. `first` is when it was made for the first time.
    async fn receive_again(
        &self,
        receive: &FifoReceive,
        claims: Vec<HeldClaim>,
        first: Duration,
    ) -> Vec<HeldClaim> {
        let (began, ttl) = (self.world().elapsed(), receive.ttl);
        for claim in &claims {
            self.history.lock().begin_renewal(&claim.id, began, lease(ttl), ttl);
        }
        let outcome = self.send(&ApiRequest::receive_in_order(&queue_name(SQS_FIFO), receive)).await;
        let span = Span { began, ended: self.world().elapsed() };
        let Outcome::Done(body) = outcome else {
            if outcome == Outcome::Unknown {
                self.history.lock().doubt_claim(SQS_FIFO, began);
                claims.iter().for_each(|one| self.history.lock().doubt_renewal(&one.id, began, lease(ttl)));
            }
            return claims;
        };
        let again = received_in(&body);
        // Groups may have another order.
        let receipts = |claims: &[HeldClaim]| -> BTreeSet<String> {
            claims.iter().map(|claim| claim.id.clone()).collect()
        };
        if receipts(&again) == receipts(&claims) {
            claims.iter().for_each(|claim| self.history.lock().renew(&claim.id, began, lease(ttl)));
            return claims;
        }
        if span.ended < first + lease(ttl) {
            self.history.lock().differ_again(&claims, &again);
        }
        self.note_in_order(&again, span, ttl);
        [claims, again].concat()
    }
}
