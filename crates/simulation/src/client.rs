//! A client: it sends requests through a load balancer, and notes in the history what it learns.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;

use crate::cluster::Cluster;
use crate::faults::Fault;
use crate::history::{Certainty, DEAD_LETTERS, HeldClaim, HeldMessage, History, Span};
use crate::network::send_from_client;
use crate::requests::{ApiRequest, Outcome, Posting};
use crate::world::World;

/// How long a client waits for an answer.
const PATIENCE: Duration = Duration::from_secs(150);

/// The least part of its time to live for which a claim is relied on, in percent: tree time may run faster by a tenth
/// while it follows a step of the servers' clock.
const LEASE_PERCENT: u64 = 85;

/// A client.
pub struct Client {
    name: String,
    cluster: Cluster,
    history: Arc<Mutex<History>>,
}

impl Client {
    /// Creates a client.
    pub fn new(name: String, cluster: Cluster, history: Arc<Mutex<History>>) -> Self {
        Self { name, cluster, history }
    }

    fn world(&self) -> &World {
        self.cluster.world()
    }

    /// Sends a request to some replica, and waits for the outcome.
    pub async fn send(&self, request: &ApiRequest) -> Outcome {
        let world = self.world();
        world.note(|| format!("{} {}", self.name, request.text()));
        self.history.lock().count_operation();
        let size = self.cluster.size();
        let first = usize::try_from(world.below(100)).unwrap_or(0) % size;
        let running = (0..size).find_map(|step| self.cluster.client_service((first + step) % size));
        let outcome = match running {
            None => {
                world.hop().await;
                Outcome::Refused("no replica runs".into())
            }
            Some((process, service)) => {
                let patience = if world.happens(Fault::ClientLeft) {
                    Duration::from_millis(world.below(200))
                } else {
                    PATIENCE
                };
                let sent = send_from_client(world, process, service, request.to_http());
                let answer = tokio::time::timeout(patience, sent).await;
                answer.map_or(Outcome::Unknown, Outcome::of)
            }
        };
        world.note(|| format!("{} {}: {}", self.name, request.text(), outcome.text()));
        outcome
    }

    /// Posts messages.
    pub async fn post(&self, queue: usize, postings: &[Posting]) -> Certainty {
        let began = self.world().elapsed();
        for posting in postings {
            self.history.lock().begin_post(posting.number, queue, posting.group.clone(), began);
        }
        let outcome = self.send(&ApiRequest::post(&queue_name(queue), postings)).await;
        let posted = certainty(&outcome);
        let ended = self.world().elapsed();
        for posting in postings {
            self.history.lock().end_post(posting.number, ended, posted);
        }
        posted
    }

    /// Claims messages for `ttl` seconds. Returns none without an answer, and a claim without messages when there are
    /// none.
    pub async fn claim(&self, queue: usize, limit: u64, ttl: u64, wait: u64) -> Option<HeldClaim> {
        let began = self.world().elapsed();
        let name = queue_name(queue);
        let request = match wait {
            0 => ApiRequest::claim(&name, limit, ttl),
            _ => ApiRequest::claim_waiting(&name, limit, ttl, wait),
        };
        let body = match self.send(&request).await {
            Outcome::Done(body) => body,
            // A queue that does not exist has no messages.
            Outcome::Missing => Value::Null,
            Outcome::Refused(_) | Outcome::Unknown => return None,
        };
        let span = Span { began, ended: self.world().elapsed() };
        let Some(id) = body["id"].as_str() else {
            return Some(HeldClaim { id: String::new(), messages: Vec::new() });
        };
        let messages: Vec<HeldMessage> =
            body["messages"].as_array().map(|messages| held(messages)).unwrap_or_default();
        let numbers: Vec<u64> = messages.iter().map(|message| message.number).collect();
        self.world().note(|| format!("{} holds {numbers:?} by claim {id}", self.name));
        let claim = HeldClaim { id: id.to_owned(), messages };
        self.history.lock().deliver(queue, &claim, span, lease(ttl));
        Some(claim)
    }

    /// Deletes a message, under a claim or without one.
    pub async fn delete(&self, queue: usize, message: &HeldMessage, claim: Option<&str>) -> Certainty {
        let delete = self.history.lock().begin_delete(queue, message.number, self.world().elapsed());
        let outcome = self.send(&ApiRequest::delete(&queue_name(queue), &message.id, claim)).await;
        let deleted = certainty(&outcome);
        self.history.lock().end_delete(message.number, delete, self.world().elapsed(), deleted);
        deleted
    }

    /// Deletes several messages under a claim.
    pub async fn delete_each(&self, queue: usize, messages: &[HeldMessage], claim: &str) {
        let began = self.world().elapsed();
        let begin = |message: &HeldMessage| self.history.lock().begin_delete(queue, message.number, began);
        let deletes: Vec<usize> = messages.iter().map(begin).collect();
        let ids: Vec<String> = messages.iter().map(|message| message.id.clone()).collect();
        let outcome = self.send(&ApiRequest::delete_each(&queue_name(queue), &ids, claim)).await;
        let ended = self.world().elapsed();
        for (index, (message, delete)) in messages.iter().zip(deletes).enumerate() {
            let deleted = match &outcome {
                Outcome::Done(body) => entry_certainty(&body["results"][index]),
                other => certainty(other),
            };
            self.history.lock().end_delete(message.number, delete, ended, deleted);
        }
    }

    /// Removes all messages of a queue, by a purge or with the queue.
    pub async fn remove_all(&self, queue: usize, request: &ApiRequest) {
        let began = self.world().elapsed();
        self.history.lock().begin_removal_of_all(queue, began);
        let outcome = self.send(request).await;
        let ended = self.world().elapsed();
        self.history.lock().end_removal_of_all(queue, began, ended, certainty(&outcome));
    }

    /// Releases a claim.
    pub async fn release(&self, queue: usize, claim: &str) {
        self.history.lock().release(claim, self.world().elapsed());
        self.send(&ApiRequest::release(&queue_name(queue), claim)).await;
    }

    /// Renews a claim for `ttl` seconds.
    pub async fn renew(&self, queue: usize, claim: &str, ttl: u64) {
        let began = self.world().elapsed();
        self.history.lock().begin_renewal(claim, began, lease(ttl));
        let outcome = self.send(&ApiRequest::renew(&queue_name(queue), claim, ttl)).await;
        match certainty(&outcome) {
            Certainty::Done => self.history.lock().renew(claim, began, lease(ttl)),
            Certainty::NotDone => {}
            Certainty::Unknown => self.history.lock().doubt_renewal(claim, began, lease(ttl)),
        }
    }
}

/// Returns the name of a queue.
pub fn queue_name(queue: usize) -> String {
    match queue.checked_sub(DEAD_LETTERS) {
        Some(source) => format!("dead{source}"),
        None => format!("q{queue}"),
    }
}

fn entry_certainty(entry: &Value) -> Certainty {
    match (&entry["error"], entry["error"]["nothing_written"].as_bool()) {
        (Value::Null, _) => Certainty::Done,
        (_, Some(true)) => Certainty::NotDone,
        _ => Certainty::Unknown,
    }
}

fn lease(ttl: u64) -> Duration {
    Duration::from_millis(ttl * 10 * LEASE_PERCENT)
}

fn certainty(outcome: &Outcome) -> Certainty {
    match outcome {
        Outcome::Done(_) => Certainty::Done,
        Outcome::Missing | Outcome::Refused(_) => Certainty::NotDone,
        Outcome::Unknown => Certainty::Unknown,
    }
}

fn held(messages: &[Value]) -> Vec<HeldMessage> {
    let one = |message: &Value| {
        Some(HeldMessage { number: message["body"].as_u64()?, id: message["id"].as_str()?.to_owned() })
    };
    messages.iter().filter_map(one).collect()
}
