//! Tests with connections, servers and sessions lost during commits: every answer must be right.

use std::sync::Arc;
use std::time::Duration;

use angarium_coordination::TreeError;
use angarium_coordination::zookeeper::{Address, ZooKeeperTimeouts, ZooKeeperTree};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::history::Load;
use super::{Tree, assert_error, commit, create, create_with, set, version};
use angarium_testbed::proxy::{Proxy, Wire};
use angarium_testbed::zookeeper::{ZooKeeper, fresh_tree_at};

const CALLERS: usize = 32;

/// Sessions that expire soon, and callers that wait longer than that.
pub(super) fn quick() -> ZooKeeperTimeouts {
    ZooKeeperTimeouts {
        session: Duration::from_secs(2),
        operation: Duration::from_secs(10),
        ..ZooKeeperTimeouts::default()
    }
}

/// Sessions that outlive all faults of their connections on a busy machine, and callers that wait for them.
fn lasting() -> ZooKeeperTimeouts {
    ZooKeeperTimeouts {
        session: Duration::from_secs(12),
        operation: Duration::from_secs(60),
        ..ZooKeeperTimeouts::default()
    }
}

/// A long session, and callers that wait only briefly, but longer than a busy machine needs.
fn short_wait() -> ZooKeeperTimeouts {
    ZooKeeperTimeouts {
        session: Duration::from_secs(20),
        operation: Duration::from_secs(2),
        ..ZooKeeperTimeouts::default()
    }
}

/// Cuts the connection and waits until the tree has noticed.
pub(super) async fn cut(tree: &Tree, proxy: &Proxy) {
    proxy.set(Wire::Cut);
    while tree.check_open().is_ok() {
        sleep(Duration::from_millis(5)).await;
    }
}

pub(super) async fn open(address: &Address, max_wait: ZooKeeperTimeouts) -> Tree {
    Arc::new(ZooKeeperTree::open(address.clone(), max_wait).await.expect("ZooKeeper answers"))
}

/// A tree behind a proxy, and a direct handle of the same tree.
pub(super) struct Wired {
    pub(super) tree: Tree,
    pub(super) witness: Tree,
    pub(super) proxy: Proxy,
}

pub(super) async fn wired(max_wait: ZooKeeperTimeouts) -> Wired {
    let server = ZooKeeper::shared();
    let proxy = Proxy::start(server.endpoint()).await;
    let address = fresh_tree_at(&proxy.address().to_string());
    let tree = open(&address, max_wait).await;
    let direct = address.to_string().replace(&proxy.address().to_string(), &server.endpoint().to_string());
    let witness = open(&direct.parse().unwrap(), quick()).await;
    Wired { tree, witness, proxy }
}

/// Waits until the tree accepts commits again.
pub(super) async fn recovered(tree: &Tree, within: Duration) {
    let deadline = Instant::now() + within;
    while tree.check_open().is_err() {
        assert!(Instant::now() < deadline, "not open again after {within:?}: {:?}", tree.check_open());
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_cut_in_the_middle_of_commits_costs_no_answer() {
    let Wired { tree, witness, proxy } = wired(lasting()).await;
    let load = Load::start(&tree, CALLERS).await;
    for _ in 0..15 {
        sleep(Duration::from_millis(120)).await;
        proxy.set(Wire::Cut);
        sleep(Duration::from_millis(30)).await;
        proxy.set(Wire::Whole);
        recovered(&tree, Duration::from_secs(20)).await;
    }
    sleep(Duration::from_millis(200)).await;
    let tally = load.judge(&witness).await;
    assert_eq!((tally.not_sent, tally.unknown), (0, 0));
    assert!(tally.acknowledged > 15 * CALLERS, "{tally:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_answer_is_found_out() {
    let Wired { tree, witness, proxy } = wired(quick()).await;
    let load = Load::start(&tree, CALLERS).await;
    for lost in [Wire::Deaf, Wire::Mute, Wire::Deaf, Wire::Silent, Wire::Deaf, Wire::Mute] {
        sleep(Duration::from_millis(120)).await;
        // The commit in flight is applied when answers are held back, and not when requests are.
        proxy.set(lost);
        sleep(Duration::from_millis(50)).await;
        // If the proxy is restored before the tree noticed the cut, it delivers what it held back.
        cut(&tree, &proxy).await;
        proxy.set(Wire::Whole);
        recovered(&tree, Duration::from_secs(5)).await;
    }
    let tally = load.judge(&witness).await;
    assert_eq!((tally.not_sent, tally.unknown), (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commit_with_lost_answer_still_returns_versions() {
    let Wired { tree, witness, proxy } = wired(quick()).await;
    // The size of the directory is known from here on, so no read precedes the commit.
    commit(&tree, &[create("/t"), create("/u")]).await;
    commit(&tree, &[create("/t/known")]).await;
    proxy.set(Wire::Deaf);
    let ops = [set("/t", "1"), create("/t/a"), set("/t/a", ""), set("/t", "2"), set("/u", "")];
    let caller = Arc::clone(&tree);
    let committed = tokio::join!(async move { caller.commit(&[], &ops).await }, async {
        while version(&witness, "/t").await != Some(2) {
            sleep(Duration::from_millis(5)).await;
        }
        proxy.set(Wire::Cut);
        sleep(Duration::from_millis(20)).await;
        proxy.set(Wire::Whole);
    });
    let committed = committed.0.unwrap();
    let versions: Vec<Option<u32>> = committed.iter().map(|stat| stat.map(|stat| stat.version)).collect();
    assert_eq!(versions, [Some(1), None, Some(1), Some(2), Some(1)]);
    let node = witness.get("/t").await.unwrap().unwrap();
    assert!(committed.iter().flatten().all(|stat| stat.modified == node.modified));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connection_cut_while_resolving_costs_no_answer() {
    let Wired { tree, witness, proxy } = wired(lasting()).await;
    commit(&tree, &[create("/t")]).await;
    // For each of them the version must be read.
    let nodes: Vec<String> = (0..90).map(|node| format!("/t/{node}")).collect();
    commit(&tree, &nodes.iter().map(create).collect::<Vec<_>>()).await;
    proxy.set(Wire::Deaf);
    let (caller, ops) = (Arc::clone(&tree), nodes.iter().map(|node| set(node, "")).collect::<Vec<_>>());
    let committed = tokio::join!(async move { caller.commit(&[], &ops).await }, async {
        while version(&witness, "/t/0").await != Some(1) {
            sleep(Duration::from_millis(5)).await;
        }
        for _ in 0..20 {
            cut(&tree, &proxy).await;
            proxy.set(Wire::Whole);
            recovered(&tree, Duration::from_secs(20)).await;
            sleep(Duration::from_millis(4)).await;
        }
    });
    let committed = committed.0.expect("the session lasts");
    assert!(committed.iter().all(|stat| stat.is_some_and(|stat| stat.version == 1)), "{committed:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_request_changes_nothing() {
    let Wired { tree, proxy, .. } = wired(quick()).await;
    commit(&tree, &[create("/t")]).await;
    let stop = CancellationToken::new();
    let mut callers = JoinSet::new();
    for caller in 0..CALLERS {
        let (tree, stop, path) = (Arc::clone(&tree), stop.clone(), format!("/t/{caller}"));
        commit(&tree, &[create(&path)]).await;
        callers.spawn(async move {
            // A commit applied twice would show in the version.
            let mut sets = 0;
            while !stop.is_cancelled() {
                let committed = commit(&tree, &[set(&path, "")]).await;
                sets += 1;
                assert_eq!(committed[0].map(|stat| stat.version), Some(sets), "{path} was set once a commit");
            }
            sets
        });
    }
    for _ in 0..3 {
        sleep(Duration::from_millis(150)).await;
        // The client closes this connection and settles its commit over another one. Then the old connection continues,
        // and the first request arrives after all.
        proxy.delay_present();
        sleep(Duration::from_millis(1_500)).await;
        recovered(&tree, Duration::from_secs(5)).await;
        sleep(Duration::from_millis(100)).await;
        proxy.set(Wire::Whole);
    }
    stop.cancel();
    assert!(callers.join_all().await.into_iter().sum::<u32>() > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expired_session_is_replaced() {
    let Wired { tree, witness, proxy } = wired(quick()).await;
    let load = Load::start(&tree, CALLERS).await;
    sleep(Duration::from_millis(300)).await;
    proxy.set(Wire::Silent);
    sleep(Duration::from_secs(5)).await;
    assert_error!(tree.check_open().unwrap_err(), TreeError::NotSent(_));
    proxy.set(Wire::Whole);
    recovered(&tree, Duration::from_secs(8)).await;
    commit(&tree, &[create("/after")]).await;
    assert_eq!(version(&tree, "/after").await, Some(0));
    let tally = load.judge(&witness).await;
    assert!(tally.unknown <= CALLERS, "only the commits under way are unknown: {tally:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restarted_server_is_used_again() {
    let mut server = ZooKeeper::start();
    let tree = open(&server.fresh_tree(), quick()).await;
    let load = Load::start(&tree, CALLERS).await;
    for _ in 0..2 {
        sleep(Duration::from_millis(500)).await;
        server.kill9();
        server.restart();
        recovered(&tree, Duration::from_secs(10)).await;
    }
    sleep(Duration::from_millis(300)).await;
    let tally = load.judge(&tree).await;
    assert!(tally.acknowledged > CALLERS, "{tally:?}");
    assert!(tally.unknown <= 2 * CALLERS, "{tally:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commits_without_connection_wait_then_are_not_sent() {
    let Wired { tree, witness, proxy } = wired(short_wait()).await;
    commit(&tree, &[create("/t")]).await;
    cut(&tree, &proxy).await;
    let began = Instant::now();
    assert_error!(tree.commit(&[], &[create("/t/a")]).await.unwrap_err(), TreeError::NotSent(_));
    assert_error!(tree.get("/t").await.unwrap_err(), TreeError::NotSent(_));
    assert!(began.elapsed() >= 2 * short_wait().operation, "both wait for the connection first");
    proxy.set(Wire::Whole);
    recovered(&tree, Duration::from_secs(8)).await;
    commit(&tree, &[create("/t/b")]).await;
    assert_eq!(witness.children("/t").await.unwrap(), ["b"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn timely_reconnection_costs_only_time() {
    let Wired { tree, proxy, .. } = wired(quick()).await;
    commit(&tree, &[create("/t")]).await;
    cut(&tree, &proxy).await;
    let (caller, reader) = (Arc::clone(&tree), Arc::clone(&tree));
    let (committed, read, ()) = tokio::join!(
        async move { caller.commit(&[], &[create("/t/b")]).await },
        async move { reader.get("/t").await },
        async {
            sleep(Duration::from_millis(100)).await;
            proxy.set(Wire::Whole);
        }
    );
    committed.unwrap();
    assert!(read.unwrap().is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn overdue_answer_is_unknown() {
    let Wired { tree, witness, proxy } = wired(short_wait()).await;
    commit(&tree, &[create("/t")]).await;
    commit(&tree, &[create("/t/.known")]).await;
    proxy.set(Wire::Deaf);
    let error = tree.commit(&[], &[create("/t/a")]).await.unwrap_err();
    assert!(matches!(error, TreeError::Unknown(_)) && !error.nothing_written(), "{error:?}");
    // The commit queued behind it was not sent.
    assert_error!(tree.commit(&[], &[create("/t/b")]).await.unwrap_err(), TreeError::NotSent(_));
    proxy.set(Wire::Whole);
    commit(&tree, &[create("/t/c")]).await;
    assert_eq!(witness.children("/t").await.unwrap(), [".known", "a", "c"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_session_shows_earlier_acknowledged_commits() {
    let Wired { tree, witness, proxy } = wired(quick()).await;
    commit(&tree, &[create_with("/t", "before")]).await;
    commit(&witness, &[set("/t", "by another")]).await;
    proxy.set(Wire::Cut);
    sleep(Duration::from_secs(4)).await;
    proxy.set(Wire::Whole);
    assert_eq!(tree.get("/t").await.unwrap().unwrap().data, bytes::Bytes::from("by another"));
    commit(&tree, &[set("/t", "after")]).await;
    assert_eq!(version(&tree, "/t").await, Some(2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_without_its_node_is_given_up() {
    let address = ZooKeeper::shared().fresh_tree();
    let (tree, other) = (open(&address, quick()).await, open(&address, quick()).await);
    let load = Load::start(&tree, CALLERS).await;
    sleep(Duration::from_millis(200)).await;
    // As if a server had silently given the client another session.
    for writer in other.children("/run/writers").await.unwrap() {
        let path = format!("/run/writers/{writer}");
        // A tree whose own node was deleted creates a new session too.
        drop(other.commit(&[], &[super::delete(path)]).await);
    }
    sleep(Duration::from_millis(500)).await;
    recovered(&tree, Duration::from_secs(5)).await;
    let tally = load.judge(&tree).await;
    assert_eq!((tally.not_sent, tally.unknown), (0, 0));
}
