//! Conformance tests of [`angarium_coordination::Coordination`]. The embedded tree and that of ZooKeeper pass them,
//! alone and behind a tree of planned faults. Further tests cover planned faults, and answers of ZooKeeper's tree that
//! stay true when connections, servers and sessions are lost.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a test fails by them")]

#[macro_use]
mod facts;

mod access;
mod bounds;
mod commits;
mod concurrency;
mod ephemerals;
mod faults;
mod history;
mod links;
mod nodes;
mod planned;
mod secure;
mod support;
mod watches;
mod writers;
mod zookeeper;

use std::sync::Arc;

use angarium_coordination::embedded::EmbeddedTree;
use angarium_coordination::zookeeper::{ZooKeeperTimeouts, ZooKeeperTree};
use angarium_journal::Journal;
use tempfile::TempDir;

use angarium_testbed::faulty_tree::{FaultyTree, Plan};
use angarium_testbed::zookeeper::ZooKeeper;
use support::{
    Tree, assert_error, commit, create, create_as, create_with, delete, fence, refused, set, set_at, version,
};

/// An empty tree and its backing store.
struct Fresh {
    tree: Tree,
    _data: Option<TempDir>,
}

async fn embedded() -> Fresh {
    let data = TempDir::new().expect("there is a temporary directory");
    let journal = Journal::open(data.path(), &angarium_clock::Clock::manual(0))
        .expect("an empty directory is an empty journal");
    Fresh { tree: Arc::new(EmbeddedTree::open(journal).await.unwrap()), _data: Some(data) }
}

async fn zookeeper() -> Fresh {
    let address = ZooKeeper::shared().fresh_tree();
    let tree = ZooKeeperTree::open(address, ZooKeeperTimeouts::default()).await.expect("ZooKeeper answers");
    Fresh { tree: Arc::new(tree), _data: None }
}

/// Wraps the tree in one without planned faults.
fn behind(Fresh { tree, _data }: Fresh) -> Fresh {
    Fresh { tree: Arc::new(FaultyTree::new(tree, Plan::default())), _data }
}

async fn embedded_behind_faults() -> Fresh {
    behind(embedded().await)
}

async fn zookeeper_behind_faults() -> Fresh {
    behind(zookeeper().await)
}

/// Generates a test for each fact and each implementation.
macro_rules! conformance {
    ($($subject:ident: $($fact:ident)+;)+) => {
        conformance!(@ embedded $($subject: $($fact)+;)+);
        conformance!(@ zookeeper $($subject: $($fact)+;)+);
        conformance!(@ embedded_behind_faults $($subject: $($fact)+;)+);
        conformance!(@ zookeeper_behind_faults $($subject: $($fact)+;)+);
    };
    (@ $implementation:ident $($subject:ident: $($fact:ident)+;)+) => {
        mod $implementation {
            $($(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $fact() {
                    let fresh = super::super::$implementation().await;
                    super::super::$subject::$fact(&fresh.tree).await;
                    fresh.tree.close().await;
                }
            )+)+
        }
    };
}

mod stamped {
    facts! { conformance }
}
