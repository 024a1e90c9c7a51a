//! The broker over each driver, and over two pools at once, while batches fail as planned: random histories against a
//! naive model of the queues. The service resolves unknown outcomes; certain failures are reported as failures;
//! everything else behaves as without faults.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

use angarium_broker::{Broker, PoolSettings};
use angarium_catalogue::Catalogue;
use angarium_clock::Clock;
use angarium_coordination::embedded::EmbeddedTree;
use angarium_core::ids::{ClaimId, MessageId};
use angarium_core::limits::Limits;
use angarium_core::message::{MessageTtl, NewMessage};
use angarium_core::names::{PoolName, QueueRef};
use angarium_core::pool::{PoolChange, PoolUri};
use angarium_engine::placement::Algorithm;
use angarium_journal::Journal;
use angarium_storage::PoolStore;
use angarium_storage::open::{Opener, PoolOpenError, PoolOpener};
use bytes::Bytes;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tempfile::TempDir;

use super::faulty::{Fault, FaultyPool, Plan};
use super::transfers::until;
use super::{limit, queue, replica, terms};
use angarium_testbed::drivers::shared_cluster;
use angarium_testbed::postgres::Postgres;
use angarium_testbed::redis::{Redis, SYNCED};
use angarium_testbed::settings;

const STEPS: u64 = 200;
const QUEUES: usize = 12;
/// Longer than any history.
const TTL: i64 = 43_200;

/// Opens real storages, whose batches fail as planned.
struct Opening {
    opener: PoolOpener,
    plan: Plan,
}

impl Opener for Opening {
    fn open(&self, uri: &str) -> Result<Arc<dyn PoolStore>, PoolOpenError> {
        let pool = self.opener.open(uri)?;
        Ok(Arc::new(FaultyPool::new(pool, self.plan.clone())))
    }

    fn close(&self, uri: &str) {
        self.opener.close(uri);
    }
}

/// A tree and the settings of real pools, for brokers that start one after the other.
pub(super) struct Stores {
    pub(super) catalogue: Catalogue,
    pub(super) settings: PoolSettings,
    pub(super) clock: Clock,
    pub(super) plan: Plan,
    pub(super) _data: TempDir,
}

impl Stores {
    /// Returns stores without a pool and with no planned faults.
    pub(super) async fn new() -> Self {
        let data = tempfile::tempdir().unwrap();
        let clock = Clock::manual(1_700_000_000_000);
        let path: PathBuf = data.path().join("journal");
        let journal = Journal::open(&path, &clock).unwrap();
        let catalogue = Catalogue::new(Arc::new(EmbeddedTree::open(journal.clone()).await.unwrap()));
        let plan = Plan::default();
        let opener = PoolOpener::new(data.path(), clock.clone(), [(path, journal)]);
        let opener = Arc::new(Opening { opener, plan: plan.clone() });
        let settings = PoolSettings { first: None, opener, placement: Algorithm::default() };
        Self { catalogue, settings, clock, plan, _data: data }
    }
}

/// The expected state of a queue.
#[derive(Default)]
struct Naive {
    ready: BTreeSet<MessageId>,
    claims: BTreeMap<ClaimId, BTreeSet<MessageId>>,
}

struct World {
    broker: Broker,
    catalogue: Catalogue,
    settings: PoolSettings,
    clock: Clock,
    plan: Plan,
    dice: StdRng,
    queues: Vec<(QueueRef, Naive)>,
    bodies: HashMap<MessageId, Bytes>,
    _data: TempDir,
}

impl World {
    async fn new(seed: u64, uris: &[String]) -> Self {
        let Stores { catalogue, settings, clock, plan, _data: data } = Stores::new().await;
        let broker = Broker::start(catalogue.clone(), &settings, replica(), clock.clone(), Limits::ZAQAR)
            .await
            .unwrap();
        for (number, uri) in uris.iter().enumerate() {
            let uri = Some(PoolUri::new(uri).unwrap());
            let change = PoolChange { uri, weight: Some(1), ..PoolChange::default() };
            broker.pool_put(&PoolName::new(&format!("pool-{number}")).unwrap(), change).await.unwrap();
        }
        let queues = (0..QUEUES).map(|number| (queue(&format!("q{number}")), Naive::default())).collect();
        let (dice, bodies) = (StdRng::seed_from_u64(seed), HashMap::new());
        Self { broker, catalogue, settings, clock, plan, dice, queues, bodies, _data: data }
    }

    /// Starts the same replica on the same stores, with empty memory.
    async fn start_again(&mut self) {
        self.broker.stop().await;
        let (catalogue, clock) = (self.catalogue.clone(), self.clock.clone());
        self.broker =
            Broker::start(catalogue, &self.settings, replica(), clock, Limits::ZAQAR).await.unwrap();
    }

    /// Plans at most as many faults as a slot writer retries.
    fn plan_faults(&mut self) {
        let faults = [Fault::NotSent, Fault::UnknownBefore, Fault::UnknownAfter];
        for _ in self.plan.left()..self.dice.random_range(0..3) {
            self.plan.next(&[faults[self.dice.random_range(0..faults.len())]]);
        }
    }

    async fn step(&mut self) {
        self.plan_faults();
        let at = self.dice.random_range(0..QUEUES);
        match self.dice.random_range(0..10) {
            0..4 => self.post(at).await,
            4..7 => self.claim(at).await,
            7 => self.release(at).await,
            8 => self.delete_claimed(at).await,
            _ => self.delete_ready(at).await,
        }
    }

    fn messages(&mut self) -> Vec<NewMessage> {
        let ttl = Some(MessageTtl::new(TTL, "ttl", &Limits::ZAQAR).unwrap());
        let count = self.dice.random_range(1..8);
        let body = |_| Bytes::from(self.dice.random::<u64>().to_string());
        (0..count)
            .map(body)
            .map(|body| NewMessage { body, ttl, delay: None, ..NewMessage::default() })
            .collect()
    }

    async fn post(&mut self, at: usize) {
        let messages = self.messages();
        let bodies: Vec<Bytes> = messages.iter().map(|message| message.body.clone()).collect();
        let (name, naive) = &mut self.queues[at];
        let ids = self.broker.messages_post(name, messages, None).await.unwrap().ids;
        naive.ready.extend(&ids);
        self.bodies.extend(ids.into_iter().zip(bodies));
    }

    async fn claim(&mut self, at: usize) {
        let count = self.dice.random_range(1..10);
        let (name, naive) = &mut self.queues[at];
        let claimed = self.broker.claim_create(name, terms(TTL), limit(count as i64)).await.unwrap();
        let wanted: Vec<MessageId> = naive.ready.iter().copied().take(count).collect();
        let Some((view, mut delivery_guard)) = claimed else { return assert_eq!(wanted, [], "of {name:?}") };
        delivery_guard.done();
        let found: Vec<MessageId> = view.messages.iter().map(|message| message.id).collect();
        assert_eq!(found, wanted, "of {name:?}");
        for message in &view.messages {
            assert_eq!(message.body, self.bodies[&message.id]);
        }
        naive.ready.retain(|id| !found.contains(id));
        naive.claims.insert(view.id, found.into_iter().collect());
    }

    async fn release(&mut self, at: usize) {
        let (name, naive) = &mut self.queues[at];
        let Some((claim, ids)) = naive.claims.pop_first() else { return };
        self.broker.claim_release(name, claim).await.unwrap();
        naive.ready.extend(ids);
    }

    async fn delete_claimed(&mut self, at: usize) {
        let (name, naive) = &mut self.queues[at];
        let Some(mut claim) = naive.claims.first_entry() else { return };
        let (id, claim_id) = (claim.get_mut().pop_last(), *claim.key());
        if claim.get().is_empty() {
            claim.remove();
        }
        let id = id.expect("a claim of nothing is no claim");
        self.broker.message_delete(name, id, Some(claim_id)).await.unwrap();
    }

    async fn delete_ready(&mut self, at: usize) {
        let (name, naive) = &mut self.queues[at];
        let Some(id) = naive.ready.pop_first() else { return };
        self.broker.message_delete(name, id, None).await.unwrap();
    }

    /// A post that certainly fails, and leaves nothing behind.
    async fn fail(&mut self) {
        let messages = self.messages();
        let (name, _) = &self.queues[0];
        // The queue exists before the faults begin.
        self.broker.queue_create(name, super::metadata("{}")).await.unwrap();
        while self.plan.left() > 0 {
            self.plan.take();
        }
        self.plan.next(&[Fault::NotSent; 6]);
        let refused = self.broker.messages_post(name, messages, None).await.unwrap_err();
        assert!(refused.nothing_written() && refused.to_string().contains("pool-"), "{refused}");
    }

    /// Claims all remaining messages.
    async fn drain(&mut self) {
        for at in 0..QUEUES {
            while !self.queues[at].1.claims.is_empty() {
                self.release(at).await;
            }
            while !self.queues[at].1.ready.is_empty() {
                self.claim(at).await;
            }
            self.claim(at).await;
        }
    }
}

async fn histories(test: &str, uris: &[String]) {
    let (seed, steps) = (settings::seed(test), settings::number("ANGARIUM_DRIVER_STEPS", STEPS));
    let mut world = World::new(seed, uris).await;
    for step in 0..steps {
        world.step().await;
        if step == steps / 3 {
            world.fail().await;
        }
        if step == steps / 2 {
            world.start_again().await;
        }
    }
    world.drain().await;
    for number in 0..uris.len() {
        let name = PoolName::new(&format!("pool-{number}")).unwrap();
        // A pool on a busy machine may not report it at once.
        let usage = async || world.broker.pool_report(&name).await.unwrap().usage;
        let what = format!("nothing lies in {name}");
        until(&what, async || usage().await.is_some_and(|usage| usage.messages > 0)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn embedded_pool_with_faults_matches_naive_queues() {
    histories("embedded histories", &["embedded:one".to_owned()]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_pool_with_faults_matches_naive_queues() {
    let redis = Redis::start(SYNCED);
    histories("redis histories", &[redis.uri("")]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_cluster_pool_with_faults_matches_naive_queues() {
    let (uri, _room) = shared_cluster().await;
    histories("cluster histories", &[uri]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_pool_with_faults_matches_naive_queues() {
    histories("postgres histories", &[Postgres::shared().fresh_uri()]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_pools_with_faults_match_naive_queues() {
    let redis = Redis::start(SYNCED);
    histories("two pools", &[redis.uri(""), Postgres::shared().fresh_uri()]).await;
}
