//! Expired messages and claims.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::{MAX_WAIT, limit, metadata, queue, start, terms, whole};
use angarium_broker::SendEntry;
use angarium_catalogue::{Catalogue, OwnedSlot};
use angarium_clock::Clock;
use angarium_coordination::embedded::EmbeddedTree;
use angarium_core::delay::Delay;
use angarium_core::limits::Limits;
use angarium_core::message::NewMessage;
use angarium_journal::Journal;
use angarium_storage::PoolReads;
use angarium_storage::embedded::EmbeddedPool;

/// The ready cache holds the whole queue, or only its beginning, when the messages expire.
#[tokio::test(flavor = "multi_thread")]
async fn a_lone_claim_gets_past_any_number_of_expired_messages() {
    for (is_whole, expired) in [(true, 1_500), (true, 5_000), (false, 20_000)] {
        let whole = whole().await;
        if is_whole {
            // A claim that reaches the end of the queue leaves the ready cache complete.
            assert!(whole.claim(&queue("q"), 1, 300).await.is_empty());
            whole.post(&queue("q"), 1, 3_600).await;
            assert_eq!(whole.claim(&queue("q"), 2, 300).await.len(), 1);
        }
        whole.post(&queue("q"), expired, 60).await;
        whole.clock.advance(60_000);
        let live = whole.post(&queue("q"), 1, 3_600).await;
        assert_eq!(whole.claim(&queue("q"), 1, 300).await, live, "behind {expired}");
        whole.broker.stop().await;
        let stats = whole.broker.queue_stats(&queue("q")).await.unwrap();
        assert_eq!(stats.free, 0, "the expired ones are gone from the pool");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sqs_retention_counts_from_send_despite_delay() {
    let (whole, at) = (whole().await, queue("q"));
    whole.broker.queue_create(&at, metadata(r#"{"_default_message_ttl": 100}"#)).await.unwrap();
    let sending = |delay| {
        let delay = Some(Delay::Seconds(delay));
        SendEntry { message: NewMessage { body: "1".into(), delay, ..NewMessage::default() }, size: 1 }
    };
    let sent = whole.broker.messages_send(&at, vec![sending(0), sending(60)]).await.unwrap();
    let ids: Vec<_> = sent.into_iter().map(Result::unwrap).collect();
    whole.clock.advance(99_000);
    assert_eq!(whole.claim_soon(&at, 1).await, ids[..1]);
    assert_eq!(whole.claim_soon(&at, 1).await, ids[1..]);
    let later = whole.broker.messages_send(&at, vec![sending(60)]).await.unwrap().remove(0).unwrap();
    whole.clock.advance(100_000);
    assert!(whole.broker.message_get(&at, later).await.is_err(), "its time is over");
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_of_an_expired_claim_are_claimed_again_in_order() {
    let whole = whole().await;
    let ids = whole.post(&queue("q"), 4, 3_600).await;
    assert_eq!(whole.claim(&queue("q"), 2, 60).await, ids[..2]);
    whole.clock.advance(59_999);
    assert_eq!(whole.claim(&queue("q"), 1, 300).await, ids[2..3]);
    whole.clock.advance(1);
    let start = Instant::now();
    while whole.broker.queue_stats(&queue("q")).await.unwrap().claimed > 1 {
        assert!(start.elapsed() < MAX_WAIT, "the claim does not end");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(whole.claim(&queue("q"), 20, 300).await, [ids[0], ids[1], ids[3]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_claim_deletes_nothing_even_before_it_is_ended() {
    let whole = whole().await;
    let ids = whole.post(&queue("q"), 1, 3_600).await;
    let claim = whole.broker.claim_create(&queue("q"), terms(60), limit(1)).await.unwrap();
    let (view, mut delivery_guard) = claim.unwrap();
    delivery_guard.done();
    whole.clock.advance(60_000);
    let refused = whole.broker.message_delete(&queue("q"), ids[0], Some(view.id)).await;
    assert_eq!(refused.unwrap_err().code(), "claim_ended");
}

#[tokio::test(flavor = "multi_thread")]
async fn thousands_of_claims_expiring_together_free_all() {
    let whole = whole().await;
    let ids = whole.post(&queue("q"), 2_000, 3_600).await;
    for _ in 0..1_000 {
        assert_eq!(whole.claim(&queue("q"), 2, 60).await.len(), 2);
    }
    whole.clock.advance(60_000);
    let mut again = Vec::new();
    while again.len() < ids.len() {
        let claimed = whole.claim_soon(&queue("q"), 20).await;
        assert!(!claimed.is_empty(), "{} of {} came back", again.len(), ids.len());
        again.extend(claimed);
    }
    again.sort_unstable();
    assert_eq!(again, ids);
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_claims_never_miss_waiting_messages() {
    let whole = whole().await;
    whole.post(&queue("q"), 12_000, 3_600).await;
    let mut claims = JoinSet::new();
    for _ in 0..600 {
        let broker = whole.broker.clone();
        claims.spawn(async move {
            let claim = broker.claim_create(&queue("q"), terms(300), limit(20)).await.unwrap();
            claim.map(|(view, mut delivery_guard)| {
                delivery_guard.done();
                view.messages.len()
            })
        });
    }
    let mut claimed = 0;
    let mut empty = 0;
    while let Some(claim) = claims.join_next().await {
        match claim.unwrap() {
            Some(messages) => claimed += messages,
            None => empty += 1,
        }
    }
    // A claim takes the messages that the ready cache has, so some got fewer than requested; none got nothing.
    assert!(
        empty == 0 || claimed == 12_000,
        "{empty} claims were told that there is nothing, {claimed} claimed"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewed_claim_lasts_from_its_renewal() {
    let whole = whole().await;
    whole.post(&queue("q"), 1, 3_600).await;
    let claim = whole.broker.claim_create(&queue("q"), terms(60), limit(1)).await.unwrap();
    let (view, mut delivery_guard) = claim.unwrap();
    delivery_guard.done();
    whole.clock.advance(59_000);
    whole.broker.claim_renew(&queue("q"), view.id, terms(60)).await.unwrap();
    whole.clock.advance(59_000);
    // Long enough for a turn of the background task that expires claims.
    tokio::time::sleep(Duration::from_millis(600)).await;
    assert_eq!(whole.broker.claim_get(&queue("q"), view.id).await.unwrap().age, 59);
    assert!(whole.claim(&queue("q"), 1, 300).await.is_empty());
    whole.clock.advance(1_000);
    assert_eq!(whole.broker.claim_get(&queue("q"), view.id).await.unwrap_err().code(), "not_found");
    assert_eq!(whole.claim_soon(&queue("q"), 1).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_renewals_and_release_end_the_claim() {
    let whole = whole().await;
    let ids = whole.post(&queue("q"), 1, 3_600).await;
    for _ in 0..10 {
        let claim = whole.broker.claim_create(&queue("q"), terms(300), limit(1)).await.unwrap();
        let (view, mut delivery_guard) = claim.unwrap();
        delivery_guard.done();
        let mut changes = JoinSet::new();
        for _ in 0..4 {
            let broker = whole.broker.clone();
            changes.spawn(async move { broker.claim_renew(&queue("q"), view.id, terms(600)).await });
        }
        whole.broker.claim_release(&queue("q"), view.id).await.unwrap();
        while let Some(renewed) = changes.join_next().await {
            let refused = renewed.unwrap().err().map(|error| error.code());
            assert!(matches!(refused, None | Some("not_found")), "{refused:?}");
        }
        assert_eq!(whole.claim(&queue("q"), 1, 60).await, ids);
        whole.clock.advance(60_000);
        while whole.broker.queue_stats(&queue("q")).await.unwrap().claimed > 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn start_with_late_clock_keeps_message_lives() {
    let data = tempfile::tempdir().unwrap();
    let start_at = async |clock: &Clock| {
        let journal = Journal::open(&data.path().join("journal"), clock).unwrap();
        start(journal.clone(), journal, clock.clone()).await
    };
    let message = || vec![NewMessage { body: "1".into(), ttl: None, delay: None, ..NewMessage::default() }];
    let right = Clock::manual(1_700_000_000_000);
    let broker = start_at(&right).await;
    broker.messages_post(&queue("q"), message(), None).await.unwrap();
    broker.stop().await;
    drop(broker);

    let behind = Clock::manual(1_000);
    let broker = start_at(&behind).await;
    assert!(behind.now() >= right.now());
    broker.messages_post(&queue("q"), message(), None).await.unwrap();
    broker.stop().await;
    drop(broker);

    let broker = start_at(&Clock::manual(1_700_000_001_000)).await;
    let claim = broker.claim_create(&queue("q"), terms(60), limit(10)).await.unwrap();
    assert_eq!(claim.unwrap().0.messages.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_messages_are_swept_unasked() {
    let whole = whole().await;
    whole.post(&queue("q"), 3, 60).await;
    let live = whole.post(&queue("q"), 1, 3_600).await;
    // Eight seconds more: the pool's order of expiry is not exact.
    whole.clock.advance(68_001);
    let start = Instant::now();
    while whole.broker.queue_stats(&queue("q")).await.unwrap().free > 1 {
        assert!(start.elapsed() < MAX_WAIT, "they are not removed");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(whole.claim(&queue("q"), 10, 300).await, live);
}

/// One journal, and a broker that is started over it again and again.
struct RestartableBroker {
    data: tempfile::TempDir,
    clock: Clock,
}

impl RestartableBroker {
    fn new() -> Self {
        Self { data: tempfile::tempdir().unwrap(), clock: Clock::manual(1_700_000_000_000) }
    }

    async fn start(&self) -> (angarium_broker::Broker, EmbeddedPool, Catalogue) {
        let journal = Journal::open(&self.data.path().join("journal"), &self.clock).unwrap();
        let pool = EmbeddedPool::new(journal.clone());
        let catalogue = Catalogue::new(Arc::new(EmbeddedTree::open(journal.clone()).await.unwrap()));
        (start(journal.clone(), journal, self.clock.clone()).await, pool, catalogue)
    }
}

/// Returns the pool's own count of a queue, without opening it.
async fn stored(pool: &EmbeddedPool, catalogue: &Catalogue) -> u64 {
    let slot = OwnedSlot::new(queue("q").slot(), 0, 0);
    let record = catalogue.queue(&slot, &queue("q")).await.unwrap().unwrap();
    pool.totals(record.id).await.unwrap().messages
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_messages_leave_from_behind_and_unused_queues() {
    let again = RestartableBroker::new();
    let (broker, _, _) = again.start().await;
    let ttl = |ttl| Some(angarium_core::message::MessageTtl::new(ttl, "ttl", &Limits::ZAQAR).unwrap());
    let message =
        |seconds| NewMessage { body: "1".into(), ttl: ttl(seconds), delay: None, ..NewMessage::default() };
    broker.messages_post(&queue("q"), vec![message(60), message(3_600)], None).await.unwrap();
    // The first one is claimed for longer than its lifetime.
    let claim = broker.claim_create(&queue("q"), terms(43_200), limit(1)).await.unwrap();
    claim.unwrap().1.done();
    broker.messages_post(&queue("q"), vec![message(60), message(60)], None).await.unwrap();
    broker.stop().await;
    drop(broker);
    let (broker, pool, catalogue) = again.start().await;
    again.clock.advance(68_001);
    let start = Instant::now();
    while stored(&pool, &catalogue).await > 2 {
        assert!(start.elapsed() < MAX_WAIT, "they are not removed");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    // Another turn keeps the claimed one too.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let stats = broker.queue_stats(&queue("q")).await.unwrap();
    assert_eq!((stats.claimed, stats.free), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_of_unused_queues_expire_and_are_cleared() {
    let again = RestartableBroker::new();
    let (broker, _, _) = again.start().await;
    let message = || vec![NewMessage { body: "1".into(), ttl: None, delay: None, ..NewMessage::default() }];
    broker.messages_post(&queue("q"), message(), None).await.unwrap();
    broker.claim_create(&queue("q"), terms(60), limit(1)).await.unwrap().unwrap().1.done();
    broker.stop().await;
    drop(broker);
    let (broker, _, catalogue) = again.start().await;
    again.clock.advance(62_000);
    let slot = OwnedSlot::new(queue("q").slot(), 0, 0);
    let start = Instant::now();
    while !catalogue.claims(&slot).await.unwrap().claims.is_empty() {
        assert!(start.elapsed() < MAX_WAIT, "the record of the claim stays");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(broker.claim_create(&queue("q"), terms(60), limit(1)).await.unwrap().is_some());
}
