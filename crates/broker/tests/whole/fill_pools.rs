//! Fills of subscriptions beside slow pools: each fill has the messages on their way to a pool, and delays no other.

use angarium_broker::limits::MOVE_MESSAGES;
use angarium_core::names::QueueRef;
use tokio::task::JoinSet;

use super::faulty::Fault;
use super::hanging::{Pools, neighbours};
use super::migration::to;
use super::subscription_fill::from_oldest;
use super::subscriptions::{next_body, with_body};
use super::transfers::until;
use super::{Whole, queue};

/// Waits until the subscriptions of a queue were looked at since the call: a round looks at each source once.
async fn await_fill_round(whole: &Whole, beside: &QueueRef) {
    // In another slot, since a held batch delays all later ones of its slot.
    let mut names = (0..).map(|number| queue(&format!("n{number}")));
    let other = names.find(|at| at.slot() != beside.slot()).unwrap();
    whole.post_many(&other, 1).await;
    for subscriber in ["pull:one", "pull:two"] {
        let own = whole.subscribe_from_oldest(&other, subscriber).await;
        until("the round does not end", async || whole.broker.queue_stats(&own).await.unwrap().free == 1)
            .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fill_in_a_migration_awaits_posts_to_the_older_pool() {
    let (pools, q) = (Pools::new(), queue("q"));
    let whole = pools.start().await;
    let mut posted = whole.post_many(&q, 3).await;
    pools.plan_of_a.next(&[Fault::Held]);
    let (broker, at, late) = (whole.broker.clone(), q.clone(), next_body());
    posted.push(late.clone());
    let mut posting = JoinSet::new();
    posting.spawn(async move { broker.messages_post(&at, vec![with_body(&late)], None).await });
    until("the post is not sent", async || pools.plan_of_a.is_done()).await;
    whole.broker.queue_migrate(&q, to("b")).await.unwrap();
    // The post began before the subscription, so its batch has no copy.
    let own = whole.subscribe_from_oldest(&q, "pull:").await;
    await_fill_round(&whole, &q).await;
    pools.plan_of_a.release();
    posting.join_next().await.unwrap().unwrap().unwrap();
    assert_eq!(whole.claim_all(&own, 4).await, posted);
}

#[tokio::test(flavor = "multi_thread")]
async fn hanging_pool_stops_no_fill_in_another_pool() {
    let (pools, (in_a, in_b)) = (Pools::new(), neighbours());
    let whole = pools.start().await;
    whole.create_in_both(&in_a, &in_b).await;
    let stuck = whole.post_many(&in_a, 3).await;
    // Several pages: the fill of the other queue has its turn between two of them.
    let posted = whole.post_many(&in_b, 2 * MOVE_MESSAGES + 1).await;
    pools.plan_of_a.next(&[Fault::Held]);
    let (broker, at) = (whole.broker.clone(), in_a.clone());
    let mut subscribing = JoinSet::new();
    subscribing.spawn(async move { broker.subscription_create(&at, from_oldest("pull:")).await });
    // The end of its fill is being written.
    until("the fill does not begin", async || pools.plan_of_a.is_done()).await;
    pools.stores[0].hang(true);
    let own = whole.subscribe_from_oldest(&in_b, "pull:").await;
    assert_eq!(whole.claim_all(&own, posted.len()).await, posted);
    pools.stores[0].hang(false);
    pools.plan_of_a.release();
    let created = subscribing.join_next().await.unwrap().unwrap().unwrap();
    assert_eq!(whole.claim_all(&in_a.of_subscription(created.id), 3).await, stuck);
}
