//! Lists, pops and bulk deletions while time passes.

use angarium_broker::MessageFilter;
use angarium_core::claim::Holdings;
use angarium_core::ids::MessageId;
use angarium_core::limits::Limits;
use angarium_core::page::{PageLimit, PopCount};

use super::{Whole, limit, queue, terms, whole};

async fn listed(whole: &Whole, includes_claimed: bool) -> Vec<MessageId> {
    let (after, limit) = (MessageId::ZERO, PageLimit::new(Some(20), Limits::ZAQAR.messages_page).unwrap());
    let filter = MessageFilter { after, limit, not_of: None, includes_claimed, includes_delayed: false };
    let page = whole.broker.messages_list(&queue("q"), &filter).await.unwrap();
    page.messages.iter().map(|message| message.id).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_message_is_never_listed_read_or_popped() {
    let whole = whole().await;
    let mut ids = whole.post(&queue("q"), 2, 60).await;
    let live = whole.post(&queue("q"), 2, 3_600).await;
    ids.extend(&live);
    assert_eq!(listed(&whole, false).await, ids);
    whole.clock.advance(60_000);
    assert_eq!(listed(&whole, false).await, live);
    assert_eq!(listed(&whole, true).await, live);
    let read = whole.broker.messages_get(&queue("q"), &ids).await.unwrap();
    assert_eq!(read.iter().map(|message| message.id).collect::<Vec<_>>(), live);
    let popped =
        whole.broker.messages_pop(&queue("q"), PopCount::new(20, &Limits::ZAQAR).unwrap()).await.unwrap();
    assert_eq!(popped.iter().map(|message| message.id).collect::<Vec<_>>(), live);
}

#[tokio::test(flavor = "multi_thread")]
async fn claimed_message_is_listed_while_its_claim_keeps_it() {
    let whole = whole().await;
    let ids = whole.post(&queue("q"), 1, 60).await;
    assert_eq!(whole.claim(&queue("q"), 1, 300).await, ids);
    whole.clock.advance(200_000);
    assert_eq!(listed(&whole, true).await, ids);
    assert!(listed(&whole, false).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn only_its_claim_lets_a_claimed_message_be_deleted_in_bulk() {
    let whole = whole().await;
    let ids = whole.post(&queue("q"), 2, 3_600).await;
    let claim = whole.broker.claim_create(&queue("q"), terms(60), limit(1)).await.unwrap();
    let (view, mut delivery_guard) = claim.unwrap();
    delivery_guard.done();
    let all = |claims: Vec<_>| {
        let (broker, ids) = (whole.broker.clone(), ids.clone());
        async move { broker.messages_delete(&queue("q"), ids, Holdings::of_claims(&claims)).await }
    };
    assert_eq!(all(vec![]).await.unwrap_err().code(), "claimed");
    let stats = whole.broker.queue_stats(&queue("q")).await.unwrap();
    assert_eq!((stats.claimed, stats.free), (1, 1));
    assert!(all(vec![view.id]).await.is_ok());
    assert!(listed(&whole, true).await.is_empty());
}

/// In this state Zaqar's Redis driver answers 503 until an operator runs its sweeper.
#[tokio::test(flavor = "multi_thread")]
async fn stats_work_after_claim_and_oldest_message_expired() {
    let whole = whole().await;
    whole.post(&queue("q"), 1, 60).await;
    let live = whole.post(&queue("q"), 2, 3_600).await;
    assert_eq!(whole.claim(&queue("q"), 2, 60).await.len(), 2);
    whole.clock.advance(400_000);
    let stats = whole.broker.queue_stats(&queue("q")).await.unwrap();
    assert!(stats.claimed + stats.free >= 2, "{stats:?}");
    assert_eq!(stats.newest.map(|newest| newest.id), live.last().copied());
    // The messages of the expired claim return later.
    let mut claimed = whole.claim_soon(&queue("q"), 20).await;
    if claimed.len() < live.len() {
        claimed.extend(whole.claim_soon(&queue("q"), 20).await);
    }
    claimed.sort_unstable();
    assert_eq!(claimed, live);
    // The expired message is removed later too.
    let stats = async || whole.broker.queue_stats(&queue("q")).await.unwrap();
    let is_gone = async || {
        let stats = stats().await;
        (stats.claimed, stats.free) == (2, 0)
    };
    super::transfers::until("only what is claimed is left", is_gone).await;
}
