//! Explanations of messages: one test for each state.

use angarium_broker::{GroupBlocker, MessageExplanation};
use angarium_core::access::Role;
use angarium_core::delay::Delay;
use angarium_core::error::ErrorCode;
use angarium_core::ids::MessageId;
use angarium_core::message::NewMessage;
use angarium_core::names::QueueRef;
use angarium_core::outcome::Keep;
use angarium_core::settle::{MessageState, Requeue, Retry};
use angarium_core::time::Timestamp;

use super::deadletters::{ONCE, claim_once};
use super::groups::{in_group, ordered};
use super::settle::{DONE, entry, fail, hold, settle_one};
use super::{Whole, metadata, queue, whole};

const START: Timestamp = Timestamp::from_millis(1_700_000_000_000);

async fn explain(whole: &Whole, at: &QueueRef, id: MessageId) -> MessageExplanation {
    whole.broker.message_explain(at, id, Role::Admin).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_message_and_queue_are_not_found() {
    let (whole, at) = (whole().await, queue("q"));
    let ids = whole.post(&at, 1, 3_600).await;
    whole.broker.message_delete(&at, ids[0], None).await.unwrap();
    for name in ["q", "other"] {
        let refused = whole.broker.message_explain(&queue(name), ids[0], Role::Admin).await.unwrap_err();
        assert_eq!(refused.error_code(), ErrorCode::NotFound, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ready_message_is_explained() {
    let (whole, at) = (whole().await, queue("q"));
    let ids = whole.post(&at, 1, 3_600).await;
    let explained = explain(&whole, &at, ids[0]).await;
    assert_eq!((explained.view.state, explained.since), (MessageState::Ready, Some(START)));
    assert_eq!(explained.says, "It is ready and can be claimed now, after older messages.");
}

#[tokio::test(flavor = "multi_thread")]
async fn delayed_message_is_explained() {
    let (whole, at) = (whole().await, queue("q"));
    let message = NewMessage { body: "1".into(), delay: Some(Delay::Seconds(30)), ..NewMessage::default() };
    let ids = whole.broker.messages_post(&at, vec![message], None).await.unwrap().ids;
    let explained = explain(&whole, &at, ids[0]).await;
    assert_eq!((explained.view.state, explained.since), (MessageState::Delayed, Some(START)));
    assert_eq!(explained.says, "It is delayed: a client can claim it from 2023-11-14T22:13:50Z on.");
    whole.broker.message_requeue(&at, ids[0], Requeue::Never).await.unwrap();
    let said = explain(&whole, &at, ids[0]).await.says;
    assert_eq!(said, "It is parked: a client can claim it after a requeue.");
}

#[tokio::test(flavor = "multi_thread")]
async fn claimed_message_is_explained() {
    let (whole, at) = (whole().await, queue("q"));
    let ids = whole.post(&at, 1, 3_600).await;
    whole.clock.advance(10_000);
    let (claim, _) = hold(&whole.broker, &at).await;
    let explained = explain(&whole, &at, ids[0]).await;
    assert_eq!(
        (explained.view.state, explained.since),
        (MessageState::Claimed, Some(START.plus_seconds(10)))
    );
    assert_eq!(
        explained.says,
        "It is claimed by \"worker\" until 2023-11-14T22:18:30Z: its holder deletes it, gives it back, or lets the claim \
         expire, and then the next claim can get it."
    );
    assert!(!explained.says.contains(&claim.to_string()), "a reader must not become able to delete");
    // Before the first message with an outcome the end of a claim is noted nowhere.
    whole.broker.claim_release(&at, claim).await.unwrap();
    let explained = explain(&whole, &at, ids[0]).await;
    assert_eq!((explained.view.state, explained.since), (MessageState::Ready, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn released_message_is_ready_since_its_release() {
    let (whole, at) = (whole().await, queue("q"));
    let message = NewMessage { body: "1".into(), keep: Some(Keep::stored(60)), ..NewMessage::default() };
    let ids = whole.broker.messages_post(&at, vec![message], None).await.unwrap().ids;
    let (claim, _) = hold(&whole.broker, &at).await;
    whole.clock.advance(20_000);
    whole.broker.claim_release(&at, claim).await.unwrap();
    whole.clock.advance(20_000);
    let explained = explain(&whole, &at, ids[0]).await;
    assert_eq!((explained.view.state, explained.since), (MessageState::Ready, Some(START.plus_seconds(20))));
}

#[tokio::test(flavor = "multi_thread")]
async fn message_before_its_dead_letter_queue_is_explained() {
    let (whole, at) = (whole().await, queue("q"));
    whole.broker.queue_create(&at, metadata(ONCE)).await.unwrap();
    let ids = whole.post(&at, 1, 3_600).await;
    claim_once(&whole, &at).await;
    assert_eq!(
        explain(&whole, &at, ids[0]).await.says,
        "It is ready, but it was claimed once, as often as its queue allows: the next claim moves it to queue dead, and a \
         client can claim it there."
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn message_behind_its_group_is_explained() {
    let (whole, at) = ordered().await;
    let messages = vec![in_group("a", "1"), in_group("a", "2")];
    let ids = whole.broker.messages_post(&at, messages, None).await.unwrap().ids;
    assert_eq!(explain(&whole, &at, ids[1]).await.facts.blocker, None);
    assert_eq!(whole.claim(&at, 1, 300).await, ids[..1]);
    let explained = explain(&whole, &at, ids[1]).await;
    assert_eq!(explained.facts.blocker, Some(GroupBlocker::Claimed(ids[0])));
    let expected = format!(
        "It is ready, but it follows an earlier message of its group, {}, which is claimed: it can be claimed once that \
         one is deleted or given back, and after it if it stays in the queue.",
        ids[0]
    );
    assert_eq!(explained.says, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn kept_messages_are_explained() {
    let (whole, at) = (whole().await, queue("q"));
    let keep = Some(Keep::stored(3_600));
    for (verdict, state) in [(DONE, "done"), (fail("broken", Retry::Never), "failed")] {
        let message = NewMessage { body: "1".into(), keep, ..NewMessage::default() };
        let ids = whole.broker.messages_post(&at, vec![message], None).await.unwrap().ids;
        let (claim, _) = hold(&whole.broker, &at).await;
        settle_one(&whole.broker, &at, claim, entry(ids[0], verdict)).await.unwrap();
        let explained = explain(&whole, &at, ids[0]).await;
        assert_eq!((explained.view.state.as_str(), explained.since), (state, Some(START)));
        let expected = format!(
            "It is {state} and is kept until 2023-11-14T23:13:20Z: no claim gets it unless a requeue makes it ready again."
        );
        assert_eq!(explained.says, expected);
    }
}
