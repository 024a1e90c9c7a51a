//! The queues that a settle names: what is refused before anything is written, and what waits for its target.

use std::time::Instant;

use angarium_core::delay::Delay;
use angarium_core::error::{Error, ErrorCode, InvalidPart};
use angarium_core::ids::MessageId;
use angarium_core::quota::Quota;
use angarium_core::settle::{Forward, MessageState, Retry, SettleEntry, Verdict};

use super::queue_counting::until;
use super::quotas::{Bounded, assert_over, try_post};
use super::settle::{DONE, entry, forward, forwarding, hold, name, settle_one, status};
use super::{metadata, queue, whole};

fn moved(id: MessageId, target: &str) -> SettleEntry {
    entry(id, Verdict::Move { target: name(target), delay: None })
}

#[tokio::test(flavor = "multi_thread")]
async fn new_targets_count_in_the_quota_of_queues() {
    let bounded = Bounded::new(Quota { queues: Some(2), ..Quota::NONE });
    let whole = bounded.start().await;
    try_post(&whole, "q", &["1", "2", "3"]).await.unwrap();
    let (claim, views) = hold(&whole.broker, &queue("q")).await;
    let ids: Vec<MessageId> = views.iter().map(|view| view.id).collect();
    let two = SettleEntry { forwards: vec![forward("a"), forward("b")], ..entry(ids[0], DONE) };
    assert_over(settle_one(&whole.broker, &queue("q"), claim, two).await, ("queues", 2));
    settle_one(&whole.broker, &queue("q"), claim, forwarding(ids[0], "a")).await.unwrap();
    assert_eq!(hold(&whole.broker, &queue("a")).await.1.len(), 1);
    assert_over(settle_one(&whole.broker, &queue("q"), claim, moved(ids[1], "b")).await, ("queues", 2));
    settle_one(&whole.broker, &queue("q"), claim, moved(ids[1], "a")).await.unwrap();
    assert_eq!(hold(&whole.broker, &queue("a")).await.1[0].id, ids[1]);
    assert_eq!(whole.broker.queue_stats(&queue("q")).await.unwrap().claimed, 1, "refused ones stay claimed");
    assert!(!whole.broker.queue_stats(&queue("b")).await.unwrap().exists);
}

#[tokio::test(flavor = "multi_thread")]
async fn forward_is_at_most_as_long_as_its_target_takes() {
    let (whole, q) = (whole().await, queue("q"));
    let small = metadata(r#"{"_max_messages_post_size": 1000}"#);
    whole.broker.queue_create(&queue("small"), small.clone()).await.unwrap();
    whole.post(&q, 1, 3_600).await;
    let (claim, views) = hold(&whole.broker, &q).await;
    let id = views[0].id;
    let long = |target: &str, bytes: usize| {
        let body = format!("\"{}\"", "x".repeat(bytes - 2)).into();
        SettleEntry {
            forwards: vec![forward("next"), Forward { body, ..forward(target) }],
            ..entry(id, DONE)
        }
    };
    let refused = settle_one(&whole.broker, &q, claim, long("small", 1_001)).await.unwrap_err();
    let Error::Invalid { place: InvalidPart::Limit, field, .. } = &refused else { panic!("{refused:?}") };
    assert_eq!(field, "forward[1].body");
    for missing in ["q", "missing"] {
        let most = whole.broker.limits().message_bytes;
        let refused = settle_one(&whole.broker, &q, claim, long(missing, most + 1)).await.unwrap_err();
        assert_eq!(refused.error_code(), ErrorCode::Invalid, "{refused:?}");
    }
    assert!(!whole.broker.queue_stats(&queue("next")).await.unwrap().exists);
    let settled = settle_one(&whole.broker, &q, claim, long("small", 1_000)).await.unwrap();
    assert_eq!(hold(&whole.broker, &queue("small")).await.1[0].id, settled.ids[1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_target_with_long_name_is_refused() {
    let (whole, q) = (whole().await, queue("q"));
    whole.post(&q, 1, 3_600).await;
    let (claim, views) = hold(&whole.broker, &q).await;
    let long = "x".repeat(70);
    let mut second = forwarding(views[0].id, "next");
    second.forwards.push(forward(&long));
    for (refused, field) in [(second, "forward[1].queue"), (moved(views[0].id, &long), "move.queue")] {
        let refused = settle_one(&whole.broker, &q, claim, refused).await.unwrap_err();
        assert!(matches!(&refused, Error::Invalid { field: named, .. } if named == field), "{refused:?}");
    }
}

/// A settle whose answer is lost is repeated: each verdict is applied once.
#[tokio::test(flavor = "multi_thread")]
async fn repeat_of_a_return_has_its_outcome() {
    let (whole, q) = (whole().await, queue("q"));
    whole.post(&q, 3, 3_600).await;
    let (claim, views) = hold(&whole.broker, &q).await;
    let later = Retry::After(60);
    let verdicts = [
        Verdict::Fail { reason: None, retry: later },
        Verdict::Defer { delay: Delay::Seconds(60) },
        Verdict::Move { target: name("q"), delay: Some(60) },
    ];
    for (view, verdict) in views.iter().zip(verdicts) {
        let settle = entry(view.id, verdict);
        let first = settle_one(&whole.broker, &q, claim, settle.clone()).await.unwrap();
        assert_eq!(first.state, MessageState::Delayed);
        let before = status(&whole.broker, &q, view.id).await.unwrap();
        let again = settle_one(&whole.broker, &q, claim, settle).await.unwrap();
        assert_eq!(again, first);
        let after = status(&whole.broker, &q, view.id).await.unwrap();
        assert_eq!((after.attempts, after.extras), (before.attempts, before.extras));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn settles_in_opposite_order_do_not_wait_for_each_other() {
    let (whole, q) = (whole().await, queue("q"));
    for _ in 0..20 {
        let ids = whole.post(&q, 10, 3_600).await;
        let (claim, views) = hold(&whole.broker, &q).await;
        assert_eq!(views.len(), ids.len());
        let forth: Vec<SettleEntry> = ids.iter().map(|id| entry(*id, DONE)).collect();
        let back: Vec<SettleEntry> = forth.iter().rev().cloned().collect();
        let begun = Instant::now();
        let (first, second) = tokio::join!(
            whole.broker.messages_settle(&q, claim, forth),
            whole.broker.messages_settle(&q, claim, back)
        );
        assert!(first.unwrap().into_iter().chain(second.unwrap()).all(|result| result.is_ok()));
        assert!(begun.elapsed().as_secs() < 9, "they waited for each other");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn arrival_with_a_delay_is_served_when_it_ends() {
    let (whole, q, later) = (whole().await, queue("q"), queue("later"));
    whole.post(&q, 1, 3_600).await;
    let (claim, views) = hold(&whole.broker, &q).await;
    let delayed = SettleEntry {
        forwards: vec![Forward { delay: Some(30), ..forward("later") }],
        ..entry(views[0].id, DONE)
    };
    settle_one(&whole.broker, &q, claim, delayed).await.unwrap();
    until("it arrives", async || whole.broker.queue_stats(&later).await.unwrap().delayed == 1).await;
    whole.clock.advance(31_000);
    until("it is ready", async || whole.broker.queue_stats(&later).await.unwrap().delayed == 0).await;
}
