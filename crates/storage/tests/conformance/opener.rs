//! Several embedded pools in one process: which URIs name the same storage.

use uuid::Uuid;

use angarium_clock::Clock;
use angarium_storage::open::{PoolOpenError, PoolOpener};
use angarium_storage::{Stamp, StoreError};

use angarium_testbed::owner::{Owner, SLOT, messages, queue};

fn stamp(pool: u128) -> Stamp {
    Stamp { system: Uuid::from_u128(1), pool: Uuid::from_u128(pool) }
}

#[tokio::test(flavor = "multi_thread")]
async fn pools_on_several_paths_are_used_at_once_and_apart() {
    let data = tempfile::tempdir().unwrap();
    let opener = PoolOpener::new(data.path(), Clock::manual(0), []);
    let mut owners = Vec::new();
    for (path, rank) in [("embedded:a", 1), ("embedded:b", 2), ("embedded:deep/c", 3)] {
        let store = opener.open(path).unwrap();
        store.register(stamp(u128::from(rank))).await.unwrap();
        let mut owner = Owner::fence(&store, SLOT, rank).await;
        owner.append(queue(SLOT, 1), &messages([rank])).await;
        owners.push((owner, rank));
    }
    for (owner, rank) in owners {
        assert_eq!(owner.all(queue(SLOT, 1)).await, messages([rank]));
        assert_eq!(owner.store.stamp().await.unwrap(), Some(stamp(u128::from(rank))));
    }
}

#[tokio::test]
async fn path_of_a_pool_takes_no_second_pool() {
    let data = tempfile::tempdir().unwrap();
    let opener = PoolOpener::new(data.path(), Clock::manual(0), []);
    opener.open("embedded:a").unwrap().register(stamp(1)).await.unwrap();
    for path in ["embedded:a", "embedded:a/"] {
        let refused = opener.open(path).unwrap().register(stamp(2)).await;
        assert!(matches!(refused, Err(StoreError::Stamped(of)) if of == stamp(1)), "{refused:?}");
    }
}

#[test]
fn directories_within_each_other_are_refused() {
    let data = tempfile::tempdir().unwrap();
    let opener = PoolOpener::new(data.path(), Clock::manual(0), []);
    opener.open("embedded:a/b").unwrap();
    for path in ["embedded:a", "embedded:a/b/c"] {
        let refused = opener.open(path).err().unwrap();
        assert!(matches!(refused, PoolOpenError::Shared(_)), "{path}: {refused}");
    }
    opener.open("embedded:ab").unwrap();
}

#[test]
fn paths_outside_data_directory_are_refused() {
    let data = tempfile::tempdir().unwrap();
    let opener = PoolOpener::new(data.path(), Clock::manual(0), []);
    for path in ["embedded:", "embedded:..", "embedded:a/../../b", "embedded:/tmp/a"] {
        let refused = opener.open(path).err().unwrap();
        assert!(matches!(refused, PoolOpenError::Path(_)), "{path}: {refused}");
    }
}

#[tokio::test]
async fn closed_storage_is_free_once_its_handles_are_gone() {
    let data = tempfile::tempdir().unwrap();
    let opener = PoolOpener::new(data.path(), Clock::manual(0), []);
    let mut owner = Owner::fence(&opener.open("embedded:a").unwrap(), SLOT, 1).await;
    opener.close("embedded:a");
    owner.append(queue(SLOT, 1), &messages([1])).await;
    let other = PoolOpener::new(data.path(), Clock::manual(0), []);
    assert!(matches!(other.open("embedded:a"), Err(PoolOpenError::Journal(_))));
    drop(owner);
    let owner = Owner::fence(&other.open("embedded:a").unwrap(), SLOT, 2).await;
    assert_eq!(owner.all(queue(SLOT, 1)).await, messages([1]));
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrently_opened_storage_is_opened_once() {
    let data = tempfile::tempdir().unwrap();
    let opener = std::sync::Arc::new(PoolOpener::new(data.path(), Clock::manual(0), []));
    let open = || {
        let opener = std::sync::Arc::clone(&opener);
        tokio::task::spawn_blocking(move || opener.open("embedded:a").unwrap())
    };
    let (one, two) = tokio::join!(open(), open());
    let mut owner = Owner::fence(&one.unwrap(), SLOT, 1).await;
    owner.append(queue(SLOT, 1), &messages([1])).await;
    let other = Owner { store: two.unwrap(), ..owner };
    assert_eq!(other.all(queue(SLOT, 1)).await, messages([1]));
}

#[test]
fn registered_storage_is_never_made() {
    let data = tempfile::tempdir().unwrap();
    let opener = PoolOpener::new(data.path(), Clock::manual(0), []);
    std::fs::create_dir(data.path().join("disk")).unwrap();
    for path in ["embedded:disk", "embedded:disk/a", "embedded:none"] {
        let refused = opener.open_registered(path).err().unwrap();
        assert!(matches!(refused, PoolOpenError::Absent(_)), "{path}: {refused}");
    }
    assert_eq!(std::fs::read_dir(data.path().join("disk")).unwrap().count(), 0);
    assert!(!data.path().join("none").exists());
    drop(opener.open("embedded:disk/a").unwrap());
    opener.open_registered("embedded:disk/a").unwrap();
}

#[tokio::test]
async fn verification_of_unregistered_storage_stamps_nothing() {
    let data = tempfile::tempdir().unwrap();
    let store = PoolOpener::new(data.path(), Clock::manual(0), []).open("embedded:a").unwrap();
    for _ in 0..2 {
        let refused = store.verify(stamp(1)).await;
        assert!(matches!(refused, Err(StoreError::Unregistered)), "{refused:?}");
    }
    assert_eq!(store.stamp().await.unwrap(), None);
}
