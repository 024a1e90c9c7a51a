//! Messages that are sent through SQS live by the current retention of their queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use angarium_broker::{Broker, SendEntry};
use angarium_catalogue::Catalogue;
use angarium_coordination::embedded::EmbeddedTree;
use angarium_core::delay::Delay;
use angarium_core::group::{DedupId, GroupName};
use angarium_core::ids::MessageId;
use angarium_core::limits::Limits;
use angarium_core::message::NewMessage;
use angarium_core::names::QueueRef;
use angarium_core::patch::Change;
use angarium_storage::embedded::EmbeddedPool;
use tokio::task::JoinSet;

use super::counting::CountingPool;
use super::deadletters::Lives;
use super::faulty::{Fault, FaultyPool, Plan};
use super::transfers::until;
use super::{MAX_WAIT, Whole, metadata, one_pool, queue, replica, whole};

const KEY: &str = "_default_message_ttl";

fn sending(group: Option<&str>) -> SendEntry {
    let group = group.map(|name| GroupName::new(name, "group").unwrap());
    let dedup = group.as_ref().map(|_| DedupId::new(&uuid::Uuid::new_v4().to_string(), "dedup").unwrap());
    SendEntry { message: NewMessage { body: "1".into(), group, dedup, ..NewMessage::default() }, size: 1 }
}

/// Sends messages as SQS does.
pub(super) async fn send(broker: &Broker, at: &QueueRef, count: usize) -> Vec<MessageId> {
    let sendings = (0..count).map(|_| sending(None)).collect();
    broker.messages_send(at, sendings).await.unwrap().into_iter().map(Result::unwrap).collect()
}

pub(super) async fn retain(broker: &Broker, at: &QueueRef, seconds: u32) {
    let value = serde_json::value::to_raw_value(&seconds).unwrap();
    let change = Change::new(0, "add", &format!("/metadata/{KEY}"), Some(value)).unwrap();
    broker.queue_patch_within(at, vec![change], Limits::WIDEST).await.unwrap();
}

pub(super) fn keeping(seconds: u32) -> angarium_core::queue::Metadata {
    metadata(&format!("{{\"{KEY}\": {seconds}}}"))
}

async fn is_there(broker: &Broker, at: &QueueRef, id: MessageId) -> bool {
    broker.message_get(at, id).await.is_ok()
}

/// Waits until a sweep has left this number of messages in a queue.
pub(super) async fn await_total(broker: &Broker, at: &QueueRef, total: u64) {
    let start = Instant::now();
    loop {
        let stats = broker.queue_stats(at).await.unwrap();
        if stats.claimed + stats.free == total {
            return;
        }
        assert!(start.elapsed() < MAX_WAIT, "{stats:?} and not {total}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn shorter_retention_ends_waiting_messages_and_no_posted_ones() {
    let (Whole { broker, clock, _data }, at) = (whole().await, queue("q"));
    broker.queue_create(&at, keeping(3_600)).await.unwrap();
    let posted = NewMessage { body: "2".into(), ..NewMessage::default() };
    let posted = broker.messages_post(&at, vec![posted], None).await.unwrap().ids;
    let sent = send(&broker, &at, 3).await;
    clock.advance(100_000);
    retain(&broker, &at, 90).await;
    assert!(!is_there(&broker, &at, sent[0]).await, "it is over at once");
    assert!(is_there(&broker, &at, posted[0]).await, "it keeps what it got");
    // Expiry times within eight seconds share one base time.
    clock.advance(8_000);
    await_total(&broker, &at, 1).await;
    let found = broker.messages_get(&at, &[posted[0], sent[0], sent[1]]).await.unwrap();
    assert_eq!(found.iter().map(|view| (view.id, view.ttl)).collect::<Vec<_>>(), [(posted[0], 3_600)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn longer_retention_keeps_waiting_messages() {
    let (Whole { broker, clock, _data }, at) = (whole().await, queue("q"));
    broker.queue_create(&at, keeping(60)).await.unwrap();
    let posted =
        broker.messages_post(&at, vec![NewMessage { body: "2".into(), ..NewMessage::default() }], None);
    let posted = posted.await.unwrap().ids;
    let sent = send(&broker, &at, 2).await;
    clock.advance(59_000);
    retain(&broker, &at, 600).await;
    clock.advance(20_000);
    await_total(&broker, &at, 2).await;
    assert!(!is_there(&broker, &at, posted[0]).await);
    let view = broker.message_get(&at, sent[1]).await.unwrap();
    assert_eq!((view.ttl, view.age), (600, 79));
    clock.advance(600_000);
    await_total(&broker, &at, 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn delay_counts_towards_the_retention() {
    let (Whole { broker, clock, _data }, at) = (whole().await, queue("q"));
    broker.queue_create(&at, keeping(100)).await.unwrap();
    let mut delayed = sending(None);
    delayed.message.delay = Some(Delay::Seconds(900));
    let id = broker.messages_send(&at, vec![delayed]).await.unwrap().remove(0).unwrap();
    clock.advance(99_000);
    assert!(is_there(&broker, &at, id).await);
    clock.advance(1_000);
    assert!(!is_there(&broker, &at, id).await);
    clock.advance(8_000);
    await_total(&broker, &at, 0).await;
}

/// A message that expires under its claim leaves the queue and the claim; with the last one the claim ends.
#[tokio::test(flavor = "multi_thread")]
async fn message_expiring_in_flight_leaves_counters() {
    let (whole, at) = (whole().await, queue("q"));
    whole.broker.queue_create(&at, keeping(60)).await.unwrap();
    let sent = send(&whole.broker, &at, 2).await;
    assert_eq!(whole.claim(&at, 2, 43_200).await, sent);
    whole.clock.advance(69_000);
    await_total(&whole.broker, &at, 0).await;
    assert_eq!(whole.broker.queue_describe(&at).await.unwrap().unwrap().claimed, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn group_continues_after_message_expires_in_flight() {
    let (whole, at) = (whole().await, queue("q"));
    let fifo = metadata(r#"{"_fifo": true, "_default_message_ttl": 60}"#);
    whole.broker.queue_create(&at, fifo).await.unwrap();
    whole.broker.messages_send(&at, vec![sending(Some("g"))]).await.unwrap().remove(0).unwrap();
    assert_eq!(whole.claim(&at, 1, 43_200).await.len(), 1);
    whole.clock.advance(60_000);
    let next = whole.broker.messages_send(&at, vec![sending(Some("g"))]).await.unwrap().remove(0).unwrap();
    whole.clock.advance(9_000);
    assert_eq!(whole.claim_soon(&at, 1).await, [next]);
}

/// Claims a message once and takes it out by the next claim; waits until it is in the dead letter queue.
async fn die(whole: &Whole, at: &QueueRef, dead: &QueueRef) {
    super::deadletters::claim_once(whole, at).await;
    assert_eq!(whole.claim(at, 20, 60).await, []);
    await_total(&whole.broker, dead, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letter_lives_by_its_new_queue_from_the_first_send() {
    let (whole, at, dead) = (whole().await, queue("q"), queue("dead"));
    whole.broker.queue_create(&dead, keeping(1_000)).await.unwrap();
    let source = r#"{"_dead_letter_queue": "dead", "_max_claim_count": 1, "_default_message_ttl": 100}"#;
    whole.broker.queue_create(&at, metadata(source)).await.unwrap();
    let sent = send(&whole.broker, &at, 1).await;
    whole.clock.advance(90_000);
    die(&whole, &at, &dead).await;
    whole.clock.advance(909_000);
    assert!(is_there(&whole.broker, &dead, sent[0]).await, "999 seconds after it was sent");
    whole.clock.advance(1_000);
    assert!(!is_there(&whole.broker, &dead, sent[0]).await, "1000 seconds after it was sent");
    whole.clock.advance(8_000);
    await_total(&whole.broker, &dead, 0).await;
}

/// The dead letter queue was deleted, so the broker creates it.
#[tokio::test(flavor = "multi_thread")]
async fn dead_letter_is_retained_by_created_target() {
    let (whole, at, dead) = (whole().await, queue("q"), queue("dead"));
    let source = r#"{"_dead_letter_queue": "dead", "_max_claim_count": 1, "_default_message_ttl": 345600}"#;
    whole.broker.queue_create(&at, metadata(source)).await.unwrap();
    let sent = send(&whole.broker, &at, 1).await;
    whole.clock.advance(90_000_000);
    die(&whole, &at, &dead).await;
    assert_eq!(whole.broker.message_get(&dead, sent[0]).await.unwrap().ttl, 345_600);
}

/// In a FIFO queue the lifetime counts from the transfer, so the order of ids is not the order of expiry.
#[tokio::test(flavor = "multi_thread")]
async fn dead_letter_in_order_of_groups_lives_from_its_transfer() {
    let (whole, at, dead) = (whole().await, queue("q"), queue("dead"));
    let keeps = r#"{"_fifo": true, "_default_message_ttl": 1000}"#;
    whole.broker.queue_create(&dead, metadata(keeps)).await.unwrap();
    let source = r#"{"_fifo": true, "_dead_letter_queue": "dead", "_max_claim_count": 1}"#;
    whole.broker.queue_create(&at, metadata(source)).await.unwrap();
    let letter = whole.broker.messages_send(&at, vec![sending(Some("g"))]).await.unwrap().remove(0).unwrap();
    whole.clock.advance(500_000);
    // This message was sent to the dead letter queue itself, later, and expires earlier.
    let other = whole.broker.messages_send(&dead, vec![sending(Some("h"))]).await.unwrap().remove(0).unwrap();
    whole.clock.advance(400_000);
    super::deadletters::claim_once(&whole, &at).await;
    assert_eq!(whole.claim(&at, 20, 60).await, []);
    await_total(&whole.broker, &dead, 2).await;
    whole.clock.advance(610_000);
    await_total(&whole.broker, &dead, 1).await;
    assert!(!is_there(&whole.broker, &dead, other).await);
    whole.clock.advance(389_000);
    assert!(is_there(&whole.broker, &dead, letter).await, "999 seconds after its transfer");
    whole.clock.advance(1_000);
    assert!(!is_there(&whole.broker, &dead, letter).await);
    whole.clock.advance(8_000);
    await_total(&whole.broker, &dead, 0).await;
}

/// A queue that no caller opens after a start is swept by its retention, also after a change of that.
#[tokio::test(flavor = "multi_thread")]
async fn unopened_queue_is_swept() {
    let lives = Lives::new();
    let (first, _) = lives.whole().await;
    let (at, other) = (queue("q"), queue("other"));
    for at in [&at, &other] {
        first.broker.queue_create(at, keeping(600)).await.unwrap();
        send(&first.broker, at, 3).await;
    }
    // The claimed message expires too.
    assert_eq!(first.claim(&at, 1, 43_200).await.len(), 1);
    first.broker.stop().await;
    let (second, _) = lives.whole().await;
    lives.clock.advance(609_000);
    for at in [&at, &other] {
        let start = Instant::now();
        while lives.stored(at).await > 0 {
            assert!(start.elapsed() < MAX_WAIT, "they are not removed");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
    second.broker.stop().await;
}

/// One message has expired, and all later ones live on: only the one is read and returned, however many the others are.
#[tokio::test(flavor = "multi_thread")]
async fn sweep_costs_the_same_whatever_lives_on() {
    let mut costs = Vec::new();
    for backlog in [10, 3_000] {
        let lives = Lives::new();
        let (totals, looks, shown) = <(Arc<AtomicUsize>, Arc<AtomicUsize>, Arc<AtomicUsize>)>::default();
        let pool = Arc::new(EmbeddedPool::new(lives.journal.clone()));
        let counting = CountingPool {
            pool,
            totals,
            looks: looks.clone(),
            shown: shown.clone(),
            pages: Arc::default(),
            hold: Arc::default(),
        };
        let catalogue = Catalogue::new(Arc::new(EmbeddedTree::open(lives.journal.clone()).await.unwrap()));
        let (settings, clock) = (one_pool(Arc::new(counting)), lives.clock.clone());
        let broker = Broker::start(catalogue, &settings, replica(), clock, Limits::ZAQAR).await.unwrap();
        let at = queue("q");
        broker.queue_create(&at, keeping(60)).await.unwrap();
        send(&broker, &at, 1).await;
        lives.clock.advance(40_000);
        for _ in 0..backlog / 10 {
            send(&broker, &at, 10).await;
        }
        lives.clock.advance(30_000);
        await_total(&broker, &at, backlog).await;
        costs.push((looks.load(Ordering::SeqCst), shown.load(Ordering::SeqCst)));
        broker.stop().await;
    }
    assert_eq!(costs[0], costs[1], "looks and messages shown");
    assert_eq!(costs[0].1, 1);
}

/// The retention of a queue changes while the queue is noted for the sweep: the noted value is not older than the
/// change.
#[tokio::test(flavor = "multi_thread")]
async fn noted_retention_is_no_older_than_a_change() {
    let lives = Lives::new();
    let (first, _) = lives.whole().await;
    let at = queue("q");
    let other = (0..).map(|number| queue(&format!("o{number}"))).find(|other| other.slot() == at.slot());
    let other = other.unwrap();
    for at in [&at, &other] {
        first.broker.queue_create(at, keeping(60)).await.unwrap();
        send(&first.broker, at, 3).await;
    }
    let id = lives.id_of(&at).await;
    first.broker.stop().await;
    drop(first);
    let pool = Arc::new(FaultyPool::new(Arc::new(EmbeddedPool::new(lives.journal.clone())), Plan::default()));
    *pool.totals_of.lock() = Some(id);
    // The first read checks for unfinished transfers.
    pool.totals.next(&[Fault::None, Fault::Held]);
    let catalogue = Catalogue::new(Arc::new(EmbeddedTree::open(lives.journal.clone()).await.unwrap()));
    let settings = one_pool(pool.clone());
    let second = Broker::start(catalogue, &settings, replica(), lives.clock.clone(), Limits::ZAQAR);
    let second = second.await.unwrap();
    until("nobody notes the queue", async || pool.totals.is_done()).await;
    let (broker, changed) = (second.clone(), at.clone());
    let mut changing = JoinSet::new();
    changing.spawn(async move { retain(&broker, &changed, 3_600).await });
    tokio::time::sleep(Duration::from_millis(300)).await;
    pool.totals.release();
    changing.join_next().await.unwrap().unwrap();
    lives.clock.advance(100_000);
    let start = Instant::now();
    while lives.stored(&other).await > 0 {
        assert!(start.elapsed() < MAX_WAIT, "the slot is not swept");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(lives.stored(&at).await, 3, "they live on by the changed period");
    second.stop().await;
}

/// A shorter retention also applies to a queue that was closed since.
#[tokio::test(flavor = "multi_thread")]
async fn retention_of_closed_queue_is_followed() {
    let lives = Lives::new();
    let (whole, at) = (lives.whole().await.0, queue("q"));
    whole.broker.queue_create(&at, keeping(3_600)).await.unwrap();
    send(&whole.broker, &at, 3).await;
    lives.clock.advance(100_000);
    let start = Instant::now();
    while whole.broker.close_idle_round().1 > 0 {
        assert!(start.elapsed() < MAX_WAIT, "the queue is never closed");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    retain(&whole.broker, &at, 90).await;
    let start = Instant::now();
    while lives.stored(&at).await > 0 {
        assert!(start.elapsed() < MAX_WAIT, "they are not removed");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
