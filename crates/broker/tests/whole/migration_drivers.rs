//! Migrations between every two kinds of pools, in both directions. The owner dies at each step: before a batch reached
//! its pool, and after that, before any caller knew its outcome.

use std::time::Duration;

use angarium_broker::Broker;
use angarium_core::limits::Limits;
use angarium_core::names::PoolName;
use angarium_core::pool::{PoolChange, PoolUri};
use futures_util::future::join_all;

use super::drivers::Stores;
use super::faulty::Fault;
use super::migration::to;
use super::transfers::until;
use super::{Whole, queue, replica, retention};
use angarium_testbed::postgres::Postgres;
use angarium_testbed::redis::{Redis, SYNCED};

/// More batches than a broker sends before it is stopped.
const FOR_EVER: usize = 1_000;
/// Messages of each queue: they are copied in two parts.
const MESSAGES: usize = 300;
/// Batches of a complete migration, and one more: with this number nothing is interrupted.
const BATCHES: usize = 8;

/// Two pools, `a` and `b`, over which brokers start one after the other.
struct Pools(Stores);

impl Pools {
    async fn new(from: &str, to: &str) -> Self {
        let pools = Self(Stores::new().await);
        let whole = pools.start().await;
        for (name, uri, weight) in [("a", from, 1), ("b", to, 0)] {
            let uri = Some(PoolUri::new(uri).unwrap());
            let change = PoolChange { uri, weight: Some(weight), ..PoolChange::default() };
            whole.broker.pool_put(&PoolName::new(name).unwrap(), change).await.unwrap();
        }
        whole.broker.stop().await;
        pools
    }

    /// Starts the same replica, with empty memory and no planned faults.
    async fn start(&self) -> Whole {
        let Stores { catalogue, settings, clock, plan, .. } = &self.0;
        while plan.left() > 0 {
            plan.take();
        }
        let (catalogue, clock) = (catalogue.clone(), clock.clone());
        let broker =
            Broker::start(catalogue, settings, replica(), clock.clone(), Limits::ZAQAR).await.unwrap();
        Whole { broker, clock, _data: tempfile::tempdir().unwrap() }
    }

    /// A queue whose owner dies after this number of batches of its migration; the last one fails as given.
    async fn die(&self, name: &str, batches: usize, last: Fault) {
        let (whole, at) = (self.start().await, queue(name));
        let ids = whole.post(&at, MESSAGES, 3_600).await;
        self.0.plan.next(&[last]);
        self.0.plan.next(&[Fault::NotSent; FOR_EVER]);
        self.0.plan.skip(batches);
        whole.broker.queue_migrate(&at, to("b")).await.unwrap();
        tokio::time::sleep(Duration::from_millis(200)).await;
        whole.broker.stop().await;
        let whole = self.start().await;
        whole.arrived(&at).await;
        assert_eq!(whole.drain(&at).await, ids, "{name}");
        let held = async |pool| {
            let report = whole.broker.pool_report(&PoolName::new(pool).unwrap()).await.unwrap();
            // A pool on a busy machine may not report it at once.
            report.usage.map(|usage| usage.messages)
        };
        let all = (Some(0), Some(MESSAGES as u64));
        until("all of it lies in the other pool", async || (held("a").await, held("b").await) == all).await;
        whole.broker.queue_delete(&at).await.unwrap();
        until("it is cleaned away", async || held("b").await == Some(0)).await;
        whole.broker.stop().await;
    }
}

/// Copied messages that live by the retention of their queue do so in the new pool too, and are swept there after a
/// start.
#[tokio::test(flavor = "multi_thread")]
async fn messages_by_queue_stay_so_between_any_two_kinds_of_pools() {
    let redis = Redis::start(SYNCED);
    let uris = [
        ("disk", "embedded:by-queue".to_owned()),
        ("redis", redis.uri("prefix=by-queue")),
        ("postgres", Postgres::shared().fresh_uri()),
    ];
    for (place, (from, _)) in uris.iter().enumerate() {
        let (to_name, to_uri) = &uris[(place + 1) % uris.len()];
        // Each storage is a pool once.
        let from_uri = match *from {
            "disk" => "embedded:by-queue-from".to_owned(),
            "redis" => redis.uri("prefix=by-queue-from"),
            _ => Postgres::shared().fresh_uri(),
        };
        let pools = Pools::new(&from_uri, to_uri).await;
        let (whole, at) = (pools.start().await, queue("q"));
        whole.broker.queue_create(&at, retention::keeping(3_600)).await.unwrap();
        let sent = retention::send(&whole.broker, &at, 300).await;
        whole.clock.advance(1_000_000);
        let posted = whole.post(&at, 1, 43_200).await;
        whole.broker.queue_migrate(&at, to("b")).await.unwrap();
        whole.arrived(&at).await;
        whole.broker.stop().await;
        let whole = pools.start().await;
        assert!(whole.broker.message_get(&at, sent[0]).await.is_ok(), "{from} to {to_name}");
        retention::retain(&whole.broker, &at, 900).await;
        assert!(whole.broker.message_get(&at, sent[0]).await.is_err(), "{from} to {to_name}");
        retention::await_total(&whole.broker, &at, 1).await;
        assert!(whole.broker.message_get(&at, posted[0]).await.is_ok(), "{from} to {to_name}");
        whole.broker.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn owner_death_between_any_pool_kinds_costs_no_message() {
    let redis = Redis::start(SYNCED);
    let uri = |kind: &str, way: usize| match kind {
        "redis" => redis.uri(&format!("prefix={kind}{way}")),
        "postgres" => Postgres::shared().fresh_uri(),
        _ => format!("embedded:{kind}{way}"),
    };
    let kinds = ["disk", "redis", "postgres"];
    let ways = kinds.iter().flat_map(|from| kinds.iter().map(move |to| (*from, *to)));
    let ways = ways.filter(|(from, to)| from != to).enumerate();
    let mut all = Vec::new();
    for (way, (from, to)) in ways {
        // One after the other, because the creation of a schema has a timeout.
        all.push((from, to, Pools::new(&uri(from, way), &uri(to, way)).await));
    }
    join_all(all.iter().map(|(from, to, pools)| async move {
        for batches in 0..=BATCHES {
            for (last, fault) in [("before", Fault::NotSent), ("after", Fault::UnknownAfter)] {
                let name = format!("{from}-{to}-{batches}-{last}");
                pools.die(&name, batches, fault).await;
            }
        }
    }))
    .await;
}
