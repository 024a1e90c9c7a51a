//! Deletion of a queue with forwarded messages: they leave first, or the deletion is refused, or they are discarded.

use std::time::{Duration, Instant};

use angarium_core::delay::Delay;
use angarium_core::error::Error;
use angarium_core::message::NewMessage;
use angarium_core::names::QueueRef;
use angarium_core::settle::{Retry, SettleEntry, Verdict};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::deadletters::FOR_EVER;
use super::faulty::Fault;
use super::hanging::Pools;
use super::outcomes::faulty;
use super::settle::{entry, forward, forwarding, hold, name, settle_one};
use super::transfers::until;
use super::{Whole, queue, whole};

/// Queues `q` and `next`, each in its own pool, whose second one writes nothing; and the forwards of a settle in `q`.
async fn forwarded_to_dead_pool(pools: &Pools) -> Whole {
    let (whole, q, next) = (pools.start().await, queue("q"), queue("next"));
    whole.create_in_both(&q, &next).await;
    whole.post(&q, 2, 3_600).await;
    let (claim, views) = hold(&whole.broker, &q).await;
    pools.plan.next(&vec![Fault::NotSent; FOR_EVER]);
    let moved = Verdict::Move { target: name("next"), delay: None };
    let entries = vec![forwarding(views[0].id, "next"), entry(views[1].id, moved)];
    for result in whole.broker.messages_settle(&q, claim, entries).await.unwrap() {
        result.unwrap();
    }
    whole
}

async fn ready(whole: &Whole, at: &QueueRef) -> u64 {
    whole.broker.queue_stats(at).await.unwrap().ready()
}

#[tokio::test(flavor = "multi_thread")]
async fn queue_with_stuck_forwards_stays_until_forced() {
    let pools = Pools::new();
    let whole = forwarded_to_dead_pool(&pools).await;
    let (q, next) = (queue("q"), queue("next"));
    let begun = Instant::now();
    let refused = whole.broker.queue_delete(&q).await.unwrap_err();
    assert!(refused.nothing_written() && matches!(refused, Error::Busy(_)), "{refused:?}");
    assert!(refused.to_string().contains("forwarded messages have not left the queue"), "{refused}");
    assert!(begun.elapsed() >= Duration::from_secs(4), "it waits for them");
    // Nothing has changed: the queue is used as before.
    let ids = whole.post(&q, 1, 3_600).await;
    assert_eq!(whole.broker.queue_stats(&q).await.unwrap().in_transfer, 2);
    let (claim, views) = hold(&whole.broker, &q).await;
    assert_eq!(views[0].id, ids[0]);
    settle_one(&whole.broker, &q, claim, forwarding(ids[0], "next")).await.unwrap();
    whole.broker.queue_delete_forced(&q).await.unwrap();
    assert!(!whole.broker.queue_stats(&q).await.unwrap().exists);
    // Transfers in progress end, and then the target's pool can be used again: it gets none of them.
    until("transfers are in progress", async || {
        let before = pools.plan.left();
        tokio::time::sleep(Duration::from_secs(3)).await;
        pools.plan.left() == before
    })
    .await;
    pools.plan.clear();
    let posted = whole.post(&next, 1, 3_600).await;
    assert_eq!(whole.claim_soon(&next, 20).await, posted);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(ready(&whole, &next).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn subscription_with_stuck_forwards_stays() {
    let pools = Pools::new();
    let (whole, q, next) = (pools.start().await, queue("q"), queue("next"));
    whole.create_in_both(&q, &next).await;
    let (id, own) = whole.subscribe(&q, "pull:").await;
    whole.post(&q, 1, 3_600).await;
    let (claim, views) = hold(&whole.broker, &own).await;
    pools.plan.next(&vec![Fault::NotSent; FOR_EVER]);
    settle_one(&whole.broker, &own, claim, forwarding(views[0].id, "next")).await.unwrap();
    let refused = whole.broker.subscription_delete(&q, id).await.unwrap_err();
    assert!(refused.nothing_written() && matches!(refused, Error::Busy(_)), "{refused:?}");
    assert_eq!(whole.broker.queue_stats(&own).await.unwrap().in_transfer, 1);
    pools.plan.clear();
    until("the subscription stays", async || whole.broker.subscription_delete(&q, id).await.is_ok()).await;
    until("the forward does not arrive", async || ready(&whole, &next).await == 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn busy_subscription_keeps_no_other_from_its_end() {
    let pools = Pools::new();
    let (whole, q, next) = (pools.start().await, queue("q"), queue("next"));
    whole.create_in_both(&q, &next).await;
    let mut owns = Vec::new();
    for number in 0..6 {
        owns.push(whole.subscribe(&q, &format!("pull:{number}")).await);
    }
    whole.post(&q, 1, 3_600).await;
    for (_, own) in &owns[..4] {
        let (claim, views) = hold(&whole.broker, own).await;
        if pools.plan.is_done() {
            pools.plan.next(&vec![Fault::NotSent; FOR_EVER]);
        }
        settle_one(&whole.broker, own, claim, forwarding(views[0].id, "next")).await.unwrap();
    }
    let begun = Instant::now();
    let refused = whole.broker.subscriptions_delete(&q).await.unwrap_err();
    assert!(matches!(refused, Error::Busy(_)), "{refused:?}");
    // One after the other they take twenty seconds.
    assert!(begun.elapsed() < Duration::from_secs(15), "they are waited for together");
    for (number, (id, _)) in owns.iter().enumerate() {
        assert_eq!(whole.broker.subscription_get(&q, *id).await.is_ok(), number < 4, "{number}");
    }
    pools.plan.clear();
    until("the others stay", async || whole.broker.subscriptions_delete(&q).await.is_ok()).await;
    until("the forwards do not arrive", async || ready(&whole, &next).await == 4).await;
}

/// Deletes a queue whose subscription has a forward that cannot leave for at least this time.
async fn delete_source_with_stuck_forward(stuck: Duration) -> (Pools, Whole, QueueRef) {
    let pools = Pools::new();
    let (whole, q, next) = (pools.start().await, queue("q"), queue("next"));
    whole.create_in_both(&q, &next).await;
    let (_, own) = whole.subscribe(&q, "pull:").await;
    whole.post(&q, 1, 3_600).await;
    let (claim, views) = hold(&whole.broker, &own).await;
    pools.plan.next(&vec![Fault::NotSent; FOR_EVER]);
    settle_one(&whole.broker, &own, claim, forwarding(views[0].id, "next")).await.unwrap();
    whole.broker.queue_delete(&q).await.unwrap();
    assert!(!whole.broker.queue_stats(&q).await.unwrap().exists);
    tokio::time::sleep(stuck).await;
    (pools, whole, own)
}

#[tokio::test(flavor = "multi_thread")]
async fn forward_leaves_subscription_of_deleted_queue() {
    // Longer than until the cleaning of deleted queues begins.
    let (pools, whole, own) = delete_source_with_stuck_forward(Duration::from_secs(2)).await;
    pools.plan.clear();
    until("the forward does not arrive", async || ready(&whole, &queue("next")).await == 1).await;
    until("the subscription stays", async || !whole.broker.queue_stats(&own).await.unwrap().exists).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stuck_forward_ends_with_its_deleted_source() {
    let (pools, whole, own) = delete_source_with_stuck_forward(Duration::from_secs(12)).await;
    until("the subscription stays", async || !whole.broker.queue_stats(&own).await.unwrap().exists).await;
    pools.plan.clear();
    assert_eq!(ready(&whole, &queue("next")).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn deletion_retries_target_and_then_succeeds() {
    let pools = Pools::new();
    let whole = forwarded_to_dead_pool(&pools).await;
    let (q, next) = (queue("q"), queue("next"));
    // The mover has failed, and pauses.
    until("the target is not tried", async || pools.plan.left() < FOR_EVER - 6).await;
    let broker = whole.broker.clone();
    let mut deleting = JoinSet::new();
    deleting.spawn(async move { broker.queue_delete(&queue("q")).await });
    tokio::time::sleep(Duration::from_millis(300)).await;
    pools.plan.clear();
    deleting.join_next().await.unwrap().unwrap().unwrap();
    assert!(!whole.broker.queue_stats(&q).await.unwrap().exists);
    until("the forwards do not arrive", async || ready(&whole, &next).await == 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn settles_beside_deletion_end_and_lose_no_slot() {
    let whole = whole().await;
    for round in 0..10 {
        let q = queue(&format!("q{round}"));
        let mut settles = JoinSet::new();
        for _ in 0..5 {
            whole.post(&q, 4, 3_600).await;
            let (claim, views) = hold(&whole.broker, &q).await;
            for view in views {
                let (broker, q, fail) = (whole.broker.clone(), q.clone(), Retry::After(0));
                let entry = entry(view.id, Verdict::Fail { reason: None, retry: fail });
                settles.spawn(async move { broker.messages_settle(&q, claim, vec![entry]).await });
            }
        }
        let begun = Instant::now();
        whole.broker.queue_delete_forced(&q).await.unwrap();
        while settles.join_next().await.is_some() {}
        // A settle that waits for a change of its claim does so for ten seconds.
        assert!(begun.elapsed() < Duration::from_secs(9), "{:?}", begun.elapsed());
    }
    let page = whole.broker.metrics_page().await;
    assert!(page.contains("angarium_slots_lost_total 0"), "a slot was lost");
}

#[tokio::test(flavor = "multi_thread")]
async fn forced_deletion_of_idle_queue_discards_nothing_else() {
    let faulty = faulty().await;
    let (whole, q) = (&faulty.whole, queue("q"));
    whole.post(&q, 3, 3_600).await;
    whole.broker.queue_delete_forced(&q).await.unwrap();
    whole.broker.queue_delete_forced(&q).await.unwrap();
    assert!(!whole.broker.queue_stats(&q).await.unwrap().exists);
}

#[tokio::test(flavor = "multi_thread")]
async fn settle_in_flight_at_deletion_keeps_its_forward() {
    let faulty = faulty().await;
    let (whole, q, next) = (&faulty.whole, queue("q"), queue("next"));
    // Raises the form of the records, and creates the target.
    whole.post(&q, 1, 3_600).await;
    let (claim, views) = hold(&whole.broker, &q).await;
    settle_one(&whole.broker, &q, claim, forwarding(views[0].id, "next")).await.unwrap();
    let (claim, views) = hold(&whole.broker, &next).await;
    settle_one(&whole.broker, &next, claim, entry(views[0].id, super::settle::DONE)).await.unwrap();

    let ids = whole.post(&q, 20, 3_600).await;
    let (claim, _) = hold(&whole.broker, &q).await;
    faulty.pool.next(&[Fault::Held]);
    let (broker, id) = (whole.broker.clone(), ids[0]);
    let mut settling = JoinSet::new();
    settling.spawn(async move { settle_one(&broker, &queue("q"), claim, forwarding(id, "next")).await });
    until("the settle is not written", async || faulty.pool.is_done()).await;
    let broker = whole.broker.clone();
    let mut deleting = JoinSet::new();
    deleting.spawn(async move { broker.queue_delete(&queue("q")).await });
    // Once the deletion waits for that batch, no further settle begins. One that began before waits behind the batch.
    let mut others = ids[1..].iter();
    until("settles begin all the time", async || {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let defer = entry(*others.next().unwrap(), Verdict::Defer { delay: Delay::Seconds(0) });
        let settle = settle_one(&whole.broker, &q, claim, defer);
        let Ok(late) = timeout(Duration::from_millis(500), settle).await else { return false };
        let late = late.unwrap_err();
        assert!(late.nothing_written() && matches!(late, Error::Unavailable { .. }), "{late:?}");
        true
    })
    .await;
    assert!(deleting.try_join_next().is_none());
    faulty.pool.release();
    let settled = settling.join_next().await.unwrap().unwrap().unwrap();
    deleting.join_next().await.unwrap().unwrap().unwrap();
    let (_, arrived) = hold(&whole.broker, &next).await;
    assert_eq!(arrived.iter().map(|view| view.id).collect::<Vec<_>>(), settled.ids);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_acknowledged_forward_is_lost_with_its_queue() {
    let faulty = faulty().await;
    let (whole, next) = (&faulty.whole, queue("next"));
    let mut acknowledged = Vec::new();
    for round in 0..30 {
        let q = queue(&format!("q{round}"));
        let message = || NewMessage { body: "1".into(), ..NewMessage::default() };
        whole.broker.messages_post(&q, vec![message(), message()], None).await.unwrap();
        let (claim, views) = hold(&whole.broker, &q).await;
        let mut settling = JoinSet::new();
        for view in views {
            let (broker, q) = (whole.broker.clone(), q.clone());
            let settle =
                SettleEntry { forwards: vec![forward("next")], ..entry(view.id, super::settle::DONE) };
            settling.spawn(async move { settle_one(&broker, &q, claim, settle).await });
        }
        tokio::time::sleep(Duration::from_millis(round % 5)).await;
        whole.broker.queue_delete(&q).await.unwrap();
        while let Some(settled) = settling.join_next().await {
            match settled.unwrap() {
                Ok(settled) => acknowledged.extend(settled.ids),
                Err(error) => assert!(error.nothing_written(), "round {round}: {error:?}"),
            }
        }
    }
    assert!(!acknowledged.is_empty());
    let mut found = Vec::new();
    while found.len() < acknowledged.len() {
        let more = whole.claim_soon(&next, 20).await;
        assert!(!more.is_empty(), "{} of {} have arrived", found.len(), acknowledged.len());
        found.extend(more);
    }
    found.sort_unstable();
    acknowledged.sort_unstable();
    assert_eq!(found, acknowledged);
    assert_eq!(ready(whole, &next).await, 0);
}
