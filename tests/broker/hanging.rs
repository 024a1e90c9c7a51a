//! A pool that hangs: it delays the queues that lie in it, and no other one of their slot.

use std::sync::Arc;
use std::time::Duration;

use angarium::broker::{Broker, FirstPool, Opener, PoolSettings};
use angarium::catalogue::Catalogue;
use angarium::clock::Clock;
use angarium::coordination::embedded::EmbeddedTree;
use angarium::domain::limits::Limits;
use angarium::domain::names::{PoolName, QueueRef};
use angarium::domain::pool::{PoolChange, PoolUri};
use angarium::journal::Journal;
use angarium::placement::Algorithm;
use angarium::storage::PoolStore;
use angarium::storage::embedded::EmbeddedPool;
use angarium::storage::open::PoolOpenError;
use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::deadletters::claim_once;
use super::faulty::{FaultyPool, Plan};
use super::{Whole, metadata, queue, replica};

/// Far longer than anything takes that does not hang.
const SOON: Duration = Duration::from_secs(8);

/// Two pools, `a` and `b`.
struct Pools {
    tree: Journal,
    stores: [Arc<FaultyPool>; 2],
    clock: Clock,
    _data: TempDir,
}

struct Opening([Arc<FaultyPool>; 2]);

impl Opener for Opening {
    fn open(&self, uri: &str) -> Result<Arc<dyn PoolStore>, PoolOpenError> {
        Ok(self.0[usize::from(uri == "embedded:b")].clone())
    }

    fn close(&self, _: &str) {}
}

impl Pools {
    fn new() -> Self {
        let data = TempDir::new().unwrap();
        let clock = Clock::manual(1_700_000_000_000);
        let open = |name| Journal::open(&data.path().join(name), &clock).unwrap();
        let store =
            |name| Arc::new(FaultyPool::new(Arc::new(EmbeddedPool::new(open(name))), Plan::default()));
        let (tree, stores) = (open("tree"), [store("a"), store("b")]);
        Self { tree, stores, clock, _data: data }
    }

    async fn start(&self) -> Whole {
        let catalogue = Catalogue::new(Arc::new(EmbeddedTree::open(self.tree.clone()).await.unwrap()));
        let uri = PoolUri::new("embedded:a").unwrap();
        let first = Some(FirstPool { name: PoolName::new("a").unwrap(), uri, weight: 1 });
        let opener = Arc::new(Opening(self.stores.clone()));
        let settings = PoolSettings { first, opener, placement: Algorithm::default() };
        let clock = self.clock.clone();
        let broker =
            Broker::start(catalogue, &settings, replica(), clock.clone(), Limits::ZAQAR).await.unwrap();
        let whole = Whole { broker, clock, _data: TempDir::new().unwrap() };
        whole.weigh("b", 0).await;
        whole
    }
}

impl Whole {
    async fn weigh(&self, pool: &str, weight: u32) {
        let uri = Some(PoolUri::new(&format!("embedded:{pool}")).unwrap());
        let change = PoolChange { uri, weight: Some(weight), ..PoolChange::default() };
        self.broker.pool_put(&PoolName::new(pool).unwrap(), change).await.unwrap();
    }

    /// Creates a queue in each pool.
    async fn create_in_both(&self, in_a: &QueueRef, in_b: &QueueRef) {
        self.broker.queue_create(in_a, metadata("{}")).await.unwrap();
        self.weigh("b", 1).await;
        self.weigh("a", 0).await;
        self.broker.queue_create(in_b, metadata("{}")).await.unwrap();
    }
}

/// Two queues of one slot.
fn neighbours() -> (QueueRef, QueueRef) {
    let first = queue("n0");
    let second = (1..).map(|number| queue(&format!("n{number}"))).find(|other| other.slot() == first.slot());
    (first, second.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn pool_that_hangs_delays_no_first_use_in_other_pools() {
    let pools = Pools::new();
    let (in_a, in_b) = neighbours();
    let before = pools.start().await;
    before.create_in_both(&in_a, &in_b).await;
    before.broker.stop().await;
    drop(before);
    let whole = pools.start().await;
    // What is created from here on is created there.
    whole.weigh("b", 1).await;
    pools.stores[0].hang(true);
    let broker = whole.broker.clone();
    let at = in_a.clone();
    let mut stuck = JoinSet::new();
    stuck.spawn(async move { broker.queue_stats(&at).await });
    tokio::time::sleep(Duration::from_millis(200)).await;
    let ids = timeout(SOON, whole.post(&in_b, 1, 3_600)).await.expect("a pool beside it hangs");
    assert_eq!(timeout(SOON, whole.claim(&in_b, 1, 60)).await.expect("a pool beside it hangs"), ids);
    let third = (0..).map(|number| queue(&format!("m{number}"))).find(|third| third.slot() == in_a.slot());
    let created = timeout(SOON, whole.broker.queue_create(&third.unwrap(), metadata("{}"))).await;
    created.expect("a pool beside it hangs").unwrap();
    assert!(stuck.try_join_next().is_none());
    pools.stores[0].hang(false);
    stuck.join_next().await.unwrap().unwrap().unwrap();
    whole.post(&in_a, 1, 3_600).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn transfer_into_a_pool_that_hangs_delays_no_other_target() {
    let pools = Pools::new();
    let (in_a, in_b) = neighbours();
    let whole = pools.start().await;
    whole.create_in_both(&in_a, &in_b).await;
    let sources = [(queue("s1"), &in_a), (queue("s2"), &in_b)];
    for (source, target) in &sources {
        let dead = format!(r#"{{"_max_claim_count":1,"_dead_letter_queue":"{}"}}"#, target.name);
        whole.broker.queue_create(source, metadata(&dead)).await.unwrap();
        whole.post(source, 1, 3_600).await;
        claim_once(&whole, source).await;
    }
    pools.stores[0].hang(true);
    for (source, _) in &sources {
        assert!(whole.claim(source, 1, 60).await.is_empty());
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    let moved = timeout(SOON, whole.claim_soon(&in_b, 1)).await.expect("a pool beside it hangs");
    assert_eq!(moved.len(), 1);
    pools.stores[0].hang(false);
    assert_eq!(whole.claim_soon(&in_a, 1).await.len(), 1);
}
