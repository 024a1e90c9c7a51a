//! Removal of a pool that is gone for good: its queues continue empty in the pools that are left.

use std::sync::atomic::Ordering;
use std::time::Duration;

use angarium_broker::Destination;
use angarium_cluster::peer_client::{ClosedPool, LeaveRequest};
use angarium_core::error::Error;
use angarium_core::ids::MessageId;
use angarium_core::names::{FlavorName, PoolName, QueueRef};
use angarium_core::settle::Verdict;
use tokio::task::JoinSet;

use super::deadletters::FOR_EVER;
use super::faulty::Fault;
use super::hanging::Pools;
use super::settle::{entry, forwarding, hold, name, settle_one};
use super::transfers::until;
use super::{Whole, limit, metadata, queue, terms};

fn pool(name: &str) -> PoolName {
    PoolName::new(name).unwrap()
}

/// Queues in each pool, with two messages each, of which one is claimed.
async fn filled(pools: &Pools) -> Whole {
    let whole = pools.start().await;
    let (in_a, in_b) = (queue("qa"), queue("qb"));
    for (at, other, own) in [(&in_a, "b", "a"), (&in_b, "a", "b")] {
        whole.weigh(own, 1).await;
        whole.weigh(other, 0).await;
        whole.broker.queue_create(at, metadata(r#"{"colour": "red"}"#)).await.unwrap();
        whole.post(at, 2, 3_600).await;
        whole.claim(at, 1, 60).await;
    }
    whole.weigh("a", 1).await;
    whole
}

async fn total(whole: &Whole, at: &QueueRef) -> u64 {
    let stats = whole.broker.queue_stats(at).await.unwrap();
    assert!(stats.exists, "{}", at.name);
    stats.free + stats.claimed
}

/// Waits until the slot of a queue that keeps its other pool is recovered, which may take longer than a request waits.
async fn until_recovered(whole: &Whole, at: &QueueRef) {
    until("the slot is not recovered", async || whole.broker.queue_stats(at).await.is_ok()).await;
}

async fn is_copying(whole: &Whole, at: &QueueRef) -> bool {
    whole.broker.migration_get(at).await.is_ok_and(|migration| migration.copied > 0)
}

async fn assert_restarted(whole: &Whole, at: &QueueRef) {
    assert_eq!(total(whole, at).await, 0);
    let kept = whole.broker.queue_metadata(at).await.unwrap().unwrap();
    assert!(kept.as_raw().get().contains("red"));
    let ids = whole.post(at, 3, 3_600).await;
    assert_eq!(whole.claim_soon(at, 10).await, ids);
}

#[tokio::test(flavor = "multi_thread")]
async fn queues_of_dead_pool_continue_empty_elsewhere() {
    let pools = Pools::new();
    let whole = filled(&pools).await;
    let (in_a, in_b) = (queue("qa"), queue("qb"));
    let (claim, views) = hold(&whole.broker, &in_b).await;
    pools.stores[1].is_gone.store(true, Ordering::SeqCst);
    whole.broker.pool_delete_forced(&pool("b")).await.unwrap();
    assert_eq!(whole.broker.pool_get(&pool("b")).await.unwrap_err().code(), "not_found");
    assert_restarted(&whole, &in_b).await;
    assert_eq!(total(&whole, &in_a).await, 2);
    // Nothing of the former queue is in the new one.
    let late = settle_one(&whole.broker, &in_b, claim, forwarding(views[0].id, "qa")).await;
    assert_eq!(late.unwrap_err().code(), "not_found");
    // A repeated removal finds nothing to do.
    whole.broker.pool_delete_forced(&pool("b")).await.unwrap();
    whole.broker.stop().await;
    drop(whole);
    let whole = pools.start_as_stored().await;
    assert_eq!((total(&whole, &in_a).await, total(&whole, &in_b).await), (2, 3));
    until("the record of the former queue stays", async || pools.is_cleaned(&in_b).await).await;
}

/// The removal of a message at its source is under way when the pool of its target is removed: that waits, so that the
/// message is not removed after the target has forgotten it.
#[tokio::test(flavor = "multi_thread")]
async fn transfer_in_progress_ends_before_pool_is_removed() {
    let pools = Pools::new();
    let whole = filled(&pools).await;
    let (in_a, in_b) = (queue("qa"), queue("qb"));
    let (claim, views) = hold(&whole.broker, &in_a).await;
    let mut faults = vec![Fault::None, Fault::HeldAndLost];
    faults.resize(FOR_EVER, Fault::NotSent);
    pools.plan_of_a.next(&faults);
    let moved = Verdict::Move { target: name("qb"), delay: None };
    settle_one(&whole.broker, &in_a, claim, entry(views[0].id, moved)).await.unwrap();
    until("its source is not told", async || pools.plan_of_a.left() == FOR_EVER - 2).await;
    let broker = whole.broker.clone();
    let mut removal = JoinSet::new();
    removal.spawn(async move { broker.pool_delete_forced(&pool("b")).await });
    tokio::time::sleep(Duration::from_secs(7)).await;
    assert!(removal.try_join_next().is_none(), "the source may still remove its message");
    pools.plan_of_a.release();
    removal.join_next().await.unwrap().unwrap().unwrap();
    pools.plan_of_a.clear();
    assert_eq!(whole.claim_soon(&in_b, 10).await, [views[0].id]);
}

/// Two pools of a flavor are removed at once: one of them stays, and takes queues.
#[tokio::test(flavor = "multi_thread")]
async fn refused_removal_leaves_pool_open() {
    let pools = Pools::new();
    let whole = filled(&pools).await;
    let flavor = FlavorName::new("fast").unwrap();
    whole.broker.flavor_put(&flavor, vec![pool("a"), pool("b")]).await.unwrap();
    for round in 0..5 {
        let [first, second] = [pool("a"), pool("b")];
        let removals =
            tokio::join!(whole.broker.pool_delete_forced(&first), whole.broker.pool_delete_forced(&second));
        let results = [removals.0, removals.1];
        assert!(results.iter().any(Result::is_err), "{results:?}");
        let fast = metadata(r#"{"_flavor": "fast"}"#);
        whole.broker.queue_create(&queue(&format!("f{round}")), fast).await.unwrap();
        for missing in ["a", "b"] {
            whole.weigh(missing, 1).await;
        }
        whole.broker.flavor_put(&flavor, vec![pool("a"), pool("b")]).await.unwrap();
    }
}

/// A removal is repeated while the first one is in progress: both do the same work.
#[tokio::test(flavor = "multi_thread")]
async fn repeated_removal_joins_first_one() {
    for _ in 0..3 {
        let pools = Pools::new();
        let whole = filled(&pools).await;
        let (first, second) = (pool("b"), pool("b"));
        let removals =
            tokio::join!(whole.broker.pool_delete_forced(&first), whole.broker.pool_delete_forced(&second));
        assert!(removals.0.is_ok() && removals.1.is_ok(), "{removals:?}");
        assert_eq!(whole.broker.pool_get(&pool("b")).await.unwrap_err().code(), "not_found");
        assert_restarted(&whole, &queue("qb")).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn hanging_pool_is_removed() {
    let pools = Pools::new();
    let whole = filled(&pools).await;
    let in_b = queue("qb");
    pools.stores[1].hang(true);
    let (broker, at, mut stuck) = (whole.broker.clone(), in_b.clone(), JoinSet::new());
    stuck.spawn(async move { broker.message_get(&at, MessageId::ZERO).await.map(drop) });
    whole.broker.pool_delete_forced(&pool("b")).await.unwrap();
    // The time limits of a driver end what hangs.
    pools.stores[1].hang(false);
    drop(stuck.join_next().await.unwrap().unwrap());
    assert_restarted(&whole, &in_b).await;
}

/// An opening hangs in the pool, and holds its queue. Another queue of the slot is in the pool too.
#[tokio::test(flavor = "multi_thread")]
async fn pool_with_hanging_opening_is_removed() {
    let pools = Pools::new();
    let whole = filled(&pools).await;
    let in_b = queue("qb");
    let beside =
        (0..).map(|number| queue(&format!("n{number}"))).find(|at| at.slot() == in_b.slot()).unwrap();
    whole.weigh("a", 0).await;
    whole.broker.queue_create(&beside, metadata(r#"{"colour": "red"}"#)).await.unwrap();
    whole.post(&beside, 2, 3_600).await;
    whole.weigh("a", 1).await;
    whole.broker.stop().await;
    drop(whole);
    let whole = pools.start_as_stored().await;
    pools.stores[1].hang(true);
    let (broker, at, mut stuck) = (whole.broker.clone(), in_b.clone(), JoinSet::new());
    stuck.spawn(async move { broker.queue_stats(&at).await.map(drop) });
    tokio::time::sleep(Duration::from_millis(300)).await;
    let name = pool("b");
    let removal = whole.broker.pool_delete_forced(&name);
    tokio::time::timeout(Duration::from_secs(60), removal).await.expect("it waits for the opening").unwrap();
    for at in [&in_b, &beside] {
        assert_restarted(&whole, at).await;
    }
    pools.stores[1].hang(false);
    drop(stuck.join_next().await.unwrap().unwrap());
    assert_eq!(total(&whole, &beside).await, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn queue_under_migration_keeps_its_other_pool() {
    for lost in ["a", "b"] {
        let pools = Pools::new();
        let whole = filled(&pools).await;
        let at = queue("qa");
        let slow = Destination::new(pool("b"), Some(1)).unwrap();
        whole.post(&at, 40, 3_600).await;
        whole.broker.queue_migrate(&at, slow).await.unwrap();
        until("nothing is copied", async || is_copying(&whole, &at).await).await;
        whole.weigh("b", 1).await;
        whole.broker.pool_delete_forced(&pool(lost)).await.unwrap();
        until_recovered(&whole, &at).await;
        let left = total(&whole, &at).await;
        assert!((1..42).contains(&left), "{left} are left without {lost}");
        assert_eq!(whole.broker.migration_get(&at).await.unwrap_err().code(), "not_found");
        // The claimed message had not left its pool.
        let claimed = whole.broker.queue_stats(&at).await.unwrap().claimed;
        assert_eq!(claimed, u64::from(lost == "b"), "without {lost}");
        let posted = whole.post(&at, 1, 3_600).await;
        whole.clock.advance(61_000);
        let mut claimed = Vec::new();
        until("some messages are not delivered", async || {
            claimed.extend(whole.claim(&at, 20, 300).await);
            claimed.len() as u64 == left + 1
        })
        .await;
        assert!(claimed.contains(&posted[0]));
    }
}

/// A queue under migration keeps its id, and the removed pool keeps its messages. They do not come back when the pool is
/// registered again and takes the queue.
#[tokio::test(flavor = "multi_thread")]
async fn messages_of_removed_pool_do_not_come_back() {
    let pools = Pools::new();
    let whole = filled(&pools).await;
    let at = queue("qa");
    whole.post(&at, 40, 3_600).await;
    let slow = Destination::new(pool("b"), Some(1)).unwrap();
    whole.broker.queue_migrate(&at, slow).await.unwrap();
    until("nothing is copied", async || is_copying(&whole, &at).await).await;
    whole.broker.pool_delete_forced(&pool("b")).await.unwrap();
    until_recovered(&whole, &at).await;
    let left = total(&whole, &at).await;
    assert!((1..42).contains(&left), "{left} are left");
    whole.weigh("b", 1).await;
    whole.broker.queue_migrate(&at, Destination::new(pool("b"), None).unwrap()).await.unwrap();
    assert_eq!(total(&whole, &at).await, left);
    whole.clock.advance(61_000);
    let mut claimed = Vec::new();
    until("some messages are not delivered", async || {
        claimed.extend(whole.claim(&at, 20, 300).await);
        claimed.len() as u64 >= left
    })
    .await;
    assert_eq!((claimed.len() as u64, whole.claim(&at, 20, 300).await.len()), (left, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn pool_without_alternative_is_not_removed() {
    let pools = Pools::new();
    let whole = filled(&pools).await;
    let in_b = queue("qb");
    whole.broker.queue_create(&queue("qc"), metadata("{}")).await.unwrap();
    whole.weigh("a", 0).await;
    let refused = whole.broker.pool_delete_forced(&pool("b")).await.unwrap_err();
    assert!(matches!(refused, Error::Conflict(_)) && refused.nothing_written(), "{refused:?}");
    assert!(refused.to_string().contains("finds no other pool"), "{refused}");
    assert_eq!(total(&whole, &in_b).await, 2);
    // It takes new queues as before.
    whole.broker.queue_create(&queue("new"), metadata("{}")).await.unwrap();
    whole.weigh("a", 1).await;
    whole.broker.pool_delete_forced(&pool("b")).await.unwrap();
    assert_restarted(&whole, &in_b).await;
}

/// The request of a removal that was given up arrives at the owner of a slot: the pool serves again.
#[tokio::test(flavor = "multi_thread")]
async fn late_request_of_removal_discards_nothing() {
    let pools = Pools::new();
    let whole = filled(&pools).await;
    let in_b = queue("qb");
    let refused = whole.broker.pool_delete(&pool("b")).await.unwrap_err();
    assert_eq!(refused.code(), "in_use");
    let id = whole.broker.pool_get(&pool("b")).await.unwrap().pool.id;
    let request = |closed| LeaveRequest { slot: in_b.slot().0, pool: "b".to_owned(), closed };
    for version in [0, 1] {
        let late = request(Some(ClosedPool { id, version }));
        assert!(!whole.broker.leave_pool_local(late).await.unwrap().is_more);
    }
    let older = whole.broker.leave_pool_local(request(None)).await.unwrap_err();
    assert!(older.nothing_written(), "{older:?}");
    assert_eq!(total(&whole, &in_b).await, 2);
    assert_eq!(whole.claim(&in_b, 10, 60).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn queue_of_dead_pool_is_deleted_by_force() {
    let pools = Pools::new();
    let whole = filled(&pools).await;
    let in_b = queue("qb");
    whole.broker.stop().await;
    drop(whole);
    let whole = pools.start().await;
    pools.stores[1].is_gone.store(true, Ordering::SeqCst);
    whole.broker.queue_delete(&in_b).await.unwrap_err();
    whole.broker.queue_delete_forced(&in_b).await.unwrap();
    assert!(!whole.broker.queue_stats(&in_b).await.unwrap().exists);
    // Its data is removed when the pool answers again.
    assert!(!pools.is_cleaned(&in_b).await);
    pools.stores[1].is_gone.store(false, Ordering::SeqCst);
    until("its data stays", async || {
        whole.clock.advance(10_000);
        pools.is_cleaned(&in_b).await
    })
    .await;
    assert!(whole.broker.claim_create(&in_b, terms(60), limit(1)).await.unwrap().is_none());
}
