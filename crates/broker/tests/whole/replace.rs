//! Requeues with a new body: one message takes the place of another, in one step, in the pool that has it.

use angarium_broker::Destination;
use angarium_core::delay::Delay;
use angarium_core::error::{Error, ErrorCode};
use angarium_core::group::GroupName;
use angarium_core::ids::MessageId;
use angarium_core::message::NewMessage;
use angarium_core::names::{PoolName, QueueRef};
use angarium_core::outcome::{EventKind, Keep, Tags};
use angarium_core::settle::{MessageState, Requeue, Retry};

use super::deadletters::{FOR_EVER, Lives};
use super::faulty::Fault;
use super::migration::Pools;
use super::settle::{entry, fail, hold, settle_one, status};
use super::{Whole, metadata, queue, whole};

const AT_ONCE: Requeue = Requeue::At(Delay::Seconds(0));

fn message(body: &str) -> NewMessage {
    NewMessage {
        body: body.to_owned().into(),
        keep: Some(Keep::stored(3_600)),
        tags: Tags::new(vec!["eu".to_owned()], "tags").unwrap(),
        group: Some(GroupName::new("g", "group").unwrap()),
        ..NewMessage::default()
    }
}

impl Whole {
    async fn replace(&self, at: &QueueRef, id: MessageId, body: &str) -> Result<MessageId, Error> {
        self.broker.message_replace(at, id, AT_ONCE, body.to_owned().into()).await
    }

    /// Posts a message, and fails it for good.
    async fn post_failed(&self, at: &QueueRef) -> MessageId {
        let id = self.broker.messages_post(at, vec![message("\"old\"")], None).await.unwrap().ids[0];
        let (claim, _) = hold(&self.broker, at).await;
        settle_one(&self.broker, at, claim, entry(id, fail("no space", Retry::Never))).await.unwrap();
        id
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn replacement_has_fields_and_history_of_the_old_message() {
    let (whole, q) = (whole().await, queue("q"));
    let old = whole.post_failed(&q).await;
    whole.clock.advance(5_000);
    let new = whole.replace(&q, old, "\"new\"").await.unwrap();
    assert!(new > old);
    assert!(status(&whole.broker, &q, old).await.is_none());
    let view = status(&whole.broker, &q, new).await.unwrap();
    assert_eq!((view.state, view.attempts, view.age, view.ttl), (MessageState::Ready, 0, 0, 3_600));
    assert_eq!((&view.body[..], view.group.unwrap().as_str()), (&b"\"new\""[..], "g"));
    let extras = view.extras.unwrap();
    assert_eq!((extras.reason, extras.by, extras.keep), (None, None, Some(Keep::stored(3_600))));
    assert_eq!(extras.tags.as_slice(), ["eu"]);
    let events: Vec<_> = extras.history.iter().map(|event| event.what).collect();
    assert_eq!(events, [EventKind::Failed, EventKind::Requeued]);
    let (_, views) = hold(&whole.broker, &q).await;
    assert_eq!(
        views.iter().map(|view| (view.id, &view.body[..])).collect::<Vec<_>>(),
        [(new, &b"\"new\""[..])]
    );
    let stats = whole.broker.queue_stats(&q).await.unwrap();
    assert_eq!((stats.claimed, stats.free, stats.kept), (1, 0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_replacement_leaves_the_message() {
    let (whole, q) = (whole().await, queue("q"));
    whole.broker.queue_create(&q, metadata(r#"{"_max_messages_post_size": 100}"#)).await.unwrap();
    let ids = whole.post(&q, 2, 3_600).await;
    let code = |answer: Result<MessageId, Error>| answer.unwrap_err().error_code();
    let long = format!("\"{}\"", "x".repeat(99));
    assert_eq!(code(whole.replace(&q, ids[0], &long).await), ErrorCode::Invalid);
    assert_eq!(whole.claim(&q, 1, 300).await, ids[..1]);
    assert_eq!(code(whole.replace(&q, ids[0], "1").await), ErrorCode::Conflict);
    whole.broker.message_delete(&q, ids[1], None).await.unwrap();
    assert_eq!(code(whole.replace(&q, ids[1], "1").await), ErrorCode::NotFound);
    assert_eq!(code(whole.replace(&queue("missing"), ids[1], "1").await), ErrorCode::NotFound);
}

/// While the queue is in two pools, each message is replaced in the pool that has it, and others are posted and claimed.
#[tokio::test(flavor = "multi_thread")]
async fn replacements_during_migration_arrive_once() {
    let (pools, q) = (Pools::new(), queue("q"));
    let (whole, _) = pools.start().await;
    let old = whole.post(&q, 40, 3_600).await;
    let slow = Destination::new(PoolName::new("b").unwrap(), Some(40)).unwrap();
    whole.broker.queue_migrate(&q, slow).await.unwrap();
    let mut expected = Vec::new();
    for (number, id) in old.iter().rev().enumerate() {
        expected.extend(whole.post(&q, 1, 3_600).await);
        let new = loop {
            match whole.replace(&q, *id, "\"new\"").await {
                Ok(new) => break new,
                // It is just being copied.
                Err(error) => assert_eq!(error.error_code(), ErrorCode::Busy, "{number}: {error}"),
            }
        };
        expected.push(new);
    }
    whole.arrived(&q).await;
    assert_eq!(pools.held(&q).await, [0, 80]);
    assert_eq!(whole.drain(&q).await, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn interrupted_replacement_leaves_one_message() {
    for written in [0, 1] {
        let (lives, q) = (Lives::new(), queue("q"));
        let (first, plan) = lives.whole().await;
        let old = first.post_failed(&q).await;
        plan.next(&vec![Fault::NotSent; FOR_EVER]);
        plan.skip(written);
        let answer = first.replace(&q, old, "\"new\"").await;
        assert_eq!(answer.is_ok(), written == 1, "{answer:?}");
        first.broker.stop().await;
        let (second, _) = lives.whole().await;
        let stats = second.broker.queue_stats(&q).await.unwrap();
        assert_eq!((stats.free, stats.kept), (written as u64, 1 - written as u64));
        assert_eq!(status(&second.broker, &q, old).await.is_none(), written == 1);
        if let Ok(new) = answer {
            assert_eq!(second.claim(&q, 20, 300).await, [new]);
        }
    }
}
