//! Reads of the tree by background work: their number does not grow with each deletion, each second of a drain, or each
//! silent pool. A hold of a pool reads the records of queues only where a pool is not fenced.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use angarium_broker::{Broker, FirstPool, HoldTerms, PoolSettings};
use angarium_catalogue::Catalogue;
use angarium_clock::Clock;
use angarium_coordination::Coordination;
use angarium_coordination::embedded::EmbeddedTree;
use angarium_core::hold::{HoldEffects, HoldReason, HoldTarget};
use angarium_core::limits::Limits;
use angarium_core::names::PoolName;
use angarium_core::pool::{PoolChange, PoolUri};
use angarium_engine::placement::Algorithm;
use angarium_journal::Journal;
use angarium_storage::PoolStore;
use angarium_storage::embedded::EmbeddedPool;
use angarium_storage::open::{Opener, PoolOpenError};
use futures_util::FutureExt;
use tokio::runtime::Builder;
use tokio::time::timeout;

use super::counting::CountingTree;
use super::deadletters::{ONCE, claim_once};
use super::transfers::until;
use super::{Whole, metadata, queue, replica};

/// Parts of the paths of claims, and of queues.
const CLAIMS: &str = "/claims";
const QUEUES: &str = "/queues/";

/// Two pools, the second of which may be unreachable when a broker starts, and a tree that counts its reads.
struct CountingBroker {
    tree: Arc<CountingTree>,
    pools: Arc<TwoPools>,
    clock: Clock,
}

struct TwoPools {
    stores: [Journal; 2],
    is_second_away: AtomicBool,
}

struct Opening(Arc<TwoPools>);

impl Opener for Opening {
    fn open(&self, uri: &str) -> Result<Arc<dyn PoolStore>, PoolOpenError> {
        let is_second = uri == "embedded:b";
        if is_second && self.0.is_second_away.load(Ordering::Relaxed) {
            return Err(PoolOpenError::Interrupted("as planned".to_owned()));
        }
        Ok(Arc::new(EmbeddedPool::new(self.0.stores[usize::from(is_second)].clone())))
    }

    fn close(&self, _: &str) {}
}

fn pool(name: &str) -> PoolName {
    PoolName::new(name).unwrap()
}

fn change(uri: Option<&str>, weight: u32) -> PoolChange {
    PoolChange {
        uri: uri.map(|uri| PoolUri::new(uri).unwrap()),
        weight: Some(weight),
        ..PoolChange::default()
    }
}

impl CountingBroker {
    async fn new(data: &std::path::Path) -> Self {
        let clock = Clock::manual(1_700_000_000_000);
        let open = |name| Journal::open(&data.join(name), &clock).unwrap();
        let tree = Arc::new(EmbeddedTree::open(open("tree")).await.unwrap());
        let stores = [open("a"), open("b")];
        let pools = Arc::new(TwoPools { stores, is_second_away: AtomicBool::new(false) });
        Self { tree: Arc::new(CountingTree::new(tree)), pools, clock }
    }

    /// Starts a broker with the pools `a` and `b`. New queues are placed in `a`.
    async fn start(&self) -> Whole {
        let opener = Arc::new(Opening(Arc::clone(&self.pools)));
        let first = Some(FirstPool { name: pool("a"), uri: PoolUri::new("embedded:a").unwrap(), weight: 1 });
        let settings = PoolSettings { first, opener, placement: Algorithm::default() };
        let catalogue = Catalogue::new(self.tree.clone());
        let clock = self.clock.clone();
        let broker =
            Broker::start(catalogue, &settings, replica(), clock.clone(), Limits::ZAQAR).await.unwrap();
        if !self.pools.is_second_away.load(Ordering::Relaxed) {
            broker.pool_put(&pool("b"), change(Some("embedded:b"), 0)).await.unwrap();
        }
        Whole { broker, clock, _data: tempfile::tempdir().unwrap() }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_queue_is_cleaned_without_reading_claims() {
    let data = tempfile::tempdir().unwrap();
    let counted = CountingBroker::new(data.path()).await;
    let whole = counted.start().await;
    for name in ["q", "other"] {
        whole.post(&queue(name), 40, 3_600).await;
        for _ in 0..20 {
            assert_eq!(whole.claim(&queue(name), 1, 300).await.len(), 1);
        }
    }
    assert!(counted.tree.take_reads(CLAIMS) > 0, "those of each slot are read at the start");
    whole.broker.queue_delete(&queue("q")).await.unwrap();
    let catalogue = Catalogue::new(counted.tree.clone());
    let slot = angarium_catalogue::OwnedSlot::new(queue("q").slot(), 0, 0);
    until("the queue is not cleaned away", async || catalogue.dropped(&slot).await.unwrap().is_empty()).await;
    assert_eq!(counted.tree.take_reads(CLAIMS), 0);
    assert!(catalogue.claims(&slot).await.unwrap().claims.iter().all(|(_, claim)| claim.at != queue("q")));
}

#[tokio::test(flavor = "multi_thread")]
async fn slots_of_a_silent_pool_are_not_searched_again() {
    let data = tempfile::tempdir().unwrap();
    let counted = CountingBroker::new(data.path()).await;
    let first = counted.start().await;
    first.broker.pool_put(&pool("b"), change(None, 1_000_000)).await.unwrap();
    first.broker.pool_put(&pool("a"), change(None, 0)).await.unwrap();
    for number in 0..50 {
        first.broker.queue_create(&queue(&format!("q{number}")), metadata("{}")).await.unwrap();
    }
    first.broker.stop().await;
    counted.pools.is_second_away.store(true, Ordering::Relaxed);
    counted.tree.take_reads(QUEUES);
    let second = counted.start().await;
    // Each slot is searched once. Earlier versions searched all of them again every ten seconds.
    let mut reads = 0;
    until("they are searched again and again", async || {
        tokio::time::sleep(angarium_broker::limits::UNFINISHED_PAUSES.0 + Duration::from_secs(3)).await;
        let more = counted.tree.take_reads(QUEUES);
        reads += more;
        more == 0
    })
    .await;
    assert!(reads >= 50, "{reads}");
    second.broker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn drain_waiting_for_a_claim_reads_no_records() {
    let data = tempfile::tempdir().unwrap();
    let counted = CountingBroker::new(data.path()).await;
    let whole = counted.start().await;
    for number in 0..20 {
        whole.post(&queue(&format!("q{number}")), 1, 3_600).await;
    }
    assert_eq!(whole.claim(&queue("q0"), 1, 3_600).await.len(), 1);
    whole.broker.pool_put(&pool("b"), change(None, 1)).await.unwrap();
    whole.broker.pool_drain(&pool("a"), None).await.unwrap();
    let left = async || {
        let view = whole.broker.pool_drain_get(&pool("a")).await.unwrap();
        view.waiting + view.moving
    };
    until("the others do not leave", async || left().await == 1).await;
    // The last queues to leave are checked once more.
    tokio::time::sleep(2 * angarium_broker::limits::DRAIN_TICK).await;
    counted.tree.take_reads(QUEUES);
    let pause = angarium_broker::limits::DRAIN_LOOK + 2 * angarium_broker::limits::DRAIN_TICK;
    until("records are read again and again", async || {
        tokio::time::sleep(pause).await;
        counted.tree.take_reads(QUEUES) == 0
    })
    .await;
    assert_eq!(left().await, 1, "it waits for its claim still");
}

#[tokio::test(flavor = "multi_thread")]
async fn move_task_start_reads_no_more_with_more_queues() {
    let data = tempfile::tempdir().unwrap();
    let counted = CountingBroker::new(data.path()).await;
    let whole = counted.start().await;
    whole.broker.queue_create(&queue("q"), metadata(ONCE)).await.unwrap();
    for number in 0..300 {
        whole.broker.queue_create(&queue(&format!("a{number}")), metadata("{}")).await.unwrap();
    }
    whole.post(&queue("q"), 5, 3_600).await;
    claim_once(&whole, &queue("q")).await;
    assert!(whole.claim(&queue("q"), 20, 300).await.is_empty());
    let ready = async || whole.broker.queue_describe(&queue("dead")).await.ok()?.map(|dead| dead.ready);
    until("they do not die", async || ready().await == Some(5)).await;
    counted.tree.take_reads(QUEUES);
    whole.broker.move_task_start(&queue("dead"), None, None).await.unwrap().unwrap();
    let reads = counted.tree.take_reads(QUEUES);
    // Background tasks read some nodes meanwhile.
    assert!(reads < 100, "{reads} nodes were read");
}

#[test]
fn embedded_tree_is_read_off_serving_threads() {
    let runtime = Builder::new_current_thread().enable_all().max_blocking_threads(1).build().unwrap();
    runtime.block_on(async {
        let data = tempfile::tempdir().unwrap();
        let journal = Journal::open(data.path(), &Clock::manual(0)).unwrap();
        let tree = EmbeddedTree::open(journal).await.unwrap();
        // Blocks the only thread for blocking work.
        let (release, held) = std::sync::mpsc::channel::<()>();
        let blocked = tokio::task::spawn_blocking(move || held.recv());
        let paths = ["/meta".to_owned()];
        for read in [
            tree.get("/meta").map(|_| ()).boxed(),
            tree.get_many(&paths).map(|_| ()).boxed(),
            tree.children("/").map(|_| ()).boxed(),
        ] {
            let read = timeout(Duration::from_millis(100), read).await;
            assert!(read.is_err(), "it was read by the thread that asks");
        }
        drop(release);
        assert!(blocked.await.unwrap().is_err());
        tree.children("/").await.unwrap();
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn hold_of_pool_reads_few_records_where_all_pools_are_fenced() {
    let data = tempfile::tempdir().unwrap();
    let counted = CountingBroker::new(data.path()).await;
    let whole = counted.start().await;
    for number in 0..300 {
        whole.broker.queue_create(&queue(&format!("q{number}")), metadata("{}")).await.unwrap();
    }
    let reason = HoldReason::new("bad deploy").unwrap();
    let terms = HoldTerms { effects: HoldEffects::CLAIMS, reason, by: None, until: None };
    counted.tree.take_reads(QUEUES);
    // The pool `b` is used by no queue, so a slot may not have fenced it.
    whole.broker.hold_make(&HoldTarget::Pool(pool("b")), terms.clone()).await.unwrap();
    // Background tasks read some beside it, on a busy machine many.
    let mut fewest = usize::MAX;
    for _ in 0..5 {
        counted.tree.take_reads(QUEUES);
        whole.broker.hold_make(&HoldTarget::Pool(pool("a")), terms.clone()).await.unwrap();
        fewest = fewest.min(counted.tree.take_reads(QUEUES));
    }
    assert!(fewest < 30, "{fewest}");
}
