//! Reads need a live lease for their answer; changes do not, since the tree and the pools fence them (P8).

use angarium_broker::QueueFilter;
use angarium_core::error::Error;
use angarium_core::limits::Limits;
use angarium_core::message::NewMessage;
use angarium_core::names::QueueKind;
use angarium_core::page::PageLimit;
use angarium_core::queue::Metadata;

use super::outcomes::faulty;
use super::{limit, queue, terms};

fn assert_refused<T>(answer: Result<T, Error>, what: &str) {
    let error = answer.err().unwrap_or_else(|| panic!("{what} is answered without a lease"));
    assert!(matches!(error, Error::Unavailable { .. }) && error.nothing_written(), "{what}: {error:?}");
}

/// All queues of a project, on one page.
pub(super) fn all_queues() -> QueueFilter {
    let limit = PageLimit::new(Some(20), Limits::ZAQAR.messages_page).unwrap();
    let (after, name_part, prefix, metadata) = (None, None, None, Vec::new());
    QueueFilter {
        kind: QueueKind::Queue,
        after,
        limit,
        name_part,
        prefix,
        metadata,
        is_detailed: false,
        is_counted: true,
        has_counts: false,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn replica_without_lease_answers_nothing_from_memory() {
    let faulty = faulty().await;
    let broker = &faulty.whole.broker;
    let ids = faulty.whole.post(&queue("q"), 2, 3_600).await;
    let claim = broker.claim_create(&queue("q"), terms(300), limit(1)).await.unwrap();
    let (view, mut delivery_guard) = claim.unwrap();
    delivery_guard.done();
    broker.queue_create(&queue("empty"), Metadata::empty()).await.unwrap();
    faulty.tree.cut();
    assert_refused(broker.claim_create(&queue("empty"), terms(60), limit(1)).await, "an empty claim");
    assert_refused(broker.claim_create(&queue("absent"), terms(60), limit(1)).await, "a claim of no queue");
    assert_refused(broker.message_get(&queue("q"), ids[1]).await, "a message");
    assert_refused(broker.claim_get(&queue("q"), view.id).await, "a claim");
    assert_refused(broker.queue_stats(&queue("q")).await, "the statistics");
    assert_refused(broker.queue_metadata(&queue("q")).await, "the metadata");
    assert_refused(broker.queue_create(&queue("q"), Metadata::empty()).await, "a queue that exists");
    assert_refused(broker.message_delete(&queue("q"), ids[0], None).await, "a deletion that is forbidden");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_lease_posts_deletes_and_claims_go_on() {
    let faulty = faulty().await;
    let broker = &faulty.whole.broker;
    let ids = faulty.whole.post(&queue("q"), 2, 3_600).await;
    faulty.tree.cut();
    let message = NewMessage { body: "1".into(), ttl: None, delay: None, ..NewMessage::default() };
    broker.messages_post(&queue("q"), vec![message], None).await.unwrap();
    broker.message_delete(&queue("q"), ids[0], None).await.unwrap();
    // Its record is committed under the fence of the slot.
    assert_eq!(faulty.whole.claim(&queue("q"), 1, 60).await, ids[1..]);
}
