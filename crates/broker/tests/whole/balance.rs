//! Automatic balance of queues between pools.

use std::sync::Arc;
use std::time::{Duration, Instant};

use angarium_broker::{AutomaticBalance, BalanceRecord, Destination};
use angarium_catalogue::OwnedSlot;
use angarium_core::ids::Slot;
use angarium_core::limits::Limits;
use angarium_core::message::{MessageTtl, NewMessage};
use angarium_core::names::QueueRef;
use angarium_core::pool::PoolChange;
use angarium_engine::placement::Algorithm;
use bytes::Bytes;
use tokio::task::JoinSet;

use super::pools::{Empty, empty, name};
use super::{MAX_WAIT, queue};

/// In milliseconds.
const HOUR: u64 = 3_600_000;

/// Equal queues in the pool `a`, and then an empty pool `b` of the same weight.
pub(super) async fn lopsided(queues: usize) -> Empty {
    let empty = empty(Algorithm::default()).await;
    empty.add("a", 100).await;
    for number in 0..queues {
        let ttl = MessageTtl::new(1_209_600, "ttl", &Limits::ZAQAR).unwrap();
        let message = |_| NewMessage { body: "\"x\"".into(), ttl: Some(ttl), ..NewMessage::default() };
        let at = queue(&format!("q{number}"));
        empty.broker.messages_post(&at, (0..10).map(message).collect(), None).await.unwrap();
    }
    empty.add("b", 100).await;
    empty
}

impl Empty {
    fn balance_quickly(&self) {
        let interval = Duration::from_millis(50);
        self.broker.keep_balanced(AutomaticBalance { rate: 1_000_000, min_gain: 0.1, interval });
    }

    /// Returns the record of the first round that began after the call and has this outcome.
    async fn round(&self, outcome: &str) -> BalanceRecord {
        self.clock.advance(1);
        let (start, since) = (Instant::now(), self.clock.now().as_millis());
        loop {
            let last = self.broker.pool_map().await.unwrap().balance;
            match last {
                Some(last) if last.at >= since && last.outcome.contains(outcome) => return last,
                last => assert!(start.elapsed() < MAX_WAIT, "{last:?}"),
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    async fn pools(&self, queues: usize) -> Vec<String> {
        let mut pools = Vec::new();
        for number in 0..queues {
            pools.push(self.pool_of(&format!("q{number}")).await.unwrap());
        }
        pools
    }

    async fn await_migrations(&self) {
        let start = Instant::now();
        while !self.broker.pool_map().await.unwrap().moves.is_empty() {
            assert!(start.elapsed() < MAX_WAIT);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn new_pool_gets_its_share_by_itself() {
    let empty = lopsided(12).await;
    assert_eq!(empty.broker.pool_map().await.unwrap().balance, None);
    empty.balance_quickly();
    let last = empty.round("is below the minimum of 10 %").await;
    assert_eq!(last.moves.len(), 6, "{last:?}");
    assert!(
        last.moves.iter().all(|one| one.from == "a" && one.to == "b" && one.refused.is_none()),
        "{last:?}"
    );
    let first = "pool a has 100 % of the bytes and 100 % of the writes, its share is 50 %";
    let at_once = last.moves.iter().filter(|one| one.reason == first).count();
    assert_eq!(at_once, 4, "{last:?}");
    empty.await_migrations().await;
    let moved = empty.pools(12).await.into_iter().filter(|pool| pool == "b").count();
    assert_eq!(moved, 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn migrated_queue_rests_and_returns_after_a_day() {
    let empty = lopsided(4).await;
    let to = Destination { pool: name("b"), rate: None };
    empty.broker.queue_migrate(&queue("q0"), to).await.unwrap();
    empty.await_migrations().await;
    // Nearly all of it belongs to the former pool.
    let change = PoolChange { weight: Some(1), ..PoolChange::default() };
    empty.broker.pool_patch(&name("b"), change).await.unwrap();
    empty.balance_quickly();
    empty.round("is below the minimum").await;
    assert_eq!(empty.pools(4).await, ["b", "a", "a", "a"], "it rests");
    empty.clock.advance(2 * HOUR);
    empty.round("is below the minimum").await;
    assert_eq!(empty.pools(4).await, ["b", "a", "a", "a"], "it does not return on the same day");
    empty.clock.advance(22 * HOUR);
    empty.round("1 move of a plan").await;
    empty.await_migrations().await;
    assert_eq!(empty.pools(4).await, ["a", "a", "a", "a"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn resting_queue_moves_to_third_pool_after_an_hour() {
    let empty = lopsided(2).await;
    let to = Destination { pool: name("b"), rate: None };
    empty.broker.queue_migrate(&queue("q0"), to.clone()).await.unwrap();
    empty.broker.queue_migrate(&queue("q1"), to).await.unwrap();
    empty.await_migrations().await;
    empty.add("c", 100).await;
    empty.balance_quickly();
    empty.round("is below the minimum").await;
    empty.clock.advance(HOUR);
    empty.round("1 move of a plan").await;
    empty.await_migrations().await;
    let mut pools = empty.pools(2).await;
    pools.sort();
    assert_eq!(pools, ["b", "c"]);
}

/// A replica that has lost the slot without notice records no round, so it begins no move.
#[tokio::test(flavor = "multi_thread")]
async fn former_owner_of_the_slot_balances_nothing() {
    let empty = lopsided(1).await;
    let former = OwnedSlot::new(Slot(0), 0, 0);
    let written = empty.catalogue.balance_write(&former, &BalanceRecord::default()).await;
    assert!(written.is_err() && former.is_lost(), "{written:?}");
    assert_eq!(empty.catalogue.balance().await.unwrap(), None);
}

impl Empty {
    /// Makes a queue hold this number of large messages and no others.
    async fn fill(&self, at: &QueueRef, messages: usize) {
        self.broker.queue_purge(at).await.unwrap();
        let ttl = MessageTtl::new(1_209_600, "ttl", &Limits::ZAQAR).unwrap();
        let body = Bytes::from(format!("\"{}\"", "x".repeat(20_000)));
        let message = |_| NewMessage { body: body.clone(), ttl: Some(ttl), ..NewMessage::default() };
        if messages > 0 {
            self.broker.messages_post(at, (0..messages).map(message).collect(), None).await.unwrap();
        }
    }
}

/// Each queue may move once a day between two pools, so there are at most eight moves in two days, whatever the load.
#[tokio::test(flavor = "multi_thread")]
async fn swinging_load_moves_queues_once_a_day() {
    let empty = lopsided(4).await;
    for number in [0, 1] {
        let to = Destination { pool: name("b"), rate: None };
        empty.broker.queue_migrate(&queue(&format!("q{number}")), to).await.unwrap();
    }
    empty.await_migrations().await;
    empty.balance_quickly();
    let start = empty.clock.now().as_millis();
    for hour in 0..48_u64 {
        empty.clock.advance(HOUR);
        // The full queues are in one pool, and two hours later they are the others.
        for number in 0..4 {
            let is_full = (number < 2) == (hour / 2).is_multiple_of(2);
            empty.fill(&queue(&format!("q{number}")), if is_full { 10 } else { 0 }).await;
        }
        empty.round("").await;
        empty.await_migrations().await;
    }
    let moves = empty.round("").await.moves;
    assert!(!moves.is_empty() && moves.len() <= 8, "{moves:?}");
    for number in 0..4 {
        let at = queue(&format!("q{number}"));
        let own: Vec<u64> = moves.iter().filter(|one| one.at == at).map(|one| one.since).collect();
        assert!(own.windows(2).all(|pair| pair[0] - pair[1] >= 24 * HOUR), "{moves:?}");
        // A rest begins with the migration before the first round, too.
        let is_rested = |since: &u64| number > 1 || since - start >= HOUR;
        assert!(own.iter().all(is_rested), "{moves:?}");
    }
}

/// A new cluster of four pools whose queues are all in the first.
#[tokio::test(flavor = "multi_thread")]
async fn thousands_of_queues_are_balanced_four_at_once() {
    const QUEUES: usize = 2_000;
    let empty = Arc::new(empty(Algorithm::default()).await);
    empty.add("a", 100).await;
    let mut posting = JoinSet::new();
    for part in 0..20 {
        let empty = Arc::clone(&empty);
        posting.spawn(async move {
            for number in (part..QUEUES).step_by(20) {
                empty.fill(&queue(&format!("q{number}")), 1).await;
            }
        });
    }
    posting.join_all().await;
    for pool in ["b", "c", "d"] {
        empty.add(pool, 100).await;
    }
    let start = Instant::now();
    let plan = empty.broker.balance_plan(1_000).await.unwrap();
    let time = start.elapsed();
    assert!((980..=1_000).contains(&plan.moves.len()) && plan.is_whole, "{}", plan.moves.len());
    assert!(time < Duration::from_secs(20), "a plan has taken {time:?}");
    empty.balance_quickly();
    let start = Instant::now();
    loop {
        let map = empty.broker.pool_map().await.unwrap();
        let moving: u64 = map.moves.values().sum();
        assert!(moving <= 4, "{moving}");
        let begun = map.balance.map_or(0, |balance| balance.moves.len());
        if begun >= 20 {
            break;
        }
        assert!(start.elapsed() < MAX_WAIT, "{begun}");
    }
}
