//! Tests of the events of watches.

use std::sync::Arc;
use std::time::Duration;

use angarium_coordination::{Event, Mode, Watch, numbered};

use tokio::task::JoinSet;

use super::{Tree, commit, create, create_as, delete, set};

/// Returns the next event, with a timeout that is far too long for it.
pub(super) async fn next(watch: &mut Watch) -> Event {
    let next = tokio::time::timeout(Duration::from_secs(30), watch.next()).await;
    next.expect("there is an event").expect("the tree is open")
}

/// Reads events until one reports that `path`, or everything, may have changed.
pub(super) async fn expect_event_of(watch: &mut Watch, path: &str) {
    loop {
        match next(watch).await {
            Event::Changed { path: changed } if changed == path => return,
            Event::Resync => return,
            Event::Changed { .. } | Event::Lost => {}
        }
    }
}

async fn changed(watch: &mut Watch) -> String {
    match next(watch).await {
        Event::Changed { path } => path,
        event => panic!("{event:?}"),
    }
}

pub(super) async fn a_watch_begins_with_a_resync(tree: &Tree) {
    assert_eq!(next(&mut tree.watch_tree("/t").unwrap()).await, Event::Resync);
}

pub(super) async fn creations_sets_and_deletions_raise_events(tree: &Tree) {
    let mut watch = tree.watch_tree("/t").unwrap();
    assert_eq!(next(&mut watch).await, Event::Resync);
    commit(tree, &[create("/t"), create("/u")]).await;
    assert_eq!(changed(&mut watch).await, "/t");
    commit(tree, &[create("/t/a"), create("/u/a")]).await;
    assert_eq!(changed(&mut watch).await, "/t/a");
    commit(tree, &[create("/t/a/b")]).await;
    assert_eq!(changed(&mut watch).await, "/t/a/b");
    commit(tree, &[set("/t", "")]).await;
    assert_eq!(changed(&mut watch).await, "/t");
    commit(tree, &[delete("/t/a/b")]).await;
    assert_eq!(changed(&mut watch).await, "/t/a/b");
    let stat = commit(tree, &[create_as("/t/n", Mode::Numbered)]).await[0].unwrap();
    assert_eq!(changed(&mut watch).await, numbered("/t/n", stat.number.unwrap()));
}

pub(super) async fn a_node_read_after_its_event_shows_the_change(tree: &Tree) {
    commit(tree, &[create("/t")]).await;
    let mut watch = tree.watch_tree("/t").unwrap();
    assert_eq!(next(&mut watch).await, Event::Resync);
    let writer = Arc::clone(tree);
    let mut writing = JoinSet::new();
    writing.spawn(async move {
        for _ in 0..50 {
            commit(&writer, &[set("/t", "")]).await;
        }
    });
    // No event is missed: the last one arrives when the last change is visible.
    while tree.get("/t").await.unwrap().unwrap().version < 50 {
        next(&mut watch).await;
    }
    writing.join_all().await;
}

pub(super) async fn refused_commit_raises_no_event(tree: &Tree) {
    commit(tree, &[create("/t")]).await;
    let mut watch = tree.watch_tree("/t").unwrap();
    assert_eq!(next(&mut watch).await, Event::Resync);
    drop(tree.commit(&[], &[set("/t", ""), delete("/absent")]).await.unwrap_err());
    commit(tree, &[create("/t/a")]).await;
    assert_eq!(changed(&mut watch).await, "/t/a");
}

pub(super) async fn slow_watcher_gets_resync(tree: &Tree) {
    commit(tree, &[create("/t")]).await;
    let mut watch = tree.watch_tree("/t").unwrap();
    assert_eq!(next(&mut watch).await, Event::Resync);
    for i in 0..10 {
        commit(tree, &(0..50).map(|j| create(format!("/t/{i} {j}"))).collect::<Vec<_>>()).await;
    }
    // The tree may still be delivering the last events.
    let mut is_resync = false;
    while !is_resync {
        is_resync = next(&mut watch).await == Event::Resync;
    }
}

pub(super) async fn a_closed_tree_ends_its_watches(tree: &Tree) {
    let mut watch = tree.watch_tree("/t").unwrap();
    tree.close().await;
    while let Some(event) =
        tokio::time::timeout(Duration::from_secs(30), watch.next()).await.expect("its end")
    {
        assert_ne!(event, Event::Changed { path: "/t".into() });
    }
}
