//! Tests of ephemeral and numbered nodes, and of sessions.

use angarium_coordination::Refusal::{NoNode, NodeExists};
use angarium_coordination::TreeError::Refused;
use angarium_coordination::{Link, Mode, Op, numbered};

use super::{Tree, assert_error, commit, create, create_as, delete, refused, set, version};

pub(super) async fn an_ephemeral_node_is_a_node(tree: &Tree) {
    commit(tree, &[create("/t"), create_as("/t/e", Mode::Ephemeral)]).await;
    commit(tree, &[set("/t/e", "x")]).await;
    assert_eq!(version(tree, "/t/e").await, Some(1));
    let again = [create_as("/t/e", Mode::Ephemeral)];
    assert_error!(refused(tree, &[], &again).await, Refused { op: 0, why: NodeExists });
    commit(tree, &[delete("/t/e")]).await;
    assert_eq!(tree.children("/t").await.unwrap(), [""; 0]);
    commit(tree, &[create("/t/e"), create("/t/e/below")]).await;
}

pub(super) async fn an_ephemeral_node_has_no_children(tree: &Tree) {
    commit(tree, &[create_as("/e", Mode::Ephemeral)]).await;
    assert_error!(refused(tree, &[], &[create("/e/a")]).await, Refused { op: 0, why: NoNode });
    assert_eq!(tree.get("/e").await.unwrap().unwrap().children, 0);
}

pub(super) async fn numbered_nodes_get_growing_numbers(tree: &Tree) {
    commit(tree, &[create("/t")]).await;
    let mut last = None;
    for _ in 0..3 {
        let both = [create_as("/t/a-", Mode::Numbered), create_as("/t/b-", Mode::Numbered)];
        for (stat, name) in commit(tree, &both).await.into_iter().zip(["/t/a-", "/t/b-"]) {
            let stat = stat.expect("its number is told");
            let node = tree.get(&numbered(name, stat.number.unwrap())).await.unwrap().expect("it is there");
            assert_eq!((stat.version, stat.modified), (0, node.modified));
            assert!(stat.number > last || name == "/t/b-", "{stat:?} after {last:?}");
            last = last.max(stat.number);
        }
    }
    assert_eq!(tree.children("/t").await.unwrap().len(), 6);
}

pub(super) async fn numbered_nodes_of_one_commit_are_different(tree: &Tree) {
    commit(tree, &[create("/t")]).await;
    let ops: Vec<Op> = (0..5).map(|_| create_as("/t/n", Mode::Numbered)).collect();
    commit(tree, &ops).await;
    commit(tree, &ops).await;
    assert_eq!(tree.children("/t").await.unwrap().len(), 10);
}

pub(super) async fn the_session_is_connected_and_numbered(tree: &Tree) {
    let session = *tree.session().borrow();
    assert_eq!(session.link, Link::Connected);
    assert!(session.generation > 0);
}
