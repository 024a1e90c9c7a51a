//! The bounds of subscriptions: copies within them, and each message beyond them counted.

use angarium_broker::{BacklogView, NewSubscription};
use angarium_core::error::Error;
use angarium_core::group::DedupId;
use angarium_core::ids::{MessageId, SubscriptionId};
use angarium_core::message::NewMessage;
use angarium_core::names::{ProjectId, QueueRef};
use angarium_core::overflow::{Gap, Omissions};
use angarium_core::quota::Quota;
use angarium_core::subscription::SubscriptionChange;
use futures_util::future::{join, join_all};

use super::deadletters::{FOR_EVER, Lives};
use super::explain::explain;
use super::faulty::Fault;
use super::groups::in_group;
use super::outcomes::faulty;
use super::quotas::Bounded;
use super::subscriptions::{new, options};
use super::transfers::until;
use super::{Whole, limit, metadata, queue, terms, whole};

/// Subscribes with these bounds. Returns the id, and the queue of the subscription.
pub(super) async fn bounded(
    whole: &Whole,
    at: &QueueRef,
    subscriber: &str,
    json: &str,
) -> (SubscriptionId, QueueRef) {
    let subscription = NewSubscription { options: options(json), ..new(subscriber) };
    let id = whole.broker.subscription_create(at, subscription).await.unwrap().id;
    (id, at.of_subscription(id))
}

pub(super) async fn change(
    whole: &Whole,
    at: &QueueRef,
    id: SubscriptionId,
    json: &str,
) -> Result<(), Error> {
    let change = SubscriptionChange { options: Some(options(json)), ..SubscriptionChange::default() };
    whole.broker.subscription_change(at, id, change).await
}

pub(super) async fn backlog(whole: &Whole, at: &QueueRef, id: SubscriptionId) -> BacklogView {
    whole.broker.subscription_get(at, id).await.unwrap().backlog.unwrap()
}

/// Whether a suspension has ended, and the rest of its gap is copied, which happens a moment later.
async fn has_resumed(whole: &Whole, at: &QueueRef, id: SubscriptionId) -> bool {
    let view = backlog(whole, at, id).await;
    !view.is_suspended && !view.is_filling
}

pub(super) async fn stored(whole: &Whole, at: &QueueRef) -> u64 {
    let stats = whole.broker.queue_stats(at).await.unwrap();
    stats.free + stats.claimed + stats.delayed + stats.in_transfer
}

fn with_body(body: impl Into<String>) -> NewMessage {
    NewMessage { body: body.into().into(), ..NewMessage::default() }
}

pub(super) async fn post(whole: &Whole, at: &QueueRef, bodies: &[usize]) -> Result<Vec<MessageId>, Error> {
    let messages = bodies.iter().map(|body| with_body(body.to_string())).collect();
    Ok(whole.broker.messages_post(at, messages, None).await?.ids)
}

/// Claims messages. Returns their bodies, and deletes them.
pub(super) async fn take(whole: &Whole, at: &QueueRef, messages: i64) -> Vec<usize> {
    let claim = whole.broker.claim_create(at, terms(300), limit(messages)).await.unwrap();
    let Some((view, mut guard)) = claim else { return Vec::new() };
    guard.done();
    for message in &view.messages {
        whole.broker.message_delete(at, message.id, Some(view.id)).await.unwrap();
    }
    let body = |body: &[u8]| std::str::from_utf8(body).unwrap().parse().unwrap();
    view.messages.iter().map(|message| body(&message.body)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn full_subscription_is_suspended_until_it_has_room() {
    let lives = Lives::new();
    let (whole, _) = lives.whole().await;
    let q = queue("q");
    let (id, own) = bounded(&whole, &q, "pull:", r#"{"max_messages": 10}"#).await;
    let (_, other) = whole.subscribe(&q, "pull:other").await;
    post(&whole, &q, &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]).await.unwrap();
    assert!(!backlog(&whole, &q, id).await.is_suspended);
    let since = whole.clock.now();
    let first = post(&whole, &q, &[10, 11]).await.unwrap();
    whole.clock.advance(1_000);
    let last = post(&whole, &q, &[12]).await.unwrap();
    assert_eq!(
        (stored(&whole, &q).await, stored(&whole, &own).await, stored(&whole, &other).await),
        (13, 10, 13)
    );
    let gap = Gap { since, first: first[0], last: last[0], messages: 3 };
    let view = backlog(&whole, &q, id).await;
    assert_eq!((view.is_suspended, view.omissions.left_out, view.omissions.gap), (true, 3, Some(gap)));
    let text = explain(&whole, &q).await.says;
    assert!(text.contains(&format!("subscription {id} is full and gets no copies")), "{text}");
    let text = explain(&whole, &own).await.says;
    assert!(text.contains(&format!("3 messages were left out, the first is {}", first[0])), "{text}");
    // The next owner of the slot finds it so.
    drop(whole);
    let (whole, _) = lives.whole().await;
    let view = backlog(&whole, &q, id).await;
    assert_eq!((view.is_suspended, view.omissions.gap), (true, Some(gap)));
    post(&whole, &q, &[13]).await.unwrap();
    assert_eq!(backlog(&whole, &q, id).await.omissions.left_out, 4);
    assert_eq!(take(&whole, &own, 2).await, [0, 1]);
    // The copies are durable a moment before they are counted.
    let has_caught_up =
        async || stored(&whole, &own).await == 10 && backlog(&whole, &q, id).await.omissions.left_out == 2;
    until("it does not catch up", has_caught_up).await;
    let view = backlog(&whole, &q, id).await;
    assert_eq!((view.is_suspended, view.is_filling), (true, true), "it is full again");
    assert_eq!(take(&whole, &own, 20).await, [2, 3, 4, 5, 6, 7, 8, 9, 10, 11]);
    until("it does not catch up", async || has_resumed(&whole, &q, id).await).await;
    post(&whole, &q, &[14]).await.unwrap();
    assert_eq!(take(&whole, &own, 20).await, [12, 13, 14]);
    assert_eq!(backlog(&whole, &q, id).await.omissions, Omissions::default());
    assert_eq!(take(&whole, &other, 20).await.len(), 15);
}

#[tokio::test(flavor = "multi_thread")]
async fn oversized_message_drops_no_other() {
    let (whole, q) = (whole().await, queue("q"));
    let options = r#"{"max_bytes": 9, "overflow": "drop_oldest"}"#;
    let (id, own) = bounded(&whole, &q, "pull:", options).await;
    post(&whole, &q, &[1, 2, 3]).await.unwrap();
    whole.broker.messages_post(&q, vec![with_body("1".repeat(10))], None).await.unwrap();
    let view = backlog(&whole, &q, id).await;
    assert_eq!((view.omissions.left_out, view.omissions.dropped, view.is_suspended), (1, 0, false));
    assert_eq!(take(&whole, &own, 20).await, [1, 2, 3]);
}

#[tokio::test(flavor = "multi_thread")]
async fn oversized_post_is_left_out_whole() {
    let (whole, q) = (whole().await, queue("q"));
    let (id, own) = bounded(&whole, &q, "pull:", r#"{"max_messages": 4, "max_bytes": 30}"#).await;
    let ids = post(&whole, &q, &[0, 1, 2, 3, 4]).await.unwrap();
    let view = backlog(&whole, &q, id).await;
    assert_eq!((stored(&whole, &own).await, view.is_suspended), (0, false), "it is empty");
    assert_eq!((view.omissions.gap.unwrap().first, view.omissions.left_out), (ids[0], 5));
    post(&whole, &q, &[5, 6, 7]).await.unwrap();
    post(&whole, &q, &[8, 9]).await.unwrap();
    let has_caught_up =
        async || stored(&whole, &own).await == 4 && backlog(&whole, &q, id).await.omissions.left_out == 6;
    until("it does not catch up", has_caught_up).await;
    let view = backlog(&whole, &q, id).await;
    assert_eq!((view.is_suspended, view.omissions.gap.unwrap().messages), (true, 1));
    // Greater bounds take effect at once.
    change(&whole, &q, id, r#"{"max_messages": 6, "max_bytes": 30}"#).await.unwrap();
    until("it does not catch up", async || has_resumed(&whole, &q, id).await).await;
    post(&whole, &q, &[10]).await.unwrap();
    assert_eq!(take(&whole, &own, 20).await, [5, 6, 7, 8, 9, 10]);
    let view = backlog(&whole, &q, id).await;
    assert_eq!((view.omissions.left_out, view.omissions.gap), (5, None), "the first ones suspended nothing");
    whole.broker.messages_post(&q, vec![with_body("1".repeat(28))], None).await.unwrap();
    post(&whole, &q, &[11, 12]).await.unwrap();
    let view = backlog(&whole, &q, id).await;
    assert_eq!((view.is_suspended, view.omissions.left_out), (true, 7), "they have too many bytes");
}

/// The batch is applied, and its outcome is unknown: the slot is recovered.
#[tokio::test(flavor = "multi_thread")]
async fn omission_is_counted_with_message_in_doubt() {
    let lives = Lives::new();
    let (whole, plan) = lives.whole().await;
    let q = queue("q");
    let (id, own) = bounded(&whole, &q, "pull:", r#"{"max_messages": 2}"#).await;
    post(&whole, &q, &[0, 1]).await.unwrap();
    for faults in [[Fault::UnknownAfter; 6], [Fault::UnknownBefore; 6]] {
        plan.next(&faults);
        assert_eq!(post(&whole, &q, &[2]).await.unwrap_err().code(), "unknown_outcome");
        until("the slot is not recovered", async || whole.broker.subscription_get(&q, id).await.is_ok())
            .await;
        plan.clear();
        let view = backlog(&whole, &q, id).await;
        assert_eq!((stored(&whole, &q).await, view.omissions.left_out), (3, 1));
        assert_eq!(stored(&whole, &own).await, 2);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn oldest_copies_are_dropped_and_counted() {
    let (whole, q) = (whole().await, queue("q"));
    let (id, own) = bounded(&whole, &q, "pull:", r#"{"max_messages": 3, "overflow": "drop_oldest"}"#).await;
    post(&whole, &q, &[0, 1, 2, 3, 4]).await.unwrap();
    assert_eq!((stored(&whole, &own).await, backlog(&whole, &q, id).await.omissions.dropped), (3, 2));
    // A claimed copy stays.
    assert_eq!(whole.claim(&own, 1, 300).await.len(), 1);
    post(&whole, &q, &[5, 6]).await.unwrap();
    assert_eq!((stored(&whole, &own).await, backlog(&whole, &q, id).await.omissions.dropped), (3, 4));
    change(&whole, &q, id, r#"{"max_bytes": 2, "overflow": "drop_oldest"}"#).await.unwrap();
    post(&whole, &q, &[7]).await.unwrap();
    assert_eq!(take(&whole, &own, 20).await, [7]);
    let view = backlog(&whole, &q, id).await;
    assert_eq!((view.omissions.dropped, view.omissions.left_out, view.is_suspended), (6, 0, false));
    assert_eq!(stored(&whole, &q).await, 8, "the source keeps its messages");
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_posts_drop_no_copy_within_the_bounds() {
    let (whole, q) = (whole().await, queue("q"));
    let (id, own) = bounded(&whole, &q, "pull:", r#"{"max_messages": 7, "overflow": "drop_oldest"}"#).await;
    let (to, from) = (&whole, &own);
    let posts = (0..40).map(|body| async move { post(to, &queue("q"), &[body]).await.unwrap() });
    let takes = (0..5).map(|_| async { take(&whole, from, 2).await.len() });
    let (_, taken) = join(join_all(posts), join_all(takes)).await;
    post(&whole, &q, &[40]).await.unwrap();
    let taken = u64::try_from(taken.iter().sum::<usize>()).unwrap();
    let dropped = backlog(&whole, &q, id).await.omissions.dropped;
    let left = stored(&whole, &own).await;
    assert!(left <= 7, "{left}");
    assert_eq!(left + taken + dropped, 41);
}

/// The copies are stored, and the removal of the oldest ones fails.
#[tokio::test(flavor = "multi_thread")]
async fn kill_before_the_drop_loses_nothing_within_bounds() {
    let lives = Lives::new();
    let (whole, plan) = lives.whole().await;
    let q = queue("q");
    let (id, own) = bounded(&whole, &q, "pull:", r#"{"max_messages": 2, "overflow": "drop_oldest"}"#).await;
    post(&whole, &q, &[0, 1]).await.unwrap();
    plan.skip(1);
    plan.next(&[Fault::NotSent; 6]);
    post(&whole, &q, &[2]).await.unwrap();
    assert!(plan.is_done(), "the removal has failed");
    assert_eq!((stored(&whole, &own).await, backlog(&whole, &q, id).await.omissions.dropped), (3, 0));
    drop(whole);
    let (whole, _) = lives.whole().await;
    assert_eq!(stored(&whole, &own).await, 3);
    post(&whole, &q, &[3]).await.unwrap();
    assert_eq!(backlog(&whole, &q, id).await.omissions.dropped, 2);
    assert_eq!(take(&whole, &own, 20).await, [2, 3]);
}

#[tokio::test(flavor = "multi_thread")]
async fn full_subscription_refuses_the_whole_post() {
    let (whole, q) = (whole().await, queue("q"));
    let (id, own) = bounded(&whole, &q, "pull:", r#"{"max_messages": 3, "overflow": "refuse"}"#).await;
    let (_, other) = whole.subscribe(&q, "pull:other").await;
    post(&whole, &q, &[0, 1]).await.unwrap();
    let refused = post(&whole, &q, &[2, 3]).await.unwrap_err();
    assert_eq!(
        (refused.code(), refused.may_retry(), refused.nothing_written()),
        ("subscription_full", true, true)
    );
    assert!(refused.to_string().contains(&format!("subscription {id} has 2 messages")), "{refused}");
    let never = post(&whole, &q, &[2, 3, 4, 5]).await.unwrap_err();
    assert!(!never.may_retry(), "it does not fit into an empty subscription");
    for at in [&q, &own, &other] {
        assert_eq!(stored(&whole, at).await, 2);
    }
    post(&whole, &q, &[2]).await.unwrap();
    assert!(post(&whole, &q, &[3]).await.is_err());
    assert_eq!(take(&whole, &own, 1).await, [0]);
    until("it is full still", async || post(&whole, &q, &[3]).await.is_ok()).await;
    assert_eq!(take(&whole, &own, 20).await, [1, 2, 3]);
    assert_eq!(backlog(&whole, &q, id).await.omissions, Omissions::default());
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_fifo_post_leaves_no_deduplication_id() {
    let (whole, q) = (whole().await, queue("q.fifo"));
    whole.broker.queue_create(&q, metadata(r#"{"_fifo": true}"#)).await.unwrap();
    let (id, own) = bounded(&whole, &q, "pull:", r#"{"max_messages": 2, "overflow": "refuse"}"#).await;
    let message = |number: usize| {
        let dedup = Some(DedupId::new(&number.to_string(), "dedup_id").unwrap());
        NewMessage { body: number.to_string().into(), dedup, ..in_group("a", "1") }
    };
    let post = async |number| whole.broker.messages_post(&q, vec![message(number)], None).await;
    for number in 0..2 {
        post(number).await.unwrap();
    }
    assert_eq!(post(2).await.unwrap_err().code(), "subscription_full");
    post(1).await.expect("a duplicate adds no copy");
    assert_eq!(take(&whole, &own, 1).await, [0]);
    until("it is full still", async || post(2).await.is_ok()).await;
    assert_eq!(stored(&whole, &q).await, 3, "the second attempt was no duplicate");
    // Dropped messages leave the order of their group.
    change(&whole, &q, id, r#"{"max_messages": 2, "overflow": "drop_oldest"}"#).await.unwrap();
    assert_eq!(whole.claim(&own, 1, 300).await.len(), 1);
    for number in 3..6 {
        post(number).await.unwrap();
    }
    assert!(whole.claim(&own, 20, 300).await.is_empty(), "a message of the group is claimed");
    whole.clock.advance(400_000);
    until("the claim has not ended", async || take(&whole, &own, 1).await == [1]).await;
    assert_eq!(take(&whole, &own, 20).await, [5]);
}

#[tokio::test(flavor = "multi_thread")]
async fn full_subscription_leaves_the_quota_to_its_source() {
    let installation = Bounded::new(Quota { messages: Some(20), ..Quota::NONE });
    let (whole, q) = (installation.start().await, queue("q"));
    let (id, own) = bounded(&whole, &q, "pull:", r#"{"max_messages": 5}"#).await;
    for body in 0..15 {
        post(&whole, &q, &[body]).await.unwrap();
    }
    assert_eq!((stored(&whole, &q).await, stored(&whole, &own).await), (15, 5));
    assert_eq!(post(&whole, &q, &[15]).await.unwrap_err().code(), "over_quota");
    assert_eq!(backlog(&whole, &q, id).await.omissions.left_out, 10);
    let project = ProjectId::new("other").unwrap();
    post(&whole, &QueueRef { project, ..q.clone() }, &[0]).await.expect("another account has its own quota");
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_for_a_queue_are_bounded_too() {
    let (whole, q) = (whole().await, queue("q"));
    let drops = options(r#"{"overflow": "drop_oldest"}"#);
    let refused = NewSubscription { options: drops, ..new("queue:target") };
    let refused = whole.broker.subscription_create(&q, refused).await.unwrap_err();
    assert!(refused.to_string().starts_with("options.overflow: copies on their way"), "{refused}");
    let (id, _) = bounded(&whole, &q, "queue:target", r#"{"max_messages": 2}"#).await;
    let ids = post(&whole, &q, &[0, 1, 2]).await.unwrap();
    assert_eq!(change(&whole, &q, id, r#"{"overflow": "drop_oldest"}"#).await.unwrap_err().code(), "invalid");
    post(&whole, &q, &[3]).await.unwrap();
    change(&whole, &q, id, r#"{"max_messages": 2, "overflow": "refuse"}"#).await.unwrap();
    assert_eq!(post(&whole, &q, &[4, 5, 6]).await.unwrap_err().code(), "subscription_full");
    until("the copy is missing", async || take(&whole, &queue("target"), 20).await == [3]).await;
    let gap = backlog(&whole, &q, id).await.omissions.gap.unwrap();
    assert_eq!((gap.first, gap.last, gap.messages), (ids[0], ids[2], 3));
}

/// A pool that does not tell the totals after a batch is asked again, though the subscription gets no other batch.
#[tokio::test(flavor = "multi_thread")]
async fn uncounted_subscription_does_not_stay_full() {
    for (overflow, is_refused) in [("refuse", true), ("suspend", false)] {
        let faulty = faulty().await;
        let (whole, q) = (&faulty.whole, queue("q"));
        let options = format!(r#"{{"max_messages": 2, "overflow": "{overflow}"}}"#);
        let (id, own) = bounded(whole, &q, "pull:", &options).await;
        post(whole, &q, &[0, 1]).await.unwrap();
        *faulty.given.totals_of.lock() = Some(id.0);
        faulty.given.totals.next(&vec![Fault::NotSent; FOR_EVER]);
        assert_eq!(take(whole, &own, 2).await.len(), 2);
        assert_eq!(post(whole, &q, &[2]).await.is_err(), is_refused);
        faulty.given.totals.clear();
        if is_refused {
            until("it stays full", async || post(whole, &q, &[2]).await.is_ok()).await;
        }
        until("no copy comes", async || take(whole, &own, 2).await == [2]).await;
        assert!(!backlog(whole, &q, id).await.is_suspended);
    }
}
