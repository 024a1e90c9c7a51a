//! A hanging pool delays its own queues, and no other queue of their slot.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use angarium_broker::{Broker, FirstPool, MessageSelection, PoolSettings};
use angarium_catalogue::{Catalogue, OwnedSlot};
use angarium_clock::Clock;
use angarium_cluster::peer_client::{CountsRequest, QueueAddress};
use angarium_coordination::embedded::EmbeddedTree;
use angarium_core::limits::{self, Limits};
use angarium_core::message::NewMessage;
use angarium_core::names::{PoolName, QueueRef};
use angarium_core::patch::Change;
use angarium_core::pool::{PoolChange, PoolUri};
use angarium_core::queue::CreateResult;
use angarium_engine::placement::Algorithm;
use angarium_journal::Journal;
use angarium_storage::PoolStore;
use angarium_storage::embedded::EmbeddedPool;
use angarium_storage::open::{Opener, PoolOpenError};
use parking_lot::Mutex;
use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::deadletters::{FOR_EVER, ONCE, claim_once};
use super::faulty::{Fault, FaultyPool, Plan};
use super::metrics::value;
use super::peek::peek_of;
use super::tasks::dry_run;
use super::transfers::until;
use super::{Whole, metadata, queue, replica};

/// Far longer than any operation without a hanging pool.
pub(super) const SOON: Duration = Duration::from_secs(8);
/// Longer than any operation that waits for a source holds the transfers into its target.
const LATER: Duration = Duration::from_secs(40);
const TICK: Duration = Duration::from_millis(20);

/// Two pools, `a` and `b`.
pub(super) struct Pools {
    tree: Journal,
    pub(super) stores: [Arc<FaultyPool>; 2],
    /// The faults of `a`.
    pub(super) plan_of_a: Plan,
    /// The faults of `b`.
    pub(super) plan: Plan,
    clock: Clock,
    catalogue: Mutex<Option<Catalogue>>,
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
    pub(super) fn new() -> Self {
        let data = TempDir::new().unwrap();
        let clock = Clock::manual(1_700_000_000_000);
        let open = |name| Journal::open(&data.path().join(name), &clock).unwrap();
        let store = |name, plan| Arc::new(FaultyPool::new(Arc::new(EmbeddedPool::new(open(name))), plan));
        let (plan_of_a, plan) = (Plan::default(), Plan::default());
        let stores = [store("a", plan_of_a.clone()), store("b", plan.clone())];
        Self { tree: open("tree"), stores, plan_of_a, plan, clock, catalogue: Mutex::default(), _data: data }
    }

    pub(super) async fn start(&self) -> Whole {
        let whole = self.start_as_stored().await;
        whole.weigh("b", 0).await;
        whole
    }

    /// Starts with the pools of the catalogue, to which only `a` is added if it is empty.
    pub(super) async fn start_as_stored(&self) -> Whole {
        let catalogue = Catalogue::new(Arc::new(EmbeddedTree::open(self.tree.clone()).await.unwrap()));
        let uri = PoolUri::new("embedded:a").unwrap();
        *self.catalogue.lock() = Some(catalogue.clone());
        let first = Some(FirstPool { name: PoolName::new("a").unwrap(), uri, weight: 1 });
        let opener = Arc::new(Opening(self.stores.clone()));
        let settings = PoolSettings { first, opener, placement: Algorithm::default() };
        let clock = self.clock.clone();
        let broker =
            Broker::start(catalogue, &settings, replica(), clock.clone(), Limits::ZAQAR).await.unwrap();
        Whole { broker, clock, _data: TempDir::new().unwrap() }
    }

    /// Whether the data of all former queues of this name is removed.
    pub(super) async fn is_cleaned(&self, at: &QueueRef) -> bool {
        let catalogue = self.catalogue.lock().clone().unwrap();
        catalogue.dropped(&OwnedSlot::new(at.slot(), 0, 0)).await.unwrap().is_empty()
    }
}

impl Whole {
    pub(super) async fn weigh(&self, pool: &str, weight: u32) {
        let uri = Some(PoolUri::new(&format!("embedded:{pool}")).unwrap());
        let change = PoolChange { uri, weight: Some(weight), ..PoolChange::default() };
        self.broker.pool_put(&PoolName::new(pool).unwrap(), change).await.unwrap();
    }

    /// Creates a queue in each pool.
    pub(super) async fn create_in_both(&self, in_a: &QueueRef, in_b: &QueueRef) {
        self.broker.queue_create(in_a, metadata("{}")).await.unwrap();
        self.weigh("b", 1).await;
        self.weigh("a", 0).await;
        self.broker.queue_create(in_b, metadata("{}")).await.unwrap();
    }
}

/// Two queues of one slot.
pub(super) fn neighbours() -> (QueueRef, QueueRef) {
    let first = queue("n0");
    let second = (1..).map(|number| queue(&format!("n{number}"))).find(|other| other.slot() == first.slot());
    (first, second.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn hanging_pool_delays_no_first_use_elsewhere() {
    let pools = Pools::new();
    let (in_a, in_b) = neighbours();
    let before = pools.start().await;
    before.create_in_both(&in_a, &in_b).await;
    before.broker.stop().await;
    drop(before);
    let whole = pools.start().await;
    // New queues are placed in `b` from here on.
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

/// The queues of the pool are first on the page, and more than are counted at once.
#[tokio::test(flavor = "multi_thread")]
async fn hanging_pool_hides_no_counts_of_other_pools() {
    let pools = Pools::new();
    let (in_a, in_b) = neighbours();
    let whole = pools.start().await;
    whole.create_in_both(&in_a, &in_b).await;
    whole.post(&in_b, 1, 3_600).await;
    whole.weigh("a", 1).await;
    whole.weigh("b", 0).await;
    let many: Vec<QueueRef> =
        (0..angarium_broker::limits::COUNT_AT_ONCE + 1).map(|number| queue(&format!("a{number}"))).collect();
    for at in &many {
        whole.broker.queue_create(at, metadata("{}")).await.unwrap();
    }
    pools.stores[0].hang(true);
    // A busy machine delays some answers, and then a count may be missing in them.
    until("the others are not counted in time", async || {
        let asked = many.iter().chain([&in_a, &in_b]).map(QueueAddress::from).collect();
        let began = Instant::now();
        let answer = whole.broker.local_counts(CountsRequest { queues: asked }).await.unwrap();
        // The asking replica waits no longer than this.
        let is_in_time = began.elapsed() < angarium_broker::limits::HEALTH_DEADLINE;
        let counted: Vec<u64> = answer.queues.iter().flatten().map(|counts| counts.ready).collect();
        is_in_time && (answer.queues.len(), counted) == (many.len() + 2, vec![1])
    })
    .await;
    pools.stores[0].hang(false);
    until("some are not counted", async || {
        let asked = [&in_a, &in_b].map(QueueAddress::from).into();
        let answer = whole.broker.local_counts(CountsRequest { queues: asked }).await.unwrap();
        answer.queues.iter().all(Option::is_some)
    })
    .await;
}

/// The slot is recovered while the new queue is opened. The queue exists, so its creation is no failure.
#[tokio::test(flavor = "multi_thread")]
async fn recovery_between_record_and_opening_fails_no_creation() {
    let pools = Pools::new();
    let (in_a, in_b) = neighbours();
    let whole = pools.start().await;
    whole.weigh("b", 1).await;
    whole.weigh("a", 0).await;
    whole.broker.queue_create(&in_b, metadata("{}")).await.unwrap();
    whole.weigh("a", 1).await;
    whole.weigh("b", 0).await;
    pools.stores[0].hang(true);
    let mut creation = JoinSet::new();
    let (broker, at) = (whole.broker.clone(), in_a.clone());
    creation.spawn(async move { broker.queue_create(&at, metadata("{}")).await });
    let catalogue = pools.catalogue.lock().clone().unwrap();
    until("there is no record", async || catalogue.queue_record_now(&in_a).await.unwrap().is_some()).await;
    pools.stores[1].panics.store(true, Ordering::SeqCst);
    whole.broker.messages_post(&in_b, vec![NewMessage::default()], None).await.unwrap_err();
    pools.stores[0].hang(false);
    let created = creation.join_next().await.unwrap().unwrap();
    assert!(matches!(created, Ok(CreateResult::New)), "{created:?}");
    until("the slot is not served again", async || whole.broker.queue_stats(&in_a).await.is_ok()).await;
    assert_eq!(whole.post(&in_a, 1, 300).await, whole.claim(&in_a, 1, 300).await);
}

/// Claims of both queues that expire at the same time, first the one in the hanging pool.
#[tokio::test(flavor = "multi_thread")]
async fn hanging_pool_delays_no_claim_expiry_elsewhere() {
    for is_opened in [true, false] {
        let pools = Pools::new();
        let (in_a, in_b) = neighbours();
        let mut whole = pools.start().await;
        whole.create_in_both(&in_a, &in_b).await;
        for at in [&in_a, &in_b] {
            whole.post(at, 1, 3_600).await;
            assert_eq!(whole.claim(at, 1, 60).await.len(), 1);
            whole.clock.advance(1_000);
        }
        if !is_opened {
            // No caller uses the queues after that.
            whole.broker.stop().await;
            drop(whole);
            whole = pools.start().await;
        }
        let before = pools.stores[1].given().len();
        pools.stores[0].hang(true);
        whole.clock.advance(62_000);
        let is_ended = until("no claim ends", async || pools.stores[1].given().len() > before);
        let ended = timeout(SOON, is_ended).await;
        assert!(ended.is_ok(), "it waits for the other pool, opened: {is_opened}");
        assert_eq!(timeout(SOON, whole.claim_soon(&in_b, 1)).await.expect("a pool beside it hangs").len(), 1);
        pools.stores[0].hang(false);
        assert_eq!(whole.claim_soon(&in_a, 1).await.len(), 1, "opened: {is_opened}");
    }
}

/// More messages than one read returns wait for a target in a hanging pool. The messages behind them have another
/// target.
#[tokio::test(flavor = "multi_thread")]
async fn messages_behind_stuck_ones_are_transferred() {
    let pools = Pools::new();
    let (in_a, in_b) = neighbours();
    let whole = pools.start().await;
    whole.create_in_both(&in_a, &in_b).await;
    let source = queue("s");
    let dead =
        |target: &QueueRef| format!(r#"{{"_max_claim_count":1,"_dead_letter_queue":"{}"}}"#, target.name);
    whole.broker.queue_create(&source, metadata(&dead(&in_a))).await.unwrap();
    pools.stores[0].hang(true);
    let stuck = (angarium_broker::limits::MOVE_MESSAGES + 20).next_multiple_of(20);
    whole.post(&source, stuck, 3_600).await;
    for _ in 0..stuck / 20 {
        assert_eq!(whole.claim(&source, 20, 60).await.len(), 20);
    }
    whole.clock.advance(61_000);
    while whole.broker.queue_stats(&source).await.unwrap().claimed > 0 {
        tokio::time::sleep(TICK).await;
    }
    assert!(whole.claim(&source, 20, 60).await.is_empty(), "all of them are dead letters");
    let value = serde_json::value::to_raw_value(in_b.name.as_str()).unwrap();
    let change = Change::Replace("_dead_letter_queue".to_owned(), value);
    whole.broker.queue_patch(&source, vec![change]).await.unwrap();
    whole.post(&source, 1, 3_600).await;
    claim_once(&whole, &source).await;
    assert!(whole.claim(&source, 1, 60).await.is_empty());
    let moved =
        timeout(SOON, whole.claim_soon(&in_b, 1)).await.expect("those before it wait for another queue");
    assert_eq!(moved.len(), 1);
    pools.stores[0].hang(false);
    assert_eq!(whole.claim_soon(&in_a, 20).await.len(), 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn transfer_into_hanging_pool_delays_no_other_target() {
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

#[tokio::test(flavor = "multi_thread")]
async fn claims_expire_beside_hanging_pool() {
    let pools = Pools::new();
    let (in_a, in_b) = neighbours();
    let whole = pools.start().await;
    whole.create_in_both(&in_a, &in_b).await;
    for at in [&in_a, &in_b] {
        whole.post(at, 1, 3_600).await;
        assert_eq!(whole.claim(at, 1, 60).await.len(), 1);
    }
    pools.stores[0].hang(true);
    // Messages of one turn, and of later turns.
    for _ in 0..2 {
        whole.clock.advance(301_000);
        assert_eq!(whole.claim_soon(&in_b, 1).await.len(), 1);
    }
    pools.stores[0].hang(false);
    assert_eq!(whole.claim_soon(&in_a, 1).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_messages_are_swept_beside_hanging_pool() {
    let pools = Pools::new();
    let whole = pools.start().await;
    // A queue that is swept neither at once nor long after.
    let late = (0..).map(|number| queue(&format!("n{number}"))).find(|at| (40..120).contains(&at.slot().0));
    let late = late.unwrap();
    whole.create_in_both(&queue("any"), &late).await;
    whole.post(&late, 3, 60).await;
    pools.stores[0].hang(true);
    // The sweep in progress may have asked the pool before.
    tokio::time::sleep(Duration::from_millis(500)).await;
    whole.clock.advance(200_000);
    let removes = || {
        let given = pools.stores[1].given();
        given
            .iter()
            .flat_map(|batch| &batch.queues)
            .map(|queue| queue.changes.removes.len() + queue.changes.remove_hints.len())
            .sum::<usize>()
    };
    let start = Instant::now();
    while removes() < 3 {
        assert!(start.elapsed() < 3 * angarium_broker::limits::SWEEP_ROUND, "a pool beside it hangs");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    pools.stores[0].hang(false);
}

#[tokio::test(flavor = "multi_thread")]
async fn queues_are_counted_beside_a_hanging_pool() {
    let pools = Pools::new();
    let (in_a, in_b) = neighbours();
    let before = pools.start().await;
    before.create_in_both(&in_a, &in_b).await;
    for at in [&in_a, &in_b] {
        before.post(at, 2, 3_600).await;
    }
    before.broker.stop().await;
    drop(before);
    // Its first use hangs.
    pools.stores[0].fences.next(&[Fault::Held]);
    let whole = pools.start().await;
    let ready = async |at: &QueueRef| {
        let labels = [("queue", at.name.as_str()), ("state", "ready")];
        value(&whole.broker.metrics_page().await, "angarium_messages", &labels)
    };
    until("it waits for the other pool", async || ready(&in_b).await == 2.0).await;
    let page = whole.broker.metrics_page().await;
    let gauges = ["angarium_queues", "angarium_queues_counted", "angarium_slots_counted"];
    assert_eq!(gauges.map(|name| value(&page, name, &[])), [2.0, 1.0, 255.0]);
    pools.stores[0].fences.release();
    until("it is not counted when its pool answers", async || ready(&in_a).await == 2.0).await;
    whole.broker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn transfers_resume_beside_hanging_pool() {
    let pools = Pools::new();
    let before = pools.start().await;
    let mut queues: Vec<QueueRef> = (0..50).map(|number| queue(&format!("n{number}"))).collect();
    queues.sort_by_key(QueueRef::slot);
    let (in_a, source) = (&queues[0], &queues[49]);
    before.create_in_both(in_a, &queue("dead")).await;
    before.broker.queue_create(source, metadata(ONCE)).await.unwrap();
    let ids = before.post(source, 1, 3_600).await;
    claim_once(&before, source).await;
    // The message is marked in transfer, and no more.
    pools.plan.next(&vec![Fault::NotSent; FOR_EVER]);
    pools.plan.skip(1);
    assert!(before.claim(source, 1, 60).await.is_empty());
    until("the step is not tried", async || pools.plan.left() < FOR_EVER).await;
    before.broker.stop().await;
    drop(before);
    while !pools.plan.is_done() {
        pools.plan.take();
    }
    // The first use of the pool hangs, in a slot before the slot of the source.
    pools.stores[0].fences.next(&[Fault::Held]);
    let whole = pools.start().await;
    assert_eq!(whole.claim_soon(&queue("dead"), 1).await, ids);
    assert!(pools.stores[0].fences.is_done(), "the other one was looked at");
    pools.stores[0].fences.release();
    whole.broker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn transfers_into_a_slow_pool_follow_each_other() {
    let pools = Pools::new();
    let whole = pools.start().await;
    let (source, target) = (queue("q"), queue("dead"));
    whole.broker.queue_create(&source, metadata(ONCE)).await.unwrap();
    whole.weigh("b", 1).await;
    whole.weigh("a", 0).await;
    whole.broker.queue_create(&target, metadata("{}")).await.unwrap();
    let count = 2_000_u64;
    whole.post(&source, 2_000, 3_600).await;
    // A transfer writes there twice, and takes longer than a pass waits.
    *pools.stores[1].slowness.lock() = Duration::from_millis(800);
    let start = Instant::now();
    // A message with one claim so far is marked in transfer at the next claim.
    for _ in 0..count / 20 {
        claim_once(&whole, &source).await;
    }
    let free = async |at: &QueueRef| whole.broker.queue_stats(at).await.unwrap().free;
    while free(&target).await < count || free(&source).await > 0 {
        assert!(whole.claim(&source, 20, 60).await.is_empty());
        assert!(start.elapsed() < Duration::from_secs(50), "{} have come", free(&target).await);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// A source that hangs when it must release a message, or is asked for the message's state: the target takes messages
/// of other sources, and is neither deleted meanwhile nor blocked forever.
#[tokio::test(flavor = "multi_thread")]
async fn hanging_source_delays_no_other_transfer_to_target() {
    let pools = Pools::new();
    let whole = pools.start().await;
    let (hanging, other, target) = (queue("s1"), queue("s2"), queue("dead"));
    whole.broker.queue_create(&hanging, metadata(ONCE)).await.unwrap();
    whole.weigh("b", 1).await;
    whole.weigh("a", 0).await;
    for (at, attributes) in [(&other, ONCE), (&target, "{}")] {
        whole.broker.queue_create(at, metadata(attributes)).await.unwrap();
    }
    let ids = whole.post(&hanging, 1, 3_600).await;
    let others = whole.post(&other, 1, 3_600).await;
    for at in [&hanging, &other] {
        claim_once(&whole, at).await;
    }
    // The message is prepared, and then its source hangs.
    pools.plan.next(&[Fault::Held]);
    assert!(whole.claim(&hanging, 1, 60).await.is_empty());
    until("nothing is prepared", async || pools.plan.is_done()).await;
    pools.stores[0].hang(true);
    pools.plan.release();
    assert!(whole.claim(&other, 1, 60).await.is_empty());
    let moved = timeout(LATER, whole.claim_soon(&target, 1)).await;
    assert_eq!(moved.expect("it waits without end"), others, "it waits for the source of another one");
    let deleted = timeout(LATER, whole.broker.queue_delete(&target)).await.expect("it waits without end");
    assert!(deleted.unwrap_err().nothing_written());
    pools.stores[0].hang(false);
    let published = async || {
        let moved = whole.claim(&target, 1, 60).await;
        assert!(moved.is_empty() || moved == ids);
        !moved.is_empty()
    };
    until("the message is not published", published).await;
    whole.broker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn peeks_of_one_account_are_bounded() {
    let pools = Pools::new();
    let whole = pools.start().await;
    let at = queue("q");
    whole.post(&at, 1, 3_600).await;
    pools.stores[0].hang(true);
    let all = MessageSelection::default();
    let mut peeks: JoinSet<_> = (0..=limits::PEEKS_IN_LINE)
        .map(|_| {
            let (broker, at, filter) = (whole.broker.clone(), at.clone(), peek_of(all.clone()));
            async move { broker.messages_peek(&at, &filter).await }
        })
        .collect();
    let refused = timeout(SOON, peeks.join_next()).await.expect("one is refused").unwrap().unwrap();
    assert_eq!(refused.unwrap_err().code(), "too_many");
    assert_eq!(dry_run(&whole, &at, all).await.unwrap_err().code(), "too_many");
    pools.stores[0].hang(false);
    while let Some(peeked) = peeks.join_next().await {
        assert_eq!(peeked.unwrap().unwrap().messages.len(), 1);
    }
}
