//! Requeues: a message is available again with a new life, and the history that it has by then.

use std::time::Duration;

use angarium_broker::{Broker, MessageView};
use angarium_core::delay::Delay;
use angarium_core::error::{Error, ErrorCode};
use angarium_core::ids::{ClaimId, MessageId};
use angarium_core::message::NewMessage;
use angarium_core::names::QueueRef;
use angarium_core::outcome::{EventKind, Keep, Outcome, Reason};
use angarium_core::settle::{MessageState, Requeue, Retry, Verdict};
use serde_json::value::RawValue;

use super::deadletters::Lives;
use super::faulty::Fault;
use super::outcomes::faulty;
use super::settle::{entry, forwarding, hold, settle_one, status};
use super::transfers::until;
use super::{Whole, limit, metadata, queue, terms, whole};

/// Attempts of a slot writer to send one batch.
const TRIES: usize = 6;

pub(super) const AT_ONCE: Requeue = Requeue::At(Delay::Seconds(0));

/// Posts a message that is kept for an hour after it was settled.
pub(super) async fn post_kept(whole: &Whole, at: &QueueRef) -> MessageId {
    let message =
        NewMessage { body: "\"x\"".into(), keep: Some(Keep::stored(3_600)), ..NewMessage::default() };
    whole.broker.messages_post(at, vec![message], None).await.unwrap().ids[0]
}

pub(super) fn failed() -> Verdict {
    Verdict::Fail { reason: Some(Reason::new("no space", "reason").unwrap()), retry: Retry::Never }
}

pub(super) fn done(json: &str) -> Verdict {
    let text = RawValue::from_string(json.to_owned()).unwrap();
    Verdict::Done { result: Some(Outcome::new(&text, "result").unwrap()) }
}

/// Posts a message, claims it, and settles it.
pub(super) async fn settled(whole: &Whole, at: &QueueRef, verdict: Verdict) -> (ClaimId, MessageId) {
    let id = post_kept(whole, at).await;
    let (claim, views) = hold(&whole.broker, at).await;
    assert_eq!(views.iter().map(|view| view.id).collect::<Vec<_>>(), [id]);
    settle_one(&whole.broker, at, claim, entry(id, verdict)).await.unwrap();
    (claim, id)
}

fn code<T>(answer: Result<T, Error>) -> Option<ErrorCode> {
    answer.err().map(|error| error.error_code())
}

fn events(view: &MessageView) -> Vec<EventKind> {
    let extras = view.extras.as_ref();
    extras.map_or_else(Vec::new, |extras| extras.history.iter().map(|event| event.what).collect())
}

async fn state(broker: &Broker, at: &QueueRef, id: MessageId) -> MessageState {
    status(broker, at, id).await.unwrap().state
}

#[tokio::test(flavor = "multi_thread")]
async fn kept_message_is_available_again_with_new_life() {
    for (verdict, history) in [
        (failed(), vec![EventKind::Failed, EventKind::Requeued]),
        (done("{\"pages\":1}"), vec![EventKind::Requeued]),
    ] {
        let (whole, q) = (whole().await, queue("q"));
        let (_, id) = settled(&whole, &q, verdict).await;
        whole.clock.advance(1_000_000);
        whole.broker.message_requeue(&q, id, AT_ONCE).await.unwrap();
        let view = whole.broker.message_get(&q, id).await.unwrap();
        assert_eq!((view.state, view.attempts, view.first_claimed), (MessageState::Ready, 0, None));
        assert_eq!((view.ttl, view.settled), (3_600, None), "its life is that of the post");
        assert_eq!(events(&view), history);
        let extras = view.extras.unwrap();
        assert_eq!((extras.result, extras.reason, extras.by, extras.life), (None, None, None, None));
        let (_, views) = hold(&whole.broker, &q).await;
        assert_eq!((views[0].id, views[0].attempts, views[0].grant), (id, 1, 3));
        // It lives as long as a message that was posted when it was made available.
        whole.clock.advance(3_000_000);
        assert_eq!(whole.claim_soon(&q, 1).await, [id]);
        let stats = whole.broker.queue_stats(&q).await.unwrap();
        assert_eq!((stats.kept, stats.claimed + stats.free), (0, 1));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requeued_message_waits_for_its_time() {
    let (whole, q) = (whole().await, queue("q"));
    let ids = whole.post(&q, 2, 60).await;
    let later = Delay::Until(whole.clock.now().plus_seconds(86_400));
    whole.broker.message_requeue(&q, ids[0], Requeue::At(Delay::Seconds(30))).await.unwrap();
    whole.broker.message_requeue(&q, ids[1], Requeue::At(later)).await.unwrap();
    assert!(whole.claim(&q, 2, 60).await.is_empty());
    let stats = whole.broker.queue_stats(&q).await.unwrap();
    assert_eq!((stats.free, stats.delayed), (2, 2));
    whole.clock.advance(30_000);
    assert_eq!(whole.claim_soon(&q, 2).await, ids[..1]);
    // A delayed message is made available at once.
    whole.broker.message_requeue(&q, ids[1], AT_ONCE).await.unwrap();
    assert_eq!(whole.claim_soon(&q, 2).await, ids[1..]);
}

#[tokio::test(flavor = "multi_thread")]
async fn parked_message_waits_for_request() {
    let (whole, q) = (whole().await, queue("q"));
    let ids = whole.post(&q, 1, 60).await;
    whole.broker.message_requeue(&q, ids[0], Requeue::Never).await.unwrap();
    // A year: it does not expire meanwhile.
    whole.clock.advance(365 * 86_400_000);
    assert!(whole.claim(&q, 1, 60).await.is_empty());
    let view = status(&whole.broker, &q, ids[0]).await.unwrap();
    assert_eq!(view.state, MessageState::Delayed);
    assert_eq!((view.delay, view.state), (None, MessageState::Delayed));
    whole.broker.message_requeue(&q, ids[0], AT_ONCE).await.unwrap();
    assert_eq!(whole.claim_soon(&q, 1).await, ids);
}

#[tokio::test(flavor = "multi_thread")]
async fn requeue_needs_message_under_no_claim() {
    let (whole, q) = (whole().await, queue("q"));
    let ids = whole.post(&q, 2, 60).await;
    let requeue = async |id| code(whole.broker.message_requeue(&q, id, AT_ONCE).await);
    assert_eq!(
        code(whole.broker.message_requeue(&queue("none"), ids[0], AT_ONCE).await),
        Some(ErrorCode::NotFound)
    );
    let held = whole.claim(&q, 1, 300).await;
    assert_eq!(requeue(held[0]).await, Some(ErrorCode::Conflict));
    assert_eq!(requeue(MessageId::from_bytes([9; 16])).await, Some(ErrorCode::NotFound));
    assert_eq!(whole.broker.claims_list(&q, all_claims()).await.unwrap().claims.len(), 1);
    whole.clock.advance(61_000);
    assert_eq!(requeue(ids[1]).await, Some(ErrorCode::NotFound), "it has expired");
    assert_eq!(requeue(held[0]).await, Some(ErrorCode::Conflict), "its claim keeps it");
}

fn all_claims() -> angarium_broker::ClaimFilter {
    angarium_broker::ClaimFilter { after: None, limit: super::queue_list::filter().limit }
}

#[tokio::test(flavor = "multi_thread")]
async fn message_in_transfer_is_not_requeued() {
    let faulty = faulty().await;
    let (whole, q) = (&faulty.whole, queue("q"));
    let id = post_kept(whole, &q).await;
    let (claim, _) = hold(&whole.broker, &q).await;
    // The settle is written, and the target is never reached.
    faulty.pool.next(&[Fault::NotSent; 1_000]);
    faulty.pool.skip(1);
    let moved = Verdict::Move { target: super::settle::name("next"), delay: None };
    settle_one(&whole.broker, &q, claim, entry(id, moved)).await.unwrap();
    let refused = whole.broker.message_requeue(&q, id, AT_ONCE).await.unwrap_err();
    assert!(matches!(refused, Error::Busy(_)) && refused.nothing_written(), "{refused:?}");
    assert_eq!(state(&whole.broker, &q, id).await, MessageState::InTransfer);
    // It continues its way all the same.
    faulty.pool.clear();
    let (_, views) = hold(&whole.broker, &queue("next")).await;
    assert_eq!(views[0].id, id);
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_requeue_leaves_message_as_it_was() {
    let faulty = faulty().await;
    let (whole, q) = (&faulty.whole, queue("q"));
    let (_, kept) = settled(whole, &q, failed()).await;
    let free = whole.post(&q, 1, 3_600).await[0];
    for (id, before) in [(kept, MessageState::Failed), (free, MessageState::Ready)] {
        faulty.pool.next(&[Fault::NotSent; TRIES]);
        let refused = whole.broker.message_requeue(&q, id, Requeue::Never).await.unwrap_err();
        assert!(refused.nothing_written() && faulty.pool.is_done(), "{refused:?}");
        assert_eq!(state(&whole.broker, &q, id).await, before);
    }
    assert_eq!(whole.claim(&q, 10, 300).await, [free]);
    whole.broker.message_requeue(&q, kept, AT_ONCE).await.unwrap();
    assert_eq!(whole.claim_soon(&q, 10).await, [kept]);
}

#[tokio::test(flavor = "multi_thread")]
async fn requeue_continues_without_its_caller() {
    let faulty = faulty().await;
    let (whole, q) = (&faulty.whole, queue("q"));
    let (_, id) = settled(whole, &q, failed()).await;
    faulty.pool.next(&[Fault::Held]);
    tokio::select! {
        requeued = whole.broker.message_requeue(&q, id, AT_ONCE) => panic!("it is not written: {requeued:?}"),
        () = until("nothing is written", async || faulty.pool.is_done()) => {}
    }
    let busy = whole.broker.message_requeue(&q, id, AT_ONCE).await.unwrap_err();
    assert!(matches!(busy, Error::Busy(_)), "{busy:?}");
    faulty.pool.release();
    assert_eq!(whole.claim_soon(&q, 1).await, [id]);
}

#[tokio::test(flavor = "multi_thread")]
async fn requeue_serves_waiting_claim() {
    let (whole, q) = (whole().await, queue("q"));
    let (_, id) = settled(&whole, &q, done("1")).await;
    let waiting = hold(&whole.broker, &q);
    let requeue = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        whole.broker.message_requeue(&q, id, AT_ONCE).await.unwrap();
    };
    let ((_, views), ()) = tokio::join!(waiting, requeue);
    assert_eq!(views[0].id, id);
}

#[tokio::test(flavor = "multi_thread")]
async fn requeued_fifo_message_keeps_its_place() {
    let (whole, q) = (whole().await, queue("steps.fifo"));
    whole.broker.queue_create(&q, metadata(r#"{"_fifo": true}"#)).await.unwrap();
    let ids = whole.post(&q, 3, 3_600).await;
    let claim = whole.broker.claim_create(&q, terms(300), limit(1)).await.unwrap();
    let (view, mut delivery_guard) = claim.unwrap();
    delivery_guard.done();
    settle_one(&whole.broker, &q, view.id, entry(ids[0], failed())).await.unwrap();
    // Kept, it blocks no group; parked, it does.
    whole.broker.message_requeue(&q, ids[0], Requeue::Never).await.unwrap();
    assert!(whole.claim(&q, 3, 300).await.is_empty());
    whole.broker.message_requeue(&q, ids[0], AT_ONCE).await.unwrap();
    assert_eq!(whole.claim_soon(&q, 3).await, ids);
}

#[tokio::test(flavor = "multi_thread")]
async fn earlier_claim_does_not_hold_requeued_message() {
    for restarts in [false, true] {
        let (lives, q) = (Lives::new(), queue("q"));
        let (mut whole, plan) = lives.whole().await;
        let (first, id) = settled(&whole, &q, failed()).await;
        whole.broker.message_requeue(&q, id, AT_ONCE).await.unwrap();
        let (second, views) = hold(&whole.broker, &q).await;
        assert_eq!(views[0].attempts, 1);
        if restarts {
            whole.broker.stop().await;
            drop((whole, plan));
            whole = lives.whole().await.0;
        }
        let refused = settle_one(&whole.broker, &q, first, forwarding(id, "next")).await;
        // A repeat of the first settle has its outcome, and forwards nothing.
        assert_eq!(refused.unwrap().state, MessageState::Failed);
        let refused = code(whole.broker.message_delete(&q, id, Some(first)).await);
        assert_eq!(refused, Some(ErrorCode::ClaimEnded));
        assert!(!whole.broker.queue_stats(&queue("next")).await.unwrap().exists);
        settle_one(&whole.broker, &q, second, forwarding(id, "next")).await.unwrap();
        assert_eq!(hold(&whole.broker, &queue("next")).await.1.len(), 1);
    }
}

/// The record of a claim with another message names the settled one until that other message leaves too.
#[tokio::test(flavor = "multi_thread")]
async fn record_of_earlier_claim_does_not_take_requeued_message_back() {
    for verdict in [done("1"), failed()] {
        let (lives, q) = (Lives::new(), queue("q"));
        let (whole, _) = lives.whole().await;
        let ids = [post_kept(&whole, &q).await, post_kept(&whole, &q).await];
        let (first, _) = hold(&whole.broker, &q).await;
        settle_one(&whole.broker, &q, first, entry(ids[0], verdict)).await.unwrap();
        whole.broker.message_requeue(&q, ids[0], AT_ONCE).await.unwrap();
        whole.broker.stop().await;
        drop(whole);
        let (whole, _) = lives.whole().await;
        let (_, views) = hold(&whole.broker, &q).await;
        assert_eq!(views.iter().map(|view| view.id).collect::<Vec<_>>(), [ids[0]]);
        let held = whole.broker.queue_stats(&q).await.unwrap();
        assert_eq!((held.claimed, held.free), (2, 0));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ends_of_claims_are_in_history() {
    let (whole, q) = (whole().await, queue("q"));
    let id = whole.post(&q, 1, 43_200).await[0];
    let release = async |claim| {
        whole.clock.advance(7_000);
        whole.broker.claim_release(&q, claim).await.unwrap();
    };
    // Nothing is written before the first use of outcomes.
    release(hold(&whole.broker, &q).await.0).await;
    assert_eq!(status(&whole.broker, &q, id).await.unwrap().extras, None);
    whole.broker.message_requeue(&q, id, AT_ONCE).await.unwrap();
    release(hold(&whole.broker, &q).await.0).await;
    hold(&whole.broker, &q).await;
    whole.clock.advance(300_000);
    let (claim, views) = hold(&whole.broker, &q).await;
    let history = &views[0].extras.as_ref().unwrap().history;
    let seen: Vec<_> = history
        .iter()
        .map(|event| (event.what, event.by.as_ref().map(|by| by.as_str()), event.seconds))
        .collect();
    let expected = [
        (EventKind::Requeued, None, 0),
        (EventKind::Released, Some("worker"), 7),
        (EventKind::Expired, Some("worker"), 300),
    ];
    assert_eq!(seen, expected);
    assert_eq!(history[2].at, whole.clock.now());
    // A claim that never reached its holder leaves no event.
    release(claim).await;
    drop(whole.broker.claim_create(&q, terms(300), limit(1)).await.unwrap());
    let stored = status(&whole.broker, &q, id).await.unwrap();
    let (_, views) = hold(&whole.broker, &q).await;
    let expected = [EventKind::Requeued, EventKind::Released, EventKind::Expired, EventKind::Released];
    assert_eq!(events(&views[0]), expected);
    assert_eq!(events(&views[0]), events(&stored), "memory has what the pool has");
}
