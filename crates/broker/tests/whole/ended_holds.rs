//! Holds that end by themselves while the pool of their queue hangs.

use std::time::Duration;

use angarium_broker::HoldTerms;
use angarium_core::group::GroupName;

use tokio::task::JoinSet;
use tokio::time::Instant;

use super::hanging::{Pools, neighbours};
use super::holds::claims_held;

/// Longer than a request waits for a task that hangs.
const LONGER: Duration = Duration::from_secs(6);

/// The gate of the queue is held by a task that hangs in the pool. Another queue of the slot is served all the time.
#[tokio::test(flavor = "multi_thread")]
async fn ended_holds_of_a_hanging_pool_disturb_no_other_queue() {
    let pools = Pools::new();
    let (in_a, in_b) = neighbours();
    let before = pools.start().await;
    before.create_in_both(&in_a, &in_b).await;
    let until = Some(before.clock.now().plus_seconds(60));
    let ending = || HoldTerms { until, ..claims_held() };
    before.broker.queue_hold(&in_a, ending()).await.unwrap();
    before.broker.group_hold(&in_a, &GroupName::new("g", "group").unwrap(), ending()).await.unwrap();
    before.broker.stop().await;
    drop(before);

    let whole = pools.start().await;
    assert!(whole.claim(&in_b, 1, 60).await.is_empty());
    pools.stores[0].hang(true);
    let (broker, at) = (whole.broker.clone(), in_a.clone());
    let mut stuck = JoinSet::new();
    stuck.spawn(async move { broker.queue_stats(&at).await });
    tokio::time::sleep(Duration::from_millis(200)).await;
    whole.clock.advance(61_000);
    let begun = Instant::now();
    while begun.elapsed() < LONGER {
        assert!(whole.claim(&in_b, 1, 60).await.is_empty());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(stuck.try_join_next().is_none());
    pools.stores[0].hang(false);
    stuck.join_next().await.unwrap().unwrap().unwrap();
    let is_held = async || whole.broker.queue_hold_get(&in_a).await.is_ok();
    super::transfers::until("the hold stays", async || !is_held().await).await;
}
