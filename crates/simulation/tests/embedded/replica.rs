//! A whole replica over one simulated disk: its tree and its pool are in one journal, as in a service with its defaults.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use angarium::api::{self, Authentication, Front, RequestLimits, SqsSettings};
use angarium_broker::{Broker, FirstPool, PoolSettings};
use angarium_catalogue::Catalogue;
use angarium_clock::Clock;
use angarium_cluster::random::Random;
use angarium_cluster::replicas::Replica;
use angarium_coordination::Coordination;
use angarium_core::limits::Limits;
use angarium_core::names::PoolName;
use angarium_core::pool::PoolUri;
use angarium_engine::placement::Algorithm;
use angarium_journal::JournalOptions;
use angarium_simulation::faults::{Fault, FaultCounts, FaultRates};
use angarium_simulation::journal::{Disk, EMBEDDED, ProcessJournal};
use angarium_simulation::network::send_from_client;
use angarium_simulation::pool::{SimulatedOpener, Storages};
use angarium_simulation::process::Process;
use angarium_simulation::scheduler::Policy;
use angarium_simulation::trace::Trace;
use angarium_simulation::world::World;
use bytes::Bytes;
use http::{Method, Request};
use serde_json::{Value, json};
use tokio::time::sleep;
use uuid::Uuid;

const QUEUE: &str = "/v2/queues/q";

const REQUESTS: RequestLimits = RequestLimits {
    requests: 10_000,
    long_polls: 10_000,
    per_address: 10_000,
    project_rate: None,
    body_bytes: 256 << 20,
};

/// A running replica.
struct Running {
    process: Process,
    front: Front,
    broker: Broker,
    tree: Arc<dyn Coordination>,
    journal: ProcessJournal,
}

/// The place of a replica, over all its processes.
struct Machine {
    world: World,
    disk: Disk,
    starts: u64,
}

impl Machine {
    fn new(seed: u64) -> Self {
        let world = World::new(seed, Policy::Equal, Trace::kept());
        Self { disk: Disk::new(world.clone(), "a"), world, starts: 0 }
    }

    /// Starts processes until one serves.
    async fn start(&mut self) -> Running {
        loop {
            self.starts += 1;
            let process = Process::start(self.world.clone(), format!("replica-0.{}", self.starts));
            let (disk, starting) = (self.disk.clone(), process.clone());
            let started = process.tasks().spawn(async move { start(&disk, starting).await });
            match started.await {
                Ok(Ok(running)) => return running,
                failed => self.world.note(|| format!("no start: {:?}", failed.map(|started| started.err()))),
            }
            process.crash();
            sleep(Duration::from_secs(1)).await;
        }
    }
}

/// Opens the journal, and builds the broker over it.
async fn start(disk: &Disk, process: Process) -> Result<Running, String> {
    let world = disk.world();
    let clock = Clock::of_runtime(1_800_000_000_000 + world.elapsed_millis() + world.below(1_000));
    let journal = ProcessJournal::open(disk, &process, &clock, JournalOptions::default());
    let journal = journal.map_err(|error| error.to_string())?;
    let tree = journal.tree().await.map_err(|error| error.to_string())?;
    let tree: Arc<dyn Coordination> = Arc::new(tree);
    let replica = Replica {
        random: Random::seeded(world.below(u64::MAX)),
        tasks: process.tasks(),
        ..Replica::new(Uuid::from_u128(1), "host-0", "replica-0:1")
    };
    let first = FirstPool {
        name: PoolName::new("default").unwrap(),
        uri: PoolUri::new(EMBEDDED).unwrap(),
        weight: 1,
    };
    let opener =
        journal.opener(SimulatedOpener::new(Storages::new(world.clone()), process.name().to_owned()));
    let pools =
        PoolSettings { first: Some(first), opener: Arc::new(opener), placement: Algorithm::default() };
    let catalogue = Catalogue::new(Arc::clone(&tree));
    let broker = Broker::start(catalogue, &pools, replica, clock.clone(), Limits::ZAQAR).await;
    let broker = broker.map_err(|error| error.to_string())?;
    let off = Authentication::Off(Arc::default());
    let front = api::front(broker.clone(), off, REQUESTS, clock, None, SqsSettings::default());
    Ok(Running { process, front, broker, tree, journal })
}

impl Running {
    /// Sends a request. Returns the status and the body of the answer, if there is one.
    async fn send(&self, world: &World, method: Method, path: &str, body: Value) -> Option<(u16, Value)> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "localhost")
            .header("client-id", "3381af92-2b9e-11e3-b191-71861300734c")
            .header("content-type", "application/json");
        let body = if body.is_null() { Bytes::new() } else { body.to_string().into() };
        let request = request.body(body).unwrap();
        let answer = send_from_client(world, self.process.clone(), self.front.clone(), request).await.ok()?;
        let body = serde_json::from_slice(answer.body()).unwrap_or(Value::Null);
        Some((answer.status().as_u16(), body))
    }

    /// Repeats a request until it succeeds.
    async fn insist(&self, world: &World, method: Method, path: &str, body: Value) -> Value {
        for _ in 0..600 {
            match self.send(world, method.clone(), path, body.clone()).await {
                Some((200..=299, answer)) => return answer,
                other => world.note(|| format!("again: {other:?}")),
            }
            sleep(Duration::from_secs(1)).await;
        }
        panic!(
            "{path} has no success: {:?}",
            world.take_lines().into_iter().rev().take(20).collect::<Vec<_>>()
        );
    }

    /// Ends the process in order.
    async fn stop(self) {
        let Self { process, front, broker, tree, journal } = self;
        broker.drain().await;
        broker.stop_waiters();
        broker.stop().await;
        tree.close().await;
        drop((front, broker, tree));
        journal.close().await;
        process.crash();
    }
}

/// Posts numbers while processes crash, stop and lose their power. Returns the trace, and the faults.
async fn posts_survive(seed: u64) -> (u64, FaultCounts) {
    let mut machine = Machine::new(seed);
    let world = machine.world.clone();
    let running = machine.start().await;
    running.insist(&world, Method::PUT, QUEUE, json!({})).await;
    let (mut acknowledged, mut next) = (BTreeSet::new(), 0);
    let mut current = Some(running);
    for _ in 0..6 {
        world.begin_faults(rates());
        let running = match current.take() {
            Some(running) => running,
            None => machine.start().await,
        };
        let end = world.elapsed() + Duration::from_secs(5 + world.below(40));
        while world.elapsed() < end && running.process.is_alive() {
            next += 1;
            let body = json!({"messages": [{"body": next, "ttl": 1_209_600}]});
            let answer = running.send(&world, Method::POST, &format!("{QUEUE}/messages"), body).await;
            if answer.as_ref().is_some_and(|(status, _)| *status == 201) {
                acknowledged.insert(next);
            }
            sleep(Duration::from_millis(world.below(400))).await;
        }
        match world.below(3) {
            0 if running.process.is_alive() => running.stop().await,
            draw => {
                running.process.crash();
                if draw == 1 {
                    machine.disk.cut_power();
                }
            }
        }
    }
    world.heal();
    let running = machine.start().await;
    let found = drain(&running, &world).await;
    let lost: Vec<_> = acknowledged.difference(&found).collect();
    assert!(lost.is_empty(), "seed {seed}: {lost:?} of {} were lost", acknowledged.len());
    assert!(acknowledged.len() > 20, "seed {seed}: only {} were acknowledged", acknowledged.len());
    running.stop().await;
    (world.trace_hash(), world.faults())
}

fn rates() -> FaultRates {
    let mut rates = FaultRates::default();
    let all = [
        (Fault::DiskWriteFailed, 200),
        (Fault::DiskSyncFailed, 200),
        (Fault::DiskReadFailed, 20),
        (Fault::DiskStalled, 200),
        (Fault::DiskFull, 100),
        (Fault::DiskExhausted, 50),
        (Fault::DiskCrash, 50),
    ];
    all.into_iter().for_each(|(fault, rate)| rates.set(fault, rate));
    rates
}

/// Claims and deletes all messages. Returns their bodies.
async fn drain(running: &Running, world: &World) -> BTreeSet<u64> {
    let mut found = BTreeSet::new();
    loop {
        let path = format!("{QUEUE}/claims?limit=20");
        let claim = running.insist(world, Method::POST, &path, json!({"ttl": 300, "grace": 60})).await;
        let messages = claim["messages"].as_array().cloned().unwrap_or_default();
        if messages.is_empty() {
            return found;
        }
        for message in messages {
            let number = message["body"].as_u64().unwrap();
            assert!(found.insert(number), "{number} was delivered twice");
            let href = message["href"].as_str().unwrap();
            running.insist(world, Method::DELETE, href, Value::Null).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn acknowledged_posts_survive_faults_of_the_disk() {
    let mut faults = FaultCounts::default();
    for seed in 0..3 {
        let (hash, counts) = posts_survive(seed).await;
        if seed == 0 {
            assert_eq!(posts_survive(seed).await.0, hash, "the same seed gives the same trace");
        }
        faults.merge(&counts);
    }
    assert!(faults.0.len() >= 6, "{faults:?}");
}
