//! Several replicas as one service: real processes, a real ZooKeeper, a pool in Redis that all of them reach.

mod backup;
mod clock_step;
mod closed_tree;
mod copies;
mod forwarding;
mod holds;
mod many;
mod migration;
mod outcomes;
mod overview;
mod peers;
mod reach;
mod receipts;
mod restarts;
mod sealing;
mod serving;
mod shared_holds;
mod starting;
mod subscriptions;
mod takeover;
mod transfers;

use std::collections::HashMap;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::support::client::Client;
use crate::support::pauses::{Route, max_hand_over, watch};
use crate::support::server::{Server, ServerBuilder};
use angarium_testbed::redis::{Redis, SYNCED};
use angarium_testbed::zookeeper::ZooKeeper;

/// Longer than slots need to find their places: the settle time, and the session of one that was killed.
const MAX_WAIT: Duration = Duration::from_secs(180);

/// Longer than a replica rests between some slots that it hands over and the next.
const CALM: Duration = Duration::from_millis(700);

/// Queues of each replica whose pauses a test measures.
const WATCHED: usize = 4;

/// Replicas on one ensemble and one pool.
struct Cluster {
    redis: Redis,
    address: String,
    settings: &'static [&'static str],
    replicas: Vec<Replica>,
}

/// One of them.
struct Replica {
    builder: ServerBuilder,
    /// None while it does not run.
    server: Option<Server>,
    _data: TempDir,
}

impl Replica {
    fn server(&self) -> &Server {
        self.server.as_ref().expect("it runs")
    }

    fn client(&self) -> Client {
        self.server().client()
    }

    /// Which one it is: it reports it in its data directory.
    fn instance(&self) -> String {
        let text = std::fs::read_to_string(self.builder.data().join("instance")).expect("it has started");
        text.trim().to_owned()
    }
}

impl Cluster {
    /// Starts this many, and waits until each has its share.
    fn start(replicas: usize) -> Self {
        Self::start_with(replicas, &[])
    }

    /// As [`Cluster::start`], each with these settings.
    fn start_with(replicas: usize, settings: &'static [&'static str]) -> Self {
        Self::start_on(ZooKeeper::shared(), replicas, settings)
    }

    /// As [`Cluster::start_with`], on this ZooKeeper.
    fn start_on(zookeeper: &ZooKeeper, replicas: usize, settings: &'static [&'static str]) -> Self {
        let mut cluster = Self::without_replicas(zookeeper, settings);
        for _ in 0..replicas {
            cluster.add();
        }
        cluster.wait_until_shared();
        cluster
    }

    /// Starts no replica yet.
    fn without_replicas(zookeeper: &ZooKeeper, settings: &'static [&'static str]) -> Self {
        let address = zookeeper.fresh_tree().to_string();
        Self { redis: Redis::start(SYNCED), address, settings, replicas: Vec::new() }
    }

    /// Starts one more.
    fn add(&mut self) {
        self.add_with(|builder| builder);
    }

    /// Starts one more in a way of its own.
    fn add_with(&mut self, own: impl FnOnce(ServerBuilder) -> ServerBuilder) {
        let data = tempfile::tempdir().expect("there is room for a temporary directory");
        let builder = ServerBuilder::new(data.path()).arg("--coordination").arg(&self.address);
        let builder = builder.arg("--pool").arg(self.redis.uri(""));
        let builder = self.settings.iter().fold(builder, |builder, setting| builder.arg(setting));
        let builder = own(builder);
        let server = Some(builder.start());
        self.replicas.push(Replica { builder, server, _data: data });
    }

    fn client(&self, replica: usize) -> Client {
        self.replicas[replica].client()
    }

    /// The ways of clients to the replicas, which all run.
    fn routes(&self) -> Vec<Route> {
        let base = |replica: &Replica| Route::Replica(replica.server().base().to_owned());
        self.replicas.iter().map(base).collect()
    }

    /// Stops a replica in order, and starts it at its address in a way of its own.
    fn restart_with(&mut self, number: usize, own: impl FnOnce(ServerBuilder) -> ServerBuilder) {
        let replica = &mut self.replicas[number];
        let (_, address) = replica.server().base().split_once("://").expect("it is a URL");
        let address = address.parse().expect("it is an address");
        assert!(replica.server.take().expect("it runs").terminate().success());
        replica.builder = own(replica.builder.clone().listen(address));
        replica.server = Some(replica.builder.start());
        self.wait_until_shared();
    }

    /// Restarts a replica as it is, and returns the longest pause of clients: that of a hand-over.
    fn hand_over(&mut self, number: usize) -> Duration {
        let routes = self.routes();
        let ((), traffic) = watch(&routes, WATCHED, || self.restart_with(number, |builder| builder));
        traffic.assert_kept("hand-over", max_hand_over(), &self.client(number));
        traffic.longest()
    }

    /// What a replica that runs states of all.
    fn view(&self) -> Value {
        let running = self.replicas.iter().find(|replica| replica.server.is_some()).expect("one runs");
        running.client().get("/v2/components").expect("it answers").json()
    }

    /// How many slots each replica has, by instance.
    fn shares(&self) -> HashMap<String, usize> {
        let view = self.view();
        let components = view["components"].as_array().cloned().unwrap_or_default();
        let share = |one: &Value| {
            let slots = one["slots"].as_array().map_or(0, Vec::len);
            (one["instance"].as_str().unwrap_or_default().to_owned(), slots)
        };
        components.iter().map(share).collect()
    }

    /// Waits until every slot is served, each replica that runs has a fair part of them, no other caller has any, and
    /// no more of them go from one to another.
    fn wait_until_shared(&self) {
        let running: Vec<String> =
            self.replicas.iter().filter(|r| r.server.is_some()).map(Replica::instance).collect();
        let fair = 256 / running.len() / 2;
        let start = Instant::now();
        let mut before = (HashMap::new(), Instant::now());
        loop {
            let shares = self.shares();
            if shares != before.0 {
                before = (shares.clone(), Instant::now());
            }
            let total: usize = shares.values().sum();
            let is_fair = |instance: &String| shares.get(instance).is_some_and(|share| *share >= fair);
            let is_shared = total == 256 && shares.len() == running.len() && running.iter().all(is_fair);
            if is_shared && before.1.elapsed() > CALM && self.serve_all() {
                return;
            }
            assert!(start.elapsed() < MAX_WAIT, "slots are not shared by {}: {shares:?}", running.len());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Whether every slot is served: on a busy machine that is a while after it has got an owner.
    fn serve_all(&self) -> bool {
        let running = self.replicas.iter().filter(|replica| replica.server.is_some());
        running.map(|replica| served(&replica.client())).sum::<usize>() == 256
    }

    /// The number of the replica that has the slot of a queue, found by its id's first byte in the answer of a post.
    fn owner_of(&self, slot: u8) -> usize {
        let view = self.view();
        let has =
            |one: &&Value| one["slots"].as_array().is_some_and(|slots| slots.contains(&Value::from(slot)));
        let owner =
            view["components"].as_array().and_then(|all| all.iter().find(has)).expect("somebody has it");
        let instance = owner["instance"].as_str().expect("it is text");
        self.replicas.iter().position(|replica| replica.instance() == instance).expect("it is one of ours")
    }
}

/// How many slots a replica serves; none without its answer.
fn served(client: &Client) -> usize {
    let page = client.get("/metrics").map(|answer| answer.text()).unwrap_or_default();
    let served = page.lines().find_map(|line| line.strip_prefix("angarium_slots_owned ")?.parse().ok());
    served.unwrap_or_default()
}

/// The slot of a queue of the default project.
fn slot_of(queue: &str) -> u8 {
    slot_in("", queue)
}

/// The slot of a queue of a project.
fn slot_in(project: &str, queue: &str) -> u8 {
    use angarium_core::ids::Slot;
    use angarium_core::names::{ProjectId, QueueName};
    let project = ProjectId::new(project).expect("it is one");
    Slot::of(&project, &QueueName::new(queue).expect("it is one")).0
}

/// The names of this many queues.
fn queues(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("queue-{number}")).collect()
}
