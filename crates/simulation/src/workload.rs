//! The load: what clients do while faults happen, and how the queues are emptied once all is well again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::client::{Client, queue_name};
use crate::cluster::Cluster;
use crate::history::{Certainty, DEAD_LETTERS, HeldClaim, HeldMessage, History};
use crate::requests::{ApiRequest, Outcome, Posting};
use crate::scenario::Scenario;
use crate::world::World;

/// Times that a claim of a run may live, in seconds.
const CLAIM_TTLS: [u64; 3] = [60, 90, 200];

/// How long a queue may refuse or leave requests unanswered once all is well.
const RECOVERY: Duration = Duration::from_secs(300);

/// The load of a run.
pub struct Workload {
    cluster: Cluster,
    scenario: Scenario,
    history: Arc<Mutex<History>>,
    numbers: Arc<AtomicU64>,
}

impl Workload {
    /// Creates the load of a scenario.
    pub fn new(cluster: Cluster, scenario: Scenario, history: Arc<Mutex<History>>) -> Self {
        Self { cluster, scenario, history, numbers: Arc::default() }
    }

    fn client(&self, name: String) -> Client {
        Client::new(name, self.cluster.clone(), Arc::clone(&self.history))
    }

    fn world(&self) -> &World {
        self.cluster.world()
    }

    /// Creates the queues, before faults happen.
    pub async fn create_queues(&self) {
        let client = self.client("setup".into());
        for (index, uri) in self.scenario.cluster.pools.iter().enumerate().skip(1) {
            if !self.repeat(&client, &ApiRequest::put_pool(&pool_name(index), uri)).await {
                self.history.lock().violation(format!("{uri} cannot be added"));
            }
        }
        for queue in 0..self.scenario.queues {
            let mut attributes = json!({});
            if is_fifo(queue) {
                attributes["_fifo"] = json!(true);
            }
            if self.scenario.verbs.relaxed {
                attributes["_durability"] = json!("relaxed");
            }
            if self.scenario.verbs.dead_letters {
                attributes["_max_claim_count"] = json!(2);
                attributes["_dead_letter_queue"] = json!(queue_name(DEAD_LETTERS + queue));
            }
            let request = ApiRequest::put_queue(&queue_name(queue), attributes);
            if !self.repeat(&client, &request).await {
                self.history.lock().violation(format!("{} cannot be created", queue_name(queue)));
            }
        }
    }

    /// Repeats a request until it succeeds. Returns false when it does not in time.
    async fn repeat(&self, client: &Client, request: &ApiRequest) -> bool {
        let end = self.world().elapsed() + RECOVERY;
        while self.world().elapsed() < end {
            if matches!(client.send(request).await, Outcome::Done(_)) {
                return true;
            }
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
        false
    }

    /// Runs all clients to their end.
    pub async fn run_clients(&self) {
        let clients = (0..self.scenario.clients).map(|number| {
            let worker = Worker {
                client: self.client(format!("client-{number}")),
                world: self.world().clone(),
                scenario: self.scenario.clone(),
                numbers: Arc::clone(&self.numbers),
                claims: Vec::new(),
                seen: Vec::new(),
            };
            worker.run()
        });
        futures_util::future::join_all(clients).await;
    }

    /// Empties all queues, once nothing fails any more and all claims have ended. Every message that should be there must
    /// be delivered.
    pub async fn empty_queues(&self) {
        let since = self.world().elapsed();
        let client = self.client("cleaner".into());
        for queue in 0..self.scenario.queues {
            self.empty_queue(&client, queue).await;
        }
        if self.scenario.verbs.dead_letters {
            for queue in 0..self.scenario.queues {
                self.empty_queue(&client, DEAD_LETTERS + queue).await;
            }
        }
        self.history.lock().check_all_delivered(since);
    }

    async fn empty_queue(&self, client: &Client, queue: usize) {
        let (mut end, mut empty) = (self.world().elapsed() + RECOVERY, 0);
        while empty < 3 {
            if self.world().elapsed() > end {
                self.history.lock().violation(format!("{} does not recover", queue_name(queue)));
                return;
            }
            match client.claim(queue, 20, 300, 0).await {
                Some(claim) if claim.messages.is_empty() => {
                    empty += 1;
                    tokio::time::sleep(Duration::from_secs(3)).await;
                }
                Some(claim) => {
                    for message in &claim.messages {
                        self.delete_for_sure(client, queue, message, &claim.id).await;
                    }
                    (end, empty) = (self.world().elapsed() + RECOVERY, 0);
                }
                None => tokio::time::sleep(Duration::from_secs(2)).await,
            }
        }
        self.check_empty(client, queue).await;
    }

    async fn delete_for_sure(&self, client: &Client, queue: usize, message: &HeldMessage, claim: &str) {
        let end = self.world().elapsed() + RECOVERY;
        while client.delete(queue, message, Some(claim)).await != Certainty::Done {
            if self.world().elapsed() > end {
                self.history.lock().violation(format!("message {} cannot be deleted", message.number));
                return;
            }
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
    }

    /// An empty queue counts no messages.
    async fn check_empty(&self, client: &Client, queue: usize) {
        let end = self.world().elapsed() + RECOVERY;
        let mut last = "no answer".to_owned();
        while self.world().elapsed() < end {
            match client.send(&ApiRequest::stats(&queue_name(queue))).await {
                Outcome::Missing => return,
                Outcome::Done(body) if is_empty(&body["messages"]) => return,
                Outcome::Done(body) => last = body["messages"].to_string(),
                Outcome::Refused(_) | Outcome::Unknown => {}
            }
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
        self.history.lock().violation(format!("{} is empty and counts {last}", queue_name(queue)));
    }
}

/// Whether the numbers of a queue are those of an empty one.
fn is_empty(counts: &Value) -> bool {
    ["total", "claimed", "delayed", "in_transfer"].iter().all(|kind| counts[kind] == 0)
}

/// Returns the name of the pool at a place in the list.
fn pool_name(index: usize) -> String {
    if index == 0 { "default".into() } else { format!("pool{index}") }
}

fn is_fifo(queue: usize) -> bool {
    queue % 2 == 1
}

/// One client at work.
struct Worker {
    client: Client,
    world: World,
    scenario: Scenario,
    numbers: Arc<AtomicU64>,
    claims: Vec<(usize, HeldClaim)>,
    /// Messages that the client has held at some time.
    seen: Vec<(usize, HeldMessage)>,
}

impl Worker {
    async fn run(mut self) {
        for _ in 0..self.scenario.steps {
            let pause = self.world.below(self.scenario.pause_millis + 1);
            tokio::time::sleep(Duration::from_millis(pause)).await;
            self.step().await;
        }
    }

    async fn step(&mut self) {
        let queue = self.pick(self.scenario.queues);
        match self.world.below(100) {
            0..=34 => self.post(queue).await,
            35..=59 => self.claim(queue).await,
            60..=80 => self.delete_held().await,
            81..=84 => self.delete_claim().await,
            85..=89 => self.release().await,
            90..=94 => self.renew().await,
            95..=96 => self.delete_seen().await,
            97 => drop(self.client.send(&ApiRequest::stats(&queue_name(queue))).await),
            _ => self.administer(queue).await,
        }
    }

    /// Moves, purges or deletes a queue, if the scenario has that.
    async fn administer(&self, queue: usize) {
        let (name, verbs) = (queue_name(queue), self.scenario.verbs);
        match self.world.below(4) {
            0 | 1 if verbs.migrations => {
                let pool = pool_name(self.pick(self.scenario.cluster.pools.len()));
                self.client.send(&ApiRequest::migrate(&name, &pool)).await;
            }
            2 if verbs.migrations => drop(self.client.send(&ApiRequest::cancel_migration(&name)).await),
            2 if verbs.purges => self.client.remove_all(queue, &ApiRequest::purge(&name)).await,
            3 if verbs.queue_deletions && !is_fifo(queue) && !verbs.dead_letters => {
                self.client.remove_all(queue, &ApiRequest::delete_queue(&name)).await;
            }
            _ => drop(self.client.send(&ApiRequest::stats(&name)).await),
        }
    }

    fn pick(&self, count: usize) -> usize {
        let bound = u64::try_from(count.max(1)).unwrap_or(1);
        usize::try_from(self.world.below(bound)).unwrap_or(0)
    }

    async fn post(&self, queue: usize) {
        let count = 1 + self.world.below(3);
        // The messages of one post to a group are one after the other.
        let group = is_fifo(queue).then(|| format!("g{}", self.world.below(3)));
        let delay = if self.world.below(10) == 0 { 1 + self.world.below(30) } else { 0 };
        let posting =
            |_| Posting { number: self.numbers.fetch_add(1, Ordering::Relaxed), group: group.clone(), delay };
        let postings: Vec<Posting> = (0..count).map(posting).collect();
        // In a FIFO queue the deduplication id makes a repeated post safe.
        let mut tries = if is_fifo(queue) { 3 } else { 1 };
        while self.client.post(queue, &postings).await == Certainty::Unknown && tries > 1 {
            tries -= 1;
            tokio::time::sleep(Duration::from_millis(self.world.below(3_000))).await;
        }
    }

    async fn claim(&mut self, queue: usize) {
        let ttl = CLAIM_TTLS[self.pick(CLAIM_TTLS.len())];
        let wait = if self.world.below(4) == 0 { 1 + self.world.below(20) } else { 0 };
        let limit = 1 + self.world.below(6);
        let Some(claim) = self.client.claim(queue, limit, ttl, wait).await else { return };
        if !claim.messages.is_empty() {
            self.seen.extend(claim.messages.iter().map(|message| (queue, message.clone())));
            self.claims.push((queue, claim));
        }
    }

    /// Deletes the first message of a claim, under the claim.
    async fn delete_held(&mut self) {
        let index = self.pick(self.claims.len());
        let Some((queue, claim)) = self.claims.get_mut(index) else { return };
        let (queue, id, message) = (*queue, claim.id.clone(), claim.messages.remove(0));
        if claim.messages.is_empty() {
            self.claims.remove(index);
        }
        self.client.delete(queue, &message, Some(&id)).await;
    }

    /// Deletes all messages of a claim that are left.
    async fn delete_claim(&mut self) {
        if self.claims.is_empty() {
            return;
        }
        let (queue, claim) = self.claims.remove(self.pick(self.claims.len()));
        self.client.delete_each(queue, &claim.messages, &claim.id).await;
    }

    /// Deletes a message that this client has held at some time, without its claim.
    async fn delete_seen(&self) {
        let Some((queue, message)) = self.seen.get(self.pick(self.seen.len())) else { return };
        self.client.delete(*queue, message, None).await;
    }

    async fn release(&mut self) {
        if self.claims.is_empty() {
            return;
        }
        let (queue, claim) = self.claims.remove(self.pick(self.claims.len()));
        self.client.release(queue, &claim.id).await;
    }

    async fn renew(&self) {
        let Some((queue, claim)) = self.claims.get(self.pick(self.claims.len())) else { return };
        let ttl = CLAIM_TTLS[self.pick(CLAIM_TTLS.len())];
        self.client.renew(*queue, &claim.id, ttl).await;
    }
}
