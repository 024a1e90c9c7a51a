//! The key of receipts is replaced while the broker runs: receipts of both keys are valid, each for its time.

use std::sync::Arc;

use angarium_broker::Broker;
use angarium_catalogue::{Catalogue, Schema};
use angarium_clock::Clock;
use angarium_coordination::Coordination;
use angarium_coordination::embedded::EmbeddedTree;
use angarium_core::error::Error;
use angarium_core::limits::{Limits, RECEIPT_KEY_LEAD_SECONDS, VISIBILITY};
use angarium_core::receipt::ReceiptKey;
use angarium_core::time::Timestamp;
use angarium_storage::embedded::EmbeddedPool;

use super::{Whole, one_pool, open_journal, other_replica, queue, replica};

const LEAD: u64 = RECEIPT_KEY_LEAD_SECONDS as u64 * 1_000;
const LONGEST: u64 = VISIBILITY.1 as u64 * 1_000;
const DAY: i64 = 24 * 3_600;

/// A broker, and its tree as another replica sees it.
async fn beside() -> (Whole, Catalogue, Arc<EmbeddedTree>) {
    let (data, clock) = (tempfile::tempdir().unwrap(), Clock::manual(1_700_000_000_000));
    let journal = open_journal(data.path(), "journal");
    let tree = Arc::new(EmbeddedTree::open(journal.clone()).await.unwrap());
    let settings = one_pool(Arc::new(EmbeddedPool::new(journal)));
    let catalogue = Catalogue::new(tree.clone());
    let broker = Broker::start(catalogue, &settings, replica(), clock.clone(), Limits::ZAQAR).await.unwrap();
    let other = Catalogue::new(tree.clone());
    (Whole { broker, clock, _data: data }, other, tree)
}

async fn delete(whole: &Whole, handle: &str) -> Result<(), Arc<Error>> {
    whole.broker.receipts_delete(&queue("q"), &[handle]).await.unwrap().remove(0)
}

fn is_of(key: u8, handle: &str) -> bool {
    ReceiptKey::new([key; 32]).open(handle, Timestamp::from_millis(0)).is_some()
}

#[tokio::test]
async fn receipts_of_both_keys_are_valid_for_their_time() {
    let whole = super::whole().await;
    let at = queue("q");
    whole.post(&at, 5, 3 * DAY).await;
    let none = whole.broker.receipt_key_rotate().await.unwrap_err();
    assert!(matches!(&none, Error::Conflict(why) if why.contains("there is no key")), "{none:?}");
    let before = [whole.receive_one(&at).await, whole.receive_one(&at).await];
    let rotation = whole.broker.receipt_key_rotate().await.unwrap();
    assert_eq!(rotation.since, whole.clock.now().plus_seconds(RECEIPT_KEY_LEAD_SECONDS));
    assert_eq!(rotation.expires.as_millis() - rotation.since.as_millis(), LONGEST);
    let again = whole.broker.receipt_key_rotate().await.unwrap_err();
    assert!(matches!(&again, Error::Conflict(why) if why.contains("being changed")), "{again:?}");
    whole.clock.advance(LEAD - 1);
    let between = whole.receive_one(&at).await;
    whole.clock.advance(1);
    let after = whole.receive_one(&at).await;
    for handle in [&before[0], &between, &after] {
        delete(&whole, handle).await.unwrap();
    }
    let late = whole.receive_one(&at).await;
    whole.clock.advance(LONGEST);
    let expired = delete(&whole, &before[1]).await.unwrap_err();
    assert!(matches!(&*expired, Error::BadReceipt), "{expired:?}");
    delete(&whole, &late).await.unwrap();
}

/// As after a rotation at another replica.
#[tokio::test]
async fn key_of_another_replica_is_used_without_a_restart() {
    let (whole, other, _) = beside().await;
    let at = queue("q");
    whole.post(&at, 3, DAY).await;
    let first = whole.receive_one(&at).await;
    other.receipt_key_rotate([8; 32], whole.clock.now()).await.unwrap();
    assert!(!is_of(8, &whole.receive_one(&at).await));
    whole.clock.advance(LEAD);
    let second = whole.receive_one(&at).await;
    assert!(is_of(8, &second) && !is_of(8, &first));
    delete(&whole, &first).await.unwrap();
    delete(&whole, &second).await.unwrap();
}

#[tokio::test]
async fn rotation_waits_for_older_replicas() {
    let (whole, other, tree) = beside().await;
    let at = queue("q");
    whole.post(&at, 1, DAY).await;
    whole.receive_one(&at).await;
    let record = tree.get("/meta/receipts").await.unwrap();
    let registry = other.registry().await.unwrap();
    other.component_join(&registry, "older", &other_replica(Schema::SEALED)).await.unwrap().unwrap();
    let refused = whole.broker.receipt_key_rotate().await.unwrap_err();
    assert!(refused.detail().contains("does not know records of form 12: upgrade it"), "{refused:?}");
    assert_eq!(tree.get("/meta/receipts").await.unwrap(), record);
}
