//! The option `rate` of subscriptions to which the service delivers.

use std::time::Duration;

use angarium_broker::NewSubscription;
use angarium_core::names::QueueRef;
use angarium_core::subscription::{Subscriber, SubscriptionChange};
use tokio::time::Instant;

use super::deadletters::Lives;
use super::subscriptions::{new, options};
use super::topics::topic;
use super::transfers::until;
use super::{Whole, metadata, queue, whole};

impl Whole {
    async fn number_in(&self, at: &QueueRef) -> u64 {
        self.broker.queue_stats(at).await.map_or(0, |stats| stats.free)
    }
}

#[tokio::test]
async fn transfers_with_rate_are_spread_over_seconds() {
    let (whole, q) = (whole().await, queue("q"));
    let paced = NewSubscription { options: options(r#"{"rate": 4}"#), ..new("queue:slow") };
    let id = whole.broker.subscription_create(&q, paced).await.unwrap().id;
    whole.subscribe(&q, "queue:fast").await;
    let begin = Instant::now();
    whole.post_bodies(&q, 200, 3_600).await;
    until("the other queue", async || whole.number_in(&queue("fast")).await == 200).await;
    while begin.elapsed() < Duration::from_secs(2) {
        let number = whole.number_in(&queue("slow")).await;
        // Two at the begin, and two after each half second.
        let most = 2 * (1 + begin.elapsed().as_millis() as u64 / 500);
        assert!(number <= most, "{number} after {:?}", begin.elapsed());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    until("the next ones", async || whole.number_in(&queue("slow")).await >= 4).await;
    let change = SubscriptionChange { options: Some(options("{}")), ..SubscriptionChange::default() };
    whole.broker.subscription_change(&q, id, change).await.unwrap();
    until("the rest", async || whole.number_in(&queue("slow")).await == 200).await;
    // At the rate they take fifty seconds.
    assert!(begin.elapsed() < Duration::from_secs(40), "{:?}", begin.elapsed());
}

#[tokio::test]
async fn messages_posted_one_by_one_keep_to_the_rate() {
    let (whole, q) = (whole().await, queue("q"));
    let paced = NewSubscription { options: options(r#"{"rate": 2}"#), ..new("queue:slow") };
    whole.broker.subscription_create(&q, paced).await.unwrap();
    let begin = Instant::now();
    for _ in 0..4 {
        whole.post_bodies(&q, 1, 3_600).await;
    }
    until("the last one", async || whole.number_in(&queue("slow")).await == 4).await;
    assert!(begin.elapsed() >= Duration::from_millis(1_490), "{:?}", begin.elapsed());
}

/// The copies for the first address cannot leave, and have the least ids.
#[tokio::test]
async fn stuck_transfers_hold_up_no_other_at_a_rate() {
    let (lives, q) = (Lives::new(), queue("q"));
    let (whole, _) = lives.whole().await;
    let paced = NewSubscription { options: options(r#"{"rate": 4}"#), ..new("queue:a") };
    let id = whole.broker.subscription_create(&q, paced).await.unwrap().id;
    whole.broker.queue_create(&topic("a"), metadata("{}")).await.unwrap();
    whole.post_bodies(&q, 5, 3_600).await;
    let subscriber = Some(Subscriber::new("queue:b").unwrap());
    let change = SubscriptionChange { subscriber, ..SubscriptionChange::default() };
    whole.broker.subscription_change(&q, id, change).await.unwrap();
    whole.post_bodies(&q, 3, 3_600).await;
    until("the messages for the other queue", async || whole.number_in(&queue("b")).await == 3).await;
    // A replica that has just begun looks for them in the pool.
    whole.broker.stop().await;
    let (whole, _) = lives.whole().await;
    whole.post_bodies(&q, 3, 3_600).await;
    until("the messages after a restart", async || whole.number_in(&queue("b")).await == 6).await;
    assert_eq!(whole.broker.queue_stats(&q.of_subscription(id)).await.unwrap().in_transfer, 5);
}
