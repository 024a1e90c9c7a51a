//! A clock that has made a step of more than a day since the last write, and a step of the servers' clock with two
//! replicas (P3).

use std::sync::Arc;
use std::time::{Duration, Instant};

use angarium_broker::{Broker, FirstPool, PoolSettings};
use angarium_catalogue::{Catalogue, ComponentState};
use angarium_clock::Clock;
use angarium_cluster::replicas::{self, Replica};
use angarium_coordination::embedded::EmbeddedTree;
use angarium_core::ids::MessageId;
use angarium_core::limits::{self, Limits};
use angarium_core::pool::PoolUri;
use angarium_core::time::Timestamp;
use angarium_journal::Journal;
use angarium_storage::embedded::EmbeddedPool;
use tempfile::TempDir;
use uuid::Uuid;

use super::faulty::{Fault, FaultyTree, LinkOutage, Plan};
use super::transfers::until;
use super::{MAX_WAIT, Whole, metadata, one_pool, queue, start};
use angarium_testbed::faulty_tree::ServersClock;

const NOW: u64 = 1_700_000_000_000;
const DAYS: u64 = 3 * 24 * 3_600 * 1_000;

async fn start_at(data: TempDir, clock: Clock) -> Whole {
    let journal = Journal::open(&data.path().join("journal"), &clock).unwrap();
    let broker = start(journal.clone(), journal, clock.clone()).await;
    Whole { broker, clock, _data: data }
}

/// A service that stopped with a message of an hour and a claim of a minute.
async fn stopped() -> (TempDir, Vec<MessageId>) {
    let whole = start_at(TempDir::new().unwrap(), Clock::manual(NOW)).await;
    let ids = whole.post(&queue("q"), 2, 3_600).await;
    assert_eq!(whole.claim(&queue("q"), 1, 60).await, ids[..1]);
    whole.broker.stop().await;
    let Whole { broker, _data, .. } = whole;
    drop(broker);
    (_data, ids)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_of_days_ends_no_message_and_no_claim() {
    let (data, ids) = stopped().await;
    let whole = start_at(data, Clock::manual(NOW + DAYS)).await;
    assert!(whole.clock.doubt().is_some());
    assert!(whole.broker.readiness().unwrap()[0].contains("--accept-clock"));
    assert_eq!(whole.claim(&queue("q"), 20, 300).await, ids[1..], "one is claimed, and none is expired");
    whole.clock.advance(60_000);
    assert_eq!(whole.claim_soon(&queue("q"), 20).await, ids[..1], "time goes on from the last write");
}

#[tokio::test(flavor = "multi_thread")]
async fn unaccepted_step_is_doubted_at_next_start() {
    let (data, ids) = stopped().await;
    let whole = start_at(data, Clock::manual(NOW + DAYS)).await;
    let posted = whole.post(&queue("q"), 1, 3_600).await;
    whole.broker.stop().await;
    let Whole { broker, _data, .. } = whole;
    drop(broker);
    let whole = start_at(_data, Clock::manual(NOW + DAYS)).await;
    assert!(whole.clock.doubt().is_some());
    assert_eq!(whole.claim(&queue("q"), 20, 300).await, [&ids[1..], &posted].concat());
}

#[tokio::test(flavor = "multi_thread")]
async fn accepted_step_counts() {
    let (data, _) = stopped().await;
    let clock = Clock::manual(NOW + DAYS);
    clock.accept_steps();
    let whole = start_at(data, clock).await;
    assert!(whole.broker.readiness().unwrap().is_empty());
    assert!(whole.claim(&queue("q"), 20, 300).await.is_empty(), "their hour is over");
}

fn replica(number: u128) -> Replica {
    Replica::new(Uuid::from_u128(number), format!("host-{number}"), format!("127.0.0.1:{number}"))
}

/// Two replicas on one tree, whose servers have a clock, and one pool that both of them reach.
struct Pair {
    journal: Journal,
    tree: Arc<EmbeddedTree>,
    servers: ServersClock,
    links: Vec<Arc<FaultyTree>>,
    /// The faults of each link.
    plans: Vec<Plan>,
    data: Option<TempDir>,
}

impl Pair {
    async fn new() -> Self {
        let data = TempDir::new().unwrap();
        let journal = Journal::open(&data.path().join("journal"), &Clock::manual(NOW)).unwrap();
        let tree = Arc::new(EmbeddedTree::open(journal.clone()).await.unwrap());
        Self {
            journal,
            tree,
            servers: ServersClock::new(NOW),
            links: Vec::new(),
            plans: Vec::new(),
            data: Some(data),
        }
    }

    /// Returns a new link to the tree.
    fn link(&mut self) -> Arc<FaultyTree> {
        let plan = Plan::default();
        let link = Arc::new(FaultyTree::new(self.tree.clone(), plan.clone()));
        *link.servers.lock() = Some(self.servers.clone());
        self.links.push(link.clone());
        self.plans.push(plan);
        link
    }

    /// Starts a replica whose machine shows this time.
    async fn start(&mut self, number: u128, machine: u64) -> Whole {
        let link = self.link();
        let store = Arc::new(EmbeddedPool::new(self.journal.clone()));
        let settings = one_pool(store);
        let first = settings
            .first
            .as_ref()
            .map(|first| FirstPool { uri: PoolUri::new("redis://127.0.0.1:1/").unwrap(), ..first.clone() });
        let settings = PoolSettings { first, ..settings };
        let replica = replica(number);
        let clock = Clock::manual(machine);
        let catalogue = Catalogue::new(link);
        let broker =
            Broker::start(catalogue, &settings, replica, clock.clone(), Limits::ZAQAR).await.unwrap();
        Whole { broker, clock, _data: self.data.take().unwrap_or_else(|| TempDir::new().unwrap()) }
    }

    /// Makes another server lead, whose clock shows this time.
    fn step_to(&mut self, millis: u64) {
        self.servers.step_to(millis);
        for link in &self.links {
            *link.servers.lock() = Some(self.servers.clone());
        }
    }
}

/// Waits until a replica warns of the step of the servers' clock.
async fn await_step_shown(whole: &Whole) {
    let start = Instant::now();
    let shown = || whole.broker.readiness().unwrap().iter().any(|warning| warning.contains("made a step"));
    while !shown() {
        assert!(start.elapsed() < MAX_WAIT, "the step is not shown");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Waits until a replica serves the queue, whose slot had another owner.
async fn await_taken(whole: &Whole) {
    let start = Instant::now();
    while let Err(error) = whole.broker.queue_stats(&queue("q")).await {
        assert!(start.elapsed() < MAX_WAIT, "{error:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn server_step_ends_no_claim_over_start_and_handover() {
    for step in [NOW + 3_600_000, NOW - 3_600_000] {
        let mut pair = Pair::new().await;
        let first = pair.start(1, NOW - DAYS).await;
        assert_eq!(first.clock.now().as_millis(), NOW, "the servers' clock counts");
        let ids = first.post(&queue("q"), 1, 3_600).await;
        assert_eq!(first.claim(&queue("q"), 1, 60).await, ids);
        first.clock.advance(10_000);
        // Otherwise the replica may take this for the step.
        pair.servers.clock.advance(10_000);
        pair.step_to(step);
        let second = pair.start(2, NOW + DAYS).await;
        let (here, there) = (first.clock.now().as_millis(), second.clock.now().as_millis());
        assert!(here.abs_diff(there) <= 1_000, "{here} and {there}");
        // The first replica learns of the step from the answer to its record for the second one.
        await_step_shown(&first).await;
        first.broker.drain().await;
        first.broker.stop().await;
        // Its process has ended, and its session with it. It may not have known yet that the second one runs.
        pair.links[0].lose(LinkOutage::Refused).await;
        await_taken(&second).await;
        assert!(second.claim(&queue("q"), 1, 60).await.is_empty(), "the claim lasts");
        second.clock.advance(45_000);
        tokio::time::sleep(Duration::from_millis(600)).await;
        assert!(second.claim(&queue("q"), 1, 60).await.is_empty(), "the claim lasts for its minute");
        // The rest of the minute at nine tenths of the rate. That rate applies for 15 seconds after each read of the
        // servers' clock: to 15 of the 45 seconds, or to all of the rest if there was another read meanwhile.
        second.clock.advance(8_000);
        assert_eq!(second.claim_soon(&queue("q"), 1).await, ids);
        second.broker.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn receipt_by_slower_clock_deletes_its_message() {
    let mut pair = Pair::new().await;
    let first = pair.start(1, NOW).await;
    let q = queue("q");
    first.broker.queue_create(&q, metadata(r#"{"_fifo": true}"#)).await.unwrap();
    let second = pair.start(2, NOW).await;
    // The second one knows nothing of this time, as if its clock was behind.
    first.clock.advance(800);
    first.post(&q, 1, 3_600).await;
    let created = first.clock.now();
    first.broker.drain().await;
    first.broker.stop().await;
    pair.links[0].lose(LinkOutage::Refused).await;
    await_taken(&second).await;
    assert!(second.clock.now() < created, "{:?} and {created:?}", second.clock.now());
    let handle = second.receive_one(&q).await;
    second.broker.receipts_delete(&q, &[&handle]).await.unwrap().remove(0).unwrap();
    assert_eq!(second.broker.queue_stats(&q).await.unwrap().claimed, 0);
    second.broker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn step_of_the_servers_is_shown_and_followed_slowly() {
    let mut pair = Pair::new().await;
    let whole = pair.start(1, NOW).await;
    assert!(whole.broker.readiness().unwrap().is_empty());
    pair.step_to(NOW + 3_600_000);
    await_step_shown(&whole).await;
    whole.clock.advance(1_000);
    assert_eq!(whole.clock.now().as_millis(), NOW + 1_100);
    whole.broker.stop().await;
}

/// Neither clock of the machine shows the suspension: both lack that time.
#[tokio::test(flavor = "multi_thread")]
async fn resumed_machine_takes_time_of_others() {
    let mut pair = Pair::new().await;
    let whole = pair.start(1, NOW).await;
    // The other replica records the time, and does nothing else.
    let other = Catalogue::new(pair.link());
    let running = replica(2).component(ComponentState::Running, Timestamp::from_millis(NOW));
    replicas::join(&other, "host-2", &running).await.unwrap();
    other.time_record(Timestamp::from_millis(NOW)).await.unwrap();
    pair.servers.clock.advance(60_000);
    let now = Timestamp::from_millis(NOW + 60_000);
    until("it stays behind", async || {
        other.time_record(now).await.unwrap();
        whole.clock.now() >= Timestamp::from_millis(NOW + 59_000)
    })
    .await;
    assert!(whole.clock.now() <= Timestamp::from_millis(NOW + 61_000));
    // The other replica continues to record the time, correctly.
    let last = other.time().await.unwrap().unwrap().transaction;
    until("it records nothing", async || other.time().await.unwrap().unwrap().transaction > last).await;
    let gap = other.time().await.unwrap().unwrap().recorded.gap();
    assert!(gap.abs() <= 1_000, "{gap}");
    whole.broker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn record_of_the_time_after_a_long_commit_is_written_again() {
    let mut pair = Pair::new().await;
    let whole = pair.start(1, NOW).await;
    let reader = Catalogue::new(pair.link());
    let last = async || reader.time().await.unwrap();
    until("it records nothing", async || last().await.is_some()).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let plan = pair.plans[0].clone();
    let mut passed = 0;
    // A busy machine may delay it: then with the next record.
    until("it is not written at once", async || {
        plan.next(&[Fault::Held]);
        until("it records nothing", async || plan.is_done()).await;
        whole.clock.advance(3_000);
        pair.servers.clock.advance(3_000);
        passed += 3_000;
        tokio::time::sleep(2 * angarium_broker::limits::CLOCK_RECORD_TOOK).await;
        let start = Instant::now();
        plan.release();
        let now = NOW + passed;
        until("the record stays wrong", async || {
            let recorded = last().await.unwrap().recorded;
            recorded.servers.as_millis() == now && recorded.gap() == 0
        })
        .await;
        start.elapsed() < limits::TREE_CLOCK_TICK - Duration::from_millis(500)
    })
    .await;
    whole.broker.stop().await;
}
