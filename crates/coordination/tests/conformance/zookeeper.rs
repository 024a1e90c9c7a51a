//! Tests of ZooKeeper's tree alone: roots, several handles, cost, and its close.

use std::sync::Arc;
use std::time::Duration;

use angarium_coordination::TreeError;
use angarium_coordination::zookeeper::{ZooKeeperTimeouts, ZooKeeperTree};
use tokio::task::JoinSet;

use super::{Tree, assert_error, commit, create, create_with, fence, refused, set, version};
use angarium_testbed::zookeeper::ZooKeeper;

async fn open(address: &str, max_wait: ZooKeeperTimeouts) -> Tree {
    Arc::new(ZooKeeperTree::open(address.parse().unwrap(), max_wait).await.expect("ZooKeeper answers"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_root_is_made_with_its_parents() {
    let endpoint = ZooKeeper::shared().endpoint();
    let below = open(&format!("zookeeper://{endpoint}/roots/a/b"), ZooKeeperTimeouts::default()).await;
    commit(&below, &[create("/t")]).await;
    let above = open(&format!("zookeeper://{endpoint}/roots"), ZooKeeperTimeouts::default()).await;
    assert_eq!(version(&above, "/a/b/t").await, Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_server_of_the_list_will_do() {
    let endpoint = ZooKeeper::shared().endpoint();
    let tree =
        open(&format!("zookeeper://127.0.0.1:1,{endpoint}/servers"), ZooKeeperTimeouts::default()).await;
    commit(&tree, &[create("/t")]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_server_it_does_not_open() {
    let max_wait = ZooKeeperTimeouts { start: Duration::from_millis(500), ..ZooKeeperTimeouts::default() };
    let opened = ZooKeeperTree::open("zookeeper://127.0.0.1:1".parse().unwrap(), max_wait).await;
    assert_error!(opened.map(drop).unwrap_err(), TreeError::NotSent(_));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_handle_fences_another_out() {
    let address = ZooKeeper::shared().fresh_tree().to_string();
    let old = open(&address, ZooKeeperTimeouts::default()).await;
    commit(&old, &[create("/slot"), create("/t")]).await;
    old.commit(&[fence("/slot", 0)], &[create("/t/a")]).await.unwrap();
    let new = open(&address, ZooKeeperTimeouts::default()).await;
    assert_eq!(new.children("/t").await.unwrap(), ["a"]);
    commit(&new, &[set("/slot", "new")]).await;
    assert_error!(refused(&old, &[fence("/slot", 0)], &[create("/t/b")]).await, TreeError::Fenced(0));
    assert_eq!(new.children("/t").await.unwrap(), ["a"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commits_at_the_same_time_share_transactions() {
    let address = ZooKeeper::shared().fresh_tree().to_string();
    let tree = open(&address, ZooKeeperTimeouts::default()).await;
    commit(&tree, &[create("/t")]).await;
    let mut callers = JoinSet::new();
    for caller in 0..2_000 {
        let tree = Arc::clone(&tree);
        callers.spawn(async move {
            commit(&tree, &[create_with(format!("/t/{caller}"), vec![b'x'; 500])]).await;
            tree.get(&format!("/t/{caller}")).await.unwrap().unwrap().modified
        });
    }
    let transactions: std::collections::HashSet<u64> = callers.join_all().await.into_iter().collect();
    assert!(transactions.len() < 200, "{} transactions for 2,000 commits", transactions.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_commits_than_may_wait_are_refused_at_once() {
    let address = ZooKeeper::shared().fresh_tree().to_string();
    let tree = open(&address, ZooKeeperTimeouts::default()).await;
    commit(&tree, &[create("/t")]).await;
    let mut callers = JoinSet::new();
    for caller in 0..6_000 {
        let tree = Arc::clone(&tree);
        callers.spawn(async move {
            // Each of these fills a request, so that they pile up.
            let value = vec![b'x'; if caller < 40 { 128 * 1024 } else { 0 }];
            match tree.commit(&[], &[create_with(format!("/t/{caller}"), value)]).await {
                Ok(_) => true,
                Err(TreeError::NotSent(_)) => false,
                Err(error) => panic!("{error:?}"),
            }
        });
    }
    let done = callers.join_all().await.into_iter().filter(|done| *done).count();
    assert!((4_096..6_000).contains(&done), "{done} of 6,000");
    assert_eq!(tree.children("/t").await.unwrap().len(), done);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_outlives_the_versions_of_its_node() {
    let address = ZooKeeper::shared().fresh_tree().to_string();
    let tree = open(&address, ZooKeeperTimeouts { writer_commits: 10, ..ZooKeeperTimeouts::default() }).await;
    commit(&tree, &[create("/t")]).await;
    let first = tree.children("/run/writers").await.unwrap();
    for i in 0..50 {
        commit(&tree, &[create(format!("/t/{i}"))]).await;
    }
    let last = tree.children("/run/writers").await.unwrap();
    assert_eq!((first.len(), last.len()), (1, 1));
    assert_ne!(first, last);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_closed_tree_ends_its_session_and_sends_nothing() {
    let address = ZooKeeper::shared().fresh_tree().to_string();
    let (tree, other) = (
        open(&address, ZooKeeperTimeouts::default()).await,
        open(&address, ZooKeeperTimeouts::default()).await,
    );
    assert_eq!(other.children("/run/writers").await.unwrap().len(), 2);
    tree.close().await;
    assert_eq!(other.children("/run/writers").await.unwrap().len(), 1);
    assert_error!(tree.check_open().unwrap_err(), TreeError::NotSent(_));
    assert_error!(refused(&tree, &[], &[create("/t")]).await, TreeError::NotSent(_));
}
