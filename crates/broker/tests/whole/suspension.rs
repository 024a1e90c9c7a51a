//! Loss and return of the connection to the tree, loss of a session, restart of a service: no claim expires before its
//! holder has had time to renew it (P3).

use std::time::{Duration, Instant};

use angarium_clock::Clock;
use angarium_coordination::Coordination;
use angarium_core::claim::{Holdings, Visibility};
use angarium_core::error::ErrorCode;
use angarium_core::ids::ClaimId;
use angarium_journal::Journal;
use uuid::Uuid;

use super::faulty::{Fault, LinkOutage};
use super::groups::in_group;
use super::outcomes::faulty;
use super::recovery::{claim_when_served, take_slot_of};
use super::transfers::until;
use super::{MAX_WAIT, Whole, limit, metadata, queue, start, terms, whole};

/// Waits long enough for a tick of the background task that expires claims.
async fn turns() {
    tokio::time::sleep(3 * angarium_broker::limits::EXPIRY_TICK).await;
}

/// Claims a message for a minute.
async fn claim_one(whole: &Whole) -> ClaimId {
    let claim = whole.broker.claim_create(&queue("q"), terms(60), limit(1)).await.unwrap();
    let (view, mut delivery_guard) = claim.unwrap();
    delivery_guard.done();
    view.id
}

#[tokio::test(flavor = "multi_thread")]
async fn no_claim_expires_in_suspension_nor_two_seconds_after() {
    for away in [LinkOutage::Held, LinkOutage::Refused] {
        let faulty = faulty().await;
        let (whole, link) = (&faulty.whole, &faulty.link);
        let ids = whole.post(&queue("q"), 1, 3_600).await;
        let claim = claim_one(whole).await;
        link.suspend(away);
        whole.clock.advance(60_000);
        turns().await;
        link.connect();
        turns().await;
        // The two seconds begin when the connection is noticed, by this request if not before.
        whole.broker.claim_get(&queue("q"), claim).await.unwrap();
        assert!(whole.claim(&queue("q"), 1, 300).await.is_empty(), "{away:?}");
        whole.clock.advance(1_999);
        turns().await;
        assert!(whole.claim(&queue("q"), 1, 300).await.is_empty(), "{away:?}");
        whole.clock.advance(1);
        assert_eq!(whole.claim_soon(&queue("q"), 1).await, ids, "{away:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn claim_expired_in_suspension_is_renewable_just_after() {
    let faulty = faulty().await;
    let (whole, link) = (&faulty.whole, &faulty.link);
    whole.post(&queue("q"), 1, 3_600).await;
    let claim = claim_one(whole).await;
    turns().await;
    link.suspend(LinkOutage::Refused);
    whole.clock.advance(60_000);
    link.connect();
    whole.broker.claim_get(&queue("q"), claim).await.unwrap();
    whole.broker.claim_renew(&queue("q"), claim, terms(60)).await.unwrap();
    whole.clock.advance(59_999);
    turns().await;
    assert!(whole.claim(&queue("q"), 1, 300).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn claim_expired_in_suspension_still_deletes_messages() {
    let faulty = faulty().await;
    let (whole, link) = (&faulty.whole, &faulty.link);
    let ids = whole.post(&queue("q"), 3, 3_600).await;
    let claim = whole.broker.claim_create(&queue("q"), terms(60), limit(3)).await.unwrap();
    let (view, mut delivery_guard) = claim.unwrap();
    delivery_guard.done();
    turns().await;
    link.suspend(LinkOutage::Refused);
    whole.clock.advance(60_000);
    whole.broker.message_delete(&queue("q"), ids[0], Some(view.id)).await.unwrap();
    whole
        .broker
        .messages_delete(&queue("q"), ids[1..2].to_vec(), Holdings::of_claims(&[view.id]))
        .await
        .unwrap();
    link.connect();
    turns().await;
    // The two seconds begin when the connection is noticed, by this request if not before.
    whole.broker.claim_get(&queue("q"), view.id).await.unwrap();
    whole.clock.advance(2_000);
    assert_eq!(whole.claim_soon(&queue("q"), 3).await, ids[2..]);
}

#[tokio::test(flavor = "multi_thread")]
async fn claim_expired_without_owner_is_renewable_just_after() {
    for is_renewed in [true, false] {
        let Whole { broker, clock, _data } = whole().await;
        let before = Whole { broker, clock, _data };
        let ids = before.post(&queue("q"), 1, 3_600).await;
        let claim = claim_one(&before).await;
        before.broker.stop().await;
        let now = before.clock.now().as_millis();
        let Whole { broker, _data, .. } = before;
        drop(broker);
        let clock = Clock::manual(now + 120_000);
        let journal = Journal::open(&_data.path().join("journal"), &clock).unwrap();
        let broker = start(journal.clone(), journal, clock.clone()).await;
        let after = Whole { broker, clock, _data };
        assert!(after.claim(&queue("q"), 1, 300).await.is_empty());
        after.clock.advance(1_999);
        turns().await;
        assert!(after.claim(&queue("q"), 1, 300).await.is_empty());
        if is_renewed {
            after.broker.claim_renew(&queue("q"), claim, terms(60)).await.unwrap();
            after.clock.advance(59_999);
            turns().await;
            assert!(after.claim(&queue("q"), 1, 300).await.is_empty());
        }
        after.clock.advance(1);
        assert_eq!(after.claim_soon(&queue("q"), 1).await, ids);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_session_re_registers_before_memory_is_served() {
    let faulty = faulty().await;
    let (whole, link) = (&faulty.whole, &faulty.link);
    whole.broker.claim_create(&queue("q"), terms(60), limit(1)).await.unwrap();
    let registered = async || {
        let registry = faulty.catalogue.registry().await.unwrap();
        registry.others(Uuid::nil()).count()
    };
    assert_eq!(registered().await, 1);
    link.lose(LinkOutage::Refused).await;
    assert_eq!(registered().await, 0);
    assert!(whole.broker.claim_create(&queue("q"), terms(60), limit(1)).await.is_err());
    link.connect();
    let start = Instant::now();
    while whole.broker.claim_create(&queue("q"), terms(60), limit(1)).await.is_err() {
        assert!(start.elapsed() < MAX_WAIT, "it does not speak again");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(registered().await, 1);
}

/// Its owner node ended with the session, and another replica may have had it since.
#[tokio::test(flavor = "multi_thread")]
async fn slot_taken_in_ended_session_is_recovered() {
    let faulty = faulty().await;
    let (broker, link, slot) = (&faulty.whole.broker, &faulty.link, queue("q").slot());
    let ids = faulty.whole.post(&queue("q"), 1, 3_600).await;
    *link.held_directory.lock() = Some(format!("/run/{slot}/holds"));
    link.reads.next(&[Fault::Held]);
    take_slot_of(&faulty, "q").await;
    until("the slot is not taken again", async || {
        drop(broker.claim_create(&queue("q"), terms(60), limit(1)).await);
        link.reads.is_done()
    })
    .await;
    link.lose(LinkOutage::Refused).await;
    link.connect();
    let other = queue("other");
    assert_ne!(other.slot(), slot);
    until("the replica is not registered again", async || {
        broker.claim_create(&other, terms(60), limit(1)).await.is_ok()
    })
    .await;
    link.reads.release();
    let owner = format!("/meta/slots/{slot}/owner");
    until("the slot has no owner", async || link.get(&owner).await.unwrap().is_some()).await;
    assert_eq!(claim_when_served(&faulty.whole, "q").await, ids);
}

/// The replica may have been replaced, and a later receive may have the message.
#[tokio::test(flavor = "multi_thread")]
async fn ended_receipt_is_not_refused_in_suspension() {
    let (faulty, q) = (faulty().await, queue("q"));
    let (broker, link) = (&faulty.whole.broker, &faulty.link);
    broker.queue_create(&q, metadata(r#"{"_fifo": true}"#)).await.unwrap();
    broker.messages_post(&q, vec![in_group("a", "1")], None).await.unwrap();
    let handle = faulty.whole.receive_one(&q).await;
    let handle = handle.as_str();
    let now = Visibility::new(0, "").unwrap();
    broker.receipts_change(&q, &[(handle, now)]).await.unwrap().remove(0).unwrap();
    let ended = broker.receipts_delete(&q, &[handle]).await.unwrap().remove(0).unwrap_err();
    assert_eq!(ended.error_code(), ErrorCode::Invalid);
    link.suspend(LinkOutage::Refused);
    let refused = broker.receipts_delete(&q, &[handle]).await.unwrap_err();
    assert_eq!((refused.error_code(), refused.nothing_written()), (ErrorCode::Unavailable, true));
    let unreadable = broker.receipts_delete(&q, &["no receipt"]).await.unwrap().remove(0).unwrap_err();
    assert_eq!(unreadable.error_code(), ErrorCode::BadReceipt);
}
