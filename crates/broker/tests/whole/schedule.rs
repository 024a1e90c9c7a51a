//! Messages that are not ready yet: delays, dates, and releases with a delay.

use std::time::Duration;

use angarium_broker::Broker;
use angarium_clock::Clock;
use angarium_core::delay::Delay;
use angarium_core::ids::MessageId;
use angarium_core::limits::Limits;
use angarium_core::message::{MessageTtl, NewMessage};
use angarium_core::names::QueueRef;
use angarium_core::time::Timestamp;
use angarium_journal::Journal;

use super::{Whole, limit, metadata, queue, start, terms, whole};

const DELAYED: Option<Delay> = Some(Delay::Seconds(30));

async fn post(broker: &Broker, at: &QueueRef, delays: &[Option<Delay>], ttl: i64) -> Vec<MessageId> {
    let ttl = Some(MessageTtl::new(ttl, "ttl", &Limits::ZAQAR).unwrap());
    let message =
        |delay: &Option<Delay>| NewMessage { body: "1".into(), ttl, delay: *delay, ..NewMessage::default() };
    broker.messages_post(at, delays.iter().map(message).collect(), None).await.unwrap().ids
}

#[tokio::test(flavor = "multi_thread")]
async fn delayed_message_is_claimed_only_when_due() {
    let whole = whole().await;
    let ids = post(&whole.broker, &queue("q"), &[DELAYED], 3_600).await;
    whole.clock.advance(29_999);
    assert!(whole.claim(&queue("q"), 1, 300).await.is_empty());
    whole.clock.advance(1);
    // At once: the claim itself looks for due messages.
    assert_eq!(whole.claim(&queue("q"), 1, 300).await, ids);
}

#[tokio::test(flavor = "multi_thread")]
async fn due_message_keeps_its_posting_order() {
    let whole = whole().await;
    let ids = post(&whole.broker, &queue("q"), &[None, DELAYED, None], 3_600).await;
    assert_eq!(whole.claim(&queue("q"), 1, 300).await, ids[..1]);
    whole.clock.advance(30_000);
    // A tick of the background task, so that not the claim finds the message.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(whole.claim(&queue("q"), 20, 300).await, ids[1..]);
}

#[tokio::test(flavor = "multi_thread")]
async fn queue_delay_applies_to_messages_without_one() {
    let whole = whole().await;
    let at = queue("q");
    whole.broker.queue_create(&at, metadata(r#"{"_default_message_delay": 30}"#)).await.unwrap();
    let ids = post(&whole.broker, &at, &[None, Some(Delay::Seconds(0))], 3_600).await;
    assert_eq!(whole.claim(&at, 20, 300).await, ids[1..]);
    whole.clock.advance(30_000);
    assert_eq!(whole.claim(&at, 20, 300).await, ids[..1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_date_holds_for_any_time_and_life_begins_with_it() {
    let whole = whole().await;
    let date = Delay::Until(Timestamp::from_millis(1_700_000_000_000 + 40 * 86_400_000));
    let ids = post(&whole.broker, &queue("q"), &[Some(date)], 60).await;
    whole.clock.advance(40 * 86_400_000 - 1);
    assert!(whole.claim(&queue("q"), 1, 300).await.is_empty());
    whole.clock.advance(60_000);
    assert_eq!(whole.claim(&queue("q"), 1, 300).await, ids);
}

#[tokio::test(flavor = "multi_thread")]
async fn restart_keeps_delayed_messages_and_shows_due_ones() {
    let data = tempfile::tempdir().unwrap();
    let clock = Clock::manual(1_700_000_000_000);
    let open = async || {
        let journal = Journal::open(&data.path().join("journal"), &clock).unwrap();
        start(journal.clone(), journal, clock.clone()).await
    };
    let broker = open().await;
    let ids = post(&broker, &queue("q"), &[DELAYED, Some(Delay::Seconds(90))], 3_600).await;
    broker.stop().await;
    drop(broker);
    clock.advance(30_000);
    let broker = open().await;
    let claim = async || {
        let claim = broker.claim_create(&queue("q"), terms(300), limit(20)).await.unwrap();
        claim.map_or_else(Vec::new, |(view, mut delivery_guard)| {
            delivery_guard.done();
            view.messages.iter().map(|message| message.id).collect()
        })
    };
    assert_eq!(claim().await, ids[..1]);
    clock.advance(60_000);
    assert_eq!(claim().await, ids[1..]);
}

#[tokio::test(flavor = "multi_thread")]
async fn delayed_release_frees_messages_after_the_delay() {
    let whole = whole().await;
    let ids = whole.post(&queue("q"), 2, 3_600).await;
    let claim = whole.broker.claim_create(&queue("q"), terms(300), limit(1)).await.unwrap();
    let (view, mut delivery_guard) = claim.unwrap();
    delivery_guard.done();
    whole.broker.release_later(&queue("q"), view.id, DELAYED).await.unwrap();
    assert_eq!(whole.claim(&queue("q"), 20, 300).await, ids[1..]);
    whole.clock.advance(30_000);
    assert_eq!(whole.claim(&queue("q"), 20, 300).await, ids[..1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn delayed_message_can_be_deleted_without_claim() {
    let whole = whole().await;
    let ids = post(&whole.broker, &queue("q"), &[DELAYED], 3_600).await;
    whole.broker.message_delete(&queue("q"), ids[0], None).await.unwrap();
    whole.clock.advance(30_000);
    assert!(whole.claim(&queue("q"), 1, 300).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn thousands_due_together_in_backlog_all_become_ready() {
    let whole = whole().await;
    let mut ids = Vec::new();
    for _ in 0..4 {
        ids.extend(post(&whole.broker, &queue("q"), &[None, DELAYED].repeat(1_500), 3_600).await);
    }
    whole.clock.advance(30_000);
    let mut drained = drained(&whole, ids.len()).await;
    drained.sort_unstable();
    assert!(drained == ids);
}

/// Claims all messages as they become ready.
async fn drained(whole: &Whole, count: usize) -> Vec<MessageId> {
    let mut drained = Vec::new();
    while drained.len() < count {
        let claimed = whole.claim_soon(&queue("q"), 20).await;
        assert!(!claimed.is_empty(), "{} of {count}", drained.len());
        drained.extend(claimed);
    }
    drained
}
