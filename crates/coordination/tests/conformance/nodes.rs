//! Tests of reads of nodes.

use bytes::Bytes;

use super::{Tree, commit, create, create_with, delete, set};

pub(super) async fn uncreated_node_is_none(tree: &Tree) {
    assert_eq!(tree.get("/t").await.unwrap(), None);
    assert_eq!(tree.get("/t/a").await.unwrap(), None);
}

pub(super) async fn a_created_node_has_its_data_version_zero_and_no_children(tree: &Tree) {
    commit(tree, &[create_with("/t", "data")]).await;
    let node = tree.get("/t").await.unwrap().unwrap();
    assert_eq!((node.data, node.version, node.children), (Bytes::from("data"), 0, 0));
}

pub(super) async fn data_may_be_empty_or_anything(tree: &Tree) {
    let anything: Bytes = (0..=255).cycle().take(100_000).collect::<Vec<u8>>().into();
    commit(tree, &[create_with("/t", ""), create_with("/t/a", anything.clone())]).await;
    assert_eq!(tree.get("/t").await.unwrap().unwrap().data, Bytes::new());
    assert_eq!(tree.get("/t/a").await.unwrap().unwrap().data, anything);
}

pub(super) async fn the_version_counts_the_sets(tree: &Tree) {
    commit(tree, &[create("/t")]).await;
    for version in 1..=5 {
        commit(tree, &[set("/t", format!("{version}"))]).await;
        let node = tree.get("/t").await.unwrap().unwrap();
        assert_eq!((node.version, node.data), (version, Bytes::from(version.to_string())));
    }
}

pub(super) async fn modified_grows_with_each_set(tree: &Tree) {
    commit(tree, &[create("/t"), create("/u")]).await;
    let mut last = tree.get("/t").await.unwrap().unwrap().modified;
    for path in ["/t", "/u", "/t", "/t", "/u"] {
        commit(tree, &[set(path, "")]).await;
        let modified = tree.get(path).await.unwrap().unwrap().modified;
        assert!(modified > last, "{modified} comes after {last}");
        last = modified;
    }
}

pub(super) async fn recreated_node_has_version_zero_and_later_modification(tree: &Tree) {
    commit(tree, &[create("/t")]).await;
    commit(tree, &[set("/t", "")]).await;
    let before = tree.get("/t").await.unwrap().unwrap();
    commit(tree, &[delete("/t")]).await;
    commit(tree, &[create("/t")]).await;
    let after = tree.get("/t").await.unwrap().unwrap();
    assert_eq!((before.version, after.version), (1, 0));
    assert!(after.modified > before.modified);
}

pub(super) async fn a_node_knows_how_many_children_it_has(tree: &Tree) {
    commit(tree, &[create("/t"), create("/t/a"), create("/t/b"), create("/t/b/c")]).await;
    assert_eq!(tree.get("/t").await.unwrap().unwrap().children, 2);
    commit(tree, &[delete("/t/a")]).await;
    assert_eq!(tree.get("/t").await.unwrap().unwrap().children, 1);
    assert_eq!(tree.get("/t/b").await.unwrap().unwrap().children, 1);
}

pub(super) async fn a_node_shows_every_acknowledged_commit(tree: &Tree) {
    commit(tree, &[create("/t")]).await;
    for i in 0..200 {
        commit(tree, &[create(format!("/t/{i:03}")), set("/t", format!("{i}"))]).await;
        assert_eq!(tree.get("/t").await.unwrap().unwrap().data, Bytes::from(i.to_string()));
        assert_eq!(tree.children("/t").await.unwrap().len(), i + 1);
    }
}

pub(super) async fn children_are_direct_and_in_order(tree: &Tree) {
    let names = ["B", "a", "10", "9", "a.b", "a-b", "ä", "a b"];
    commit(tree, &[create("/t"), create("/tt"), create("/tt/x")]).await;
    for name in names {
        commit(tree, &[create(format!("/t/{name}")), create(format!("/t/{name}/below"))]).await;
    }
    let mut sorted = names.map(str::to_owned);
    sorted.sort();
    assert_eq!(tree.children("/t").await.unwrap(), sorted);
    assert_eq!(tree.children("/t/a").await.unwrap(), ["below"]);
    assert_eq!(tree.children("/t/a/below").await.unwrap(), [""; 0]);
}

pub(super) async fn an_absent_node_has_no_children(tree: &Tree) {
    assert_eq!(tree.children("/t").await.unwrap(), [""; 0]);
}

pub(super) async fn names_may_have_odd_characters(tree: &Tree) {
    commit(tree, &[create("/t")]).await;
    let names = [
        ".a",
        "..a",
        "...",
        "a.",
        "%2f",
        "%2e",
        "a b",
        "~",
        "{}",
        "\"'\\",
        "#?&",
        "…",
        "日本語",
        "\u{d7ff}",
        "\u{f900}",
    ];
    for name in names {
        let path = format!("/t/{name}");
        commit(tree, &[create_with(&path, name)]).await;
        assert_eq!(tree.get(&path).await.unwrap().unwrap().data, Bytes::from(name));
    }
    let mut sorted = names.map(str::to_owned);
    sorted.sort();
    assert_eq!(tree.children("/t").await.unwrap(), sorted);
}

pub(super) async fn the_root_is_there_from_the_start(tree: &Tree) {
    let before = tree.get("/").await.unwrap().unwrap().children;
    commit(tree, &[create("/t")]).await;
    assert_eq!(tree.get("/").await.unwrap().unwrap().children, before + 1);
    assert!(tree.children("/").await.unwrap().contains(&"t".to_owned()));
}

pub(super) async fn nodes_read_together_are_those_read_alone(tree: &Tree) {
    commit(tree, &[create("/t"), create_with("/t/a", "x"), create("/t/a/b")]).await;
    let paths: Vec<String> = ["/t/a", "/absent", "/t", "/t/a"].map(str::to_owned).to_vec();
    let mut alone = Vec::new();
    for path in &paths {
        alone.push(tree.get(path).await.unwrap());
    }
    assert_eq!(tree.get_many(&paths).await.unwrap(), alone);
    assert!(alone[1].is_none());
    let many: Vec<String> = (0..300).map(|_| "/t".to_owned()).collect();
    assert_eq!(tree.get_many(&many).await.unwrap(), vec![alone[2].clone(); 300]);
    assert_eq!(tree.get_many(&[]).await.unwrap(), []);
    let bad = ["/t".to_owned(), "t".to_owned()];
    assert!(matches!(tree.get_many(&bad).await, Err(angarium_coordination::TreeError::Bounds(_))));
}

pub(super) async fn time_is_of_the_last_change(tree: &Tree) {
    let time = async |path: &str| tree.get(path).await.unwrap().unwrap().time;
    commit(tree, &[create("/t")]).await;
    let created = time("/t").await;
    commit(tree, &[create("/t/a")]).await;
    assert_eq!(time("/t").await, created, "a child is no change of its data");
    commit(tree, &[set("/t", "")]).await;
    assert!(time("/t").await >= created);
    commit(tree, &[set("/t/a", "")]).await;
    assert!(time("/t/a").await >= time("/t").await);
}

pub(super) async fn a_page_of_children_begins_behind_a_name_and_has_a_bound(tree: &Tree) {
    commit(tree, &[create("/t"), create("/tt"), create("/tt/x")]).await;
    for name in ["a", "a.b", "b", "c"] {
        commit(tree, &[create(format!("/t/{name}")), create(format!("/t/{name}/below"))]).await;
    }
    for (after, max, page) in [
        (None, 9, vec!["a", "a.b", "b", "c"]),
        (None, 2, vec!["a", "a.b"]),
        (Some("a"), 2, vec!["a.b", "b"]),
        (Some("aa"), 9, vec!["b", "c"]),
        (Some("c"), 9, vec![]),
        (Some(""), 1, vec!["a"]),
        (None, 0, vec![]),
    ] {
        assert_eq!(tree.children_behind("/t", after, max).await.unwrap(), page, "{after:?} {max}");
    }
    assert_eq!(tree.children_behind("/missing", None, 9).await.unwrap(), [""; 0]);
}
