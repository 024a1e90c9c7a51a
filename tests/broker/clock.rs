//! A clock that has made a step of more than a day since the last write (P3).

use angarium::clock::Clock;
use angarium::domain::ids::MessageId;
use angarium::journal::Journal;
use tempfile::TempDir;

use super::{Whole, queue, start};

const NOW: u64 = 1_700_000_000_000;
const DAYS: u64 = 3 * 24 * 3_600 * 1_000;

async fn start_at(data: TempDir, clock: Clock) -> Whole {
    let journal = Journal::open(&data.path().join("journal"), &clock).unwrap();
    let broker = start(journal.clone(), journal, clock.clone()).await;
    Whole { broker, clock, _data: data }
}

/// A service that stopped with a message of an hour and a claim of a minute.
async fn stopped() -> (TempDir, Vec<MessageId>) {
    let whole = start_at(TempDir::new().unwrap(), Clock::manual(NOW)).await;
    let ids = whole.post(&queue("q"), 2, 3_600).await;
    assert_eq!(whole.claim(&queue("q"), 1, 60).await, ids[..1]);
    whole.broker.stop().await;
    let Whole { broker, _data, .. } = whole;
    drop(broker);
    (_data, ids)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_of_days_ends_no_message_and_no_claim() {
    let (data, ids) = stopped().await;
    let whole = start_at(data, Clock::manual(NOW + DAYS)).await;
    assert!(whole.clock.doubt().is_some());
    assert!(whole.broker.readiness().unwrap()[0].contains("--accept-clock"));
    assert_eq!(whole.claim(&queue("q"), 20, 300).await, ids[1..], "one is claimed, and none is expired");
    whole.clock.advance(60_000);
    assert_eq!(whole.claim_soon(&queue("q"), 20).await, ids[..1], "time goes on from the last write");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_is_not_accepted_is_doubted_at_the_next_start_too() {
    let (data, ids) = stopped().await;
    let whole = start_at(data, Clock::manual(NOW + DAYS)).await;
    let posted = whole.post(&queue("q"), 1, 3_600).await;
    whole.broker.stop().await;
    let Whole { broker, _data, .. } = whole;
    drop(broker);
    let whole = start_at(_data, Clock::manual(NOW + DAYS)).await;
    assert!(whole.clock.doubt().is_some());
    assert_eq!(whole.claim(&queue("q"), 20, 300).await, [&ids[1..], &posted].concat());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_an_operator_accepts_counts() {
    let (data, _) = stopped().await;
    let clock = Clock::manual(NOW + DAYS);
    clock.accept_steps();
    let whole = start_at(data, clock).await;
    assert!(whole.broker.readiness().unwrap().is_empty());
    assert!(whole.claim(&queue("q"), 20, 300).await.is_empty(), "their hour is over");
}
