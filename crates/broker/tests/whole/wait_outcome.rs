//! Waits for the outcomes of messages.

use std::time::{Duration, Instant};

use angarium_broker::{Broker, MessageStatus};
use angarium_core::claim::ClaimWait;
use angarium_core::error::{Error, ErrorCode};
use angarium_core::ids::{ClaimId, MessageId};
use angarium_core::limits::OUTCOME_WAITERS;
use angarium_core::names::QueueRef;
use angarium_core::settle::{MessageState, Retry, Verdict};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::budgets::measured;
use super::faulty::Fault;
use super::outcomes::faulty;
use super::recovery::take_slot_of;
use super::requeue::{done, failed, post_kept, settled};
use super::settle::{entry, hold, name, settle_one};
use super::transfers::until;
use super::{MAX_WAIT, Whole, limit, queue, terms, whole};

type StatusResult = Result<MessageStatus, Error>;

/// The number of waiters; set for the child process that measures.
const WAITERS: &str = "ANGARIUM_TEST_OUTCOME_WAITERS";
/// Bytes that one waiter may cost.
const WAITER_BYTES: usize = 10_000;

fn seconds(seconds: i64) -> ClaimWait {
    ClaimWait::new(Some(seconds)).unwrap()
}

/// Waits for the outcome of a message, in a task of its own. The task is waiting when this returns.
async fn wait(tasks: &mut JoinSet<StatusResult>, broker: &Broker, at: &QueueRef, id: MessageId) {
    let (broker, at) = (broker.clone(), at.clone());
    let mut waiting = Box::pin(async move { broker.message_status(&at, id, seconds(20)).await });
    // Nothing shows that the request waits; it begins at once, and this is long enough for its reads.
    assert!(timeout(Duration::from_millis(50), waiting.as_mut()).await.is_err(), "it waits");
    tasks.spawn(waiting);
    assert!(tasks.try_join_next().is_none(), "all wait");
}

async fn outcome(tasks: &mut JoinSet<StatusResult>) -> StatusResult {
    let begun = Instant::now();
    let outcome = tasks.join_next().await.unwrap().unwrap();
    assert!(begun.elapsed() < Duration::from_secs(15), "it is woken, and does not time out");
    outcome
}

fn state_of(outcome: StatusResult) -> Option<MessageState> {
    match outcome {
        Ok(MessageStatus::Here(view)) => Some(view.state),
        Ok(MessageStatus::Transferred { .. }) => None,
        Err(error) => {
            assert_eq!(error.error_code(), ErrorCode::NotFound, "{error:?}");
            None
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn waiter_gets_result_when_message_is_done() {
    let (whole, q) = (whole().await, queue("q"));
    let id = post_kept(&whole, &q).await;
    let (claim, _) = hold(&whole.broker, &q).await;
    let mut tasks = JoinSet::new();
    wait(&mut tasks, &whole.broker, &q, id).await;
    settle_one(&whole.broker, &q, claim, entry(id, done("{\"pages\":3}"))).await.unwrap();
    let Ok(MessageStatus::Here(view)) = outcome(&mut tasks).await else { panic!("it is kept") };
    assert_eq!(view.state, MessageState::Done);
    assert_eq!(view.extras.unwrap().result.unwrap().as_bytes(), &"{\"pages\":3}");
    // The next request does not wait.
    let again = whole.broker.message_status(&q, id, seconds(20)).await;
    assert_eq!(state_of(again), Some(MessageState::Done));
}

#[tokio::test(flavor = "multi_thread")]
async fn waiters_learn_of_failure_and_removal() {
    let (whole, q) = (whole().await, queue("q"));
    let (broker, mut tasks) = (&whole.broker, JoinSet::new());
    let id = post_kept(&whole, &q).await;
    let (claim, _) = hold(broker, &q).await;
    wait(&mut tasks, broker, &q, id).await;
    wait(&mut tasks, broker, &q, id).await;
    settle_one(broker, &q, claim, entry(id, failed())).await.unwrap();
    for _ in 0..2 {
        assert_eq!(state_of(outcome(&mut tasks).await), Some(MessageState::Failed));
    }
    let ids = whole.post(&q, 4, 3_600).await;
    let (claim, _) = hold(broker, &q).await;
    wait(&mut tasks, broker, &q, ids[0]).await;
    broker.message_delete(&q, ids[0], Some(claim)).await.unwrap();
    assert_eq!(state_of(outcome(&mut tasks).await), None);
    wait(&mut tasks, broker, &q, ids[1]).await;
    settle_one(broker, &q, claim, entry(ids[1], Verdict::Done { result: None })).await.unwrap();
    assert_eq!(state_of(outcome(&mut tasks).await), None);
    wait(&mut tasks, broker, &q, ids[2]).await;
    broker.message_recall(&q, ids[2]).await.unwrap();
    assert_eq!(state_of(outcome(&mut tasks).await), None);
    wait(&mut tasks, broker, &q, ids[3]).await;
    broker.queue_delete(&q).await.unwrap();
    assert_eq!(state_of(outcome(&mut tasks).await), None);
    // No wait for a message that does not exist.
    assert_eq!(state_of(broker.message_status(&q, ids[0], seconds(20)).await), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn waiter_of_moved_message_learns_its_queue() {
    let (whole, q) = (whole().await, queue("q"));
    let (broker, mut tasks) = (&whole.broker, JoinSet::new());
    let id = post_kept(&whole, &q).await;
    let (claim, _) = hold(broker, &q).await;
    wait(&mut tasks, broker, &q, id).await;
    let moved = Verdict::Move { target: name("next"), delay: None };
    settle_one(broker, &q, claim, entry(id, moved)).await.unwrap();
    let Ok(MessageStatus::Transferred { to }) = outcome(&mut tasks).await else { panic!("it has left") };
    assert_eq!(to.as_str(), "next");
    let late = broker.message_status(&q, id, seconds(20)).await.unwrap_err();
    assert_eq!(late.error_code(), ErrorCode::NotFound);
    // At its new queue it is followed like any message.
    let (claim, _) = hold(broker, &queue("next")).await;
    wait(&mut tasks, broker, &queue("next"), id).await;
    settle_one(broker, &queue("next"), claim, entry(id, done("1"))).await.unwrap();
    assert_eq!(state_of(outcome(&mut tasks).await), Some(MessageState::Done));
}

/// No request reaches the queue meanwhile, and no sweep.
#[tokio::test(flavor = "multi_thread")]
async fn waiter_learns_of_end_of_life() {
    let (whole, q) = (whole().await, queue("q"));
    let id = whole.post(&q, 1, 60).await[0];
    whole.clock.advance(59_000);
    let mut tasks = JoinSet::new();
    wait(&mut tasks, &whole.broker, &q, id).await;
    whole.clock.advance(1_000);
    assert_eq!(state_of(outcome(&mut tasks).await), None);
}

/// The claim that is being made has given it a longer life.
#[tokio::test(flavor = "multi_thread")]
async fn message_lives_while_its_claim_is_made() {
    let faulty = faulty().await;
    let (whole, q) = (&faulty.whole, queue("q"));
    let id = whole.post(&q, 1, 60).await[0];
    whole.clock.advance(59_000);
    faulty.tree.next(&[Fault::Held]);
    let look = async {
        until("the claim is not written", async || faulty.tree.is_done()).await;
        whole.clock.advance(2_000);
        let state = state_of(whole.broker.message_status(&q, id, ClaimWait::default()).await);
        faulty.tree.release();
        state
    };
    let ((_, views), state) = tokio::join!(hold(&whole.broker, &q), look);
    assert_eq!((state, views[0].id), (Some(MessageState::Ready), id));
}

#[tokio::test(flavor = "multi_thread")]
async fn wait_ends_with_current_state() {
    let (whole, q) = (whole().await, queue("q"));
    let id = whole.post(&q, 1, 3_600).await[0];
    let current = async |wait| state_of(whole.broker.message_status(&q, id, wait).await);
    assert_eq!(current(ClaimWait::default()).await, Some(MessageState::Ready));
    let begun = Instant::now();
    assert_eq!(current(seconds(1)).await, Some(MessageState::Ready));
    assert!(begun.elapsed() >= Duration::from_secs(1));
    let (claim, _) = hold(&whole.broker, &q).await;
    assert_eq!(current(seconds(1)).await, Some(MessageState::Claimed));
    let retry = Verdict::Fail { reason: None, retry: Retry::After(60) };
    let mut tasks = JoinSet::new();
    wait(&mut tasks, &whole.broker, &q, id).await;
    // It returns, so the wait continues until the service stops.
    settle_one(&whole.broker, &q, claim, entry(id, retry)).await.unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(tasks.try_join_next().is_none());
    whole.broker.stop_waiters();
    assert_eq!(state_of(outcome(&mut tasks).await), Some(MessageState::Delayed));
    assert_eq!(current(seconds(20)).await, Some(MessageState::Delayed), "no request waits any more");
}

#[tokio::test(flavor = "multi_thread")]
async fn waiter_survives_recovery_of_its_slot() {
    for is_stolen in [false, true] {
        let faulty = faulty().await;
        let (whole, q) = (&faulty.whole, queue("q"));
        let (_, first) = settled(whole, &q, done("1")).await;
        let id = post_kept(whole, &q).await;
        let mut tasks = JoinSet::new();
        wait(&mut tasks, &whole.broker, &q, id).await;
        if is_stolen {
            take_slot_of(&faulty, "q").await;
        } else {
            faulty.pool.next(&[Fault::UnknownBefore; 6]);
            whole.broker.message_delete(&q, first, None).await.unwrap_err();
        }
        let claim = claim_when_served(whole, &q).await;
        assert!(tasks.try_join_next().is_none(), "it waits still");
        settle_one(&whole.broker, &q, claim, entry(id, done("2"))).await.unwrap();
        assert_eq!(state_of(outcome(&mut tasks).await), Some(MessageState::Done));
    }
}

/// Claims as soon as the slot is served again: while it is away each claim is refused.
async fn claim_when_served(whole: &Whole, at: &QueueRef) -> ClaimId {
    let begun = Instant::now();
    loop {
        if let Ok(Some((view, mut delivery_guard))) =
            whole.broker.claim_create(at, terms(300), limit(1)).await
        {
            delivery_guard.done();
            return view.id;
        }
        assert!(begun.elapsed() < MAX_WAIT);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn waiters_beyond_bound_are_refused() {
    let (whole, q) = (whole().await, queue("q"));
    let id = whole.post(&q, 1, 3_600).await[0];
    let mut tasks = JoinSet::new();
    for _ in 0..=OUTCOME_WAITERS {
        let (broker, at) = (whole.broker.clone(), q.clone());
        tasks.spawn(async move { broker.message_status(&at, id, seconds(20)).await });
    }
    let refused = tasks.join_next().await.unwrap().unwrap().unwrap_err();
    assert!(matches!(refused, Error::TooMany { bound: OUTCOME_WAITERS, .. }), "{refused:?}");
    whole.broker.message_delete(&q, id, None).await.unwrap();
    while let Some(outcome) = tasks.join_next().await {
        assert_eq!(state_of(outcome.unwrap()), None);
    }
    assert_eq!(state_of(whole.broker.message_status(&q, id, ClaimWait::default()).await), None);
}

/// Bytes of memory that this process uses.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("Linux says it");
    line.trim().trim_end_matches(" kB").parse::<usize>().expect("it is a number") * 1024
}

fn measure(waiters: usize) {
    Runtime::new().unwrap().block_on(async {
        let (whole, q) = (whole().await, queue("q"));
        let ids = whole.post(&q, waiters, 3_600).await;
        // What the first requests need is not the waiters'.
        for id in &ids {
            whole.broker.message_status(&q, *id, ClaimWait::default()).await.unwrap();
        }
        let before = resident();
        let mut tasks = JoinSet::new();
        for id in ids {
            let (broker, at) = (whole.broker.clone(), q.clone());
            tasks.spawn(async move { broker.message_status(&at, id, seconds(20)).await });
        }
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert!(tasks.try_join_next().is_none(), "all wait");
        let grown = resident().saturating_sub(before);
        eprintln!("measured {waiters} waiters: {grown} bytes more, {} in all", before + grown);
        whole.broker.stop_waiters();
        while tasks.join_next().await.is_some() {}
    });
}

#[test]
fn waiter_costs_little_memory() {
    if let Some(waiters) = std::env::var_os(WAITERS) {
        return measure(waiters.to_str().unwrap().parse().unwrap());
    }
    let waiters = 10_000;
    let bytes = measured("wait_outcome::waiter_costs_little_memory", WAITERS, waiters);
    assert!(bytes < waiters * WAITER_BYTES, "{} bytes a waiter", bytes / waiters);
}
