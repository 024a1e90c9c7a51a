//! Holds and the pools of the held queues: an answer waits for them, and no queue moves into a held pool.

use std::sync::atomic::Ordering;

use angarium_core::error::Error;
use angarium_core::group::GroupName;
use angarium_core::hold::HoldTarget;
use angarium_core::names::PoolName;
use angarium_core::pool::PoolChange;
use angarium_engine::placement::Algorithm;

use super::balance::lopsided;
use super::hanging::Pools;
use super::holds::claims_held;
use super::pools::{empty, name};
use super::queue;

fn pool(name: &str) -> HoldTarget {
    HoldTarget::Pool(PoolName::new(name).unwrap())
}

/// An earlier owner pops and posts without a commit in the tree. Only a fence of the pool makes it stop.
#[tokio::test(flavor = "multi_thread")]
async fn hold_is_unconfirmed_until_pool_of_queue_is_fenced() {
    let pools = Pools::new();
    let (at, group) = (queue("q"), GroupName::new("g", "group").unwrap());
    let before = pools.start().await;
    before.post(&at, 1, 3_600).await;
    before.broker.stop().await;
    drop(before);
    pools.stores[0].is_gone.store(true, Ordering::SeqCst);
    let whole = pools.start_as_stored().await;
    let held = whole.broker.queue_hold(&at, claims_held()).await;
    assert!(matches!(&held, Err(error @ Error::Unconfirmed { .. }) if !error.nothing_written()), "{held:?}");
    let held = whole.broker.group_hold(&at, &group, claims_held()).await;
    assert!(matches!(held, Err(Error::Unconfirmed { .. })), "{held:?}");
    // The records are there.
    whole.broker.queue_hold_get(&at).await.unwrap();
    whole.broker.group_hold_get(&at, &group).await.unwrap();
    let fences = || pools.stores[0].fenced().iter().filter(|slot| **slot == at.slot()).count();
    let before = fences();
    pools.stores[0].is_gone.store(false, Ordering::SeqCst);
    whole.broker.queue_hold(&at, claims_held()).await.unwrap();
    // A background task may be the first to use the pool again.
    let fenced = fences();
    assert!(fenced > before, "{fenced}");
    whole.broker.group_hold(&at, &group, claims_held()).await.unwrap();
    assert_eq!(fences(), fenced, "it is fenced already");
}

#[tokio::test(flavor = "multi_thread")]
async fn new_queues_are_placed_in_no_held_pool() {
    let empty = empty(Algorithm::default()).await;
    empty.add("a", 1).await;
    empty.add("b", 1_000).await;
    empty.broker.hold_make(&pool("b"), claims_held()).await.unwrap();
    for number in 0..20 {
        let at = format!("q{number}");
        empty.broker.queue_create(&queue(&at), angarium_core::queue::Metadata::empty()).await.unwrap();
        assert_eq!(empty.pool_of(&at).await.as_deref(), Some("a"));
    }
    // Without another pool a held one is better than none.
    empty.broker.hold_make(&pool("a"), claims_held()).await.unwrap();
    empty.broker.queue_create(&queue("last"), angarium_core::queue::Metadata::empty()).await.unwrap();
    assert!(empty.pool_of("last").await.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn no_queue_moves_into_held_pool() {
    let lopsided = lopsided(10).await;
    assert!(!lopsided.broker.balance_plan(10).await.unwrap().moves.is_empty());
    lopsided.broker.hold_make(&pool("b"), claims_held()).await.unwrap();
    assert!(lopsided.broker.balance_plan(10).await.unwrap().moves.is_empty());
    lopsided.broker.pool_drain(&name("a"), None).await.unwrap();
    tokio::time::sleep(3 * angarium_broker::limits::DRAIN_TICK).await;
    let view = lopsided.broker.pool_drain_get(&name("a")).await.unwrap();
    assert_eq!((view.waiting, view.moving), (10, 0));
    lopsided.broker.hold_release(&pool("b"), None).await.unwrap();
    lopsided
        .broker
        .pool_put(&name("a"), PoolChange { weight: Some(1), ..PoolChange::default() })
        .await
        .unwrap();
    assert!(lopsided.broker.balance_plan(10).await.is_ok());
}
