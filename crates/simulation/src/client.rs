//! A client: it sends requests through a load balancer, and notes in the history what it learns.

mod fifo_receives;
mod holds;
mod own_queues;
mod plans;
mod pools;
mod pops;
mod quotas;
mod races;
mod receipts;
mod requeues;
mod settles;
mod subscriptions;

use std::sync::Arc;
use std::time::Duration;

use angarium::api::Front;
use parking_lot::Mutex;
use serde_json::Value;

use crate::cluster::Cluster;
use crate::faults::Fault;
use crate::history::{
    Certainty, DEAD_LETTERS, EmptyWait, HeldClaim, HeldMessage, History, PostTerms, SINKS, SQS_FIFO, Span,
    TOPICS, number_in,
};
use crate::network::send_from_client;
use crate::process::Process;
use crate::requests::{ApiRequest, Outcome, Posting};
use crate::world::World;

pub use own_queues::OwnClaim;
pub use settles::PlannedEntry;
pub use subscriptions::ListedSubscription;

/// The longest time for which a client waits for an answer.
const MAX_WAIT: Duration = Duration::from_secs(150);

/// The least part of its time to live for which a claim is relied on, in percent: tree time may run faster by a tenth
/// while it follows a step of the servers' clock.
const LEASE_PERCENT: u64 = 85;

/// The longest time to an answer while no fault can happen, beside the wait that the request allows.
const CALM_ANSWER: Duration = Duration::from_secs(5);

/// How late a waiting claim may get a message that is ready, while no fault can happen: as late as an answer, and its
/// slot may have been handed over meanwhile.
const CALM_DELIVERY: Duration = Duration::from_secs(7);

/// Refusals that no fault explains, but the state of the message: it is claimed, or on its way to another queue; or the
/// quota. The last one is the answer of SQS when no receive holds the message.
const CALM_REFUSALS: &[&str] = &[
    "busy",
    "claim_ended",
    "claimed",
    "not_claimed",
    "over_quota",
    "OverLimit",
    "InvalidParameterValueException",
];

/// The shortest wait of a claim that is judged when it gets no message, in seconds.
const JUDGED_WAIT: u64 = 4;

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

    fn pick_replica(&self) -> usize {
        usize::try_from(self.world().below(100)).unwrap_or(0) % self.cluster.size()
    }

    /// Sends a request to some replica, and waits for the outcome.
    pub async fn send(&self, request: &ApiRequest) -> Outcome {
        self.send_to(self.pick_replica(), request).await
    }

    /// Sends a request to a replica, or to another one if that one does not run.
    async fn send_to(&self, replica: usize, request: &ApiRequest) -> Outcome {
        let world = self.world();
        world.note(|| format!("{} {}", self.name, request.text()));
        self.history.lock().count_operation();
        let began = world.elapsed();
        let outcome = match running(&self.cluster, replica) {
            None => {
                world.hop().await;
                Outcome::Refused("no replica runs".into())
            }
            Some((process, service)) => {
                let max_wait = if world.happens(Fault::ClientLeft) {
                    Duration::from_millis(world.below(200))
                } else {
                    MAX_WAIT
                };
                let sent = send_from_client(world, process, service, request.to_http());
                let answer = tokio::time::timeout(max_wait, sent).await;
                answer.map_or(Outcome::Unknown, Outcome::of)
            }
        };
        world.note(|| format!("{} {}: {}", self.name, request.text(), outcome.text()));
        self.note_outcome(&outcome);
        self.check_calm(request, &outcome, world.elapsed() - began);
        self.check_room(request, &outcome);
        outcome
    }

    /// A pool without room refuses no removal.
    fn check_room(&self, request: &ApiRequest, outcome: &Outcome) {
        if request.removes_messages() && *outcome == Outcome::Refused("full".into()) {
            self.history.lock().violation(format!("{} is refused for lack of room", request.text()));
        }
    }

    fn note_outcome(&self, outcome: &Outcome) {
        let faults = self.world().faults();
        let has_lost = [Fault::PoolRolledBack, Fault::PowerCut].iter().any(|fault| faults.of(*fault) > 0);
        let mut history = self.history.lock();
        history.count_outcome(&outcome.text());
        if has_lost {
            history.note_lost_writes();
        }
    }

    /// Sends a request a second time, within some seconds. Its answer is not read.
    fn send_again(&self, request: &ApiRequest) {
        let (world, cluster, request) = (self.world().clone(), self.cluster.clone(), request.to_http());
        let (first, pause) = (self.pick_replica(), Duration::from_millis(world.below(3_000)));
        self.world().spawn(async move {
            tokio::time::sleep(pause).await;
            if let Some((process, service)) = running(&cluster, first) {
                drop(send_from_client(&world, process, service, request).await);
            }
        });
    }

    /// Without faults no request is refused for a failure, and each is answered in time.
    fn check_calm(&self, request: &ApiRequest, outcome: &Outcome, took: Duration) {
        let mut history = self.history.lock();
        if !history.is_calm() {
            return;
        }
        let is_expected = match outcome {
            Outcome::Done(_) => true,
            Outcome::Missing => request.names_part(),
            Outcome::Refused(code) if code == "conflict" => request.is_requeue(),
            Outcome::Refused(code) => CALM_REFUSALS.contains(&code.as_str()),
            // A claim that is being recorded while its subscription is deleted.
            Outcome::Unknown => history.deletes_subscription_of(&request.text()),
        };
        if !is_expected {
            history.violation(format!("{} without faults: {}", request.text(), outcome.text()));
        }
        if took > CALM_ANSWER + Duration::from_secs(request.wait()) {
            history.violation(format!("{} without faults took {took:?}", request.text()));
        }
    }

    /// Posts messages.
    pub async fn post(&self, queue: usize, postings: &[Posting]) -> Certainty {
        self.post_at(self.pick_replica(), queue, postings).await
    }

    /// As `post`, at a replica.
    pub async fn post_at(&self, replica: usize, queue: usize, postings: &[Posting]) -> Certainty {
        self.post_for_ids(replica, queue, postings).await.0
    }

    /// As `post_at`. Also returns the ids of the messages, in order, if they are stored.
    pub async fn post_for_ids(
        &self,
        replica: usize,
        queue: usize,
        postings: &[Posting],
    ) -> (Certainty, Vec<String>) {
        let began = self.world().elapsed();
        self.world().note(|| format!("{} posts {}", self.name, numbers_of(postings)));
        for posting in postings {
            self.history.lock().begin_post(posting.number, &terms(queue, posting), began);
        }
        let outcome = self.send_to(replica, &ApiRequest::post(&self.address(queue), postings)).await;
        // A discarded message is never stored.
        let posted = if outcome.is_discarded() { Certainty::NotDone } else { certainty(&outcome) };
        let ended = self.world().elapsed();
        for posting in postings {
            let mut history = self.history.lock();
            history.end_post(posting.number, ended, posted);
            if outcome.is_discarded() {
                history.check_discarded(posting.number, Span { began, ended });
            }
        }
        if posted == Certainty::Done {
            self.check_quota(queue, postings.iter().map(|posting| posting.number), began);
        }
        let ids = outcome.ids();
        // A topic keeps no message of the id that it answers.
        if queue < DEAD_LETTERS {
            let mut history = self.history.lock();
            postings.iter().zip(&ids).for_each(|(posting, id)| history.check_id(posting.number, id));
        }
        (posted, ids)
    }

    /// Claims messages for `ttl` seconds. Returns none without an answer, and a claim without messages when there are
    /// none.
    pub async fn claim(&self, queue: usize, limit: u64, ttl: u64, wait: u64) -> Option<HeldClaim> {
        let began = self.world().elapsed();
        let name = self.address(queue);
        let request = match wait {
            0 => ApiRequest::claim(&name, limit, ttl),
            _ => ApiRequest::claim_waiting(&name, limit, ttl, wait),
        };
        let body = match self.send(&request).await {
            Outcome::Done(body) => body,
            // A queue that does not exist has no messages.
            Outcome::Missing => Value::Null,
            Outcome::Refused(_) => return None,
            Outcome::Unknown => {
                self.history.lock().doubt_claim(queue, began);
                return None;
            }
        };
        let span = Span { began, ended: self.world().elapsed() };
        let Some(id) = body["id"].as_str() else {
            if wait >= JUDGED_WAIT {
                self.history.lock().wait_in_vain(EmptyWait { queue, span });
            }
            return Some(HeldClaim { id: String::new(), messages: Vec::new() });
        };
        let messages: Vec<HeldMessage> =
            body["messages"].as_array().map(|messages| held(queue, messages)).unwrap_or_default();
        let numbers: Vec<u64> = messages.iter().map(|message| message.number).collect();
        self.world().note(|| format!("{} holds {numbers:?} by claim {id}", self.name));
        let claim = HeldClaim { id: id.to_owned(), messages };
        let mut history = self.history.lock();
        history.deliver(queue, &claim, span, lease(ttl), ttl);
        history.check_promptness(queue, &claim, span, CALM_DELIVERY);
        drop(history);
        Some(claim)
    }

    /// Deletes a message, under a claim or without one.
    pub async fn delete(&self, queue: usize, message: &HeldMessage, claim: Option<&str>) -> Certainty {
        let delete = self.history.lock().begin_delete(queue, message.number, self.world().elapsed());
        let request = ApiRequest::delete(&self.address(queue), &message.id, claim);
        let is_duplicated = self.world().happens(Fault::ClientDuplicated);
        if is_duplicated {
            self.send_again(&request);
        }
        let deleted = match certainty(&self.send(&request).await) {
            // The other one may be carried out.
            Certainty::NotDone if is_duplicated => Certainty::Unknown,
            deleted => deleted,
        };
        self.history.lock().end_delete(message.number, delete, self.world().elapsed(), deleted);
        deleted
    }

    /// Deletes several messages under a claim.
    pub async fn delete_each(&self, queue: usize, messages: &[HeldMessage], claim: &str) {
        let began = self.world().elapsed();
        let begin = |message: &HeldMessage| self.history.lock().begin_delete(queue, message.number, began);
        let deletes: Vec<usize> = messages.iter().map(begin).collect();
        let ids: Vec<String> = messages.iter().map(|message| message.id.clone()).collect();
        let outcome = self.send(&ApiRequest::delete_each(&self.address(queue), &ids, claim)).await;
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
    pub async fn remove_all(&self, queue: usize, request: &ApiRequest) -> Certainty {
        let began = self.world().elapsed();
        self.history.lock().begin_removal_of_all(queue, began);
        let removed = certainty(&self.send(request).await);
        self.history.lock().end_removal_of_all(queue, began, self.world().elapsed(), removed);
        removed
    }

    /// Releases a claim. Its messages can be claimed again after `delay` seconds.
    pub async fn release(&self, queue: usize, claim: &str, delay: u64) {
        let began = self.world().elapsed();
        self.history.lock().release(claim, began);
        let name = self.address(queue);
        let request = match delay {
            0 => ApiRequest::release(&name, claim),
            _ => ApiRequest::release_later(&name, claim, delay),
        };
        let released = certainty(&self.send(&request).await);
        let span = Span { began, ended: self.world().elapsed() };
        match released {
            Certainty::Done => self.history.lock().end_release(claim, span, delay),
            Certainty::NotDone => self.history.lock().keep(claim, began),
            Certainty::Unknown => {}
        }
    }

    /// Renews a claim for `ttl` seconds.
    pub async fn renew(&self, queue: usize, claim: &str, ttl: u64) {
        let began = self.world().elapsed();
        self.history.lock().begin_renewal(claim, began, lease(ttl), ttl);
        let outcome = self.send(&ApiRequest::renew(&self.address(queue), claim, ttl)).await;
        match certainty(&outcome) {
            Certainty::Done => self.history.lock().renew(claim, began, lease(ttl)),
            Certainty::NotDone => {}
            Certainty::Unknown => self.history.lock().doubt_renewal(claim, began, lease(ttl)),
        }
    }
}

/// Returns the first replica from a number on that runs, as a load balancer finds it.
fn running(cluster: &Cluster, first: usize) -> Option<(Process, Front)> {
    let size = cluster.size();
    (0..size).find_map(|step| cluster.client_service((first + step) % size))
}

/// Returns the name of a queue, or of a topic behind `topic:`.
pub fn queue_name(queue: usize) -> String {
    match queue {
        TOPICS.. => format!("topic:t{}", queue - TOPICS),
        SINKS.. => format!("s{}", queue - SINKS),
        DEAD_LETTERS.. => format!("dead{}", queue - DEAD_LETTERS),
        SQS_FIFO => format!("q{queue}.fifo"),
        _ => format!("q{queue}"),
    }
}

/// Returns the name of the pool at a place in the list.
pub fn pool_name(index: usize) -> String {
    if index == 0 { "default".into() } else { format!("pool{index}") }
}

/// Returns the numbers of messages, each with its delay if it has one.
fn numbers_of<'a>(postings: impl IntoIterator<Item = &'a Posting>) -> String {
    let one = |posting: &Posting| match posting.delay {
        0 => posting.number.to_string(),
        delay => format!("{} in {delay} s", posting.number),
    };
    postings.into_iter().map(one).collect::<Vec<_>>().join(", ")
}

fn terms(queue: usize, posting: &Posting) -> PostTerms {
    PostTerms {
        queue,
        group: posting.group.clone(),
        is_fifo: posting.has_dedup_id,
        delay: posting.delay,
        ttl: posting.ttl,
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

/// Returns whether a request was carried out, by its outcome.
pub fn certainty(outcome: &Outcome) -> Certainty {
    match outcome {
        Outcome::Done(_) => Certainty::Done,
        Outcome::Missing | Outcome::Refused(_) => Certainty::NotDone,
        Outcome::Unknown => Certainty::Unknown,
    }
}

fn held(queue: usize, messages: &[Value]) -> Vec<HeldMessage> {
    let one = |message: &Value| {
        let (number, id) = (number_of(&message["body"])?, message["id"].as_str()?.to_owned());
        let number = number_in(queue, number);
        Some(HeldMessage { number, id, attempts: message["claim_count"].as_u64() })
    };
    messages.iter().filter_map(one).collect()
}

/// Returns the number in a body. One that was sent through SQS is a text.
fn number_of(body: &Value) -> Option<u64> {
    let text = || serde_json::from_str(body.as_str()?).ok();
    let parsed: Option<Value> = text();
    parsed.as_ref().unwrap_or(body)["number"].as_u64()
}
