//! Addition and deletion of pools while queues are created, and placement of new queues.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use angarium_broker::{Broker, PoolSettings};
use angarium_catalogue::{Catalogue, Component, OwnedSlot, PoolUsers, Schema};
use angarium_clock::Clock;
use angarium_cluster::replicas::Replica;
use angarium_coordination::embedded::EmbeddedTree;
use angarium_core::ids::Slot;
use angarium_core::limits::Limits;
use angarium_core::message::NewMessage;
use angarium_core::names::PoolName;
use angarium_core::pool::{PoolChange, PoolUri};
use angarium_core::queue::Metadata;
use angarium_engine::placement::Algorithm;
use angarium_journal::Journal;
use angarium_storage::PoolStore;
use angarium_storage::open::{Opener, PoolOpenError, PoolOpener};
use tempfile::TempDir;
use tokio::task::JoinSet;
use uuid::Uuid;

use super::faulty::{Fault, FaultyTree, Plan};
use super::{other_replica, queue, replica};

/// A broker without pools, whose tree fails as planned and whose pools are real.
pub(super) struct Empty {
    pub(super) broker: Broker,
    pub(super) catalogue: Catalogue,
    plan: Plan,
    replica: Replica,
    settings: PoolSettings,
    pub(super) clock: Clock,
    _data: TempDir,
}

struct Opening(PoolOpener);

impl Opener for Opening {
    fn open(&self, uri: &str) -> Result<Arc<dyn PoolStore>, PoolOpenError> {
        self.0.open(uri)
    }

    fn close(&self, uri: &str) {
        self.0.close(uri);
    }
}

pub(super) async fn empty(placement: Algorithm) -> Empty {
    let data = tempfile::tempdir().unwrap();
    let clock = Clock::manual(1_700_000_000_000);
    let path: PathBuf = data.path().join("journal");
    let journal = Journal::open(&path, &clock).unwrap();
    let tree = Arc::new(EmbeddedTree::open(journal.clone()).await.unwrap());
    let plan = Plan::default();
    let opener = PoolOpener::new(data.path(), clock.clone(), [(path, journal)]);
    let settings = PoolSettings { first: None, opener: Arc::new(Opening(opener)), placement };
    let faulty = Catalogue::new(Arc::new(FaultyTree::new(tree.clone(), plan.clone())));
    let replica = replica();
    let broker =
        Broker::start(faulty, &settings, replica.clone(), clock.clone(), Limits::ZAQAR).await.unwrap();
    Empty { broker, catalogue: Catalogue::new(tree), plan, replica, settings, clock, _data: data }
}

pub(super) fn name(name: &str) -> PoolName {
    PoolName::new(name).unwrap()
}

fn at_weight(path: &str, weight: u32) -> PoolChange {
    let uri = PoolUri::new(&format!("embedded:{path}")).unwrap();
    PoolChange { uri: Some(uri), weight: Some(weight), ..PoolChange::default() }
}

impl Empty {
    pub(super) async fn add(&self, pool: &str, weight: u32) {
        self.broker.pool_put(&name(pool), at_weight(pool, weight)).await.unwrap();
    }

    async fn create(&self, at: &str) -> Result<(), &'static str> {
        let created = self.broker.queue_create(&queue(at), Metadata::empty()).await;
        created.map(drop).map_err(|error| error.code())
    }

    /// Returns the pool of a queue.
    pub(super) async fn pool_of(&self, at: &str) -> Option<String> {
        let slot = OwnedSlot::new(queue(at).slot(), 0, 0);
        let record = self.catalogue.queue(&slot, &queue(at)).await.unwrap();
        record.map(|record| record.placement.last().unwrap().clone())
    }

    /// Creates queues. Returns how many of them each pool has.
    async fn shares(&self, queues: usize) -> HashMap<String, usize> {
        let mut shares = HashMap::new();
        for number in 0..queues {
            let at = format!("q{number}");
            self.create(&at).await.unwrap();
            *shares.entry(self.pool_of(&at).await.unwrap()).or_default() += 1;
        }
        shares
    }
}

/// Deletions of a pool, creations of queues and deletions of queues, all at once: in any order, no queue is left in a
/// deleted pool, and a pool with a queue exists.
#[tokio::test(flavor = "multi_thread")]
async fn pool_is_never_deleted_under_queue_creation() {
    let empty = Arc::new(empty(Algorithm::default()).await);
    let (mut kept, mut deleted) = (0, 0);
    for round in 0..40 {
        empty.add("pool", 1).await;
        let mut tasks = JoinSet::new();
        for number in 0..6 {
            let empty = Arc::clone(&empty);
            tasks.spawn(async move {
                let created = empty.create(&format!("q{round}-{number}")).await;
                assert!(matches!(created, Ok(()) | Err("no_pool")), "{created:?}");
            });
        }
        let deleting = Arc::clone(&empty);
        let mut deletion = JoinSet::new();
        deletion.spawn(async move { deleting.broker.pool_delete(&name("pool")).await });
        tasks.join_all().await;
        let is_gone = match deletion.join_next().await.unwrap().unwrap() {
            Ok(()) => true,
            Err(error) => {
                assert_eq!(error.code(), "in_use");
                false
            }
        };
        let mut queues = 0;
        for number in 0..6 {
            let at = format!("q{round}-{number}");
            if empty.pool_of(&at).await.is_some() {
                queues += 1;
                empty.broker.queue_delete(&queue(&at)).await.unwrap();
            }
        }
        assert_eq!(is_gone, queues == 0, "{queues} queues in a pool that is deleted: {is_gone}");
        kept += usize::from(!is_gone);
        deleted += usize::from(is_gone);
        // The pool takes queues again, either after its refused deletion or after it was added again.
        if !is_gone {
            empty.create("after").await.unwrap();
            empty.broker.queue_delete(&queue("after")).await.unwrap();
        }
    }
    eprintln!("{kept} pools kept, {deleted} deleted");
}

#[tokio::test(flavor = "multi_thread")]
async fn creation_racing_with_pool_change_checks_again() {
    let empty = Arc::new(empty(Algorithm::default()).await);
    empty.add("one", 1).await;
    empty.add("two", 1).await;
    let mut tasks = JoinSet::new();
    for number in 0..100 {
        let empty = Arc::clone(&empty);
        tasks.spawn(async move { empty.create(&format!("q{number}")).await });
    }
    for weight in 0..100 {
        let change = PoolChange { weight: Some(weight % 2), ..PoolChange::default() };
        empty.broker.pool_patch(&name("one"), change).await.unwrap();
    }
    for created in tasks.join_all().await {
        created.unwrap();
    }
    let off = PoolChange { weight: Some(0), ..PoolChange::default() };
    empty.broker.pool_patch(&name("one"), off).await.unwrap();
    for number in 0..20 {
        empty.create(&format!("after{number}")).await.unwrap();
        assert_eq!(empty.pool_of(&format!("after{number}")).await.unwrap(), "two");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pool_with_in_doubt_addition_can_be_added_again() {
    for fault in [Fault::NotSent, Fault::UnknownBefore, Fault::UnknownAfter] {
        let empty = empty(Algorithm::default()).await;
        empty.plan.next(&[fault]);
        let failed = empty.broker.pool_put(&name("pool"), at_weight("pool", 1)).await.unwrap_err();
        assert_eq!(failed.nothing_written(), fault == Fault::NotSent, "{fault:?}");
        empty.add("pool", 1).await;
        empty.create("q").await.unwrap();
        empty.broker.messages_post(&queue("q"), message(), None).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_deletion_leaves_usable_or_deletable_pool() {
    // The mark, then the record; each may fail in every way.
    for step in 0..2 {
        for fault in [Fault::NotSent, Fault::UnknownBefore, Fault::UnknownAfter] {
            let empty = empty(Algorithm::default()).await;
            empty.add("pool", 1).await;
            empty.plan.next(&[fault]);
            empty.plan.skip(step);
            assert!(empty.broker.pool_delete(&name("pool")).await.is_err(), "{step} {fault:?}");
            assert!(empty.plan.is_done());
            match empty.broker.pool_get(&name("pool")).await {
                // Any change removes a remaining mark.
                Ok(_) => drop(empty.broker.pool_patch(&name("pool"), at_weight("pool", 1)).await.unwrap()),
                Err(_) => empty.add("pool", 1).await,
            }
            empty.create("q").await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn mark_of_killed_deletion_is_removed_at_next_start() {
    let empty = empty(Algorithm::default()).await;
    empty.add("pool", 1).await;
    let entry = empty.catalogue.pool(&name("pool")).await.unwrap().unwrap();
    let mut marked = entry.pool.clone();
    marked.closing = true;
    empty.catalogue.pool_set(&entry, &marked).await.unwrap().unwrap();
    assert_eq!(empty.create("q").await, Err("no_pool"));
    empty.broker.stop().await;
    let again = Broker::start(
        empty.catalogue.clone(),
        &empty.settings,
        empty.replica.clone(),
        empty.clock.clone(),
        Limits::ZAQAR,
    )
    .await
    .unwrap();
    again.queue_create(&queue("q"), Metadata::empty()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn new_queues_go_where_the_chosen_algorithm_sends_them() {
    for (algorithm, most_in_heavy) in [(Algorithm::Weighted, 150..200), (Algorithm::Random, 60..140)] {
        let empty = empty(algorithm).await;
        empty.add("heavy", 9).await;
        empty.add("light", 1).await;
        let shares = empty.shares(200).await;
        assert!(most_in_heavy.contains(&shares["heavy"]), "{algorithm}: {shares:?}");
    }
    let (one, other) = (empty(Algorithm::Rendezvous).await, empty(Algorithm::Rendezvous).await);
    for (installation, names) in [(&one, ["a", "b", "c"]), (&other, ["c", "a", "b"])] {
        for name in names {
            installation.add(name, 1).await;
        }
    }
    assert_eq!(one.shares(30).await, other.shares(30).await);
    for number in 0..30 {
        let at = format!("q{number}");
        assert_eq!(one.pool_of(&at).await, other.pool_of(&at).await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pool_deletion_checks_every_slot() {
    let empty = empty(Algorithm::default()).await;
    empty.add("pool", 1).await;
    for number in [0, 255] {
        let at = (0..).map(|n| format!("q{n}")).find(|at| queue(at).slot() == Slot(number)).unwrap();
        empty.create(&at).await.unwrap();
        for (pool, used) in [("pool", PoolUsers::Queues), ("other", PoolUsers::Nothing)] {
            assert_eq!(empty.catalogue.slot_uses_pool(Slot(number), &name(pool)).await.unwrap(), used);
        }
        empty.broker.queue_delete(&queue(&at)).await.unwrap();
    }
}

fn message() -> Vec<NewMessage> {
    vec![NewMessage { body: "1".into(), ttl: None, delay: None, ..NewMessage::default() }]
}

/// Another replica could not reach a pool on the disk of one replica (P9).
#[tokio::test(flavor = "multi_thread")]
async fn disk_pool_is_not_added_beside_another_replica() {
    let other = Replica::new(Uuid::from_u128(2), "elsewhere", "127.0.0.1:2");
    let empty = empty(Algorithm::default()).await;
    let seen = empty.catalogue.registry().await.unwrap();
    let joins = async || {
        let component = Component {
            instance: other.instance,
            address: other.address.clone(),
            ..other_replica(Schema::FIRST)
        };
        assert!(empty.catalogue.component_join(&seen, &other.host, &component).await.unwrap().is_some());
    };
    empty.plan.next(&[Fault::Held]);
    let broker = empty.broker.clone();
    let mut adding = JoinSet::new();
    adding.spawn(async move { broker.pool_put(&name("late"), at_weight("late", 1)).await });
    while !empty.plan.is_done() {
        tokio::task::yield_now().await;
    }
    // The replica that adds the pool has seen no other one.
    joins().await;
    empty.plan.release();
    let refused = adding.join_next().await.unwrap().unwrap().unwrap_err();
    assert_eq!(refused.code(), "not_alone");
    let refused = empty.broker.pool_put(&name("later"), at_weight("later", 1)).await.unwrap_err();
    assert_eq!(refused.code(), "not_alone");
    assert_eq!(empty.catalogue.pool_names().await.unwrap(), []);
}
