//! Two replicas that join at the same time, and a pool on a disk that is added while another replica joins: one of the
//! two operations must start again (P9).

use std::sync::Arc;
use std::time::{Duration, Instant};

use angarium_broker::{Broker, PoolSettings};
use angarium_catalogue::{Catalogue, ComponentState};
use angarium_clock::Clock;
use angarium_cluster::replicas::{self, Reentry, Replica};
use angarium_coordination::Coordination;
use angarium_coordination::embedded::EmbeddedTree;
use angarium_coordination::zookeeper::{ZooKeeperTimeouts, ZooKeeperTree};
use angarium_core::error::Error;
use angarium_core::limits::Limits;
use angarium_core::names::PoolName;
use angarium_core::pool::{Pool, PoolUri};
use angarium_core::time::Timestamp;
use angarium_journal::Journal;
use angarium_storage::embedded::EmbeddedPool;
use tempfile::TempDir;
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use uuid::Uuid;

use super::faulty::{Fault, FaultyTree, Plan};
use super::{MAX_WAIT, one_pool};
use angarium_testbed::zookeeper::ZooKeeper;

const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);

fn replica(number: u128) -> Replica {
    Replica::new(Uuid::from_u128(number), format!("host-{number}"), format!("127.0.0.1:{number}"))
}

/// Registers a replica.
async fn join(catalogue: &Catalogue, number: u128) -> Result<(), Error> {
    let replica = replica(number);
    let me = replica.component(ComponentState::Running, NOW);
    replicas::join(catalogue, &replica.host, &me).await.map(|_| ())
}

/// Records a pool at this place.
async fn add_pool(catalogue: &Catalogue, uri: &str) {
    let registry = catalogue.registry().await.unwrap();
    let (name, uri) = (PoolName::new("pool").unwrap(), PoolUri::new(uri).unwrap());
    catalogue.pool_add(&registry, &name, &Pool::new(Uuid::new_v4(), uri, 1)).await.unwrap().unwrap();
}

struct Embedded {
    tree: Arc<EmbeddedTree>,
    journal: Journal,
    _data: TempDir,
}

/// Returns a tree without replicas.
async fn embedded() -> Embedded {
    let data = TempDir::new().unwrap();
    let journal = Journal::open(&data.path().join("journal"), &Clock::manual(NOW.as_millis())).unwrap();
    let tree = Arc::new(EmbeddedTree::open(journal.clone()).await.unwrap());
    Catalogue::new(tree.clone()).system(Uuid::new_v4()).await.unwrap();
    Embedded { tree, journal, _data: data }
}

/// Lets a replica join over each of these at the same instant. Returns the ones that were admitted.
async fn join_at_once(catalogues: Vec<Catalogue>) -> Vec<u128> {
    let barrier = Arc::new(Barrier::new(catalogues.len()));
    let mut joining = JoinSet::new();
    for (number, catalogue) in (1..).zip(catalogues) {
        let barrier = Arc::clone(&barrier);
        joining.spawn(async move {
            barrier.wait().await;
            match join(&catalogue, number).await {
                Ok(()) => Some(number),
                Err(Error::NotAlone(_)) => None,
                Err(error) => panic!("{error:?}"),
            }
        });
    }
    joining.join_all().await.into_iter().flatten().collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_joins_beside_disk_pool_admit_one() {
    for _ in 0..20 {
        let Embedded { tree, .. } = &embedded().await;
        add_pool(&Catalogue::new(tree.clone()), "embedded:journal").await;
        let catalogues = (0..4).map(|_| Catalogue::new(tree.clone())).collect();
        assert_eq!(join_at_once(catalogues).await.len(), 1);
        let registry = Catalogue::new(tree.clone()).registry().await.unwrap();
        assert_eq!(registry.others(Uuid::nil()).count(), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_zookeeper_joins_beside_disk_pool_admit_one() {
    for _ in 0..3 {
        let address = ZooKeeper::shared().fresh_tree();
        let mut trees: Vec<Arc<dyn Coordination>> = Vec::new();
        for _ in 0..2 {
            trees.push(Arc::new(
                ZooKeeperTree::open(address.clone(), ZooKeeperTimeouts::default()).await.unwrap(),
            ));
        }
        Catalogue::new(trees[0].clone()).system(Uuid::new_v4()).await.unwrap();
        add_pool(&Catalogue::new(trees[0].clone()), "embedded:journal").await;
        let catalogues = trees.iter().map(|tree| Catalogue::new(tree.clone())).collect();
        assert_eq!(join_at_once(catalogues).await.len(), 1);
        for tree in trees {
            tree.close().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_with_shared_pools_all_join() {
    let Embedded { tree, .. } = &embedded().await;
    add_pool(&Catalogue::new(tree.clone()), "redis://127.0.0.1:1").await;
    let catalogues = (0..4).map(|_| Catalogue::new(tree.clone())).collect();
    let mut joined = join_at_once(catalogues).await;
    joined.sort_unstable();
    assert_eq!(joined, [1, 2, 3, 4]);
}

/// The processes of one replica: one is killed or frozen, or each has a copy of the data.
#[tokio::test(flavor = "multi_thread")]
async fn of_two_processes_the_later_start_stays() {
    let Embedded { tree, .. } = &embedded().await;
    let catalogue = Catalogue::new(tree.clone());
    let process = |nonce: u128, started| {
        let me = Replica { nonce: Uuid::from_u128(nonce), ..replica(1) };
        me.component(ComponentState::Running, started)
    };
    let mut earlier = process(2, NOW);
    earlier.started = replicas::join(&catalogue, "host", &earlier).await.unwrap().started.as_millis();
    // Its clock is behind.
    let mut later = process(1, NOW.minus_seconds(60));
    later.started = replicas::join(&catalogue, "host", &later).await.unwrap().started.as_millis();
    assert!(later.started > earlier.started);
    assert_eq!(catalogue.registry().await.unwrap().successor(&earlier), Some(&later));
    assert_eq!(catalogue.registry().await.unwrap().successor(&later), None);
    let refused = replicas::rejoin(&catalogue, "host", &earlier).await.unwrap();
    assert_eq!(refused, Reentry::Succeeded(Box::new(later.clone())));
    assert_eq!(catalogue.registry().await.unwrap().all().count(), 1);
    assert!(matches!(replicas::rejoin(&catalogue, "host", &later).await.unwrap(), Reentry::Registered(_)));
}

/// The session of the later process has ended, and the earlier one does not know of it yet.
#[tokio::test(flavor = "multi_thread")]
async fn later_process_registers_in_place_of_the_earlier() {
    let Embedded { tree, .. } = &embedded().await;
    let catalogue = Catalogue::new(tree.clone());
    let process = |nonce: u128, seconds| {
        let me = Replica { nonce: Uuid::from_u128(nonce), ..replica(1) };
        me.component(ComponentState::Running, NOW.plus_seconds(seconds))
    };
    let (earlier, later) = (process(2, 0), process(1, 60));
    replicas::rejoin(&catalogue, "host", &earlier).await.unwrap();
    assert!(matches!(replicas::rejoin(&catalogue, "host", &later).await.unwrap(), Reentry::Registered(_)));
    let registry = catalogue.registry().await.unwrap();
    assert_eq!((registry.all().count(), registry.successor(&earlier)), (1, Some(&later)));
}

/// A replica that read the registry first, but commits later, has not seen the other.
#[tokio::test(flavor = "multi_thread")]
async fn replica_with_outdated_view_may_not_join() {
    let Embedded { tree, .. } = &embedded().await;
    add_pool(&Catalogue::new(tree.clone()), "embedded:journal").await;
    let plan = Plan::default();
    let slow = Catalogue::new(Arc::new(FaultyTree::new(tree.clone(), plan.clone())));
    plan.next(&[Fault::Held]);
    let mut joining = JoinSet::new();
    joining.spawn(async move { join(&slow, 1).await });
    while !plan.is_done() {
        tokio::task::yield_now().await;
    }
    join(&Catalogue::new(tree.clone()), 2).await.unwrap();
    plan.release();
    let refused = joining.join_next().await.unwrap().unwrap().unwrap_err();
    assert!(matches!(refused, Error::NotAlone(_)), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_services_admit_one() {
    let Embedded { tree, journal, .. } = &embedded().await;
    let mut starting = JoinSet::new();
    for number in 1..=2 {
        let catalogue = Catalogue::new(tree.clone());
        let settings: PoolSettings = one_pool(Arc::new(EmbeddedPool::new(journal.clone())));
        let clock = Clock::manual(NOW.as_millis());
        starting.spawn(async move {
            Broker::start(catalogue, &settings, replica(number), clock, Limits::ZAQAR).await
        });
    }
    let started = starting.join_all().await;
    let (serving, refused): (Vec<_>, Vec<_>) = started.into_iter().partition(Result::is_ok);
    // The refused one is not alone, or finds the stamp of the other in the storage that it was about to stamp.
    let [Err(error)] = &refused[..] else { panic!("one is refused") };
    assert!(matches!(error, Error::NotAlone(_) | Error::Unavailable { .. }), "{error:?}");
    let [Ok(broker)] = &serving[..] else { panic!("one serves") };
    let created = broker.queue_create(&super::queue("q"), angarium_core::queue::Metadata::empty()).await;
    created.unwrap();
}

/// A single commit of a start without an answer, whichever it is, leaves a replica that serves or one that did not start.
#[tokio::test(flavor = "multi_thread")]
async fn unknown_commit_of_a_start_leaves_a_serving_replica() {
    let mut started = 0;
    for commit in 0..12 {
        let Embedded { tree, journal, .. } = &embedded().await;
        let plan = Plan::default();
        plan.next(&[Fault::UnknownBefore]);
        plan.skip(commit);
        let catalogue = Catalogue::new(Arc::new(FaultyTree::new(tree.clone(), plan.clone())));
        let settings = one_pool(Arc::new(EmbeddedPool::new(journal.clone())));
        let clock = Clock::manual(NOW.as_millis());
        let Ok(broker) = Broker::start(catalogue, &settings, replica(1), clock, Limits::ZAQAR).await else {
            continue;
        };
        started += 1;
        let begun = Instant::now();
        let (at, metadata) = (super::queue("q"), angarium_core::queue::Metadata::empty());
        while let Err(error) = broker.queue_create(&at, metadata.clone()).await {
            assert!(begun.elapsed() < MAX_WAIT, "commit {commit} of the start: {error:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        broker.stop().await;
    }
    assert!(started > 0);
}
