//! Tests of concurrent commits.

use std::collections::HashSet;
use std::sync::Arc;

use angarium_coordination::Refusal::{BadVersion, NoNode, NodeExists};
use angarium_coordination::TreeError::{Fenced, Refused};
use tokio::task::JoinSet;

use super::{Tree, commit, create, fence, set, set_at, version};

pub(super) async fn commits_at_the_same_time_are_all_applied_once(tree: &Tree) {
    commit(tree, &[create("/t")]).await;
    let mut callers = JoinSet::new();
    for caller in 0..64 {
        let tree = Arc::clone(tree);
        callers.spawn(async move {
            commit(&tree, &[create(format!("/t/{caller}"))]).await;
            for i in 0..30 {
                let ops = [create(format!("/t/{caller}/{i}")), set(format!("/t/{caller}"), "")];
                let stat = commit(&tree, &ops).await[1].expect("a set has a version");
                assert_eq!(stat.version, i + 1);
            }
        });
    }
    callers.join_all().await;
    assert_eq!(tree.children("/t").await.unwrap().len(), 64);
    for caller in 0..64 {
        let node = tree.get(&format!("/t/{caller}")).await.unwrap().unwrap();
        assert_eq!((node.version, node.children), (30, 30));
    }
}

pub(super) async fn commits_at_the_same_time_do_not_share_failures(tree: &Tree) {
    commit(tree, &[create("/t"), create("/u"), create("/t/there")]).await;
    let mut callers = JoinSet::new();
    for caller in 0..300 {
        let tree = Arc::clone(tree);
        callers.spawn(async move {
            let node = create(format!("/t/{caller}"));
            match caller % 6 {
                0 => {
                    let outcome = tree.commit(&[fence("/u", 0)], &[node, create("/t/there")]).await;
                    assert!(matches!(outcome, Err(Refused { op: 1, why: NodeExists })), "{outcome:?}");
                }
                1 => {
                    let outcome = tree.commit(&[fence("/t", 0), fence("/u", 8)], &[node]).await;
                    assert!(matches!(outcome, Err(Fenced(1))), "{outcome:?}");
                }
                2 => {
                    let outcome = tree.commit(&[], &[node, create("/t/absent/a")]).await;
                    assert!(matches!(outcome, Err(Refused { op: 1, why: NoNode })), "{outcome:?}");
                }
                3 => {
                    let outcome = tree.commit(&[fence("/u", 8), fence("/t", 9)], &[node]).await;
                    assert!(matches!(outcome, Err(Fenced(0))), "{outcome:?}");
                }
                _ => drop(tree.commit(&[fence("/u", 0), fence("/t", 0)], &[node]).await.unwrap()),
            }
        });
    }
    callers.join_all().await;
    let names: HashSet<String> = tree.children("/t").await.unwrap().into_iter().collect();
    for caller in 0..300 {
        assert_eq!(names.contains(&caller.to_string()), caller % 6 > 3, "{caller}");
    }
}

pub(super) async fn of_many_creations_of_a_node_one_succeeds(tree: &Tree) {
    commit(tree, &[create("/t")]).await;
    let mut callers = JoinSet::new();
    for caller in 0..50 {
        let tree = Arc::clone(tree);
        callers.spawn(async move {
            let ops = [create("/t/same"), create(format!("/t/same/{caller}"))];
            match tree.commit(&[], &ops).await {
                Ok(_) => Some(caller.to_string()),
                Err(Refused { op: 0, why: NodeExists }) => None,
                Err(error) => panic!("{error:?}"),
            }
        });
    }
    let winners: Vec<String> = callers.join_all().await.into_iter().flatten().collect();
    assert_eq!(winners.len(), 1);
    assert_eq!(tree.children("/t/same").await.unwrap(), winners);
}

pub(super) async fn versioned_sets_never_overwrite_each_other(tree: &Tree) {
    commit(tree, &[create("/t")]).await;
    let mut callers = JoinSet::new();
    for _ in 0..16 {
        let tree = Arc::clone(tree);
        callers.spawn(async move {
            let mut done = 0;
            while done < 10 {
                let seen = version(&tree, "/t").await.expect("the node is there");
                match tree.commit(&[], &[set_at("/t", seen)]).await {
                    Ok(committed) => {
                        assert_eq!(committed[0].map(|stat| stat.version), Some(seen + 1));
                        done += 1;
                    }
                    Err(Refused { op: 0, why: BadVersion }) => {}
                    Err(error) => panic!("{error:?}"),
                }
            }
        });
    }
    callers.join_all().await;
    assert_eq!(version(tree, "/t").await, Some(160));
}

pub(super) async fn moved_fence_stops_later_commits(tree: &Tree) {
    commit(tree, &[create("/t"), create("/slot")]).await;
    let mut callers = JoinSet::new();
    for caller in 0..32 {
        let tree = Arc::clone(tree);
        callers.spawn(async move {
            for i in 0.. {
                match tree.commit(&[fence("/slot", 0)], &[create(format!("/t/{caller} {i}"))]).await {
                    Ok(_) => {}
                    Err(Fenced(0)) => return i,
                    Err(error) => panic!("{error:?}"),
                }
            }
            0
        });
    }
    let mover = Arc::clone(tree);
    let moved = async move {
        while version(&mover, "/t").await.is_some() && mover.children("/t").await.unwrap().len() < 100 {}
        commit(&mover, &[set("/slot", "another")]).await;
        mover.children("/t").await.unwrap().len()
    };
    let when_moved = moved.await;
    let applied: usize = callers.join_all().await.into_iter().sum();
    assert_eq!(when_moved, applied, "nothing is written behind the fence");
    assert_eq!(tree.children("/t").await.unwrap().len(), applied);
}

pub(super) async fn reads_at_the_same_time_are_all_answered(tree: &Tree) {
    commit(tree, &[create("/t")]).await;
    let ops: Vec<_> = (0..50).map(|i| create(format!("/t/{i}"))).collect();
    commit(tree, &ops).await;
    let mut readers = JoinSet::new();
    for reader in 0..1_000 {
        let tree = Arc::clone(tree);
        readers.spawn(async move { version(&tree, &format!("/t/{}", reader % 60)).await.is_some() });
    }
    let found = readers.join_all().await.into_iter().filter(|found| *found).count();
    assert_eq!(found, 840);
}
