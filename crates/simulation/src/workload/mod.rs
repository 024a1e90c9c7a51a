//! The load: what clients do while faults happen, and how the queues are emptied once all is well again.
//!
//! - `worker` is one client and its steps; `settles` and `receipts` have those of settles and of SQS.
//! - `subscriptions` has topics and subscriptions, and the end of these.
//! - `fifo_receives` has the steps of SQS in a FIFO queue.
//! - `subscription_changes` has a subscription whose terms change.
//! - `holds` has the holds and releases of queues, groups, pools and the project.
//! - `quotas` has the changes of the quota, and what must be true of it at the end.
//! - `ending_holds` has a hold that ends while a claim waits.
//! - `races` has requests that meet while a message changes.
//! - `own_queues` has queues that one client uses alone, and what must be true in them.
//! - `circles` has two queues that subscribe to each other.
//! - `emptying` is the end: it restores the pools and takes all messages out.
//! - `probes` makes single requests after that, each beside one planned fault.

mod circles;
mod emptying;
mod ending_holds;
mod fifo_receives;
mod holds;
mod own_queues;
mod probes;
mod quotas;
mod races;
mod receipts;
mod settles;
mod subscription_changes;
mod subscriptions;
mod worker;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::client::{Client, pool_name, queue_name};
use crate::cluster::Cluster;
use crate::history::{ChangeHistory, DEAD_LETTERS, History, SQS_FIFO};
use crate::requests::{ApiRequest, LONG_TTL, Outcome};
use crate::scenario::{Scenario, Verb};
use crate::world::World;

use circles::CircleHistory;
use worker::Worker;

/// Times that a claim of a run may live, in seconds.
const CLAIM_TTLS: [u64; 3] = [60, 90, 200];

/// Number of groups of a queue.
const GROUPS: u64 = 3;

/// How long a queue may refuse or leave requests unanswered once all is well.
const RECOVERY: Duration = Duration::from_secs(300);

/// The load of a run.
pub struct Workload {
    cluster: Cluster,
    scenario: Scenario,
    history: Arc<Mutex<History>>,
    shared: Arc<Shared>,
}

/// The state that all clients of a run share.
#[derive(Debug, Default)]
struct Shared {
    /// Number of messages that were named so far.
    numbers: AtomicU64,
    /// Number of breaks now. During a break no client begins a step.
    breaks: AtomicU64,
    /// The queues that a client has used alone. Held for the addition of one, or to take all.
    own_queues: Mutex<Vec<String>>,
    /// The messages of the circle. Held for one change.
    circle: Mutex<CircleHistory>,
    /// The address of the subscription whose terms change, once it is there.
    changing: Mutex<Option<String>>,
    /// Its history. Held for one change.
    changes: Mutex<ChangeHistory>,
}

/// A break of all clients but the one that has it. It ends with its drop.
struct Break(Arc<Shared>);

impl Break {
    fn begin(shared: &Arc<Shared>) -> Self {
        shared.breaks.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(shared))
    }
}

impl Drop for Break {
    fn drop(&mut self) {
        self.0.breaks.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Workload {
    /// Creates the load of a scenario.
    pub fn new(cluster: Cluster, scenario: Scenario, history: Arc<Mutex<History>>) -> Self {
        Self { cluster, scenario, history, shared: Arc::default() }
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
            if self.scenario.verbs.has(Verb::Relaxed) {
                attributes["_durability"] = json!("relaxed");
            }
            if self.scenario.verbs.has(Verb::Sqs) {
                // Messages of SQS live as long as their queue tells.
                attributes["_default_message_ttl"] = json!(LONG_TTL);
            }
            if self.scenario.verbs.has(Verb::DeadLetters) {
                attributes["_max_claim_count"] = json!(2);
                attributes["_dead_letter_queue"] = json!(queue_name(DEAD_LETTERS + queue));
            }
            self.create_queue(&client, queue, attributes).await;
            if self.scenario.verbs.has(Verb::Sqs) && self.scenario.verbs.has(Verb::DeadLetters) {
                let attributes = json!({"_default_message_ttl": LONG_TTL});
                self.create_queue(&client, DEAD_LETTERS + queue, attributes).await;
            }
        }
        if self.scenario.verbs.has(Verb::Subscriptions) {
            self.create_topics(&client).await;
        }
        if self.has_changing() {
            self.create_changing(&client).await;
        }
        if self.scenario.verbs.has(Verb::SqsFifo) {
            let durability = if self.scenario.verbs.has(Verb::Relaxed) { "relaxed" } else { "sync" };
            let attributes =
                json!({"_fifo": true, "_default_message_ttl": LONG_TTL, "_durability": durability});
            self.create_queue(&client, SQS_FIFO, attributes).await;
        }
        if self.scenario.verbs.has(Verb::Circles) {
            self.create_circle(&client).await;
        }
        self.history.lock().note_replicas(self.cluster.size());
        self.note_pools();
    }

    async fn create_queue(&self, client: &Client, queue: usize, attributes: Value) {
        let request = ApiRequest::put_queue(&queue_name(queue), attributes);
        if !self.repeat(client, &request).await {
            self.history.lock().violation(format!("{} cannot be created", queue_name(queue)));
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

    fn next_number(&self) -> u64 {
        self.shared.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// Runs all clients to their end.
    pub async fn run_clients(&self) {
        let clients = (0..self.scenario.clients).map(|number| {
            let client = self.client(format!("client-{number}"));
            let second = self.client(format!("client-{number}b"));
            Worker::new(client, second, self.world().clone(), self.scenario.clone(), Arc::clone(&self.shared))
        });
        let clients = clients.map(Worker::run);
        self.history.lock().set_calm(self.scenario.is_calm);
        futures_util::future::join_all(clients).await;
        self.history.lock().set_calm(false);
    }
}

fn is_fifo(queue: usize) -> bool {
    queue % 2 == 1
}
