//! Tests of a single commit.

use angarium_coordination::Refusal::{BadVersion, NoNode, NodeExists, NotEmpty};
use angarium_coordination::TreeError::{Fenced, Refused};
use bytes::Bytes;

use super::{Tree, assert_error, commit, create, create_with, delete, fence, refused, set, set_at, version};

pub(super) async fn create_needs_the_parent(tree: &Tree) {
    assert_error!(refused(tree, &[], &[create("/t/a")]).await, Refused { op: 0, why: NoNode });
    commit(tree, &[create("/t")]).await;
    assert_error!(refused(tree, &[], &[create("/t/a/b")]).await, Refused { op: 0, why: NoNode });
    commit(tree, &[create("/t/a")]).await;
}

pub(super) async fn create_refuses_existing_node(tree: &Tree) {
    commit(tree, &[create_with("/t", "first")]).await;
    assert_error!(refused(tree, &[], &[create("/t")]).await, Refused { op: 0, why: NodeExists });
    assert_error!(
        refused(tree, &[], &[create("/u"), create("/u")]).await,
        Refused { op: 1, why: NodeExists }
    );
    assert_eq!(tree.get("/t").await.unwrap().unwrap().data, Bytes::from("first"));
}

pub(super) async fn set_needs_the_node(tree: &Tree) {
    assert_error!(refused(tree, &[], &[set("/t", "")]).await, Refused { op: 0, why: NoNode });
    assert_error!(refused(tree, &[], &[set_at("/t", 0)]).await, Refused { op: 0, why: NoNode });
}

pub(super) async fn set_checks_the_version_it_names(tree: &Tree) {
    commit(tree, &[create("/t")]).await;
    for wrong in [1, 7, u32::MAX] {
        assert_error!(refused(tree, &[], &[set_at("/t", wrong)]).await, Refused { op: 0, why: BadVersion });
    }
    commit(tree, &[set_at("/t", 0)]).await;
    assert_error!(refused(tree, &[], &[set_at("/t", 0)]).await, Refused { op: 0, why: BadVersion });
    commit(tree, &[set_at("/t", 1)]).await;
    assert_eq!(version(tree, "/t").await, Some(2));
}

pub(super) async fn set_without_a_version_takes_any(tree: &Tree) {
    commit(tree, &[create("/t")]).await;
    for _ in 0..3 {
        commit(tree, &[set("/t", "")]).await;
    }
    assert_eq!(version(tree, "/t").await, Some(3));
}

pub(super) async fn delete_needs_the_node(tree: &Tree) {
    assert_error!(refused(tree, &[], &[delete("/t")]).await, Refused { op: 0, why: NoNode });
    commit(tree, &[create("/t")]).await;
    commit(tree, &[delete("/t")]).await;
    assert_eq!(version(tree, "/t").await, None);
    assert_error!(refused(tree, &[], &[delete("/t")]).await, Refused { op: 0, why: NoNode });
}

pub(super) async fn delete_refuses_a_node_with_children(tree: &Tree) {
    commit(tree, &[create("/t"), create("/t/a")]).await;
    assert_error!(refused(tree, &[], &[delete("/t")]).await, Refused { op: 0, why: NotEmpty });
    commit(tree, &[delete("/t/a"), delete("/t")]).await;
    assert_eq!(version(tree, "/t").await, None);
}

pub(super) async fn operations_see_those_before_them(tree: &Tree) {
    let ops = [
        create("/t"),
        create("/t/a"),
        set_at("/t/a", 0),
        set_at("/t/a", 1),
        create("/t/b"),
        delete("/t/b"),
        create_with("/t/b", "again"),
        delete("/t/a"),
    ];
    commit(tree, &ops).await;
    assert_eq!(tree.children("/t").await.unwrap(), ["b"]);
    assert_eq!(tree.get("/t/b").await.unwrap().unwrap().data, Bytes::from("again"));
}

pub(super) async fn commit_returns_version_and_transaction_of_each_set(tree: &Tree) {
    commit(tree, &[create("/t"), create("/t/a")]).await;
    let ops =
        [create("/t/b"), set("/t", ""), set("/t/a", ""), set("/t/a", ""), delete("/t/b"), set_at("/t", 1)];
    let committed = commit(tree, &ops).await;
    let versions: Vec<Option<u32>> = committed.iter().map(|stat| stat.map(|stat| stat.version)).collect();
    assert_eq!(versions, [None, Some(1), Some(1), Some(2), None, Some(2)]);
    for (path, stat) in [("/t", committed[5]), ("/t/a", committed[3])] {
        let node = tree.get(path).await.unwrap().unwrap();
        assert_eq!(stat.map(|stat| (stat.version, stat.modified)), Some((node.version, node.modified)));
    }
}

pub(super) async fn one_refused_operation_undoes_all(tree: &Tree) {
    commit(tree, &[create("/t"), create("/t/a")]).await;
    let ops = [create("/t/b"), set("/t", "new"), delete("/t/a"), set_at("/t", 9), create("/t/c")];
    assert_error!(refused(tree, &[], &ops).await, Refused { op: 3, why: BadVersion });
    assert_eq!(tree.children("/t").await.unwrap(), ["a"]);
    assert_eq!(version(tree, "/t").await, Some(0));
}

pub(super) async fn holding_fence_passes_the_commit(tree: &Tree) {
    commit(tree, &[create("/t"), create("/u")]).await;
    commit(tree, &[set("/u", "")]).await;
    tree.commit(&[fence("/t", 0), fence("/u", 1)], &[create("/t/a")]).await.unwrap();
    assert_eq!(tree.children("/t").await.unwrap(), ["a"]);
}

pub(super) async fn failed_fence_is_named_and_writes_nothing(tree: &Tree) {
    commit(tree, &[create("/t"), create("/u")]).await;
    commit(tree, &[set("/u", "")]).await;
    let fences = [fence("/t", 0), fence("/t", 0), fence("/u", 0), fence("/t", 5)];
    assert_error!(refused(tree, &fences, &[create("/t/a")]).await, Fenced(2));
    assert_error!(refused(tree, &[fence("/u", u32::MAX)], &[create("/t/a")]).await, Fenced(0));
    assert_eq!(tree.children("/t").await.unwrap(), [""; 0]);
}

pub(super) async fn a_fence_on_an_absent_node_fails(tree: &Tree) {
    assert_error!(refused(tree, &[fence("/t", 0)], &[create("/t")]).await, Fenced(0));
    assert_eq!(version(tree, "/t").await, None);
}

pub(super) async fn fences_come_before_operations(tree: &Tree) {
    commit(tree, &[create("/t")]).await;
    assert_error!(refused(tree, &[fence("/t", 1)], &[create("/t")]).await, Fenced(0));
    assert_error!(refused(tree, &[fence("/t", 1)], &[set("/t", "")]).await, Fenced(0));
}

pub(super) async fn fences_alone_are_checked(tree: &Tree) {
    commit(tree, &[create("/t")]).await;
    assert_eq!(tree.commit(&[fence("/t", 0)], &[]).await.unwrap(), []);
    assert_error!(refused(tree, &[fence("/t", 1)], &[]).await, Fenced(0));
}

pub(super) async fn a_commit_may_set_the_node_it_is_fenced_by(tree: &Tree) {
    commit(tree, &[create("/t")]).await;
    tree.commit(&[fence("/t", 0)], &[set("/t", "")]).await.unwrap();
    assert_error!(refused(tree, &[fence("/t", 0)], &[set("/t", "")]).await, Fenced(0));
    assert_eq!(version(tree, "/t").await, Some(1));
}

pub(super) async fn an_empty_commit_does_nothing(tree: &Tree) {
    assert_eq!(commit(tree, &[]).await, []);
}
