//! The facts of the coordination tree.

#[path = "../../../coordination/tests/conformance/facts.rs"]
#[macro_use]
mod facts;

#[path = "../../../coordination/tests/conformance/bounds.rs"]
mod bounds;
#[path = "../../../coordination/tests/conformance/commits.rs"]
mod commits;
#[path = "../../../coordination/tests/conformance/concurrency.rs"]
mod concurrency;
#[path = "../../../coordination/tests/conformance/ephemerals.rs"]
mod ephemerals;
#[path = "../../../coordination/tests/conformance/nodes.rs"]
mod nodes;
#[path = "../../../coordination/tests/conformance/support.rs"]
mod support;
#[expect(dead_code, reason = "a function of it is for the tests of ZooKeeper")]
#[path = "../../../coordination/tests/conformance/watches.rs"]
mod watches;

use std::sync::Arc;

use angarium_journal::JournalOptions;

use crate::{SEEDS, SimulatedDisk};
use support::{
    Tree, assert_error, commit, create, create_as, create_with, delete, fence, refused, set, set_at, version,
};

async fn open(seed: u64) -> Tree {
    let opened = SimulatedDisk::new(seed).open_journal(JournalOptions::default()).await;
    Arc::new(opened.tree().await.unwrap())
}

/// Makes each fact a test.
macro_rules! conformance {
    ($($subject:ident: $($fact:ident)+;)+) => {
        $($(
            #[tokio::test(start_paused = true)]
            async fn $fact() {
                for seed in 0..SEEDS {
                    let tree = open(seed).await;
                    $subject::$fact(&tree).await;
                    tree.close().await;
                }
            }
        )+)+
    };
}

facts! { conformance }
