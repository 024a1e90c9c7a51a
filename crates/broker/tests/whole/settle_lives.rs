//! Settles of messages whose life is nearly over.

use angarium_core::delay::Delay;
use angarium_core::error::{Error, ErrorCode};
use angarium_core::names::QueueRef;
use angarium_core::settle::{MessageState, Retry, Verdict};

use super::retention::send;
use super::settle::{DONE, entry, fail, hold, name, settle_one, status};
use super::{metadata, queue, whole};

/// Else it would expire without an outcome while it waits.
#[tokio::test(flavor = "multi_thread")]
async fn failure_is_final_when_next_attempt_is_after_end_of_life() {
    let (whole, q, other) = (whole().await, queue("q"), queue("other"));
    let attributes = metadata(r#"{"_backoff": {"first": 900}, "_dead_letter_queue": "dead"}"#);
    whole.broker.queue_create(&q, attributes).await.unwrap();
    let settle = async |at: &QueueRef, retries: &[Retry]| {
        let ids = whole.post(at, retries.len(), 600).await;
        let (claim, _) = hold(&whole.broker, at).await;
        let mut states = Vec::new();
        for (id, retry) in ids.iter().zip(retries) {
            let settled =
                settle_one(&whole.broker, at, claim, entry(*id, fail("full", *retry))).await.unwrap();
            states.push(settled.state);
        }
        states
    };
    let of_other = settle(&other, &[Retry::After(599), Retry::After(600)]).await;
    assert_eq!(of_other, [MessageState::Delayed, MessageState::Failed]);
    assert_eq!(settle(&q, &[Retry::Backoff]).await, [MessageState::InTransfer]);
    let (_, dead) = hold(&whole.broker, &queue("dead")).await;
    assert_eq!(dead[0].extras.as_ref().unwrap().reason.as_ref().unwrap().as_str(), "full");
    whole.clock.advance(599_000);
    assert_eq!(whole.claim_soon(&other, 10).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn delay_beyond_end_of_life_is_refused() {
    let (whole, q) = (whole().await, queue("q"));
    let ids = whole.post(&q, 2, 600).await;
    let (claim, _) = hold(&whole.broker, &q).await;
    let defer = |seconds| Verdict::Defer { delay: Delay::Seconds(seconds) };
    let moved = |target, seconds| Verdict::Move { target: name(target), delay: Some(seconds) };
    let fields =
        [(defer(600), "defer.delay"), (moved("q", 600), "move.delay"), (moved("next", 600), "move.delay")];
    for (verdict, field) in fields {
        let refused = settle_one(&whole.broker, &q, claim, entry(ids[0], verdict)).await.unwrap_err();
        assert!(matches!(&refused, Error::Invalid { field: named, .. } if named == field), "{refused:?}");
    }
    assert_eq!(whole.broker.queue_stats(&q).await.unwrap().claimed, 2, "nothing is done");
    for (id, verdict) in [(ids[0], defer(599)), (ids[1], moved("next", 599))] {
        settle_one(&whole.broker, &q, claim, entry(id, verdict)).await.unwrap();
    }
}

/// The retention of its queue ends while a claim holds it: a message that was answered as gone is not settled later.
#[tokio::test(flavor = "multi_thread")]
async fn message_gone_under_its_claim_is_not_settled() {
    let (whole, q) = (whole().await, queue("q"));
    let attributes = metadata(r#"{"_default_message_ttl": 60, "_keep": 600}"#);
    whole.broker.queue_create(&q, attributes).await.unwrap();
    let ids = send(&whole.broker, &q, 3).await;
    let (claim, _) = hold(&whole.broker, &q).await;
    whole.clock.advance(61_000);
    let moved = Verdict::Move { target: name("next"), delay: None };
    let late = settle_one(&whole.broker, &q, claim, entry(ids[0], moved)).await.unwrap_err();
    assert!(matches!(late.error_code(), ErrorCode::Invalid | ErrorCode::NotFound), "{late:?}");
    let was_gone = status(&whole.broker, &q, ids[1]).await.is_none();
    let settled = settle_one(&whole.broker, &q, claim, entry(ids[1], DONE)).await;
    assert!(!(was_gone && settled.is_ok()), "{settled:?}");
}
