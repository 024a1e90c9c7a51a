//! The shared secret of older programs is in the tree while one of them may need it, and no longer.

use std::sync::Arc;
use std::time::Duration;

use angarium_broker::Broker;
use angarium_catalogue::{Catalogue, Component, ComponentState, Schema};
use angarium_clock::Clock;
use angarium_cluster::identity::PeerIdentity;
use angarium_cluster::replicas::Replica;
use angarium_coordination::embedded::EmbeddedTree;
use angarium_coordination::{Coordination, Op};
use angarium_core::limits::Limits;
use angarium_storage::embedded::EmbeddedPool;
use tempfile::TempDir;

use super::{one_pool, open_journal, other_replica, replica};

const SECRET: &str = "/meta/peer-secret";

/// Returns the secret in the tree.
async fn secret(tree: &EmbeddedTree) -> Option<String> {
    tree.get(SECRET).await.unwrap().map(|node| String::from_utf8(node.data.to_vec()).unwrap())
}

/// Registers a replica without a certificate, and returns its node.
async fn join(catalogue: &Catalogue) -> String {
    let older = Component { state: ComponentState::Starting, ..other_replica(Schema::FIRST) };
    let registry = catalogue.registry().await.unwrap();
    catalogue.component_join(&registry, "older", &older).await.unwrap().unwrap()
}

#[tokio::test(start_paused = true)]
async fn secret_leaves_ten_minutes_after_the_last_older_replica() {
    let (data, minute) = (TempDir::new().unwrap(), Duration::from_secs(60));
    let journal = open_journal(data.path(), "journal");
    let tree = Arc::new(EmbeddedTree::open(journal.clone()).await.unwrap());
    let catalogue = Catalogue::new(tree.clone());
    let certificate = Some(PeerIdentity::generate().unwrap().fingerprint());
    let settings = one_pool(Arc::new(EmbeddedPool::new(journal)));
    let me = Replica { certificate, ..replica() };
    let broker =
        Broker::start(catalogue.clone(), &settings, me, Clock::manual(1), Limits::ZAQAR).await.unwrap();
    tokio::time::sleep(2 * minute).await;
    assert_eq!(secret(&tree).await, None, "a new tree has none");

    let node = join(&catalogue).await;
    tokio::time::sleep(minute).await;
    let first = secret(&tree).await.expect("it is there for the older replica");
    tokio::time::sleep(30 * minute).await;
    assert_eq!(secret(&tree).await.as_ref(), Some(&first));
    tree.commit(&[], &[Op::Delete { path: node }]).await.unwrap();
    tokio::time::sleep(9 * minute).await;
    assert_eq!(secret(&tree).await.as_ref(), Some(&first), "it may forward requests still");
    tokio::time::sleep(3 * minute).await;
    assert_eq!(secret(&tree).await, None);

    // A replica that lost its session and is back has the secret from before.
    join(&catalogue).await;
    tokio::time::sleep(minute).await;
    assert_eq!(secret(&tree).await, Some(first));
    broker.stop().await;
}
