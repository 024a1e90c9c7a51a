//! The right storage under a pool's name (P9).

use angarium_clock::Clock;
use angarium_core::error::Error;
use angarium_core::message::NewMessage;
use angarium_storage::embedded::EmbeddedPool;
use angarium_storage::{PoolStore, Stamp};

use super::{limit, open_journal, queue, start, terms, try_start};

fn clock() -> Clock {
    Clock::manual(1_700_000_000_000)
}

fn message() -> Vec<NewMessage> {
    vec![NewMessage { body: "1".into(), ttl: None, delay: None, ..NewMessage::default() }]
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_disk_under_a_pools_name_is_not_served() {
    let data = tempfile::tempdir().unwrap();
    let (tree, pool) = (open_journal(data.path(), "tree"), open_journal(data.path(), "pool"));
    let broker = start(tree.clone(), pool, clock()).await;
    broker.messages_post(&queue("q"), message(), None).await.unwrap();
    let empty = open_journal(data.path(), "another");
    let refused = try_start(tree.clone(), empty, clock()).await.err().unwrap();
    assert!(matches!(refused, Error::Unavailable { .. }));
    let cause = std::error::Error::source(&refused).unwrap().to_string();
    assert!(
        refused.to_string().contains("pool default") && cause.contains("never registered"),
        "{refused}: {cause}"
    );
    // The attempt did not affect the serving replica.
    assert!(broker.claim_create(&queue("q"), terms(60), limit(1)).await.unwrap().is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn interrupted_first_start_keeps_its_stamp() {
    let data = tempfile::tempdir().unwrap();
    let (tree, pool) = (open_journal(data.path(), "tree"), open_journal(data.path(), "pool"));
    let system = uuid::Uuid::new_v4();
    let catalogue = angarium_catalogue::Catalogue::new(std::sync::Arc::new(
        angarium_coordination::embedded::EmbeddedTree::open(tree.clone()).await.unwrap(),
    ));
    catalogue.system(system).await.unwrap();
    let stamp = Stamp { system, pool: uuid::Uuid::new_v4() };
    EmbeddedPool::new(pool.clone()).register(stamp).await.unwrap();
    let broker = start(tree, pool.clone(), clock()).await;
    broker.messages_post(&queue("q"), message(), None).await.unwrap();
    assert_eq!(EmbeddedPool::new(pool).stamp().await.unwrap(), Some(stamp));
}
