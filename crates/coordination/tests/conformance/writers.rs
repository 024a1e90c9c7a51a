//! Tests of the writer's node of a session (P15): the servers settle a commit whose request was lost before anything
//! else is sent.

use std::sync::Arc;
use std::time::Duration;

use angarium_coordination::{CommitResult, Node, TreeError};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::faults::{Wired, cut, quick, wired};
use super::{Tree, commit, create, set, version};
use angarium_testbed::proxy::Wire;

/// Returns the writer's node of the tree behind the proxy. The other handle has never committed.
async fn writer(witness: &Tree) -> (String, Node) {
    for name in witness.children("/run/writers").await.unwrap() {
        let path = format!("/run/writers/{name}");
        if let Some(node) = witness.get(&path).await.unwrap().filter(|node| node.version > 0) {
            return (path, node);
        }
    }
    panic!("no writer's node was ever set");
}

/// A tree that has committed, and knows the size of the directory of its commits.
async fn begun() -> Wired {
    let wired = wired(quick()).await;
    commit(&wired.tree, &[create("/t")]).await;
    commit(&wired.tree, &[create("/t/known")]).await;
    wired
}

/// Starts a commit whose request never arrives.
async fn begin_lost(tree: &Tree, wire: impl Fn(Wire)) -> JoinSet<Result<CommitResult, TreeError>> {
    wire(Wire::Mute);
    let (mut lost, caller) = (JoinSet::new(), Arc::clone(tree));
    lost.spawn(async move { caller.commit(&[], &[create("/t/a")]).await });
    // The commit is sent at once; the delay depends on the machine.
    sleep(Duration::from_millis(500)).await;
    assert!(lost.try_join_next().is_none(), "its request arrived");
    lost
}

async fn outcome(mut of: JoinSet<Result<CommitResult, TreeError>>) -> Result<CommitResult, TreeError> {
    of.join_next().await.expect("there is one").expect("it does not panic")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commit_with_lost_request_is_voided_before_resend() {
    let Wired { tree, witness, proxy } = begun().await;
    let (path, before) = writer(&witness).await;
    let lost = begin_lost(&tree, |wire| proxy.set(wire)).await;
    cut(&tree, &proxy).await;
    proxy.set(Wire::Whole);
    outcome(lost).await.unwrap();
    // The first set makes the first request find another version than it expects, however late it arrives. The second
    // set is that of the second request.
    assert_eq!(version(&witness, &path).await, Some(before.version + 2));
    assert_eq!(version(&witness, "/t/a").await, Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commit_with_lost_request_ignores_foreign_writes() {
    let Wired { tree, witness, proxy } = begun().await;
    let (path, _) = writer(&witness).await;
    let lost = begin_lost(&tree, |wire| proxy.set(wire)).await;
    commit(&witness, &[set(path, "as if by another process in the same session")]).await;
    cut(&tree, &proxy).await;
    proxy.set(Wire::Whole);
    let error = outcome(lost).await.unwrap_err();
    assert!(matches!(error, TreeError::Unknown(_)), "{error:?}");
    assert_eq!(version(&witness, "/t/a").await, None);
}
