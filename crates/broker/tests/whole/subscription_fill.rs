//! Subscriptions that begin with the oldest message: each message that waits is copied once, and in order.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use angarium_broker::NewSubscription;
use angarium_core::access::Role;
use angarium_core::claim::Holdings;
use angarium_core::delay::Delay;
use angarium_core::error::ErrorCode;
use angarium_core::group::GroupName;
use angarium_core::limits::Limits;
use angarium_core::message::NewMessage;
use angarium_core::names::QueueRef;
use angarium_core::page::PageLimit;
use angarium_core::quota::Quota;
use angarium_core::settle::Requeue;
use futures_util::future::join_all;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::task::JoinSet;

use super::deadletters::{FOR_EVER, Lives};
use super::faulty::Fault;
use super::quotas::Bounded;
use super::subscriptions::{new, next_body, options, with_body};
use super::transfers::until;
use super::{Whole, limit, metadata, queue, terms, whole};
use angarium_testbed::settings;

pub(super) fn from_oldest(subscriber: &str) -> NewSubscription {
    NewSubscription { options: options(r#"{"from": "oldest"}"#), ..new(subscriber) }
}

impl Whole {
    pub(super) async fn subscribe_from_oldest(&self, at: &QueueRef, subscriber: &str) -> QueueRef {
        let created = self.broker.subscription_create(at, from_oldest(subscriber)).await.unwrap();
        at.of_subscription(created.id)
    }

    /// Deletes the oldest messages, so many in all, each under a claim of its own. Returns their bodies.
    async fn delete_oldest(&self, at: &QueueRef, count: usize) -> Vec<String> {
        let mut bodies = Vec::new();
        for _ in 0..count {
            let claim = self.broker.claim_create(at, terms(60), limit(1)).await.unwrap();
            let Some((claim, mut guard)) = claim else { break };
            guard.done();
            for message in &claim.messages {
                self.broker.message_delete(at, message.id, Some(claim.id)).await.unwrap();
                bodies.push(String::from_utf8(message.body.to_vec()).unwrap());
            }
        }
        bodies
    }

    /// Posts so many messages, more than one request may have. Returns their bodies.
    pub(super) async fn post_many(&self, at: &QueueRef, count: usize) -> Vec<String> {
        let mut bodies = Vec::new();
        while bodies.len() < count {
            bodies.extend(self.post_bodies(at, 50.min(count - bodies.len()), 3_600).await);
        }
        bodies
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn oldest_messages_and_new_ones_are_copied_once() {
    let (whole, q) = (whole().await, queue("q"));
    let before = whole.post_many(&q, 600).await;
    // A claimed message waits too; a deleted one does not.
    whole.claim_bodies(&q, 5).await;
    let (claim, mut guard) = whole.broker.claim_create(&q, terms(60), limit(2)).await.unwrap().unwrap();
    guard.done();
    for message in &claim.messages {
        whole.broker.message_delete(&q, message.id, Some(claim.id)).await.unwrap();
    }
    let own = whole.subscribe_from_oldest(&q, "pull:").await;
    let after = whole.post_many(&q, 100).await;
    let copies = whole.claim_all(&own, 698).await;
    let waiting = [&before[..5], &before[7..], &after].concat();
    assert_eq!(BTreeSet::from_iter(&copies), BTreeSet::from_iter(&waiting));
    assert_eq!(copies.len(), 698);
    assert_eq!(whole.broker.queue_stats(&q).await.unwrap().claimed, 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn filled_fifo_queue_keeps_order_of_groups() {
    let (whole, q) = (whole().await, queue("steps.fifo"));
    whole.broker.queue_create(&q, metadata(r#"{"_fifo": true}"#)).await.unwrap();
    // The bodies of a group grow by two.
    let post = async |pairs: Range<u64>| {
        for pair in pairs {
            let groups = [("a", 2 * pair), ("b", 2 * pair + 1)].map(|(group, body)| NewMessage {
                group: Some(GroupName::new(group, "group").unwrap()),
                ..with_body(&body.to_string())
            });
            whole.broker.messages_post(&q, groups.into(), None).await.unwrap();
        }
    };
    post(0..300).await;
    let own = whole.subscribe_from_oldest(&q, "pull:").await;
    post(300..320).await;
    let mut seen = Vec::new();
    until("messages are missing", async || {
        while let Some((claim, mut guard)) =
            whole.broker.claim_create(&own, terms(60), limit(20)).await.unwrap()
        {
            guard.done();
            for message in &claim.messages {
                seen.push(String::from_utf8(message.body.to_vec()).unwrap().parse::<u64>().unwrap());
                whole.broker.message_delete(&own, message.id, Some(claim.id)).await.unwrap();
            }
        }
        seen.len() >= 640
    })
    .await;
    for group in 0..2 {
        let bodies: Vec<u64> = seen.iter().copied().filter(|body| body % 2 == group).collect();
        assert_eq!(bodies, (0..320).map(|pair| 2 * pair + group).collect::<Vec<_>>());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fill_follows_filter_delay_and_subscriber() {
    let (whole, q) = (whole().await, queue("q"));
    let delayed = NewMessage { delay: Some(Delay::Seconds(60)), ..with_body(r#"{"kind": "late"}"#) };
    let messages = vec![with_body(r#"{"kind": "a"}"#), with_body(r#"{"kind": "b"}"#), delayed];
    whole.broker.messages_post(&q, messages, None).await.unwrap();
    let filtered = r#"{"from": "oldest", "filter": {"kind": ["b"]}, "filter_scope": "body"}"#;
    let filtered = NewSubscription { options: options(filtered), ..new("pull:b") };
    let id = whole.broker.subscription_create(&q, filtered).await.unwrap().id;
    whole.subscribe_from_oldest(&q, "queue:target").await;
    assert_eq!(whole.claim_all(&q.of_subscription(id), 1).await, [r#"{"kind": "b"}"#]);
    assert_eq!(whole.claim_all(&queue("target"), 2).await.len(), 2);
    whole.clock.advance(61_000);
    assert_eq!(whole.claim_all(&queue("target"), 1).await, [r#"{"kind": "late"}"#]);
}

/// The messages that wait are large, and a new one is small: so the fill takes none of its room, whenever it tries.
#[tokio::test(flavor = "multi_thread")]
async fn fill_waits_for_room_in_the_quota() {
    for name in ["q", "q.fifo"] {
        let house = Bounded::new(Quota { bytes: Some(650), ..Quota::NONE });
        let (whole, q) = (house.start().await, queue(name));
        let is_fifo = format!(r#"{{"_fifo": {}}}"#, q.name.is_fifo());
        whole.broker.queue_create(&q, metadata(&is_fifo)).await.unwrap();
        let bodies: Vec<String> = (0..6).map(|number| format!("{number:0100}")).collect();
        let large = bodies.iter().map(|body| with_body(body)).collect();
        let ids = whole.broker.messages_post(&q, large, None).await.unwrap().ids;
        let own = whole.subscribe_from_oldest(&q, "pull:").await;
        // The fill has been refused at least once.
        tokio::time::sleep(Duration::from_secs(2)).await;
        let more = whole.post_bodies(&q, 1, 3_600).await;
        // A new message is copied at once; in a FIFO queue it waits for the earlier ones.
        let first = whole.claim_bodies(&own, 20).await;
        assert_eq!(first, if q.name.is_fifo() { Vec::new() } else { more.clone() });
        let explained = whole.broker.queue_explain(&own, 0, Role::Member).await.unwrap();
        assert!(explained.is_filling && explained.is_barred_by_fill == q.name.is_fifo());
        let view = whole.broker.subscriptions_list(&q, None, one()).await.unwrap().pop().unwrap();
        assert!(view.backlog.is_some_and(|backlog| backlog.is_filling));
        // In one step: the fill takes each room that it finds.
        whole.broker.messages_delete(&q, ids[..4].to_vec(), Holdings::of_claims(&[])).await.unwrap();
        let rest = [bodies[4..].to_vec(), if q.name.is_fifo() { more } else { Vec::new() }].concat();
        let mut copies = Vec::new();
        until("copies are missing", async || {
            copies.extend(whole.delete_oldest(&own, 1).await);
            copies.len() >= rest.len()
        })
        .await;
        assert_eq!(copies, rest);
    }
}

/// The clock does not move, so the ids of a new owner follow the last one in the pool.
#[tokio::test(flavor = "multi_thread")]
async fn post_after_restart_is_copied_once_in_a_fill() {
    let lives = Lives::new();
    let queues: Vec<QueueRef> = (0..10).map(|number| queue(&format!("q{number}"))).collect();
    let (whole, _) = lives.whole().await;
    let mut filled = Vec::new();
    for q in &queues {
        whole.post_bodies(q, 1, 3_600).await;
        filled.push(whole.subscribe_from_oldest(q, "pull:").await);
    }
    whole.broker.stop().await;
    let (whole, _) = lives.whole().await;
    for q in &queues {
        whole.post_bodies(q, 1, 3_600).await;
    }
    for own in &filled {
        assert_eq!(whole.claim_all(own, 2).await.len(), 2, "{own:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn long_fill_does_not_hold_up_the_end() {
    let (lives, q) = (Lives::new(), queue("q"));
    let (whole, plan) = lives.whole().await;
    whole.post_many(&q, 3_000).await;
    // After these batches some pages are copied, and not the last one.
    plan.next(&[Fault::Held]);
    plan.skip(5);
    let own = whole.subscribe_from_oldest(&q, "pull:").await;
    until("the fill does not begin", async || plan.is_done()).await;
    assert!(lives.stored(&own).await > 0);
    tokio::join!(whole.broker.stop(), async { plan.release() });
    assert!(lives.stored(&own).await < 3_000);
    let (whole, _) = lives.whole().await;
    until("copies are missing", async || whole.broker.queue_stats(&own).await.unwrap().free == 3_000).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fill_copies_as_many_as_the_quota_has_room_for() {
    let house = Bounded::new(Quota { messages: Some(30), ..Quota::NONE });
    let (whole, q) = (house.start().await, queue("q"));
    let bodies = whole.post_bodies(&q, 20, 3_600).await;
    let own = whole.subscribe_from_oldest(&q, "pull:").await;
    until("too few are copied", async || whole.broker.queue_stats(&own).await.unwrap().free == 10).await;
    // They are counted when they are stored, which is a moment before they can be claimed.
    let mut claimed = Vec::new();
    until("the copies are not claimed", async || {
        claimed.extend(whole.claim_bodies(&own, 20).await);
        claimed.len() >= 10
    })
    .await;
    assert_eq!(claimed, bodies[..10]);
}

#[tokio::test(flavor = "multi_thread")]
async fn fifo_queue_is_not_filled_into_another_queue() {
    let (whole, q) = (whole().await, queue("steps.fifo"));
    whole.broker.queue_create(&q, metadata(r#"{"_fifo": true}"#)).await.unwrap();
    let refused = whole.broker.subscription_create(&q, from_oldest("queue:b.fifo")).await.unwrap_err();
    assert!(refused.to_string().starts_with("options.from"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn fill_leaves_half_of_the_bounds_to_new_messages() {
    let (whole, q) = (whole().await, queue("q"));
    let before = whole.post_many(&q, 60).await;
    let large = "9".repeat(500);
    whole.broker.messages_post(&q, vec![with_body(&large)], None).await.unwrap();
    let bounds = r#"{"from": "oldest", "max_messages": 10, "max_bytes": 400}"#;
    let bounded = NewSubscription { options: options(bounds), ..new("pull:") };
    let id = whole.broker.subscription_create(&q, bounded).await.unwrap().id;
    let own = q.of_subscription(id);
    let waits = async |least: u64| {
        until("the fill stopped", async || {
            let waiting = whole.broker.queue_stats(&own).await.unwrap();
            assert!(waiting.free <= 10, "{}", waiting.free);
            waiting.free >= least
        })
        .await;
    };
    waits(10).await;
    let mut seen = Vec::new();
    until("copies are missing", async || {
        if let Some((claim, mut guard)) = whole.broker.claim_create(&own, terms(60), limit(8)).await.unwrap()
        {
            guard.done();
            for message in &claim.messages {
                seen.push(String::from_utf8(message.body.to_vec()).unwrap());
                whole.broker.message_delete(&own, message.id, Some(claim.id)).await.unwrap();
            }
        }
        seen.len() >= 60
    })
    .await;
    assert_eq!(seen, before);
    // The one that no bounds have room for is counted.
    until("it is not counted", async || {
        let view = whole.broker.subscription_get(&q, id).await.unwrap();
        view.backlog.is_some_and(|backlog| backlog.omissions.left_out == 1 && !backlog.is_suspended)
    })
    .await;
    let after = whole.post_bodies(&q, 2, 3_600).await;
    assert_eq!(whole.claim_all(&own, 2).await, after);
}

fn one() -> PageLimit {
    PageLimit::new(Some(1), Limits::ZAQAR.queues_page).unwrap()
}

/// Whatever the fault while it is filled, and wherever, a subscription has each message of its source once.
#[tokio::test(flavor = "multi_thread")]
async fn interrupted_fill_copies_each_message_once() {
    let faults = [Fault::NotSent, Fault::UnknownBefore, Fault::UnknownAfter];
    let all = (0..3).flat_map(|batches| faults.map(|fault| (batches, fault)));
    join_all(all.map(async |(batches, fault)| {
        let case = format!("{fault:?} after {batches}");
        let (lives, q) = (Lives::new(), queue("q"));
        let (whole, plan) = lives.whole().await;
        whole.post_many(&q, 300).await;
        plan.next(&vec![fault; FOR_EVER]);
        plan.skip(batches);
        let own = whole.subscribe_from_oldest(&q, "pull:").await;
        // Consumers delete what they get meanwhile.
        let (mut deleted, mut unsure) = (BTreeSet::new(), BTreeSet::new());
        for _ in 0..6 {
            if let Ok(Some((claim, mut guard))) = whole.broker.claim_create(&own, terms(60), limit(20)).await
            {
                guard.done();
                for message in &claim.messages {
                    let body = String::from_utf8(message.body.to_vec()).unwrap();
                    let result = whole.broker.message_delete(&own, message.id, Some(claim.id)).await;
                    (if result.is_ok() { &mut deleted } else { &mut unsure }).insert(body);
                }
            }
            let _ = whole.broker.messages_post(&q, vec![with_body(&next_body())], None).await;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        whole.broker.stop().await;
        let (whole, _) = lives.whole().await;
        whole.clock.advance(61_000);
        let stored = BTreeSet::from_iter(whole.drain_bodies(&q).await);
        let mut rest = Vec::new();
        until("copies are missing", async || {
            rest.extend(whole.claim_bodies(&own, 20).await);
            stored.iter().all(|body| deleted.contains(body) || unsure.contains(body) || rest.contains(body))
        })
        .await;
        rest.extend(whole.drain_bodies(&own).await);
        assert_eq!(BTreeSet::from_iter(&rest).len(), rest.len(), "{case}");
        assert!(rest.iter().all(|body| !deleted.contains(body) && stored.contains(body)), "{case}");
    }))
    .await;
}

/// Posts, restarts and doubtful batches in any order, while a queue is filled.
#[tokio::test(flavor = "multi_thread")]
async fn random_history_of_fills_loses_and_doubles_none() {
    let mut dice = StdRng::seed_from_u64(settings::seed("subscription fills"));
    for _ in 0..settings::number("ANGARIUM_FILL_HISTORIES", 4) {
        let (lives, q) = (Lives::new(), queue("q"));
        let (mut whole, mut plan) = lives.whole().await;
        whole.post_many(&q, dice.random_range(0..900)).await;
        let mut filled = Vec::new();
        for step in 0..12 {
            match dice.random_range(0..6) {
                0 | 1 => {
                    let created =
                        whole.broker.subscription_create(&q, from_oldest(&format!("pull:{step}"))).await;
                    filled.push(q.of_subscription(created.unwrap().id));
                }
                2 => {
                    let fault = [Fault::NotSent, Fault::UnknownAfter][dice.random_range(0..2)];
                    plan.next(&vec![fault; FOR_EVER]);
                    plan.skip(dice.random_range(0..4));
                    let posts =
                        (0..4).map(|_| whole.broker.messages_post(&q, vec![with_body(&next_body())], None));
                    let _ = tokio::time::timeout(Duration::from_millis(300), join_all(posts)).await;
                    whole.broker.stop().await;
                    (whole, plan) = lives.whole().await;
                }
                3 => tokio::time::sleep(Duration::from_millis(dice.random_range(0..700))).await,
                _ => {
                    let posts =
                        (0..5).map(|_| whole.broker.messages_post(&q, vec![with_body(&next_body())], None));
                    join_all(posts).await.into_iter().for_each(|posted| drop(posted.unwrap()));
                }
            }
        }
        let stored = BTreeSet::from_iter(whole.drain_bodies(&q).await);
        for at in &filled {
            let copies = whole.claim_all(at, stored.len()).await;
            let distinct = BTreeSet::from_iter(copies.iter().cloned());
            assert!(
                distinct.difference(&stored).next().is_none(),
                "{:?} have no message",
                distinct.difference(&stored)
            );
            assert_eq!(copies.len(), distinct.len(), "some are doubled: {copies:?}");
        }
    }
}

/// No consumer reads the subscription, so it is never empty.
#[tokio::test(flavor = "multi_thread")]
async fn message_beyond_the_bounds_holds_up_no_fill() {
    let (whole, q) = (whole().await, queue("q"));
    whole.post_bodies(&q, 3, 3_600).await;
    whole.broker.messages_post(&q, vec![with_body(&"9".repeat(500))], None).await.unwrap();
    whole.post_bodies(&q, 3, 3_600).await;
    let bounds = r#"{"from": "oldest", "max_messages": 20, "max_bytes": 400}"#;
    let bounded = NewSubscription { options: options(bounds), ..new("pull:") };
    let id = whole.broker.subscription_create(&q, bounded).await.unwrap().id;
    until("the fill waits", async || {
        let copies = whole.broker.queue_stats(&q.of_subscription(id)).await.unwrap().free;
        let view = whole.broker.subscription_get(&q, id).await.unwrap();
        copies == 6 && view.backlog.is_some_and(|backlog| backlog.omissions.left_out == 1)
    })
    .await;
}

/// The replacement has an id behind the end of the fill, which would pass it over.
#[tokio::test(flavor = "multi_thread")]
async fn message_gets_no_other_body_before_a_fill_has_copied_it() {
    let (whole, q) = (whole().await, queue("q"));
    let ids = whole.post(&q, 20, 3_600).await;
    let bounded = r#"{"from": "oldest", "max_messages": 4}"#;
    let bounded = NewSubscription { options: options(bounded), ..new("pull:") };
    let id = whole.broker.subscription_create(&q, bounded).await.unwrap().id;
    let own = q.of_subscription(id);
    until("the fill waits", async || whole.broker.queue_stats(&own).await.unwrap().free >= 2).await;
    let replace = async |id| {
        let again = Requeue::At(Delay::Seconds(0));
        whole.broker.message_replace(&q, id, again, "77".into()).await
    };
    let refused = replace(ids[19]).await.unwrap_err();
    assert_eq!(refused.error_code(), ErrorCode::Busy, "{refused}");
    // The first one has been copied, which the fill learns a moment after it is counted.
    until("the fill does not pass it", async || replace(ids[0]).await.is_ok()).await;
    let mut copies = Vec::new();
    until("copies are missing", async || {
        copies.extend(whole.delete_oldest(&own, 4).await);
        copies.len() >= 20
    })
    .await;
    until("the fill does not end", async || replace(ids[19]).await.is_ok()).await;
    assert!(!copies.contains(&"77".to_owned()));
}

/// The tasks of the broker have one thread: without pauses the post would keep all others waiting.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn filters_of_long_bodies_let_other_tasks_run() {
    let (whole, q) = (whole().await, queue("q"));
    let filter = r#"{"filter_scope": "body", "filter": {"a": [{"numeric": ["<", 0]}]}}"#;
    for number in 0..60 {
        let filtering = NewSubscription { options: options(filter), ..new(&format!("pull:{number}")) };
        whole.broker.subscription_create(&q, filtering).await.unwrap();
    }
    let body = format!(r#"{{"a": [{}0]}}"#, "1,".repeat(120_000));
    let (broker, at, is_over) = (whole.broker.clone(), q.clone(), Arc::new(AtomicBool::new(false)));
    let ended = Arc::clone(&is_over);
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        broker.messages_post(&at, vec![with_body(&body)], None).await.unwrap();
        ended.store(true, Ordering::Relaxed);
        0
    });
    tasks.spawn(async move {
        let mut turns = 0;
        while !is_over.load(Ordering::Relaxed) {
            tokio::time::sleep(Duration::from_millis(1)).await;
            turns += 1;
        }
        turns
    });
    let turns: u32 = tasks.join_all().await.into_iter().sum();
    assert!(turns >= 15, "{turns}");
}
