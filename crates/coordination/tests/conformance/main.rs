//! Conformance tests of [`angarium_coordination::Coordination`]. The embedded tree and that of ZooKeeper pass them,
//! alone and behind a tree of planned faults. Further tests cover planned faults, and answers of ZooKeeper's tree that
//! stay true when connections, servers and sessions are lost.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a test fails by them")]

mod bounds;
mod commits;
mod concurrency;
mod ephemerals;
mod faults;
mod history;
mod links;
mod nodes;
mod planned;
mod watches;
mod writers;
mod zookeeper;

use std::sync::Arc;

use angarium_coordination::embedded::EmbeddedTree;
use angarium_coordination::zookeeper::{ZooKeeperTimeouts, ZooKeeperTree};
use angarium_coordination::{CommitResult, Coordination, Fence, Mode, Op, TreeError};
use angarium_journal::Journal;
use bytes::Bytes;
use tempfile::TempDir;

use angarium_testbed::faulty_tree::{FaultyTree, Plan};
use angarium_testbed::zookeeper::ZooKeeper;

type Tree = Arc<dyn Coordination>;

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
    conformance! {
        nodes:
            uncreated_node_is_none
            a_created_node_has_its_data_version_zero_and_no_children
            data_may_be_empty_or_anything
            the_version_counts_the_sets
            modified_grows_with_each_set
            recreated_node_has_version_zero_and_later_modification
            a_node_knows_how_many_children_it_has
            a_node_shows_every_acknowledged_commit
            children_are_direct_and_in_order
            a_page_of_children_begins_behind_a_name_and_has_a_bound
            an_absent_node_has_no_children
            names_may_have_odd_characters
            nodes_read_together_are_those_read_alone
            time_is_of_the_last_change
            the_root_is_there_from_the_start;
        commits:
            create_needs_the_parent
            create_refuses_existing_node
            set_needs_the_node
            set_checks_the_version_it_names
            set_without_a_version_takes_any
            delete_needs_the_node
            delete_refuses_a_node_with_children
            operations_see_those_before_them
            commit_returns_version_and_transaction_of_each_set
            one_refused_operation_undoes_all
            holding_fence_passes_the_commit
            failed_fence_is_named_and_writes_nothing
            a_fence_on_an_absent_node_fails
            fences_come_before_operations
            fences_alone_are_checked
            a_commit_may_set_the_node_it_is_fenced_by
            an_empty_commit_does_nothing;
        bounds:
            a_commit_has_at_most_100_operations
            a_commit_has_at_most_256_kib
            a_value_has_at_most_128_kib
            paths_invalid_in_zookeeper_are_refused
            a_directory_has_at_most_8000_children
            the_root_is_neither_created_nor_deleted;
        ephemerals:
            an_ephemeral_node_is_a_node
            an_ephemeral_node_has_no_children
            numbered_nodes_get_growing_numbers
            numbered_nodes_of_one_commit_are_different
            the_session_is_connected_and_numbered;
        watches:
            a_watch_begins_with_a_resync
            creations_sets_and_deletions_raise_events
            a_node_read_after_its_event_shows_the_change
            refused_commit_raises_no_event
            slow_watcher_gets_resync
            a_closed_tree_ends_its_watches;
        concurrency:
            commits_at_the_same_time_are_all_applied_once
            commits_at_the_same_time_do_not_share_failures
            of_many_creations_of_a_node_one_succeeds
            versioned_sets_never_overwrite_each_other
            moved_fence_stops_later_commits
            reads_at_the_same_time_are_all_answered;
    }
}

async fn commit(tree: &Tree, ops: &[Op]) -> CommitResult {
    tree.commit(&[], ops).await.expect("nothing is in the way of this commit")
}

async fn refused(tree: &Tree, fences: &[Fence], ops: &[Op]) -> TreeError {
    tree.commit(fences, ops).await.expect_err("this commit is refused")
}

async fn version(tree: &Tree, path: &str) -> Option<u32> {
    tree.get(path).await.expect("the tree can be read").map(|node| node.version)
}

fn create(path: impl Into<String>) -> Op {
    create_with(path, "")
}

fn create_with(path: impl Into<String>, data: impl Into<Bytes>) -> Op {
    Op::create(path.into(), data.into())
}

fn create_as(path: impl Into<String>, mode: Mode) -> Op {
    Op::Create { path: path.into(), data: Bytes::new(), mode }
}

fn set(path: impl Into<String>, data: impl Into<Bytes>) -> Op {
    Op::Set { path: path.into(), data: data.into(), version: None }
}

fn set_at(path: impl Into<String>, version: u32) -> Op {
    Op::Set { path: path.into(), data: Bytes::new(), version: Some(version) }
}

fn delete(path: impl Into<String>) -> Op {
    Op::Delete { path: path.into() }
}

fn fence(path: impl Into<String>, version: u32) -> Fence {
    Fence { path: path.into(), version }
}

/// Compares an error by pattern, because errors are not comparable.
macro_rules! assert_error {
    ($error:expr, $pattern:pat) => {
        let error = $error;
        assert!(matches!(error, $pattern), "{error:?} is not {}", stringify!($pattern));
        assert!(error.nothing_written());
    };
}
use assert_error;
