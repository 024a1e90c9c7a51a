//! Tests of the bounds: sizes and forms that are refused before anything is sent.

use angarium_coordination::Op;
use angarium_coordination::Refusal::{Full, NoNode, NodeExists};
use angarium_coordination::TreeError::{Bounds, Fenced, Refused};
use bytes::Bytes;

use super::{Tree, assert_error, commit, create, create_with, delete, fence, refused, set, version};

const CHILDREN: usize = 8_000;

pub(super) async fn a_commit_has_at_most_100_operations(tree: &Tree) {
    commit(tree, &[create("/t")]).await;
    let ops: Vec<Op> = (0..100).map(|i| create(format!("/t/{i}"))).collect();
    assert_error!(refused(tree, &[fence("/t", 0)], &ops).await, Bounds(_));
    assert_eq!(tree.children("/t").await.unwrap(), [""; 0]);
    tree.commit(&[fence("/t", 0)], &ops[1..]).await.unwrap();
    commit(tree, &(0..100).map(|i| create(format!("/t/more {i}"))).collect::<Vec<_>>()).await;
    assert_eq!(tree.children("/t").await.unwrap().len(), 199);
}

pub(super) async fn a_commit_has_at_most_256_kib(tree: &Tree) {
    commit(tree, &[create("/t")]).await;
    let data = |bytes: usize| Bytes::from(vec![b'x'; bytes]);
    // Paths count towards the size too.
    let half = 128 * 1024 - "/t/a".len();
    let above = [create_with("/t/a", data(half)), create_with("/t/b", data(half)), create("/t/c")];
    assert_error!(refused(tree, &[], &above).await, Bounds(_));
    assert_eq!(tree.children("/t").await.unwrap(), [""; 0]);
    commit(tree, &above[..2]).await;
    let long = "x".repeat(3_000);
    let fences: Vec<_> = (0..99).map(|i| fence(format!("/{i}{long}"), 0)).collect();
    assert_error!(refused(tree, &fences, &[set("/t", "")]).await, Bounds(_));
}

pub(super) async fn a_value_has_at_most_128_kib(tree: &Tree) {
    let max = Bytes::from(vec![0; 128 * 1024]);
    let above = Bytes::from(vec![0; 128 * 1024 + 1]);
    assert_error!(refused(tree, &[], &[create_with("/t", above.clone())]).await, Bounds(_));
    commit(tree, &[create_with("/t", max.clone())]).await;
    assert_error!(refused(tree, &[], &[set("/t", above)]).await, Bounds(_));
    assert_eq!(tree.get("/t").await.unwrap().unwrap().data, max);
}

pub(super) async fn paths_invalid_in_zookeeper_are_refused(tree: &Tree) {
    commit(tree, &[create("/t")]).await;
    let deep = "/a".repeat(65);
    let long = format!("/t/{}", "x".repeat(4_096));
    let bad = [
        "",
        "t",
        "/t/",
        "//t",
        "/t//a",
        "/t/.",
        "/t/..",
        "/./t",
        "/t/\0",
        "/t/\u{1f}",
        "/t/\u{7f}",
        "/t/\u{85}",
        "/t/\u{e000}",
        "/t/\u{f8ff}",
        "/t/\u{fff0}",
        "/t/😀",
        &deep,
        &long,
    ];
    for path in bad {
        assert_error!(refused(tree, &[], &[create(path)]).await, Bounds(_));
        assert_error!(refused(tree, &[], &[set("/t", ""), delete(path)]).await, Bounds(_));
        assert_error!(refused(tree, &[fence(path, 0)], &[]).await, Bounds(_));
        assert_error!(tree.get(path).await.unwrap_err(), Bounds(_));
        assert_error!(tree.children(path).await.unwrap_err(), Bounds(_));
    }
    assert_eq!(version(tree, "/t").await, Some(0));
    commit(tree, &[create(format!("/t/{}", "x".repeat(4_000)))]).await;
}

pub(super) async fn a_directory_has_at_most_8000_children(tree: &Tree) {
    commit(tree, &[create("/t"), create("/u")]).await;
    let names: Vec<usize> = (0..CHILDREN).collect();
    for some in names.chunks(100) {
        commit(tree, &some.iter().map(|i| create(format!("/t/{i}"))).collect::<Vec<_>>()).await;
    }
    let full = [create("/u/a"), create("/t/one more")];
    assert_error!(refused(tree, &[], &full).await, Refused { op: 1, why: Full });
    assert_eq!(tree.children("/u").await.unwrap(), [""; 0]);
    // Another reason for a refusal takes precedence.
    assert_error!(refused(tree, &[], &[create("/t/7")]).await, Refused { op: 0, why: NodeExists });
    assert_error!(refused(tree, &[fence("/u", 1)], &full).await, Fenced(0));
    assert_error!(
        refused(tree, &[], &[delete("/u/b"), create("/t/x")]).await,
        Refused { op: 0, why: NoNode }
    );
    commit(tree, &[delete("/t/7"), create("/t/one more")]).await;
    assert_error!(refused(tree, &[], &[create("/t/another")]).await, Refused { op: 0, why: Full });
    commit(tree, &[delete("/t/8")]).await;
    commit(tree, &[create("/t/another"), create("/u/a")]).await;
    assert_eq!(tree.get("/t").await.unwrap().unwrap().children, 8_000);
}

pub(super) async fn the_root_is_neither_created_nor_deleted(tree: &Tree) {
    assert_error!(refused(tree, &[], &[create("/")]).await, Bounds(_));
    assert_error!(refused(tree, &[], &[delete("/")]).await, Bounds(_));
}
