//! Queues that one client uses alone: it knows all that may have happened to their messages.

use std::time::Duration;

use serde_json::{Value, json};

use super::{Client, certainty, held};
use crate::history::{Certainty, HeldClaim};
use crate::requests::{ApiRequest, Outcome, Posting};

/// The answer to a claim in such a queue.
#[derive(Clone, Debug)]
pub enum OwnClaim {
    /// The claim has messages.
    Held(HeldClaim),
    /// There is nothing to claim.
    Empty,
    /// No claim was made.
    Refused,
    /// A claim may have been made.
    Doubtful,
}

impl Client {
    /// Creates a queue. Returns whether it exists.
    pub async fn create_own(&self, queue: &str) -> bool {
        certainty(&self.send(&ApiRequest::put_queue(queue, json!({}))).await) == Certainty::Done
    }

    /// Deletes a queue. Returns whether there is none of that name.
    pub async fn delete_own(&self, queue: &str) -> bool {
        let outcome = self.send(&ApiRequest::delete_queue(queue)).await;
        matches!(outcome, Outcome::Done(_) | Outcome::Missing)
    }

    /// Posts messages. Returns their ids if they are certainly stored.
    pub async fn post_own(&self, queue: &str, postings: &[Posting]) -> Option<Vec<String>> {
        self.post_own_at(self.pick_replica(), queue, postings).await
    }

    /// As `post_own`, at a replica.
    pub async fn post_own_at(
        &self,
        replica: usize,
        queue: &str,
        postings: &[Posting],
    ) -> Option<Vec<String>> {
        let Outcome::Done(body) = self.send_to(replica, &ApiRequest::post(queue, postings)).await else {
            return None;
        };
        let id = |path: &Value| Some(path.as_str()?.rsplit('/').next()?.to_owned());
        let ids: Vec<String> = body["resources"].as_array()?.iter().filter_map(id).collect();
        (ids.len() == postings.len()).then_some(ids)
    }

    /// Claims messages for `ttl` seconds, without a wait.
    pub async fn claim_own(&self, queue: &str, limit: u64, ttl: u64) -> OwnClaim {
        self.claim_own_at(self.pick_replica(), queue, limit, ttl).await
    }

    /// As `claim_own`, at a replica.
    pub async fn claim_own_at(&self, replica: usize, queue: &str, limit: u64, ttl: u64) -> OwnClaim {
        let body = match self.send_to(replica, &ApiRequest::claim(queue, limit, ttl)).await {
            Outcome::Done(body) => body,
            Outcome::Missing | Outcome::Refused(_) => return OwnClaim::Refused,
            Outcome::Unknown => return OwnClaim::Doubtful,
        };
        let Some(id) = body["id"].as_str() else { return OwnClaim::Empty };
        let messages = body["messages"].as_array().map(|all| held(0, all)).unwrap_or_default();
        OwnClaim::Held(HeldClaim { id: id.to_owned(), messages })
    }

    /// Claims a message for `ttl` seconds, and leaves after a time. Returns whether there was no answer until then.
    pub async fn claim_and_leave(&self, queue: &str, ttl: u64, time: Duration) -> bool {
        let request = ApiRequest::claim(queue, 1, ttl);
        tokio::time::timeout(time, self.send(&request)).await.is_err()
    }

    /// Lets all commits to the tree wait for a time, unless others have waited shortly before.
    pub fn delay_commits(&self, time: Duration) -> bool {
        self.cluster.ensemble().delay_commits(time)
    }

    /// Releases a claim. Its messages can be claimed again after `delay` seconds.
    pub async fn release_own(&self, queue: &str, claim: &str, delay: u64) -> Certainty {
        certainty(&self.send(&ApiRequest::release_later(queue, claim, delay)).await)
    }

    /// Renews a claim for `ttl` seconds. Returns whether it certainly lives.
    pub async fn renew_own(&self, queue: &str, claim: &str, ttl: u64) -> bool {
        certainty(&self.send(&ApiRequest::renew(queue, claim, ttl)).await) == Certainty::Done
    }

    /// Deletes a message, under a claim or without one.
    pub async fn delete_in_own(&self, queue: &str, id: &str, claim: Option<&str>) -> Certainty {
        certainty(&self.send(&ApiRequest::delete(queue, id, claim)).await)
    }

    /// Removes all messages.
    pub async fn purge_own(&self, queue: &str) -> Certainty {
        certainty(&self.send(&ApiRequest::purge(queue)).await)
    }

    /// Returns the number of claimed messages, if there is an answer.
    pub async fn claimed_in_own(&self, queue: &str) -> Option<u64> {
        match self.send(&ApiRequest::stats(queue)).await {
            Outcome::Done(body) => body["messages"]["claimed"].as_u64(),
            Outcome::Missing | Outcome::Refused(_) | Outcome::Unknown => None,
        }
    }

    /// Whether the service answers that it has no message with this id.
    pub async fn is_gone_from_own(&self, queue: &str, id: &str) -> bool {
        self.send(&ApiRequest::outcome(queue, id)).await == Outcome::Missing
    }

    /// Receives messages for `ttl` seconds through SQS, at a replica. Returns their receipts, as far as there is an
    /// answer.
    pub async fn receive_own_at(&self, replica: usize, queue: &str, limit: u64, ttl: u64) -> Vec<String> {
        let request = ApiRequest::receive_messages(queue, limit, ttl, 0);
        let Outcome::Done(body) = self.send_to(replica, &request).await else { return Vec::new() };
        let receipt = |message: &Value| message["ReceiptHandle"].as_str().map(str::to_owned);
        body["Messages"].as_array().map(|all| all.iter().filter_map(receipt).collect()).unwrap_or_default()
    }

    /// As `receive_own_at`, at any replica.
    pub async fn receive_own(&self, queue: &str, limit: u64, ttl: u64) -> Vec<String> {
        self.receive_own_at(self.pick_replica(), queue, limit, ttl).await
    }

    /// Changes the time of a received message to `ttl` seconds.
    pub async fn hide_own(&self, queue: &str, receipt: &str, ttl: u64) {
        self.send(&ApiRequest::change_visibility(queue, receipt, ttl)).await;
    }

    /// Deletes a received message, at a replica. Returns whether the service answers that the receipt is of no receive
    /// that holds the message.
    pub async fn refuses_receipt_at(&self, replica: usize, queue: &str, receipt: &str) -> bool {
        let outcome = self.send_to(replica, &ApiRequest::delete_received(queue, receipt)).await;
        matches!(&outcome, Outcome::Refused(name) if name.starts_with("InvalidParameterValue"))
    }

    /// Returns the replica behind another one.
    pub fn other_replica(&self, replica: usize) -> usize {
        (replica + 1) % self.cluster.size()
    }

    /// Notes a broken promise.
    pub fn report(&self, text: String) {
        self.history.lock().violation(text);
    }
}
