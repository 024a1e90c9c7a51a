//! Subscriptions: each gets a copy of each post, in the batch of the post, and ends with its source.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use angarium_broker::NewSubscription;
use angarium_core::delay::Delay;
use angarium_core::error::Error;
use angarium_core::group::DedupId;
use angarium_core::ids::SubscriptionId;
use angarium_core::limits::Limits;
use angarium_core::message::{MessageTtl, NewMessage};
use angarium_core::names::QueueRef;
use angarium_core::page::PageLimit;
use angarium_core::quota::Quota;
use angarium_core::subscription::{Subscriber, SubscriptionChange, SubscriptionOptions};
use futures_util::future::join_all;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::value::RawValue;

use super::deadletters::{FOR_EVER, Lives, ONCE};
use super::faulty::Fault;
use super::groups::in_group;
use super::holds::{claims_held, effects, hold_terms};
use super::quotas::Bounded;
use super::transfers::until;
use super::{Whole, limit, metadata, queue, terms, whole};
use angarium_testbed::settings;

pub(super) fn options(json: &str) -> SubscriptionOptions {
    SubscriptionOptions::new(RawValue::from_string(json.to_owned()).unwrap(), &Limits::ZAQAR).unwrap()
}

pub(super) fn new(subscriber: &str) -> NewSubscription {
    let (subscriber, secrets) = (Subscriber::new(subscriber).unwrap(), Vec::new());
    NewSubscription { subscriber, options: options("{}"), ttl: 3_600, secrets }
}

impl Whole {
    /// Subscribes to a queue. Returns the id, and the queue of the subscription.
    pub(super) async fn subscribe(&self, at: &QueueRef, subscriber: &str) -> (SubscriptionId, QueueRef) {
        let id = self.broker.subscription_create(at, new(subscriber)).await.unwrap().id;
        (id, at.of_subscription(id))
    }

    async fn subscribed(&self, at: &QueueRef) -> Vec<SubscriptionId> {
        let limit = PageLimit::new(Some(20), Limits::ZAQAR.queues_page).unwrap();
        let page = self.broker.subscriptions_list(at, None, limit).await.unwrap();
        page.iter().map(|view| view.subscription.id).collect()
    }

    /// Posts messages, each with a body of its own. Returns the bodies.
    pub(super) async fn post_bodies(&self, at: &QueueRef, count: usize, ttl: i64) -> Vec<String> {
        let bodies: Vec<String> = (0..count).map(|_| next_body()).collect();
        let ttl = Some(MessageTtl::new(ttl, "ttl", &Limits::ZAQAR).unwrap());
        let message = |body: &String| NewMessage { ttl, ..with_body(body) };
        self.broker.messages_post(at, bodies.iter().map(message).collect(), None).await.unwrap();
        bodies
    }

    /// Claims messages and keeps them. Returns their bodies.
    pub(super) async fn claim_bodies(&self, at: &QueueRef, messages: i64) -> Vec<String> {
        let claim = self.broker.claim_create(at, terms(3_600), limit(messages)).await.unwrap();
        let Some((view, mut guard)) = claim else { return Vec::new() };
        guard.done();
        view.messages.iter().map(|message| String::from_utf8(message.body.to_vec()).unwrap()).collect()
    }

    /// Claims all messages. Returns their bodies.
    pub(super) async fn drain_bodies(&self, at: &QueueRef) -> Vec<String> {
        let mut found = Vec::new();
        loop {
            let claimed = self.claim_bodies(at, 20).await;
            if claimed.is_empty() {
                return found;
            }
            found.extend(claimed);
        }
    }

    /// Claims so many messages, as long as a busy machine may need. Returns their bodies.
    pub(super) async fn claim_all(&self, at: &QueueRef, count: usize) -> Vec<String> {
        let mut found = Vec::new();
        until("messages are missing", async || {
            found.extend(self.claim_bodies(at, 20).await);
            found.len() >= count
        })
        .await;
        assert!(self.claim(at, 20, 3_600).await.is_empty(), "there are more than {count}");
        found
    }
}

/// The body of a message as no other one has it.
pub(super) fn next_body() -> String {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed).to_string()
}

pub(super) fn with_body(body: &str) -> NewMessage {
    NewMessage { body: body.to_owned().into(), ..NewMessage::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_consumer_group_gets_each_message() {
    let (whole, q) = (whole().await, queue("q"));
    let before = whole.post_bodies(&q, 1, 3_600).await;
    let (first, one) = whole.subscribe(&q, "pull:one").await;
    let (second, two) = whole.subscribe(&q, "pull:two").await;
    let ids = whole.post_bodies(&q, 7, 3_600).await;
    assert_eq!(whole.claim_all(&one, 7).await, ids);
    assert_eq!(whole.claim_all(&two, 7).await, ids);
    assert_eq!(whole.claim_all(&q, 8).await, [before, ids].concat());
    let mut both = vec![first, second];
    both.sort_unstable();
    assert_eq!(whole.subscribed(&q).await, both);
    let shown = whole.broker.subscription_get(&q, first).await.unwrap().subscription;
    assert_eq!((shown.subscriber.to_string(), shown.ttl), ("pull:one".to_owned(), 3_600));
}

#[tokio::test(flavor = "multi_thread")]
async fn subscribed_queue_gets_each_message_once() {
    let (whole, q) = (whole().await, queue("q"));
    let (_, own) = whole.subscribe(&q, "queue:target").await;
    let ids = whole.post_bodies(&q, 5, 3_600).await;
    let delayed = NewMessage { delay: Some(Delay::Seconds(60)), body: "1".into(), ..NewMessage::default() };
    whole.broker.messages_post(&q, vec![delayed], None).await.unwrap();
    assert_eq!(whole.claim_all(&queue("target"), 5).await, ids);
    until("the queue of the subscription is not empty", async || {
        let stats = whole.broker.queue_stats(&own).await.unwrap();
        stats.free + stats.claimed == 0
    })
    .await;
    // It is published there after it has left the subscription, with the delay of the post.
    until("the delayed copy has not arrived", async || {
        whole.broker.queue_stats(&queue("target")).await.unwrap().delayed == 1
    })
    .await;
    whole.clock.advance(60_000);
    assert_eq!(whole.claim_soon(&queue("target"), 20).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn subscription_of_fifo_queue_keeps_order_of_groups() {
    let (whole, q) = (whole().await, queue("q.fifo"));
    whole.broker.queue_create(&q, metadata(r#"{"_fifo": true}"#)).await.unwrap();
    let (_, own) = whole.subscribe(&q, "pull:").await;
    let mut ids = Vec::new();
    for number in 0..6 {
        let dedup = Some(DedupId::new(&number.to_string(), "dedup_id").unwrap());
        let body = number.to_string().into();
        let message = NewMessage { body, dedup, ..in_group(["a", "b"][number % 2], "1") };
        // The second post is a duplicate: it is stored nowhere.
        for _ in 0..2 {
            whole.broker.messages_post(&q, vec![message.clone()], None).await.unwrap();
        }
        ids.push(number.to_string());
    }
    let claimed = whole.claim_all(&own, 6).await;
    for group in [0, 1] {
        let of_group: Vec<String> = ids.iter().skip(group).step_by(2).cloned().collect();
        let got: Vec<String> = claimed.iter().filter(|body| of_group.contains(body)).cloned().collect();
        assert_eq!(got, of_group);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn filter_chooses_the_messages_of_a_post() {
    let (whole, q) = (whole().await, queue("q"));
    let filtered = async |name: &str, json: &str| {
        let subscription = NewSubscription { options: options(json), ..new(name) };
        let id = whole.broker.subscription_create(&q, subscription).await.unwrap().id;
        (id, q.of_subscription(id))
    };
    let (id, eu) = filtered("pull:eu", r#"{"filter": {"to": ["eu"]}, "filter_scope": "body"}"#).await;
    let (_, none) = filtered("pull:none", r#"{"filter": {"to": ["eu"]}}"#).await;
    let post = async |places: &[&str]| {
        let bodies: Vec<String> = places.iter().map(|to| format!(r#"{{"to": "{to}"}}"#)).collect();
        let messages = bodies.iter().map(|body| with_body(body)).collect();
        whole.broker.messages_post(&q, messages, None).await.unwrap();
        bodies
    };
    let ids = post(&["eu", "us", "eu"]).await;
    assert_eq!(whole.claim_all(&eu, 2).await, [ids[0].clone(), ids[2].clone()]);
    assert!(whole.claim(&none, 20, 300).await.is_empty(), "messages without attributes");
    let change = SubscriptionChange {
        options: Some(options(r#"{"filter": {"to": [{"prefix": "u"}]}, "filter_scope": "body"}"#)),
        ..SubscriptionChange::default()
    };
    whole.broker.subscription_change(&q, id, change).await.unwrap();
    let ids = post(&["eu", "us", "uk"]).await;
    assert_eq!(whole.claim_all(&eu, 2).await, ids[1..]);
    // SQS stores the text of a body as a JSON string.
    let text = NewMessage { body: r#""{\"to\": \"ur\"}""#.into(), ..NewMessage::default() };
    whole.broker.messages_post(&q, vec![text], None).await.unwrap();
    assert_eq!(whole.claim_all(&eu, 1).await.len(), 1);
    let wrong = options(r#"{"filter": {"to": [{"like": "e"}]}}"#);
    let refused = whole.broker.subscription_create(&q, NewSubscription { options: wrong, ..new("pull:x") });
    assert_eq!(refused.await.unwrap_err().code(), "invalid");
}

/// Copies of one post meet in a queue: dead letters of two subscriptions and of the source, which is a subscriber too.
#[tokio::test(flavor = "multi_thread")]
async fn meeting_copies_of_one_message_are_all_kept() {
    let (whole, q) = (whole().await, queue("q"));
    whole.broker.queue_create(&q, metadata(ONCE)).await.unwrap();
    let mut all = vec![q.clone()];
    for name in ["pull:a", "pull:b"] {
        let subscription = NewSubscription { options: options(ONCE), ..new(name) };
        all.push(q.of_subscription(whole.broker.subscription_create(&q, subscription).await.unwrap().id));
    }
    whole.subscribe(&q, "queue:dead").await;
    let mut bodies = whole.post_bodies(&q, 5, 3_600).await;
    for at in &all {
        let claim = whole.broker.claim_create(at, terms(300), limit(20)).await.unwrap();
        let (view, mut guard) = claim.unwrap();
        guard.done();
        assert_eq!(view.messages.len(), 5);
        whole.broker.claim_release(at, view.id).await.unwrap();
        assert!(whole.claim(at, 20, 300).await.is_empty());
    }
    let mut dead = whole.claim_all(&queue("dead"), 20).await;
    dead.sort();
    bodies = [bodies.clone(), bodies.clone(), bodies.clone(), bodies].concat();
    bodies.sort();
    assert_eq!(dead, bodies);
}

#[tokio::test(flavor = "multi_thread")]
async fn posts_of_subscription_are_not_held() {
    let (whole, q) = (whole().await, queue("q"));
    let (_, own) = whole.subscribe(&q, "pull:").await;
    for effects in [effects(true, true, false), effects(false, false, true)] {
        let refused = whole.broker.queue_hold(&own, hold_terms(effects)).await.unwrap_err();
        assert_eq!(refused.code(), "invalid");
    }
    whole.broker.queue_hold(&own, claims_held()).await.unwrap();
    let bodies = whole.post_bodies(&q, 2, 3_600).await;
    assert!(whole.claim(&own, 20, 300).await.is_empty());
    whole.broker.queue_release(&own, None).await.unwrap();
    assert_eq!(whole.claim_all(&own, 2).await, bodies);
}

/// No request opens the queue after the restart.
#[tokio::test(flavor = "multi_thread")]
async fn ended_subscription_of_closed_queue_is_deleted() {
    let lives = Lives::new();
    let (whole, _) = lives.whole().await;
    let q = queue("q");
    let (_, own) = whole.subscribe(&q, "pull:").await;
    whole.post_bodies(&q, 3, 100_000).await;
    whole.broker.stop().await;
    whole.clock.advance(3_600_000);
    let (_whole, _) = lives.whole().await;
    until("its record is there", async || {
        lives.catalogue().queue_records(std::slice::from_ref(&own)).await.unwrap()[0].is_none()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_and_impossible_subscribers_are_refused() {
    let (whole, q) = (whole().await, queue("q"));
    let refused =
        async |subscriber: &str| whole.broker.subscription_create(&q, new(subscriber)).await.unwrap_err();
    let (id, _) = whole.subscribe(&q, "pull:a").await;
    assert_eq!(refused("pull:a").await.code(), "conflict");
    assert_eq!(refused("queue:q").await.code(), "invalid");
    whole.broker.subscription_delete(&q, id).await.unwrap();
    whole.broker.subscription_delete(&q, id).await.unwrap();
    let (id, _) = whole.subscribe(&q, "pull:a").await;
    let (other, _) = whole.subscribe(&q, "pull:b").await;
    let to = |subscriber| SubscriptionChange {
        subscriber: Some(Subscriber::new(subscriber).unwrap()),
        ..SubscriptionChange::default()
    };
    let change =
        async |id, change| whole.broker.subscription_change(&q, id, change).await.map_err(|e| e.code());
    assert_eq!(change(other, to("pull:a")).await, Err("conflict"));
    assert_eq!(change(other, to("queue:x")).await, Err("invalid"));
    change(other, to("pull:c")).await.unwrap();
    change(id, to("pull:b")).await.unwrap();
    whole.broker.subscription_delete(&q, other).await.unwrap();
    assert_eq!(change(other, to("pull:d")).await, Err("not_found"));
}

#[tokio::test(flavor = "multi_thread")]
async fn ended_subscription_gets_no_copy_and_leaves_nothing() {
    let lives = Lives::new();
    let (whole, _) = lives.whole().await;
    let q = queue("q");
    let (short, _) = whole.subscribe(&q, "pull:short").await;
    let (long, own) = whole.subscribe(&q, "pull:long").await;
    let renewed = SubscriptionChange { ttl: Some(100_000), ..SubscriptionChange::default() };
    whole.broker.subscription_change(&q, long, renewed).await.unwrap();
    whole.post_bodies(&q, 1, 10_000).await;
    let there = lives.id_of(&q.of_subscription(short)).await;
    whole.clock.advance(3_600_000);
    assert_eq!(whole.subscribed(&q).await, [long]);
    assert_eq!(whole.broker.subscription_get(&q, short).await.unwrap_err().code(), "not_found");
    whole.post_bodies(&q, 1, 10_000).await;
    assert_eq!(whole.claim_all(&own, 2).await.len(), 2);
    until("its queue is there", async || {
        let catalogue = lives.catalogue();
        let is_gone = catalogue.queue_records(&[q.of_subscription(short)]).await.unwrap()[0].is_none();
        is_gone && lives.stored_of(there).await == 0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_queue_takes_its_subscriptions_with_it() {
    let lives = Lives::new();
    let (whole, _) = lives.whole().await;
    let q = queue("q");
    let mut owns = Vec::new();
    for name in ["pull:a", "pull:b"] {
        owns.push(whole.subscribe(&q, name).await.1);
    }
    whole.post_bodies(&q, 3, 3_600).await;
    let mut there = Vec::new();
    for own in &owns {
        there.push(lives.id_of(own).await);
    }
    whole.broker.queue_delete(&q).await.unwrap();
    // A queue of the same name has none of them.
    whole.post_bodies(&q, 1, 3_600).await;
    assert!(whole.subscribed(&q).await.is_empty());
    // The next owner cleans up, if this one has not.
    whole.broker.stop().await;
    let (whole, _) = lives.whole().await;
    until("they are there", async || {
        let records = lives.catalogue().queue_records(&owns).await.unwrap();
        let mut stored = 0;
        for id in &there {
            stored += lives.stored_of(*id).await;
        }
        records.iter().all(Option::is_none) && stored == 0
    })
    .await;
    assert_eq!(whole.claim_all(&q, 1).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn restart_keeps_subscriptions_copies_and_claims() {
    let lives = Lives::new();
    let (whole, _) = lives.whole().await;
    let q = queue("q");
    let (id, own) = whole.subscribe(&q, "pull:").await;
    let ids = whole.post_bodies(&q, 4, 3_600).await;
    assert_eq!(whole.claim_bodies(&own, 2).await, ids[..2]);
    whole.broker.stop().await;
    let (whole, _) = lives.whole().await;
    assert_eq!(whole.subscribed(&q).await, [id]);
    let more = whole.post_bodies(&q, 1, 3_600).await;
    assert_eq!(whole.claim_all(&own, 3).await, [&ids[2..], &more].concat());
}

#[tokio::test(flavor = "multi_thread")]
async fn closed_queue_of_subscription_gets_its_copy() {
    let (whole, q) = (whole().await, queue("q"));
    let (_, own) = whole.subscribe(&q, "pull:").await;
    for _ in 0..3 * angarium_broker::limits::IDLE_ROUNDS {
        whole.broker.close_idle_round();
    }
    let ids = whole.post_bodies(&q, 2, 3_600).await;
    // The source stays open, its subscription does not.
    for _ in 0..3 * angarium_broker::limits::IDLE_ROUNDS {
        let _ = whole.broker.queue_stats(&q).await.unwrap();
        whole.broker.close_idle_round();
    }
    let more = whole.post_bodies(&q, 2, 3_600).await;
    assert_eq!(whole.claim_all(&own, 4).await, [ids, more].concat());
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_count_in_the_quota() {
    let house = Bounded::new(Quota { messages: Some(10), ..Quota::NONE });
    let (whole, q) = (house.start().await, queue("q"));
    whole.subscribe(&q, "pull:a").await;
    let (_, own) = whole.subscribe(&q, "pull:b").await;
    whole.post_bodies(&q, 3, 3_600).await;
    let more = vec![NewMessage { body: "1".into(), ..NewMessage::default() }];
    let refused = whole.broker.messages_post(&q, more.clone(), None).await.unwrap_err();
    assert!(matches!(refused, Error::OverQuota { .. }), "{refused}");
    whole.broker.queue_purge(&own).await.unwrap();
    whole.broker.messages_post(&q, more, None).await.unwrap();
}

/// Whatever the fault, a subscription has a message exactly if its source has it.
#[tokio::test(flavor = "multi_thread")]
async fn failed_or_doubtful_post_reaches_all_or_none() {
    let faults = [Fault::NotSent, Fault::UnknownBefore, Fault::UnknownAfter];
    let all = (0..3).flat_map(|batches| faults.map(|fault| (batches, fault)));
    join_all(all.map(async |(batches, fault)| {
        let case = format!("{fault:?} after {batches}");
        let (lives, q) = (Lives::new(), queue("q"));
        let (whole, plan) = lives.whole().await;
        let (_, own) = whole.subscribe(&q, "pull:a").await;
        whole.subscribe(&q, "queue:target").await;
        plan.next(&vec![fault; FOR_EVER]);
        plan.skip(batches);
        let mut acknowledged = BTreeSet::new();
        for _ in 0..3 {
            let bodies = [next_body(), next_body()];
            let messages = bodies.iter().map(|body| with_body(body)).collect();
            if whole.broker.messages_post(&q, messages, None).await.is_ok() {
                acknowledged.extend(bodies);
            }
        }
        whole.broker.stop().await;
        let (whole, _) = lives.whole().await;
        let stored = BTreeSet::from_iter(whole.drain_bodies(&q).await);
        assert!(acknowledged.is_subset(&stored), "{case}");
        assert_eq!(BTreeSet::from_iter(whole.drain_bodies(&own).await), stored, "{case}");
        let arrived = if stored.is_empty() {
            Vec::new()
        } else {
            whole.claim_all(&queue("target"), stored.len()).await
        };
        assert_eq!(BTreeSet::from_iter(arrived), stored, "{case}");
    }))
    .await;
}

/// Posts, new and deleted subscriptions, and crashes in any order: a subscription that stays gets each message once.
#[tokio::test(flavor = "multi_thread")]
async fn random_history_loses_and_doubles_no_copy() {
    let mut dice = StdRng::seed_from_u64(settings::seed("subscriptions"));
    for _ in 0..settings::number("ANGARIUM_SUBSCRIPTION_HISTORIES", 6) {
        let (lives, q) = (Lives::new(), queue("q"));
        let (mut whole, mut plan) = lives.whole().await;
        let (_, stays) = whole.subscribe(&q, "pull:stays").await;
        whole.subscribe(&q, "queue:target").await;
        let mut passing = Vec::new();
        for step in 0..40 {
            match dice.random_range(0..10) {
                0 => {
                    let created = whole.broker.subscription_create(&q, new(&format!("pull:{step}"))).await;
                    passing.extend(created.ok().map(|new| new.id));
                }
                1 => {
                    if let Some(id) = passing.pop() {
                        let _ = whole.broker.subscription_delete(&q, id).await;
                    }
                }
                2 => {
                    let fault = [Fault::NotSent, Fault::UnknownAfter][dice.random_range(0..2)];
                    plan.next(&vec![fault; FOR_EVER]);
                    plan.skip(dice.random_range(0..4));
                    let posts =
                        (0..4).map(|_| whole.broker.messages_post(&q, vec![with_body(&next_body())], None));
                    let _ = tokio::time::timeout(Duration::from_millis(100), join_all(posts)).await;
                    whole.broker.stop().await;
                    (whole, plan) = lives.whole().await;
                }
                _ => {
                    let posts = (0..3).map(|_| {
                        let messages = vec![with_body(&next_body()), with_body(&next_body())];
                        whole.broker.messages_post(&q, messages, None)
                    });
                    join_all(posts).await.into_iter().for_each(|posted| drop(posted.unwrap()));
                }
            }
        }
        let stored = BTreeSet::from_iter(whole.drain_bodies(&q).await);
        assert!(stored.len() > 20, "{}", stored.len());
        for at in [&stays, &queue("target")] {
            let copies = whole.claim_all(at, stored.len()).await;
            assert_eq!(BTreeSet::from_iter(copies), stored, "{at:?}");
        }
    }
}
