//! Automatic balance of queues between pools.

use std::time::{Duration, Instant};

use angarium_broker::{AutomaticBalance, BalanceRecord, Destination};
use angarium_catalogue::OwnedSlot;
use angarium_core::ids::Slot;
use angarium_core::limits::Limits;
use angarium_core::message::{MessageTtl, NewMessage};
use angarium_core::pool::PoolChange;
use angarium_engine::placement::Algorithm;

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
