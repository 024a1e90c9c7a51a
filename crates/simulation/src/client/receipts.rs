//! Requests of SQS. A receipt is the claim of one message.

use serde_json::Value;

use super::{Client, certainty, lease, number_of, queue_name};
use crate::history::{Certainty, EmptyWait, HeldClaim, HeldMessage, LATEST, PostTerms, Span};
use crate::requests::{ApiRequest, Outcome};

impl Client {
    /// Sends a message.
    pub async fn send_message(&self, queue: usize, number: u64, delay: u64) {
        let terms = PostTerms { queue, delay, ..PostTerms::default() };
        let began = self.world().elapsed();
        self.history.lock().begin_post(number, &terms, began);
        let outcome = self.send(&ApiRequest::send_message(&queue_name(queue), number, delay)).await;
        let sent = certainty(&outcome);
        self.history.lock().end_post(number, self.world().elapsed(), sent);
        if sent == Certainty::Done {
            self.check_quota(queue, std::iter::once(number), began);
        }
    }

    /// Receives messages for `ttl` seconds, each with a receipt, which is the id of its claim.
    pub async fn receive(&self, queue: usize, limit: u64, ttl: u64, wait: u64) -> Vec<HeldClaim> {
        let began = self.world().elapsed();
        let request = ApiRequest::receive_messages(&queue_name(queue), limit, ttl, wait);
        let body = match self.send(&request).await {
            Outcome::Done(body) => body,
            Outcome::Missing | Outcome::Refused(_) => return Vec::new(),
            Outcome::Unknown => {
                self.history.lock().doubt_claim(queue, began);
                return Vec::new();
            }
        };
        let span = Span { began, ended: self.world().elapsed() };
        let claims = received_in(&body);
        if claims.is_empty() && wait >= super::JUDGED_WAIT {
            self.history.lock().wait_in_vain(EmptyWait { queue, span });
        }
        for claim in &claims {
            let numbers: Vec<u64> = claim.messages.iter().map(|message| message.number).collect();
            self.world().note(|| format!("{} received {numbers:?}", self.name));
            self.history.lock().deliver(queue, claim, span, lease(ttl), ttl);
        }
        claims
    }

    /// Deletes the message of a receipt, whatever holds it.
    pub async fn delete_received(&self, queue: usize, receipt: &HeldClaim) {
        let Some(message) = receipt.messages.first() else { return };
        let delete = self.history.lock().begin_delete(queue, message.number, self.world().elapsed());
        let outcome = self.send(&ApiRequest::delete_received(&queue_name(queue), &receipt.id)).await;
        let ended = self.world().elapsed();
        self.history.lock().end_delete(message.number, delete, ended, certainty(&outcome));
    }

    /// Changes the visibility of the message of a receipt to `ttl` seconds; 0 gives it back.
    pub async fn change_visibility(&self, queue: usize, receipt: &HeldClaim, ttl: u64) {
        let Some(HeldMessage { number, .. }) = receipt.messages.first() else { return };
        let began = self.world().elapsed();
        let change = self.history.lock().begin_visibility(*number, began, lease(ttl), ttl);
        let outcome = self.send(&ApiRequest::change_visibility(&queue_name(queue), &receipt.id, ttl)).await;
        let changed = certainty(&outcome);
        let ended = if changed == Certainty::Unknown { began + LATEST } else { self.world().elapsed() };
        self.history.lock().end_visibility(*number, change, ended);
    }
}

/// Returns the messages of an answer, each as a claim with its receipt.
pub(super) fn received_in(body: &Value) -> Vec<HeldClaim> {
    body["Messages"].as_array().map(|all| all.iter().filter_map(received).collect()).unwrap_or_default()
}

fn received(message: &Value) -> Option<HeldClaim> {
    let (id, number) = (message["MessageId"].as_str()?.to_owned(), number_of(&message["Body"])?);
    let receipt = message["ReceiptHandle"].as_str()?.to_owned();
    Some(HeldClaim { id: receipt, messages: vec![HeldMessage { number, id, attempts: None }] })
}
