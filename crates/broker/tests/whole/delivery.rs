//! Claims whose answer does not reach the client.

use std::future::poll_fn;
use std::task::Poll;

use super::{limit, queue, terms, whole};

#[tokio::test(flavor = "multi_thread")]
async fn undelivered_claim_is_released_at_once() {
    let whole = whole().await;
    let ids = whole.post(&queue("q"), 1, 3_600).await;
    let claim = whole.broker.claim_create(&queue("q"), terms(43_200), limit(1)).await.unwrap();
    drop(claim);
    // The message does not stay under an undelivered claim.
    assert_eq!(whole.claim_soon(&queue("q"), 1).await, ids);
}

#[tokio::test(flavor = "multi_thread")]
async fn client_leaving_during_claim_frees_messages() {
    let whole = whole().await;
    let ids = whole.post(&queue("q"), 1, 3_600).await;
    let at = queue("q");
    let mut claim = Box::pin(whole.broker.claim_create(&at, terms(43_200), limit(1)));
    // Polled once, which begins the claim, and then dropped.
    let _ = poll_fn(|context| Poll::Ready(claim.as_mut().poll(context).map(drop))).await;
    drop(claim);
    // The message does not stay under an undelivered claim.
    assert_eq!(whole.claim_soon(&queue("q"), 1).await, ids);
}
