//! Settles: each verdict, forwards, repeats, and the end of the process or of a write between any two steps.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use angarium_broker::{Broker, MessageStatus, MessageView};
use angarium_core::claim::{ClaimWait, Claimer};
use angarium_core::delay::Delay;
use angarium_core::error::{Error, ErrorCode};
use angarium_core::ids::{ClaimId, MessageId};
use angarium_core::limits::Limits;
use angarium_core::message::{MessageTtl, NewMessage};
use angarium_core::names::{QueueName, QueueRef};
use angarium_core::outcome::{EventKind, Holder, Keep, Meta, Outcome, Reason, Tags};
use angarium_core::settle::{Forward, MessageState, Retry, SettleEntry, Settled, Verdict};
use serde_json::value::RawValue;

use super::deadletters::Lives;
use super::faulty::Fault;
use super::outcomes::faulty;
use super::{MAX_WAIT, Whole, limit, metadata, queue, terms, whole};

pub(super) const DONE: Verdict = Verdict::Done { result: None };

pub(super) fn name(name: &str) -> QueueName {
    QueueName::new(name).unwrap()
}

pub(super) fn entry(id: MessageId, verdict: Verdict) -> SettleEntry {
    SettleEntry { id, verdict, forwards: Vec::new(), meta: None }
}

pub(super) fn forward(target: &str) -> Forward {
    Forward {
        target: name(target),
        body: "\"next\"".into(),
        delay: None,
        ttl: None,
        group: None,
        tags: Tags::default(),
        keep: None,
    }
}

pub(super) fn forwarding(id: MessageId, target: &str) -> SettleEntry {
    SettleEntry { forwards: vec![forward(target)], ..entry(id, DONE) }
}

pub(super) fn fail(reason: &str, retry: Retry) -> Verdict {
    Verdict::Fail { reason: Some(Reason::new(reason, "reason").unwrap()), retry }
}

pub(super) fn result(json: &str) -> Verdict {
    let text = RawValue::from_string(json.to_owned()).unwrap();
    Verdict::Done { result: Some(Outcome::new(&text, "result").unwrap()) }
}

/// Claims up to 20 messages as a holder with a name.
pub(super) async fn hold(broker: &Broker, at: &QueueRef) -> (ClaimId, Vec<MessageView>) {
    let begun = Instant::now();
    loop {
        let claimer = Claimer { by: Some(Holder::new("worker", "by").unwrap()), ..Claimer::default() };
        let claim =
            broker.claim_wait(at, terms(300), limit(20), ClaimWait::default(), claimer).await.unwrap();
        if let Some((view, mut delivery_guard)) = claim {
            delivery_guard.done();
            return (view.id, view.messages);
        }
        assert!(begun.elapsed() < MAX_WAIT, "there is nothing to claim in {}", at.name);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

pub(super) async fn settle_one(
    broker: &Broker,
    at: &QueueRef,
    claim: ClaimId,
    entry: SettleEntry,
) -> Result<Settled, Error> {
    broker.messages_settle(at, claim, vec![entry]).await?.into_iter().next().unwrap()
}

/// Posts one message that is kept for an hour, and claims it.
async fn held_message(whole: &Whole, at: &QueueRef) -> (ClaimId, MessageId) {
    let message = NewMessage {
        body: "\"x\"".into(),
        keep: Some(Keep::stored(3_600)),
        tags: Tags::new(vec!["a".to_owned()], "tags").unwrap(),
        ..NewMessage::default()
    };
    let ids = whole.broker.messages_post(at, vec![message], None).await.unwrap().ids;
    let (claim, views) = hold(&whole.broker, at).await;
    assert_eq!(views.iter().map(|view| view.id).collect::<Vec<_>>(), ids);
    (claim, ids[0])
}

pub(super) async fn status(broker: &Broker, at: &QueueRef, id: MessageId) -> Option<MessageView> {
    match broker.message_status(at, id, ClaimWait::default()).await {
        Ok(MessageStatus::Here(view)) => Some(*view),
        Ok(MessageStatus::Transferred { .. }) => None,
        Err(error) => {
            assert_eq!(error.error_code(), ErrorCode::NotFound);
            None
        }
    }
}

async fn claims(whole: &Whole, at: &QueueRef) -> u64 {
    whole.broker.queue_stats(at).await.unwrap().claimed
}

#[tokio::test(flavor = "multi_thread")]
async fn done_message_is_removed_with_its_claim() {
    let (whole, q) = (whole().await, queue("q"));
    whole.post(&q, 2, 3_600).await;
    let (claim, views) = hold(&whole.broker, &q).await;
    let entries = views.iter().map(|view| entry(view.id, DONE)).collect();
    let results = whole.broker.messages_settle(&q, claim, entries).await.unwrap();
    for result in results {
        assert_eq!(result.unwrap(), Settled { state: MessageState::Done, ids: vec![] });
    }
    assert!(status(&whole.broker, &q, views[0].id).await.is_none());
    assert_eq!(claims(&whole, &q).await, 0);
    assert!(whole.broker.claim_get(&q, claim).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn kept_message_has_its_result_until_its_end() {
    let (whole, q) = (whole().await, queue("q"));
    let (claim, id) = held_message(&whole, &q).await;
    let text = RawValue::from_string("{\"a\":1}".to_owned()).unwrap();
    let settle =
        SettleEntry { meta: Some(Meta::new(&text, "meta").unwrap()), ..entry(id, result("{\"pages\":12}")) };
    assert_eq!(settle_one(&whole.broker, &q, claim, settle).await.unwrap().state, MessageState::Done);
    let view = status(&whole.broker, &q, id).await.unwrap();
    let extras = view.extras.unwrap();
    assert_eq!(view.state, MessageState::Done);
    assert_eq!(extras.result.unwrap().as_bytes(), &"{\"pages\":12}");
    assert_eq!(extras.meta.unwrap().as_bytes(), &"{\"a\":1}");
    assert_eq!(extras.by.unwrap().as_str(), "worker");
    assert_eq!(extras.tags.as_slice(), ["a"]);
    assert_eq!(whole.broker.message_get(&q, id).await.unwrap_err().error_code(), ErrorCode::NotFound);
    let stats = whole.broker.queue_stats(&q).await.unwrap();
    assert_eq!((stats.free, stats.claimed), (0, 0));
    assert!(whole.claim(&q, 10, 60).await.is_empty());
    whole.clock.advance(3_601_000);
    assert!(status(&whole.broker, &q, id).await.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn result_of_message_not_kept_is_refused() {
    let (whole, q) = (whole().await, queue("q"));
    whole.post(&q, 1, 3_600).await;
    let (claim, views) = hold(&whole.broker, &q).await;
    let refused = settle_one(&whole.broker, &q, claim, entry(views[0].id, result("1"))).await.unwrap_err();
    assert_eq!(refused.error_code(), ErrorCode::Invalid);
    assert_eq!(claims(&whole, &q).await, 1);
    settle_one(&whole.broker, &q, claim, entry(views[0].id, DONE)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn forward_has_defaults_of_its_target() {
    let (whole, q, target) = (whole().await, queue("q"), queue("next"));
    let attributes = metadata(r#"{"_default_message_ttl": 120, "_default_message_delay": 5}"#);
    whole.broker.queue_create(&target, attributes).await.unwrap();
    whole.post(&q, 1, 3_600).await;
    let (claim, views) = hold(&whole.broker, &q).await;
    let now = forward("next");
    let own = Forward {
        delay: Some(0),
        ttl: Some(MessageTtl::new(600, "ttl", &Limits::ZAQAR).unwrap()),
        tags: Tags::new(vec!["t".to_owned()], "tags").unwrap(),
        ..forward("next")
    };
    let settle = SettleEntry { forwards: vec![now, own], ..entry(views[0].id, DONE) };
    let settled = settle_one(&whole.broker, &q, claim, settle).await.unwrap();
    assert_eq!(settled.ids.len(), 2);
    let (_, at_once) = hold(&whole.broker, &target).await;
    assert_eq!(at_once.iter().map(|view| view.id).collect::<Vec<_>>(), [settled.ids[1]]);
    assert_eq!((at_once[0].ttl, &at_once[0].body), (600, &"\"next\"".into()));
    assert_eq!(at_once[0].extras.as_ref().unwrap().tags.as_slice(), ["t"]);
    let delayed = status(&whole.broker, &target, settled.ids[0]).await.unwrap();
    assert_eq!((delayed.state, delayed.ttl), (MessageState::Delayed, 120));
    whole.clock.advance(5_000);
    assert_eq!(whole.claim_soon(&target, 10).await, [settled.ids[0]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_target_is_created_by_its_name() {
    let (whole, q) = (whole().await, queue("q"));
    whole.post(&q, 2, 3_600).await;
    let (claim, views) = hold(&whole.broker, &q).await;
    for (view, target) in views.iter().zip(["plain", "steps.fifo"]) {
        let settled = settle_one(&whole.broker, &q, claim, forwarding(view.id, target)).await.unwrap();
        let (_, arrived) = hold(&whole.broker, &queue(target)).await;
        assert_eq!(arrived[0].id, settled.ids[0]);
        assert_eq!(arrived[0].group.is_some(), target.ends_with(".fifo"), "{target}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn forward_to_its_own_queue_is_posted() {
    let (whole, q) = (whole().await, queue("q"));
    whole.post(&q, 1, 3_600).await;
    let (claim, views) = hold(&whole.broker, &q).await;
    let settled = settle_one(&whole.broker, &q, claim, forwarding(views[0].id, "q")).await.unwrap();
    let (_, next) = hold(&whole.broker, &q).await;
    assert_eq!(next.iter().map(|view| view.id).collect::<Vec<_>>(), settled.ids);
}

#[tokio::test(flavor = "multi_thread")]
async fn moved_message_keeps_its_id_and_restarts_attempts() {
    let (whole, q, target) = (whole().await, queue("q"), queue("next"));
    let (claim, id) = held_message(&whole, &q).await;
    let moved = Verdict::Move { target: name("next"), delay: Some(0) };
    let settled = settle_one(&whole.broker, &q, claim, entry(id, moved)).await.unwrap();
    assert_eq!(settled.state, MessageState::InTransfer);
    let (_, arrived) = hold(&whole.broker, &target).await;
    assert_eq!((arrived[0].id, arrived[0].attempts), (id, 1));
    assert!(arrived[0].grant > 1, "an old number is not used again");
    let extras = arrived[0].extras.as_ref().unwrap();
    assert_eq!(extras.tags.as_slice(), ["a"]);
    assert_eq!(extras.history.iter().map(|event| event.what).collect::<Vec<_>>(), [EventKind::Moved]);
    assert!(arrived[0].envelope.is_none(), "it is no dead letter");
}

#[tokio::test(flavor = "multi_thread")]
async fn move_to_own_queue_makes_message_available() {
    let (whole, q) = (whole().await, queue("q"));
    let (claim, id) = held_message(&whole, &q).await;
    let moved = Verdict::Move { target: name("q"), delay: None };
    assert_eq!(
        settle_one(&whole.broker, &q, claim, entry(id, moved)).await.unwrap().state,
        MessageState::Ready
    );
    let (_, again) = hold(&whole.broker, &q).await;
    assert_eq!((again[0].id, again[0].attempts), (id, 1));
    assert!(again[0].grant > 1, "an old number is not used again");
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_message_returns_after_its_delay() {
    let (whole, q) = (whole().await, queue("q"));
    whole.broker.queue_create(&q, metadata(r#"{"_backoff": {"first": 30}}"#)).await.unwrap();
    let (claim, id) = held_message(&whole, &q).await;
    let settled = settle_one(&whole.broker, &q, claim, entry(id, fail("no space", Retry::Backoff))).await;
    assert_eq!(settled.unwrap().state, MessageState::Delayed);
    assert!(whole.claim(&q, 1, 60).await.is_empty());
    whole.clock.advance(30_000);
    let (claim, again) = hold(&whole.broker, &q).await;
    assert_eq!((again[0].id, again[0].attempts), (id, 2));
    let event = &again[0].extras.as_ref().unwrap().history[0];
    assert_eq!(event.what, EventKind::Failed);
    assert_eq!(event.reason.as_ref().unwrap().as_str(), "no space");
    assert_eq!(event.by.as_ref().unwrap().as_str(), "worker");
    let settled = settle_one(&whole.broker, &q, claim, entry(id, fail("again", Retry::After(0)))).await;
    assert_eq!(settled.unwrap().state, MessageState::Ready);
    assert_eq!(whole.claim(&q, 1, 60).await, [id]);
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_message_without_attempts_is_dead_letter() {
    let (whole, q) = (whole().await, queue("q"));
    let attributes = metadata(r#"{"_dead_letter_queue": "dead", "_max_claim_count": 2}"#);
    whole.broker.queue_create(&q, attributes).await.unwrap();
    let (claim, id) = held_message(&whole, &q).await;
    let settled = settle_one(&whole.broker, &q, claim, entry(id, fail("one", Retry::Backoff))).await.unwrap();
    assert_eq!(settled.state, MessageState::Ready);
    let (claim, _) = hold(&whole.broker, &q).await;
    let settled = settle_one(&whole.broker, &q, claim, entry(id, fail("two", Retry::Backoff))).await.unwrap();
    assert_eq!(settled.state, MessageState::InTransfer);
    let (_, dead) = hold(&whole.broker, &queue("dead")).await;
    assert_eq!(dead[0].id, id);
    assert_eq!(dead[0].extras.as_ref().unwrap().reason.as_ref().unwrap().as_str(), "two");
    assert_eq!(dead[0].envelope.as_ref().unwrap().attempts, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn message_failed_for_good_is_kept() {
    let (whole, q) = (whole().await, queue("q"));
    let ids = whole.post(&q, 1, 600).await;
    let (claim, _) = hold(&whole.broker, &q).await;
    let settled =
        settle_one(&whole.broker, &q, claim, entry(ids[0], fail("no", Retry::Never))).await.unwrap();
    assert_eq!(settled.state, MessageState::Failed);
    let view = status(&whole.broker, &q, ids[0]).await.unwrap();
    assert_eq!((view.state, view.extras.unwrap().reason.unwrap().as_str()), (MessageState::Failed, "no"));
    whole.clock.advance(599_000);
    assert!(status(&whole.broker, &q, ids[0]).await.is_some(), "for the rest of its life");
    whole.clock.advance(2_000);
    assert!(status(&whole.broker, &q, ids[0]).await.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn deferred_message_has_no_attempt_and_a_new_number() {
    let (whole, q) = (whole().await, queue("q"));
    let (claim, id) = held_message(&whole, &q).await;
    let defer = Verdict::Defer { delay: Delay::Seconds(10) };
    assert_eq!(
        settle_one(&whole.broker, &q, claim, entry(id, defer)).await.unwrap().state,
        MessageState::Delayed
    );
    whole.clock.advance(10_000);
    let (_, again) = hold(&whole.broker, &q).await;
    assert_eq!((again[0].id, again[0].attempts), (id, 1));
    assert!(again[0].grant > 1, "an old number is not used again");
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_settle_has_the_same_outcome() {
    let (whole, q) = (whole().await, queue("q"));
    let ids = whole.post(&q, 1, 3_600).await;
    let (claim, _) = hold(&whole.broker, &q).await;
    let first = settle_one(&whole.broker, &q, claim, forwarding(ids[0], "next")).await.unwrap();
    for _ in 0..2 {
        let again = settle_one(&whole.broker, &q, claim, forwarding(ids[0], "next")).await.unwrap();
        assert_eq!(again, first);
    }
    let other = settle_one(&whole.broker, &q, ClaimId::NONE, forwarding(ids[0], "next")).await;
    assert_eq!(other.unwrap_err().error_code(), ErrorCode::NotFound);
    let (_, arrived) = hold(&whole.broker, &queue("next")).await;
    assert_eq!(arrived.len(), 1);
    whole.clock.advance(300_000);
    let late = settle_one(&whole.broker, &q, claim, forwarding(ids[0], "next")).await;
    assert_eq!(late.unwrap_err().error_code(), ErrorCode::NotFound);
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_claim_settles_and_forwards_nothing() {
    let (whole, q) = (whole().await, queue("q"));
    let ids = whole.post(&q, 1, 43_200).await;
    let (claim, _) = hold(&whole.broker, &q).await;
    whole.clock.advance(300_000);
    let refused = settle_one(&whole.broker, &q, claim, forwarding(ids[0], "next")).await.unwrap_err();
    assert_eq!(refused.error_code(), ErrorCode::NotFound);
    assert_eq!(whole.claim_soon(&q, 1).await, ids);
    assert!(!whole.broker.queue_stats(&queue("next")).await.unwrap().exists);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_two_settles_at_once_wins() {
    let (whole, q) = (whole().await, queue("q"));
    for _ in 0..20 {
        let ids = whole.post(&q, 1, 3_600).await;
        let (claim, _) = hold(&whole.broker, &q).await;
        let one = settle_one(&whole.broker, &q, claim, forwarding(ids[0], "one"));
        let other = settle_one(&whole.broker, &q, claim, forwarding(ids[0], "one"));
        let (one, other) = tokio::join!(one, other);
        assert_eq!(one.unwrap(), other.unwrap(), "the second is a repeat");
    }
    let begun = Instant::now();
    while whole.broker.queue_stats(&queue("one")).await.unwrap().ready() < 20 {
        assert!(begun.elapsed() < MAX_WAIT);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(whole.broker.queue_stats(&queue("one")).await.unwrap().free, 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn settle_in_fifo_queue_frees_its_group() {
    let (whole, q) = (whole().await, queue("steps.fifo"));
    whole.broker.queue_create(&q, metadata(r#"{"_fifo": true}"#)).await.unwrap();
    let ids = whole.post(&q, 3, 3_600).await;
    for (id, verdict) in [
        (ids[0], DONE),
        (ids[1], fail("no", Retry::Never)),
        (ids[2], Verdict::Move { target: name("other.fifo"), delay: None }),
    ] {
        let claim = whole.broker.claim_create(&q, terms(300), limit(1)).await.unwrap();
        let (view, mut delivery_guard) = claim.expect("the group is free");
        delivery_guard.done();
        assert_eq!(view.messages[0].id, id);
        let settle = SettleEntry { forwards: vec![forward("next")], ..entry(id, verdict) };
        settle_one(&whole.broker, &q, view.id, settle).await.unwrap();
    }
    assert!(whole.claim(&q, 1, 60).await.is_empty());
    let (_, moved) = hold(&whole.broker, &queue("other.fifo")).await;
    assert_eq!(moved[0].id, ids[2]);
    // Their name alone tells the kind of the new queues.
    let (_, forwarded) = hold(&whole.broker, &queue("next")).await;
    assert!(moved[0].group.is_some() && forwarded[0].group.is_none());
    assert!(
        whole.broker.queue_metadata(&queue("next")).await.unwrap().is_some_and(|it| !it.attributes().is_fifo)
    );
}

/// What a broker that starts after an interrupted settle finds, by the fault.
#[tokio::test(flavor = "multi_thread")]
async fn interrupted_settle_is_whole_or_absent_after_restart() {
    for fault in [Fault::NotSent, Fault::UnknownBefore, Fault::UnknownAfter] {
        for repeats in [1, super::deadletters::FOR_EVER] {
            let lives = Lives::new();
            let (q, next) = (queue("q"), queue("next"));
            let (whole, plan) = lives.whole().await;
            let (claim, id) = held_message(&whole, &q).await;
            plan.next(&vec![fault; repeats.min(200)]);
            let settle = || forwarding(id, "next");
            let first = settle_one(&whole.broker, &q, claim, settle()).await;
            whole.broker.stop().await;
            drop(whole);
            let (whole, _) = lives.whole().await;
            let again = settle_one(&whole.broker, &q, claim, settle()).await.unwrap();
            if let Ok(first) = first {
                assert_eq!(again, first, "{fault:?}");
            }
            let (_, arrived) = hold(&whole.broker, &next).await;
            assert_eq!(arrived.iter().map(|view| view.id).collect::<Vec<_>>(), again.ids, "{fault:?}");
            assert_eq!(status(&whole.broker, &q, id).await.unwrap().state, MessageState::Done);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn returned_message_stays_in_one_place_through_faults_of_tree() {
    for fault in [Fault::NotSent, Fault::UnknownBefore, Fault::UnknownAfter] {
        let faulty = faulty().await;
        let (whole, q) = (&faulty.whole, queue("q"));
        // Nothing else writes to the tree meanwhile: the forward does not create its queue, the post has raised the form of
        // the records, and no claim was settled before whose record would be removed.
        whole.broker.queue_create(&queue("next"), metadata("{}")).await.unwrap();
        let (claim, id) = held_message(whole, &q).await;
        faulty.tree.next(&[fault]);
        let settle =
            || SettleEntry { forwards: vec![forward("next")], ..entry(id, fail("x", Retry::After(0))) };
        let outcome = settle_one(&whole.broker, &q, claim, settle()).await;
        assert!(outcome.is_err(), "{fault:?}");
        let begun = Instant::now();
        // A repeat completes it, and forwards nothing more.
        let settled = loop {
            match settle_one(&whole.broker, &q, claim, settle()).await {
                Ok(settled) => break settled,
                Err(error) => assert!(begun.elapsed() < MAX_WAIT, "{fault:?}: {error}"),
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        };
        assert_eq!(settled.ids.len(), 1);
        let (_, again) = hold(&whole.broker, &q).await;
        assert_eq!((again[0].id, again[0].attempts), (id, 2), "{fault:?}");
        let (_, arrived) = hold(&whole.broker, &queue("next")).await;
        assert_eq!(arrived.len(), 1, "{fault:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn settle_is_refused_while_an_entry_cannot_be() {
    let (whole, q) = (whole().await, queue("q"));
    let ids = whole.post(&q, 3, 3_600).await;
    let (claim, _) = hold(&whole.broker, &q).await;
    let unknown = MessageId::from_bytes([7; 16]);
    let entries = vec![entry(ids[0], DONE), entry(unknown, DONE), entry(ids[2], fail("x", Retry::Backoff))];
    let results = whole.broker.messages_settle(&q, claim, entries).await.unwrap();
    let codes: Vec<_> = results
        .iter()
        .map(|result| result.as_ref().map(|settled| settled.state).map_err(Error::error_code))
        .collect();
    assert_eq!(codes, [Ok(MessageState::Done), Err(ErrorCode::NotFound), Ok(MessageState::Ready)]);
    assert_eq!(claims(&whole, &q).await, 1, "the claim holds the message that was not named");
    assert_eq!(whole.claim(&q, 10, 60).await, [ids[2]]);
}

/// Restarts after each settle, and counts the messages of each queue against a model.
#[tokio::test(flavor = "multi_thread")]
async fn chain_of_forwards_survives_restarts() {
    let lives = Lives::new();
    let q = queue("chain");
    let (whole, _) = lives.whole().await;
    whole.post(&q, 1, 43_200).await;
    whole.broker.stop().await;
    drop(whole);
    let mut seen = BTreeMap::new();
    for step in 0..12_u32 {
        let (whole, plan) = lives.whole().await;
        let (claim, views) = hold(&whole.broker, &q).await;
        assert_eq!(views.len(), 1, "step {step}");
        *seen.entry(views[0].id).or_insert(0) += 1;
        if step % 3 == 1 {
            plan.next(&[Fault::UnknownAfter]);
        }
        let settled = settle_one(&whole.broker, &q, claim, forwarding(views[0].id, "other")).await.unwrap();
        let other = queue("other");
        let (claim, views) = hold(&whole.broker, &other).await;
        assert_eq!(views[0].id, settled.ids[0]);
        settle_one(&whole.broker, &other, claim, forwarding(views[0].id, "chain")).await.unwrap();
        whole.broker.stop().await;
    }
    assert!(seen.len() == 12 && seen.values().all(|times| *times == 1));
}
