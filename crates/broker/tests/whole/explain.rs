//! Explanations of queues: one test for each reason why a claim gets what it gets, and one for several at once.

use std::sync::atomic::Ordering;

use angarium_broker::{LimitEffect, QueueExplanation};
use angarium_core::access::Role;
use angarium_core::claim::{ClaimWait, Claimer};
use angarium_core::delay::Delay;
use angarium_core::error::ErrorCode;
use angarium_core::message::NewMessage;
use angarium_core::names::QueueRef;
use angarium_core::settle::Requeue;
use tokio::task::JoinSet;

use super::deadletters::{Lives, ONCE, claim_once};
use super::faulty::{Fault, LinkOutage};
use super::groups::{in_group, ordered};
use super::hanging::Pools;
use super::outcomes::faulty;
use super::settle::{DONE, entry, hold, settle_one};
use super::transfers::until;
use super::{Whole, limit, metadata, queue, terms, whole};

/// More messages than any test claims.
const IN_FLIGHT: usize = 120_000;
/// When a claim of 300 seconds and a delay of 30 seconds end that began with the clock of a test.
const CLAIM_END: &str = "2023-11-14T22:18:20Z";
const DELAY_END: &str = "2023-11-14T22:13:50Z";

pub(super) async fn explain(whole: &Whole, at: &QueueRef) -> QueueExplanation {
    whole.broker.queue_explain(at, IN_FLIGHT, Role::Admin).await.unwrap()
}

async fn sentence_of(whole: &Whole, at: &QueueRef) -> String {
    explain(whole, at).await.says
}

/// Posts a message with a delay of 30 seconds.
async fn post_delayed(whole: &Whole, at: &QueueRef) {
    let message = NewMessage { body: "1".into(), delay: Some(Delay::Seconds(30)), ..NewMessage::default() };
    whole.broker.messages_post(at, vec![message], None).await.unwrap();
}

async fn post_to(whole: &Whole, at: &QueueRef, group: &str, count: usize) {
    let messages = (0..count).map(|_| in_group(group, "1")).collect();
    whole.broker.messages_post(at, messages, None).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_queue_is_not_found() {
    let refused = whole().await.broker.queue_explain(&queue("q"), IN_FLIGHT, Role::Admin).await.unwrap_err();
    assert_eq!(refused.error_code(), ErrorCode::NotFound);
}

#[tokio::test(flavor = "multi_thread")]
async fn empty_queue_is_explained() {
    let (whole, at) = (whole().await, queue("q"));
    whole.broker.queue_create(&at, metadata("{}")).await.unwrap();
    let explained = explain(&whole, &at).await;
    assert_eq!(explained.says, "The queue is empty: a claim gets nothing until a message is posted.");
    assert_eq!(explained.counts, Some(Default::default()));
    assert!(explained.pool.is_up && explained.pool.is_writable && explained.pool.class.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn ready_messages_are_explained() {
    let (whole, at) = (whole().await, queue("q"));
    whole.post(&at, 1, 3_600).await;
    assert_eq!(sentence_of(&whole, &at).await, "1 message is ready: a claim gets the oldest.");
    whole.post(&at, 9_999, 3_600).await;
    assert_eq!(sentence_of(&whole, &at).await, "10000 messages are ready: a claim gets the oldest.");
}

#[tokio::test(flavor = "multi_thread")]
async fn claimed_messages_are_explained_with_holders_and_end() {
    let (whole, at) = (whole().await, queue("q"));
    whole.post(&at, 2, 3_600).await;
    hold(&whole.broker, &at).await;
    let expected =
        format!("A claim gets nothing now: 2 messages are claimed by \"worker\" until {CLAIM_END}.");
    assert_eq!(sentence_of(&whole, &at).await, expected);
    whole.post(&at, 1, 3_600).await;
    assert_eq!(whole.claim(&at, 1, 600).await.len(), 1);
    let explained = explain(&whole, &at).await;
    let expected = format!(
        "A claim gets nothing now: 3 messages are claimed by \"worker\" and a holder without a name in 2 claims, and the \
         first claim expires at {CLAIM_END}."
    );
    assert_eq!(explained.says, expected);
    assert_eq!((explained.facts.unwrap().claims, explained.counts.unwrap().claimed), (2, 3));
}

#[tokio::test(flavor = "multi_thread")]
async fn delayed_and_parked_messages_are_explained() {
    let (whole, at) = (whole().await, queue("q"));
    post_delayed(&whole, &at).await;
    let expected = format!("A claim gets nothing now: 1 message is delayed until {DELAY_END}.");
    assert_eq!(sentence_of(&whole, &at).await, expected);
    whole.clock.advance(10_000);
    post_delayed(&whole, &at).await;
    let expected = format!("A claim gets nothing now: 2 messages are delayed, the first until {DELAY_END}.");
    assert_eq!(sentence_of(&whole, &at).await, expected);
    let other = queue("other");
    let ids = whole.post(&other, 1, 3_600).await;
    whole.broker.message_requeue(&other, ids[0], Requeue::Never).await.unwrap();
    assert_eq!(
        sentence_of(&whole, &other).await,
        "A claim gets nothing now: 1 message is parked until a requeue."
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn blocked_groups_are_explained() {
    let (whole, at) = ordered().await;
    post_to(&whole, &at, "a", 3).await;
    assert_eq!(sentence_of(&whole, &at).await, "3 messages are ready: a claim gets the oldest.");
    assert_eq!(whole.claim(&at, 1, 300).await.len(), 1);
    let explained = explain(&whole, &at).await;
    let expected = format!(
        "A claim gets nothing now: 1 message is claimed until {CLAIM_END}; 2 messages are ready, but wait: in 1 group an \
         earlier message is claimed, delayed or in transfer, and the later ones follow it."
    );
    assert_eq!(explained.says, expected);
    assert_eq!(explained.facts.unwrap().groups_blocked, 1);
    post_to(&whole, &at, "b", 1).await;
    let said = sentence_of(&whole, &at).await;
    assert!(
        said.starts_with("3 messages are ready, and a claim gets those of groups that are not blocked;"),
        "{said}"
    );
    let blocked = "in 1 group a message is claimed, delayed or in transfer, and any later ones of its group wait for it";
    assert!(said.contains(blocked), "{said}");
}

/// After a restart nothing is promised before the first claim has read the groups.
#[tokio::test(flavor = "multi_thread")]
async fn blocked_group_is_not_promised_after_restart() {
    let lives = Lives::new();
    let at = queue("q");
    let last = {
        let (whole, _) = lives.whole().await;
        whole.broker.queue_create(&at, metadata(r#"{"_fifo": true}"#)).await.unwrap();
        let first = NewMessage { delay: Some(Delay::Seconds(300)), ..in_group("a", "1") };
        let posted = whole.broker.messages_post(&at, vec![first, in_group("a", "2")], None).await.unwrap();
        whole.broker.stop().await;
        posted.ids[1]
    };
    let (whole, _) = lives.whole().await;
    let said = sentence_of(&whole, &at).await;
    assert!(
        said.starts_with("1 message is ready, and only a claim shows whether it can be claimed now"),
        "{said}"
    );
    let said = whole.broker.message_explain(&at, last, Role::Admin).await.unwrap().says;
    let expected =
        "It is ready, and only a claim shows whether it waits for an earlier message of its group.";
    assert_eq!(said, expected);
    assert!(whole.claim(&at, 1, 300).await.is_empty());
    assert!(sentence_of(&whole, &at).await.starts_with("A claim gets nothing now"));
}

#[tokio::test(flavor = "multi_thread")]
async fn group_behind_delayed_message_is_blocked() {
    let (whole, at) = ordered().await;
    let first = NewMessage { delay: Some(Delay::Seconds(30)), ..in_group("a", "1") };
    whole.broker.messages_post(&at, vec![first, in_group("a", "2")], None).await.unwrap();
    assert!(whole.claim(&at, 1, 300).await.is_empty());
    let explained = explain(&whole, &at).await;
    assert_eq!(explained.facts.unwrap().groups_blocked, 1, "{}", explained.says);
    assert!(
        explained.says.starts_with("A claim gets nothing now: 1 message is delayed"),
        "{}",
        explained.says
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn noisy_group_is_named() {
    let (whole, at) = (whole().await, queue("q"));
    post_to(&whole, &at, "loud", 60).await;
    post_to(&whole, &at, "calm", 2).await;
    assert!(explain(&whole, &at).await.facts.unwrap().noisy_groups.is_empty());
    for _ in 0..2 {
        assert_eq!(whole.claim(&at, 20, 300).await.len(), 20);
    }
    assert_eq!(whole.claim(&at, 1, 300).await.len(), 1);
    let explained = explain(&whole, &at).await;
    let names: Vec<String> = explained.facts.unwrap().noisy_groups.iter().map(ToString::to_string).collect();
    assert_eq!(names, ["loud"]);
    let expected = "; group loud has many messages under claims, so other groups are served before it.";
    assert!(explained.says.ends_with(expected), "{}", explained.says);
    // As a claim would find it five minutes later.
    whole.clock.advance(299_000);
    assert_eq!(explain(&whole, &at).await.facts.unwrap().noisy, 1);
    whole.clock.advance(1_000);
    assert_eq!(explain(&whole, &at).await.facts.unwrap().noisy, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn transfer_to_unreachable_target_is_explained() {
    let pools = Pools::new();
    let whole = pools.start().await;
    let (source, target) = (queue("q"), queue("dead"));
    whole.create_in_both(&queue("near"), &target).await;
    whole.weigh("a", 1).await;
    whole.weigh("b", 0).await;
    whole.broker.queue_create(&source, metadata(ONCE)).await.unwrap();
    let ids = whole.post(&source, 1, 3_600).await;
    claim_once(&whole, &source).await;
    let expected = "A claim gets nothing now: 1 message was claimed as often as the queue allows, and the next claim moves \
                    it to queue dead.";
    assert_eq!(sentence_of(&whole, &source).await, expected);
    pools.stores[1].is_gone.store(true, Ordering::SeqCst);
    assert!(whole.claim(&source, 1, 300).await.is_empty());
    until("the failed transfer is not noted", async || {
        explain(&whole, &source).await.targets.iter().any(|target| target.why.is_some())
    })
    .await;
    let explained = explain(&whole, &source).await;
    let expected = "A claim gets nothing now: 1 message is in transfer to queue dead, and queue dead could not take a \
                    message yet: storage pool b is unavailable.";
    assert_eq!((explained.says.as_str(), explained.counts.unwrap().in_transfer), (expected, 1));
    let message = whole.broker.message_explain(&source, ids[0], Role::Admin).await.unwrap();
    let expected = "It is in transfer to queue dead: a client can claim it there once it has arrived. The queue could not \
                    take it yet: storage pool b is unavailable.";
    assert_eq!(message.says, expected);
    pools.stores[1].is_gone.store(false, Ordering::SeqCst);
    assert_eq!(whole.claim_soon(&target, 1).await, ids);
    until("the target is not forgotten", async || {
        let explained = explain(&whole, &source).await;
        explained.targets.is_empty() && explained.says.starts_with("The queue is empty")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reached_limit_is_explained() {
    let (whole, at) = (whole().await, queue("q"));
    whole.post(&at, 3, 3_600).await;
    assert_eq!(whole.claim(&at, 2, 300).await.len(), 2);
    assert!(whole.broker.queue_explain(&at, 3, Role::Admin).await.unwrap().limits.is_empty());
    let explained = whole.broker.queue_explain(&at, 2, Role::Admin).await.unwrap();
    let limits: Vec<_> =
        explained.limits.iter().map(|limit| (limit.what, limit.bound, limit.effect)).collect();
    assert_eq!(limits, [("messages in flight", 2, LimitEffect::Receives)]);
    let expected =
        "; receives of SQS get nothing, because there are 2 messages in flight, as many as there may be.";
    assert!(explained.says.ends_with(expected), "{}", explained.says);
}

/// As every other read: the slot may have another owner by now.
#[tokio::test(flavor = "multi_thread")]
async fn replica_without_lease_explains_nothing() {
    let faulty = faulty().await;
    let (whole, at) = (&faulty.whole, queue("q"));
    let ids = whole.post(&at, 1, 3_600).await;
    faulty.link.suspend(LinkOutage::Refused);
    let of_queue = whole.broker.queue_explain(&at, IN_FLIGHT, Role::Admin).await.unwrap_err();
    let of_message = whole.broker.message_explain(&at, ids[0], Role::Admin).await.unwrap_err();
    for refused in [of_queue, of_message] {
        assert!(refused.error_code() == ErrorCode::Unavailable && refused.nothing_written(), "{refused:?}");
    }
    faulty.link.connect();
    assert_eq!(sentence_of(whole, &at).await, "1 message is ready: a claim gets the oldest.");
}

#[tokio::test(flavor = "multi_thread")]
async fn pool_without_answer_is_explained_from_memory() {
    let faulty = faulty().await;
    let (whole, at) = (&faulty.whole, queue("q"));
    whole.post(&at, 2, 3_600).await;
    assert_eq!(whole.claim(&at, 1, 300).await.len(), 1);
    faulty.given.is_gone.store(true, Ordering::SeqCst);
    let explained = explain(whole, &at).await;
    let expected =
        "The messages of the queue cannot be read now, because pool default is not up: it does not answer.";
    assert_eq!(explained.says, expected);
    assert!(explained.counts.is_none() && !explained.pool.is_up);
    assert_eq!(explained.facts.unwrap().claims, 1);
    faulty.given.is_gone.store(false, Ordering::SeqCst);
    faulty.given.hang(true);
    let explained = explain(whole, &at).await;
    assert!(explained.says.ends_with("it gives no answer within 5 s."), "{}", explained.says);
    faulty.given.hang(false);
    assert!(explain(whole, &at).await.pool.is_up);
}

#[tokio::test(flavor = "multi_thread")]
async fn queue_in_lost_pool_is_explained_before_its_first_use() {
    let pools = Pools::new();
    let whole = pools.start().await;
    let (in_a, in_b) = (queue("in-a"), queue("in-b"));
    whole.create_in_both(&in_a, &in_b).await;
    whole.post(&in_b, 1, 3_600).await;
    whole.broker.stop().await;
    pools.stores[1].is_gone.store(true, Ordering::SeqCst);
    let whole = pools.start_as_stored().await;
    let explained = explain(&whole, &in_b).await;
    assert_eq!((explained.pool.name.as_str(), explained.pool.is_up, explained.facts), ("b", false, None));
    assert!(explained.says.contains("pool b is not up: it does not answer"), "{}", explained.says);
    assert!(explain(&whole, &in_a).await.says.starts_with("The queue is empty"));
    pools.stores[1].is_gone.store(false, Ordering::SeqCst);
    assert_eq!(
        sentence_of(&whole, &in_b).await,
        "1 message is ready, and only a claim shows whether it can be claimed now."
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn several_reasons_are_explained_at_once() {
    let (whole, at) = (whole().await, queue("q"));
    let keep = metadata(r#"{"_keep": 3600}"#);
    whole.broker.queue_create(&at, keep).await.unwrap();
    let done = whole.post(&at, 1, 3_600).await;
    let (claim, _) = hold(&whole.broker, &at).await;
    settle_one(&whole.broker, &at, claim, entry(done[0], DONE)).await.unwrap();
    assert_eq!(
        sentence_of(&whole, &at).await,
        "A claim gets nothing until a message is posted: 1 message is kept as done or failed, and no claim gets a kept \
         message."
    );
    whole.post(&at, 1, 3_600).await;
    hold(&whole.broker, &at).await;
    post_delayed(&whole, &at).await;
    let mut waiting = JoinSet::new();
    let (broker, name) = (whole.broker.clone(), at.clone());
    waiting.spawn(async move {
        let wait = ClaimWait::new(Some(20)).unwrap();
        drop(broker.claim_wait(&name, terms(60), limit(1), wait, Claimer::default()).await);
    });
    until("no claim waits", async || explain(&whole, &at).await.waiting_claims == 1).await;
    let expected = format!(
        "A claim gets nothing now: 1 message is claimed by \"worker\" until {CLAIM_END}; 1 message is delayed until \
         {DELAY_END}; 1 message is kept as done or failed, and no claim gets a kept message; 1 claim waits for the next \
         message."
    );
    assert_eq!(sentence_of(&whole, &at).await, expected);
    waiting.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn restored_claims_are_explained_after_restart() {
    let lives = Lives::new();
    let at = queue("q");
    {
        let (whole, _) = lives.whole().await;
        whole.broker.queue_create(&at, metadata(r#"{"_fifo": true}"#)).await.unwrap();
        post_to(&whole, &at, "a", 2).await;
        let claimer = Claimer { by: angarium_core::outcome::Holder::cut("worker"), ..Claimer::default() };
        let claim = whole.broker.claim_wait(&at, terms(300), limit(1), ClaimWait::default(), claimer).await;
        claim.unwrap().unwrap().1.done();
        whole.broker.stop().await;
    }
    let (whole, _) = lives.whole().await;
    let explained = explain(&whole, &at).await;
    assert!(explained.says.contains("1 message is claimed by \"worker\" until"), "{}", explained.says);
    let counts = explained.counts.unwrap();
    assert_eq!((counts.ready, counts.claimed, explained.facts.unwrap().groups_blocked), (1, 1, 1));
    assert!(whole.claim(&at, 1, 300).await.is_empty());
    assert!(sentence_of(&whole, &at).await.contains("1 message is ready, but waits: in 1 group"));
}

/// Runs a history of claims and releases, and returns the answers; with explanations between the steps or without. No
/// step depends on a background task.
async fn history(is_explained: bool) -> Vec<String> {
    let (whole, at) = (whole().await, queue("q"));
    let ids = whole.post(&at, 9, 3_600).await;
    post_delayed(&whole, &at).await;
    let mut answers = Vec::new();
    for step in 0..8 {
        if is_explained {
            explain(&whole, &at).await;
            for id in &ids {
                whole.broker.message_explain(&at, *id, Role::Admin).await.unwrap();
            }
        }
        let claim = whole.broker.claim_create(&at, terms(300), limit(2)).await.unwrap();
        let Some((view, mut delivery_guard)) = claim else { continue };
        delivery_guard.done();
        let number = |id| ids.iter().position(|other| *other == id);
        let claimed: Vec<_> = view.messages.iter().map(|one| (number(one.id), one.attempts)).collect();
        if step % 2 == 0 {
            whole.broker.claim_release(&at, view.id).await.unwrap();
        }
        let stats = whole.broker.queue_stats(&at).await.unwrap();
        answers.push(format!("{step}: {claimed:?} {} {} {}", stats.claimed, stats.free, stats.delayed));
    }
    let page = whole.broker.metrics_page().await;
    let counted = ["angarium_messages_posted", "angarium_messages_claimed", "angarium_messages_released"];
    let lines = page.lines().filter(|line| counted.iter().any(|name| line.starts_with(name)));
    // The page has the series of a metric in any order.
    let mut lines: Vec<String> = lines.map(str::to_owned).collect();
    lines.sort_unstable();
    answers.extend(lines);
    answers
}

#[tokio::test(flavor = "multi_thread")]
async fn explanations_between_steps_change_no_answer() {
    let (without, with) = (history(false).await, history(true).await);
    assert!(without.len() > 8, "no counter was found: {without:?}");
    assert_eq!(without, with);
}

#[tokio::test(flavor = "multi_thread")]
async fn last_refused_claim_is_told_for_some_minutes() {
    let faulty = faulty().await;
    let (whole, at) = (&faulty.whole, queue("q"));
    whole.post(&at, 1, 3_600).await;
    assert_eq!(explain(whole, &at).await.last_refusal, None);
    faulty.tree.next(&[Fault::NotSent]);
    let refused = whole.broker.claim_create(&at, terms(300), limit(1)).await.map(drop).unwrap_err();
    let explained = explain(whole, &at).await;
    let refusal = explained.last_refusal.unwrap();
    assert_eq!((refusal.code, &refusal.why), (refused.code(), &refused.to_string()));
    let told = format!("; a claim was refused at 2023-11-14T22:13:20Z: {refused}.");
    assert!(explained.says.ends_with(&told), "{}", explained.says);
    whole.clock.advance(301_000);
    let explained = explain(whole, &at).await;
    assert!(explained.last_refusal.is_some() && !explained.says.contains("refused"), "{}", explained.says);
}
