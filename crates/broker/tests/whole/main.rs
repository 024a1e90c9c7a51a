//! The broker as a whole, in this process, with a clock that the test moves.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod arrivals;
mod attempts;
mod balance;
mod budgets;
mod clock;
mod confirmation;
mod costs;
mod counting;
mod cut_short;
mod damaged;
mod deadletters;
mod deletion;
mod delivery;
mod delivery_rate;
mod drivers;
mod duplicates;
mod ended_holds;
mod expiry;
mod explain;
mod explain_messages;
mod faulty;
mod fences;
mod fill_pools;
mod gaps;
mod ghosts;
mod group_holds;
mod groups;
mod hanging;
mod hold_reach;
mod holds;
mod idle_queues;
mod joining;
mod leases;
mod listing;
mod many_subscriptions;
mod metrics;
mod migration;
mod migration_drivers;
mod migration_random;
mod move_tasks;
mod outcomes;
mod overflow;
mod pauses;
mod peek;
mod peek_changes;
mod peer_secret;
mod pool_records;
mod pool_removal;
mod pools;
mod queue_counting;
mod queue_counting_bounds;
mod queue_list;
mod quotas;
mod reach;
mod recall;
mod receipt_keys;
mod recovery;
mod replace;
mod requeue;
mod retention;
mod schedule;
mod schema;
mod sealing;
mod settle;
mod settle_deletion;
mod settle_lives;
mod settle_migration;
mod settle_notes;
mod settle_room;
mod settle_targets;
mod settle_transfers;
mod shared_bodies;
mod shared_holds;
mod shared_quotas;
mod stamps;
mod subscription_drivers;
mod subscription_fill;
mod subscription_migration;
mod subscriptions;
mod suspension;
mod task_migration;
mod task_recovery;
mod tasks;
mod topics;
mod transfer_holds;
mod transfers;
mod transfers_random;
mod wait_outcome;
mod waiting;
mod webhooks;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use angarium_broker::{Broker, FirstPool, PoolSettings, Receive};
use angarium_catalogue::{Catalogue, Component, ComponentState, Schema};
use angarium_clock::Clock;
use angarium_cluster::replicas::Replica;
use angarium_coordination::embedded::EmbeddedTree;
use angarium_core::claim::{ClaimLimit, ClaimTerms, Visibility};
use angarium_core::error::Error;
use angarium_core::ids::MessageId;
use angarium_core::limits::Limits;
use angarium_core::message::{MessageTtl, NewMessage};
use angarium_core::names::{PoolName, ProjectId, QueueName, QueueRef};
use angarium_core::pool::PoolUri;
use angarium_core::queue::Metadata;
use angarium_engine::placement::Algorithm;
use angarium_journal::Journal;
use angarium_storage::PoolStore;
use angarium_storage::embedded::EmbeddedPool;
use angarium_storage::open::{Opener, PoolOpenError};
use tempfile::TempDir;
use uuid::Uuid;

/// Max time of a wait, in real time. A busy machine needs far less; only a failing test waits so long.
const MAX_WAIT: Duration = Duration::from_secs(120);

/// A broker, its clock, and the directory that is removed with it.
struct Whole {
    broker: Broker,
    clock: Clock,
    _data: TempDir,
}

async fn whole() -> Whole {
    let data = tempfile::tempdir().unwrap();
    let clock = Clock::manual(1_700_000_000_000);
    let journal = Journal::open(&data.path().join("journal"), &clock).unwrap();
    let broker = start(journal.clone(), journal, clock.clone()).await;
    Whole { broker, clock, _data: data }
}

/// A broker with its tree in one journal and its pool in the same or another one.
async fn start(tree: Journal, pool: Journal, clock: Clock) -> Broker {
    try_start(tree, pool, clock).await.unwrap()
}

async fn try_start(tree: Journal, pool: Journal, clock: Clock) -> Result<Broker, Error> {
    let catalogue = Catalogue::new(Arc::new(EmbeddedTree::open(tree).await.unwrap()));
    let pools = one_pool(Arc::new(EmbeddedPool::new(pool)));
    Broker::start(catalogue, &pools, replica(), clock, Limits::ZAQAR).await
}

/// The replica of each test: the same one after a restart.
fn replica() -> Replica {
    Replica::new(Uuid::from_u128(1), "host", "127.0.0.1:1")
}

/// The record of another replica, whose program knows records up to this form. It starts, so no slot is handed over to
/// it, however long a test lasts.
fn other_replica(schema: Schema) -> Component {
    Component {
        instance: Uuid::from_u128(2),
        address: "127.0.0.1:2".into(),
        version: "0.0.9".into(),
        schema: schema.0,
        state: ComponentState::Starting,
        weight: 1,
        started: 0,
        unreached: None,
        used_pools: None,
        fingerprints: Vec::new(),
        secret_keys: Vec::new(),
        process: None,
    }
}

fn open_journal(data: &Path, name: &str) -> Journal {
    Journal::open(&data.join(name), &Clock::manual(0)).unwrap()
}

fn queue(name: &str) -> QueueRef {
    QueueRef { project: ProjectId::new("").unwrap(), name: QueueName::new(name).unwrap() }
}

/// Metadata of a queue.
fn metadata(json: &str) -> Metadata {
    Metadata::new(serde_json::from_str(json).unwrap(), &Limits::ZAQAR).unwrap()
}

fn terms(ttl: i64) -> ClaimTerms {
    ClaimTerms::new(Some(ttl), None, &Limits::ZAQAR).unwrap()
}

fn limit(messages: i64) -> ClaimLimit {
    ClaimLimit::new(Some(messages), &Limits::ZAQAR).unwrap()
}

impl Whole {
    /// Posts `count` messages of this ttl, a thousand at a time.
    async fn post(&self, at: &QueueRef, count: usize, ttl: i64) -> Vec<MessageId> {
        let mut ids = Vec::with_capacity(count);
        while ids.len() < count {
            let each = (count - ids.len()).min(1_000);
            let ttl = MessageTtl::new(ttl, "ttl", &Limits::ZAQAR).unwrap();
            let message =
                |_| NewMessage { body: "\"x\"".into(), ttl: Some(ttl), delay: None, ..NewMessage::default() };
            ids.extend(
                self.broker.messages_post(at, (0..each).map(message).collect(), None).await.unwrap().ids,
            );
        }
        ids
    }

    /// Claims messages and keeps them.
    async fn claim(&self, at: &QueueRef, messages: i64, ttl: i64) -> Vec<MessageId> {
        let claim = self.broker.claim_create(at, terms(ttl), limit(messages)).await.unwrap();
        let Some((view, mut delivery_guard)) = claim else { return Vec::new() };
        delivery_guard.done();
        view.messages.iter().map(|message| message.id).collect()
    }

    /// Receives one message for a minute, and returns its handle.
    async fn receive_one(&self, at: &QueueRef) -> String {
        let asked = Receive {
            limit: limit(1),
            visibility: Some(Visibility::new(60, "").unwrap()),
            wait: None,
            waited: Duration::ZERO,
            in_flight: 100,
            attempt: None,
        };
        let mut received = self.broker.receive(at, asked).await.unwrap().unwrap();
        received.delivery_guard.iter_mut().for_each(|delivery_guard| delivery_guard.done());
        received.messages.remove(0).1
    }

    /// Claims until a message is there, as long as a busy machine may need.
    async fn claim_soon(&self, at: &QueueRef, messages: i64) -> Vec<MessageId> {
        let start = Instant::now();
        loop {
            let claimed = self.claim(at, messages, 300).await;
            if !claimed.is_empty() || start.elapsed() > MAX_WAIT {
                return claimed;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Opens the same storage whatever the URI.
struct OneStore(Arc<dyn PoolStore>);

impl Opener for OneStore {
    fn open(&self, _: &str) -> Result<Arc<dyn PoolStore>, PoolOpenError> {
        Ok(Arc::clone(&self.0))
    }

    fn close(&self, _: &str) {}
}

/// A first pool on this storage.
pub fn one_pool(store: Arc<dyn PoolStore>) -> PoolSettings {
    let (name, uri) = (PoolName::new("default").unwrap(), PoolUri::new("embedded:journal").unwrap());
    let first = Some(FirstPool { name, uri, weight: 1 });
    PoolSettings { first, opener: Arc::new(OneStore(store)), placement: Algorithm::default() }
}
