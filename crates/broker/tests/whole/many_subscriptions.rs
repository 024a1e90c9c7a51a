//! Many subscriptions of one queue: a post, a migration through the death of the owner, a deletion.
//! The tree and the writer of the slot refuse a commit or a batch beyond its bounds.

use std::sync::Arc;
use std::time::Duration;

use angarium_broker::WebhookSender;
use angarium_core::error::Error;
use angarium_core::ids::SubscriptionId;
use angarium_core::limits::{FAN_OUT_COPIES, SUBSCRIPTIONS_OPTIONS_BYTES};
use angarium_core::names::QueueRef;
use angarium_core::subscription::SubscriptionChange;

use super::deadletters::FOR_EVER;
use super::faulty::{Fault, Plan};
use super::migration::{Pools, to};
use super::subscriptions::{new, options, with_body};
use super::transfers::until;
use super::webhooks::ScriptedSender;
use super::{Whole, queue, whole};

/// Subscriptions. A test of the program has as many as there may be.
const ALL: usize = 200;
/// Messages of the post.
const MESSAGES: usize = 3;

async fn subscribe_all(whole: &Whole, at: &QueueRef) -> Vec<SubscriptionId> {
    let mut ids = Vec::with_capacity(ALL);
    for number in 0..ALL {
        ids.push(whole.subscribe(at, &format!("pull:{number}")).await.0);
    }
    ids
}

/// Number of the copies in each of the two pools.
async fn held_by_all(pools: &Pools, ids: &[SubscriptionId]) -> [u64; 2] {
    let mut held = [0; 2];
    for id in ids {
        let [a, b] = pools.held_by(id.0).await;
        held = [held[0] + a, held[1] + b];
    }
    held
}

/// Lets a number of batches pass, and fails the next one with an unknown outcome and all others for certain.
fn die_after(plan: &Plan, batches: usize) {
    plan.next(&[Fault::UnknownAfter]);
    plan.next(&vec![Fault::NotSent; FOR_EVER]);
    plan.skip(batches);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_subscriptions_outlive_death_of_their_owner() {
    let (pools, q) = (Pools::new(), queue("q"));
    let (whole, plan) = pools.start().await;
    let ids = subscribe_all(&whole, &q).await;
    let posted = whole.post_bodies(&q, MESSAGES, 3_600).await;
    let copies = (ALL * MESSAGES) as u64;
    assert_eq!(held_by_all(&pools, &ids).await, [copies, 0]);

    die_after(&plan, ALL);
    whole.broker.queue_migrate(&q, to("b")).await.unwrap();
    until("the owner does not die", async || plan.left() < FOR_EVER).await;
    whole.broker.stop().await;
    let (whole, _) = pools.start().await;
    whole.arrived(&q).await;
    assert_eq!(held_by_all(&pools, &ids).await, [0, copies]);
    assert_eq!(pools.versions_of_subscriptions().await, vec![0; ALL]);
    for id in [ids[0], ids[ALL / 2], ids[ALL - 1]] {
        assert_eq!(whole.claim_all(&q.of_subscription(id), MESSAGES).await, posted);
    }

    whole.broker.queue_delete(&q).await.unwrap();
    until("some stay", async || pools.versions_of_subscriptions().await.is_empty()).await;
    until("copies stay", async || held_by_all(&pools, &ids).await == [0, 0]).await;
}

/// One write of a slot writer is one batch, whatever its size.
#[tokio::test(flavor = "multi_thread")]
async fn post_with_too_many_copies_is_refused() {
    let (whole, q) = (whole().await, queue("q"));
    let mut own = Vec::new();
    for number in 0..40 {
        own.push(whole.subscribe(&q, &format!("pull:{number}")).await.1);
    }
    let post = async |messages: usize| {
        let messages = (0..messages).map(|number| with_body(&number.to_string())).collect();
        whole.broker.messages_post(&q, messages, None).await
    };
    let most = FAN_OUT_COPIES / own.len();
    let refused = post(most + 1).await.unwrap_err();
    assert!(refused.nothing_written() && matches!(refused, Error::Invalid { .. }), "{refused:?}");
    let copies = (most + 1) * own.len();
    let why =
        format!("they have {copies} copies for 40 subscriptions, and at most {FAN_OUT_COPIES} are taken");
    assert!(refused.detail().contains(&why), "{}", refused.detail());
    assert_eq!(whole.broker.queue_stats(&own[0]).await.unwrap().ready(), 0);
    post(most).await.unwrap();
    assert_eq!(whole.broker.queue_stats(&own[39]).await.unwrap().ready(), most as u64);
}

#[tokio::test(flavor = "multi_thread")]
async fn options_of_all_subscriptions_are_bounded_together() {
    let (whole, q) = (whole().await, queue("q"));
    let large = format!(r#"{{"note": "{}"}}"#, "x".repeat(60_000));
    let most = SUBSCRIPTIONS_OPTIONS_BYTES / large.len();
    let subscribe = async |number: usize, json: &str| {
        let subscription =
            angarium_broker::NewSubscription { options: options(json), ..new(&format!("pull:{number}")) };
        whole.broker.subscription_create(&q, subscription).await
    };
    let mut last = None;
    for number in 0..most {
        last = Some(subscribe(number, &large).await.unwrap().id);
    }
    assert_eq!(subscribe(most, &large).await.unwrap_err().code(), "too_many");
    let small = subscribe(most, "{}").await.unwrap().id;
    let change = async |id, json: &str| {
        let change = SubscriptionChange { options: Some(options(json)), ..SubscriptionChange::default() };
        whole.broker.subscription_change(&q, id, change).await
    };
    assert_eq!(change(small, &large).await.unwrap_err().code(), "too_many");
    // Its own former options are replaced.
    change(last.unwrap(), &large).await.unwrap();
    change(last.unwrap(), "{}").await.unwrap();
    change(small, &large).await.unwrap();
}

/// A subscriber that never answers keeps its own requests, and none of the others.
#[tokio::test(flavor = "multi_thread")]
async fn hanging_webhook_delays_none_of_many() {
    let (whole, q) = (whole().await, queue("orders"));
    let sender = Arc::new(ScriptedSender::default());
    whole.broker.webhooks_send_by(Arc::clone(&sender) as Arc<dyn WebhookSender>);
    whole.subscribe(&q, "https://hanging.example/hook").await;
    for number in 1..ALL {
        whole.subscribe(&q, &format!("https://a.example/hook/{number}")).await;
    }
    // More than the hanging one may have under way.
    whole.post_bodies(&q, 12, 300).await;
    let all = 12 * (ALL - 1);
    until("deliveries", async || sender.delivered() == all).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(sender.delivered(), all, "none is sent twice");
    assert!(sender.most_at_once() <= angarium_broker::limits::WEBHOOK_ACCOUNT_REQUESTS);
}
