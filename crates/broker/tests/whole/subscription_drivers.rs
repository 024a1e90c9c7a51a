//! Subscriptions in pools of each kind: topics, bounds, gaps and fills, with the same replica started again between them.

use angarium_broker::{Broker, NewSubscription};
use angarium_core::limits::Limits;
use angarium_core::names::{PoolName, QueueRef};
use angarium_core::overflow::Omissions;
use angarium_core::pool::{PoolChange, PoolUri};

use super::drivers::Stores;
use super::migration::to;
use super::overflow::{backlog, bounded, post, stored, take};
use super::subscriptions::{new, options};
use super::topics::topic;
use super::transfers::until;
use super::{Whole, metadata, queue, replica};
use angarium_testbed::postgres::Postgres;
use angarium_testbed::redis::{Redis, SYNCED};

#[tokio::test(flavor = "multi_thread")]
async fn subscriptions_keep_their_promises_in_each_pool() {
    let redis = Redis::start(SYNCED);
    for uri in [
        "embedded:subscriptions".to_owned(),
        redis.uri("prefix=subscriptions"),
        Postgres::shared().fresh_uri(),
    ] {
        let stores = Stores::new().await;
        let whole = start(&stores).await;
        let pool =
            PoolChange { uri: Some(PoolUri::new(&uri).unwrap()), weight: Some(1), ..PoolChange::default() };
        whole.broker.pool_put(&PoolName::new("a").unwrap(), pool).await.unwrap();
        gap_outlives_a_restart(&stores, whole, &uri).await;
    }
}

async fn start(Stores { catalogue, settings, clock, .. }: &Stores) -> Whole {
    let (catalogue, clock) = (catalogue.clone(), clock.clone());
    let broker = Broker::start(catalogue, settings, replica(), clock.clone(), Limits::ZAQAR).await.unwrap();
    Whole { broker, clock, _data: tempfile::tempdir().unwrap() }
}

async fn gap_outlives_a_restart(stores: &Stores, whole: Whole, uri: &str) {
    let (q, news) = (queue("q"), topic("news"));
    whole.broker.queue_create(&news, metadata("{}")).await.unwrap();
    let (_, readers) = whole.subscribe(&news, "pull:").await;
    let (id, own) = bounded(&whole, &q, "pull:", r#"{"max_messages": 20}"#).await;
    let (dropping, newest) =
        bounded(&whole, &q, "pull:newest", r#"{"max_messages": 3, "overflow": "drop_oldest"}"#).await;
    whole.subscribe(&q, "queue:target").await;
    for first in (0..60).step_by(20) {
        post(&whole, &q, &(first..first + 20).collect::<Vec<_>>()).await.unwrap();
        post(&whole, &news, &[first]).await.unwrap();
    }
    assert_eq!(backlog(&whole, &q, id).await.omissions.left_out, 40, "{uri}");
    assert_eq!(backlog(&whole, &q, dropping).await.omissions.dropped, 57, "{uri}");
    assert_eq!(take(&whole, &own, 20).await, (0..20).collect::<Vec<_>>(), "{uri}");
    // A page is copied, and not the last one.
    until("it does not catch up", async || stored(&whole, &own).await == 20).await;
    whole.broker.stop().await;

    let whole = start(stores).await;
    let mut copies: Vec<usize> = Vec::new();
    until("it does not catch up", async || {
        let is_filling = backlog(&whole, &q, id).await.is_filling;
        let taken = take(&whole, &own, 20).await;
        copies.extend(&taken);
        taken.is_empty() && !is_filling
    })
    .await;
    assert_eq!(copies, (20..60).collect::<Vec<_>>(), "{uri}");
    assert_eq!(backlog(&whole, &q, id).await.omissions, Omissions::default(), "{uri}");
    assert_eq!(take(&whole, &newest, 20).await, [57, 58, 59], "{uri}");
    assert_eq!(take(&whole, &readers, 20).await, [0, 20, 40], "{uri}");
    let oldest = NewSubscription { options: options(r#"{"from": "oldest"}"#), ..new("pull:oldest") };
    let filled = q.of_subscription(whole.broker.subscription_create(&q, oldest).await.unwrap().id);
    for at in [&filled, &queue("target")] {
        until("copies are missing", async || stored(&whole, at).await == 60).await;
    }
    whole.broker.stop().await;
}

/// A queue and its subscriptions move through pools of all kinds, and a broker starts again behind each. All copies are
/// there once, also the ones that a suspended subscription got later.
#[tokio::test(flavor = "multi_thread")]
async fn subscriptions_migrate_through_pools_of_all_kinds() {
    let (redis, stores) = (Redis::start(SYNCED), Stores::new().await);
    let mut whole = start(&stores).await;
    let pools = [
        ("redis", redis.uri("prefix=moving"), 1),
        ("postgres", Postgres::shared().fresh_uri(), 0),
        ("disk", "embedded:moving".to_owned(), 0),
    ];
    for (name, uri, weight) in pools {
        let uri = Some(PoolUri::new(&uri).unwrap());
        let pool = PoolChange { uri, weight: Some(weight), ..PoolChange::default() };
        whole.broker.pool_put(&PoolName::new(name).unwrap(), pool).await.unwrap();
    }
    let q = queue("q");
    let (_, own) = whole.subscribe(&q, "pull:").await;
    whole.subscribe(&q, "queue:target").await;
    let (full, suspended) = bounded(&whole, &q, "pull:full", r#"{"max_messages": 20}"#).await;
    let bodies = |first: usize| (first..first + 20).collect::<Vec<_>>();
    post(&whole, &q, &bodies(0)).await.unwrap();
    let mut late: Vec<usize> = Vec::new();
    for (number, pool) in (1..).zip(["postgres", "disk", "redis"]) {
        whole.broker.queue_migrate(&q, to(pool)).await.unwrap();
        post(&whole, &q, &bodies(20 * number)).await.unwrap();
        late.extend(take(&whole, &suspended, 20).await);
        whole.arrived(&q).await;
        let report = whole.broker.pool_report(&PoolName::new(pool).unwrap()).await.unwrap();
        assert!(report.usage.is_none_or(|usage| usage.messages > 0), "{pool}");
        whole.broker.stop().await;
        whole = start(&stores).await;
    }
    until("it does not catch up", async || {
        late.extend(take(&whole, &suspended, 20).await);
        late.len() == 80 && !backlog(&whole, &q, full).await.is_filling
    })
    .await;
    late.sort_unstable();
    assert_eq!(late, (0..80).collect::<Vec<_>>());
    assert_eq!(take_all(&whole, &own).await, (0..80).collect::<Vec<_>>());
    let target = queue("target");
    until("copies are missing", async || stored(&whole, &target).await == 80).await;
    whole.broker.stop().await;
}

/// Claims and deletes all messages of a queue. Returns their bodies in the order of their claims.
async fn take_all(whole: &Whole, at: &QueueRef) -> Vec<usize> {
    let mut bodies = Vec::new();
    loop {
        let taken = take(whole, at, 20).await;
        if taken.is_empty() {
            return bodies;
        }
        bodies.extend(taken);
    }
}
