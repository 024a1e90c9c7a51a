//! Tests of watches, sessions and ephemeral nodes after the loss of connections, servers and sessions, and after a tree
//! is opened again.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use angarium_clock::Clock;
use angarium_coordination::embedded::EmbeddedTree;
use angarium_coordination::{Event, Link, Mode, Session};
use angarium_journal::Journal;
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::faults::{Wired, open, quick, recovered, wired};
use super::watches::{expect_event_of, next};
use super::{Tree, commit, create, create_as, delete, set, version};
use angarium_testbed::proxy::Wire;
use angarium_testbed::zookeeper::ZooKeeper;

/// Waits for the wanted state of the session, with a timeout that is far too long for it.
async fn until(session: &mut watch::Receiver<Session>, wanted: impl Fn(&Session) -> bool) -> Session {
    let found =
        tokio::time::timeout(Duration::from_secs(30), session.wait_for(|session| wanted(session))).await;
    *found.expect("the session comes to this").expect("the tree is open")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reopened_embedded_tree_has_no_ephemerals() {
    let data = TempDir::new().unwrap();
    let open = async || {
        let journal = Journal::open(data.path(), &Clock::manual(5_000)).unwrap();
        let tree: Tree = Arc::new(EmbeddedTree::open(journal).await.unwrap());
        tree
    };
    let tree = open().await;
    commit(&tree, &[create("/t"), create("/t/kept"), create_as("/t/e", Mode::Ephemeral)]).await;
    commit(&tree, &[create_as("/t/n", Mode::Numbered), create_as("/t/d", Mode::Ephemeral)]).await;
    commit(&tree, &[delete("/t/d"), create("/t/d")]).await;
    drop(tree);
    for _ in 0..2 {
        let tree = open().await;
        assert_eq!(tree.children("/t").await.unwrap(), ["d", "kept"]);
        assert_eq!(tree.get("/t").await.unwrap().unwrap().children, 2);
        assert_eq!(tree.get("/t/d").await.unwrap().unwrap().time.as_millis(), 5_000);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn embedded_commit_of_departed_caller_is_reported() {
    let fresh = super::embedded().await;
    let tree = &fresh.tree;
    commit(tree, &[create("/t")]).await;
    let mut watch = tree.watch_tree("/t").unwrap();
    assert_eq!(next(&mut watch).await, Event::Resync);
    for version in 1..=50 {
        let ops = [set("/t", "")];
        let mut begun = Box::pin(tree.commit(&[], &ops));
        let _ = poll_fn(|context| Poll::Ready(begun.as_mut().poll(context).is_ready())).await;
        drop(begun);
        while tree.get("/t").await.unwrap().unwrap().version < version {
            next(&mut watch).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_survives_a_cut_connection() {
    let Wired { tree, witness, proxy } = wired(quick()).await;
    let mut watch = tree.watch_tree("/t").unwrap();
    assert_eq!(next(&mut watch).await, Event::Resync);
    commit(&witness, &[create("/t")]).await;
    assert_eq!(next(&mut watch).await, Event::Changed { path: "/t".into() });
    for i in 0..3 {
        proxy.set(Wire::Cut);
        commit(&witness, &[set("/t", "")]).await;
        sleep(Duration::from_millis(50)).await;
        proxy.set(Wire::Whole);
        assert_eq!(next(&mut watch).await, Event::Resync);
        // The client's own watches would be silent from here on.
        let path = format!("/t/{i}");
        commit(&witness, &[create(&path)]).await;
        expect_event_of(&mut watch, &path).await;
        assert!(tree.get(&path).await.unwrap().is_some());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_survives_the_server() {
    let mut server = ZooKeeper::start();
    let tree = open(&server.fresh_tree(), quick()).await;
    commit(&tree, &[create("/t")]).await;
    let mut watch = tree.watch_tree("/t").unwrap();
    assert_eq!(next(&mut watch).await, Event::Resync);
    server.kill9();
    server.restart();
    recovered(&tree, Duration::from_secs(20)).await;
    while next(&mut watch).await != Event::Resync {}
    commit(&tree, &[create("/t/a")]).await;
    expect_event_of(&mut watch, "/t/a").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_session_removes_ephemerals_and_keeps_watches() {
    let Wired { tree, witness, proxy } = wired(quick()).await;
    commit(&tree, &[create("/t"), create_as("/t/e", Mode::Ephemeral)]).await;
    let mut watch = tree.watch_tree("/t").unwrap();
    assert_eq!(next(&mut watch).await, Event::Resync);
    let mut session = tree.session();
    let first = until(&mut session, |session| session.link == Link::Connected).await;
    proxy.set(Wire::Silent);
    until(&mut session, |session| session.link == Link::Suspended).await;
    while version(&witness, "/t/e").await.is_some() {
        sleep(Duration::from_millis(50)).await;
    }
    until(&mut session, |session| session.link == Link::Lost).await;
    proxy.set(Wire::Whole);
    let second = until(&mut session, |session| session.link == Link::Connected).await;
    assert!(second.generation > first.generation);
    assert_eq!(next(&mut watch).await, Event::Lost);
    assert_eq!(next(&mut watch).await, Event::Resync);
    commit(&tree, &[create_as("/t/e", Mode::Ephemeral)]).await;
    expect_event_of(&mut watch, "/t/e").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn short_connection_loss_is_reported_and_keeps_session() {
    let Wired { tree, proxy, .. } = wired(quick()).await;
    commit(&tree, &[create_as("/e", Mode::Ephemeral)]).await;
    let mut session = tree.session();
    let first = *session.borrow_and_update();
    proxy.set(Wire::Cut);
    sleep(Duration::from_millis(20)).await;
    proxy.set(Wire::Whole);
    tokio::time::timeout(Duration::from_secs(10), session.changed()).await.expect("it is told").unwrap();
    let second = until(&mut session, |session| session.link == Link::Connected).await;
    assert_eq!(second.generation, first.generation);
    assert_eq!(version(&tree, "/e").await, Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_closed_tree_takes_its_ephemeral_nodes_along() {
    let address = ZooKeeper::shared().fresh_tree();
    let (tree, other) = (open(&address, quick()).await, open(&address, quick()).await);
    commit(&tree, &[create_as("/e", Mode::Ephemeral)]).await;
    tree.close().await;
    assert_eq!(version(&other, "/e").await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn numbered_node_with_lost_answer_returns_its_number() {
    let Wired { tree, witness, proxy } = wired(quick()).await;
    commit(&tree, &[create("/t")]).await;
    commit(&tree, &[create("/t/known"), create_as("/t/n", Mode::Numbered)]).await;
    proxy.set(Wire::Deaf);
    let caller = Arc::clone(&tree);
    let (committed, ()) =
        tokio::join!(async move { caller.commit(&[], &[create_as("/t/n", Mode::Numbered)]).await }, async {
            while witness.children("/t").await.unwrap().len() < 3 {
                sleep(Duration::from_millis(5)).await;
            }
            proxy.set(Wire::Cut);
            sleep(Duration::from_millis(20)).await;
            proxy.set(Wire::Whole);
        });
    let number = committed.unwrap()[0].unwrap().number.unwrap();
    let last = witness.children("/t").await.unwrap().pop().unwrap();
    assert_eq!(angarium_coordination::numbered("n", number), last);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_ends_before_the_session_does_at_the_servers() {
    let Wired { tree, witness, proxy } = wired(quick()).await;
    commit(&tree, &[create_as("/e", Mode::Ephemeral)]).await;
    let lease = async |lasts: bool| {
        let start = Instant::now();
        while tree.check_lease().is_ok() != lasts {
            assert!(start.elapsed() < Duration::from_secs(30), "the lease does not change");
            sleep(Duration::from_millis(5)).await;
        }
    };
    lease(true).await;
    // The lease is renewed although no call is made.
    sleep(2 * quick().session).await;
    assert!(tree.check_lease().is_ok());
    proxy.set(Wire::Silent);
    lease(false).await;
    assert_eq!(version(&witness, "/e").await, Some(0), "the session is there still");
    while version(&witness, "/e").await.is_some() {
        assert!(tree.check_lease().is_err());
        sleep(Duration::from_millis(20)).await;
    }
    proxy.set(Wire::Whole);
    lease(true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_with_foreign_write_to_its_node_is_given_up() {
    let address = ZooKeeper::shared().fresh_tree();
    let (tree, other) = (open(&address, quick()).await, open(&address, quick()).await);
    commit(&tree, &[create("/t")]).await;
    let writers = other.children("/run/writers").await.unwrap();
    // As if two processes had got the same session: the commit numbers can no longer tell what was applied.
    for writer in &writers {
        drop(other.commit(&[], &[set(format!("/run/writers/{writer}"), "")]).await);
    }
    commit(&tree, &[create("/t/a")]).await;
    recovered(&other, Duration::from_secs(10)).await;
    commit(&other, &[create("/t/b")]).await;
    assert_eq!(tree.children("/t").await.unwrap(), ["a", "b"]);
    let after = tree.children("/run/writers").await.unwrap();
    assert!(writers.iter().all(|writer| !after.contains(writer)), "{writers:?} {after:?}");
}
