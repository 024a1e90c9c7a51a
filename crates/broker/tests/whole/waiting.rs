//! Claims that wait for messages.

use std::pin::{Pin, pin};
use std::time::Duration;

use angarium_broker::{ClaimView, DeliveryGuard};
use angarium_core::claim::{ClaimWait, Claimer};
use angarium_core::delay::Delay;
use angarium_core::error::Error;
use angarium_core::message::NewMessage;
use tokio::task::JoinSet;

use super::metrics::value;
use super::transfers::until;
use super::{Whole, limit, queue, terms, whole};

/// Returns a wait longer than any operation here on a busy machine.
fn long() -> ClaimWait {
    ClaimWait::new(Some(20)).unwrap()
}

/// Number of the claims that wait in line.
async fn in_line(whole: &Whole) -> f64 {
    value(&whole.broker.metrics_page().await, "angarium_waiting_claims", &[])
}

/// Waits for one message, in a task of its own. The task is in line when this returns.
async fn wait_in_line(
    whole: &Whole,
    tasks: &mut JoinSet<(usize, Option<ClaimView>)>,
    number: usize,
    name: &str,
) {
    let (broker, at, before) = (whole.broker.clone(), queue(name), in_line(whole).await);
    tasks.spawn(async move {
        let claim = broker.claim_wait(&at, terms(300), limit(1), long(), Claimer::default()).await.unwrap();
        (
            number,
            claim.map(|(view, mut delivery_guard)| {
                delivery_guard.done();
                view
            }),
        )
    });
    until("the claim does not wait", async || in_line(whole).await > before).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn post_serves_waiters_in_arrival_order() {
    let whole = whole().await;
    // The queue does not exist yet.
    let mut tasks = JoinSet::new();
    for number in 0..3 {
        wait_in_line(&whole, &mut tasks, number, "q").await;
    }
    let ids = whole.post(&queue("q"), 5, 3_600).await;
    for _ in 0..3 {
        let (number, claim) = tasks.join_next().await.unwrap().unwrap();
        assert_eq!(claim.unwrap().messages[0].id, ids[number]);
    }
    assert_eq!(whole.claim(&queue("q"), 20, 300).await, ids[3..]);
}

/// Polls a waiting claim until it is in line.
async fn stand_in_line(
    waits: Pin<&mut impl Future<Output = Result<Option<(ClaimView, DeliveryGuard)>, Error>>>,
) {
    let told = tokio::time::timeout(Duration::from_millis(50), waits).await;
    assert!(told.is_err(), "he was told before his turn: {:?}", told.map(|told| told.map(drop)));
}

/// A late waiter once had the first place of a line, and so had the next waiter of the following line: that one was
/// told that the queue was closed.
#[tokio::test(flavor = "multi_thread")]
async fn late_waiter_drops_no_other() {
    let whole = whole().await;
    let at = queue("q");
    let mut late = pin!(whole.broker.claim_wait(&at, terms(300), limit(1), long(), Claimer::default()));
    tokio::select! {
        told = late.as_mut() => panic!("there is no message yet: {:?}", told.map(drop)),
        () = until("the claim does not wait", async || in_line(&whole).await > 0.0) => {}
    }
    let first = whole.post(&at, 1, 3_600).await;
    let mut next = pin!(whole.broker.claim_wait(&at, terms(300), limit(1), long(), Claimer::default()));
    stand_in_line(next.as_mut()).await;
    let (view, mut delivery_guard) = late.await.unwrap().unwrap();
    delivery_guard.done();
    assert_eq!(view.messages[0].id, first[0]);
    stand_in_line(next.as_mut()).await;
    let second = whole.post(&at, 1, 3_600).await;
    let (view, mut delivery_guard) = next.await.unwrap().unwrap();
    delivery_guard.done();
    assert_eq!(view.messages[0].id, second[0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn unserved_waiter_gets_nothing_at_timeout() {
    let whole = whole().await;
    let wait = ClaimWait::new(Some(1)).unwrap();
    let none =
        whole.broker.claim_wait(&queue("q"), terms(300), limit(1), wait, Claimer::default()).await.unwrap();
    assert!(none.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn release_expiry_and_schedule_serve_waiters() {
    let whole = whole().await;
    let ids = whole.post(&queue("q"), 1, 3_600).await;
    let claim = whole.broker.claim_create(&queue("q"), terms(60), limit(1)).await.unwrap();
    let (view, mut delivery_guard) = claim.unwrap();
    delivery_guard.done();
    let mut tasks = JoinSet::new();
    wait_in_line(&whole, &mut tasks, 0, "q").await;
    whole.broker.claim_release(&queue("q"), view.id).await.unwrap();
    let (_, again) = tasks.join_next().await.unwrap().unwrap();
    assert_eq!(again.unwrap().messages[0].id, ids[0]);

    wait_in_line(&whole, &mut tasks, 1, "q").await;
    whole.clock.advance(300_000);
    let (_, again) = tasks.join_next().await.unwrap().unwrap();
    assert_eq!(again.unwrap().messages[0].id, ids[0]);

    let delay = Some(Delay::Seconds(30));
    let message = vec![NewMessage { body: "1".into(), ttl: None, delay, ..NewMessage::default() }];
    let delayed = whole.broker.messages_post(&queue("q"), message, None).await.unwrap().ids;
    wait_in_line(&whole, &mut tasks, 2, "q").await;
    whole.clock.advance(30_000);
    let (_, due) = tasks.join_next().await.unwrap().unwrap();
    assert_eq!(due.unwrap().messages[0].id, delayed[0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn non_waiting_claim_overtakes_no_waiter() {
    let whole = whole().await;
    let mut tasks = JoinSet::new();
    wait_in_line(&whole, &mut tasks, 0, "q").await;
    // At once, though another waiter is before it.
    assert!(whole.claim(&queue("q"), 1, 300).await.is_empty());
    whole.post(&queue("q"), 1, 3_600).await;
    assert!(whole.claim(&queue("q"), 1, 300).await.is_empty());
    assert!(tasks.join_next().await.unwrap().unwrap().1.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_of_departed_client_serve_the_next_unclaimed() {
    let whole = whole().await;
    let mut gone = JoinSet::new();
    for number in 0..3 {
        wait_in_line(&whole, &mut gone, number, "q").await;
    }
    let mut tasks = JoinSet::new();
    wait_in_line(&whole, &mut tasks, 3, "q").await;
    gone.abort_all();
    let ids = whole.post(&queue("q"), 1, 3_600).await;
    let (_, claim) = tasks.join_next().await.unwrap().unwrap();
    let claim = claim.unwrap();
    assert_eq!((claim.messages[0].id, claim.messages[0].attempts), (ids[0], 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn undelivered_claim_of_waiter_serves_the_next() {
    let whole = whole().await;
    let (broker, at) = (whole.broker.clone(), queue("q"));
    let mut left = JoinSet::new();
    // It waits, gets its claim, and drops it.
    left.spawn(async move {
        drop(broker.claim_wait(&at, terms(300), limit(1), long(), Claimer::default()).await.unwrap())
    });
    tokio::time::sleep(Duration::from_millis(50)).await;
    let mut tasks = JoinSet::new();
    wait_in_line(&whole, &mut tasks, 1, "q").await;
    whole.post(&queue("q"), 1, 3_600).await;
    let (_, claim) = tasks.join_next().await.unwrap().unwrap();
    assert_eq!(claim.unwrap().messages[0].attempts, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn shutdown_ends_waits_with_no_messages() {
    let whole = whole().await;
    let mut tasks = JoinSet::new();
    wait_in_line(&whole, &mut tasks, 0, "q").await;
    whole.broker.stop_waiters();
    assert!(tasks.join_next().await.unwrap().unwrap().1.is_none());
    let late =
        whole.broker.claim_wait(&queue("q"), terms(300), limit(1), long(), Claimer::default()).await.unwrap();
    assert!(late.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_has_an_end() {
    let whole = whole().await;
    let mut tasks = JoinSet::new();
    for _ in 0..=angarium_core::limits::QUEUE_WAITERS {
        let broker = whole.broker.clone();
        tasks.spawn(async move {
            broker.claim_wait(&queue("q"), terms(300), limit(1), long(), Claimer::default()).await.map(drop)
        });
    }
    // The waiter beyond the bound does not wait.
    let refused = tasks.join_next().await.unwrap().unwrap().unwrap_err();
    assert!(matches!(refused, Error::TooMany { .. }), "{refused:?}");
    whole.broker.stop_waiters();
    while let Some(told) = tasks.join_next().await {
        told.unwrap().unwrap();
    }
}
