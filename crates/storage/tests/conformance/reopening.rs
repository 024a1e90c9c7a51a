//! Acknowledged batches and their numbering exist when the storage is opened again (P1).

use angarium_storage::{Direction, Order, QueueChanges, StoreError};

use angarium_testbed::drivers::Storage;
use angarium_testbed::owner::{Owner, SLOT, appends, claimed_again, epoch, id, messages, queue, removes};

pub async fn entries_and_totals_are_kept(storage: &mut dyn Storage) {
    let mut owner = Owner::fence(&storage.open().await, SLOT, 1).await;
    let mut expected = messages([1, 3]);
    owner.append(queue(SLOT, 1), &messages(1..=3)).await;
    owner.append(queue(SLOT, 2), &messages([4])).await;
    expected[1].header = claimed_again(&expected[1].header);
    owner.update(queue(SLOT, 1), &[expected[1].header.clone()]).await;
    owner.remove(queue(SLOT, 1), &[id(2)]).await;
    drop(owner);

    let owner = Owner::fence(&storage.open().await, SLOT, 2).await;
    assert_eq!(owner.all(queue(SLOT, 1)).await, expected);
    assert_eq!(owner.get(queue(SLOT, 1), &[id(3), id(2), id(1)]).await.len(), 2);
    assert_eq!(owner.totals(queue(SLOT, 1)).await, (2, 20));
    assert_eq!(owner.all(queue(SLOT, 2)).await, messages([4]));
}

pub async fn head_of_the_queue_is_kept(storage: &mut dyn Storage) {
    let mut owner = Owner::fence(&storage.open().await, SLOT, 1).await;
    owner.append(queue(SLOT, 1), &messages(1..=4)).await;
    let gone = [id(1), id(2)];
    owner.apply(vec![QueueChanges { low: id(3), ..removes(queue(SLOT, 1), &gone) }]).await;
    drop(owner);

    let mut owner = Owner::fence(&storage.open().await, SLOT, 2).await;
    assert_eq!(owner.page(queue(SLOT, 1), Direction::Up, None, 1).await.messages, messages([3]));
    owner.append(queue(SLOT, 1), &messages([2, 9])).await;
    assert_eq!(owner.all(queue(SLOT, 1)).await, messages([2, 3, 4, 9]));
}

pub async fn epoch_and_greatest_id_are_kept(storage: &mut dyn Storage) {
    let mut owner = Owner::fence(&storage.open().await, SLOT, 5).await;
    owner.append(queue(SLOT, 1), &messages([7])).await;
    owner.remove(queue(SLOT, 1), &[id(7)]).await;
    drop(owner);

    let store = storage.open().await;
    let refused = store.fence(SLOT, epoch(4)).await;
    assert!(matches!(refused, Err(StoreError::Fenced(by)) if by == epoch(5)), "{refused:?}");
    assert_eq!(store.fence(SLOT, epoch(6)).await.unwrap(), id(7));
}

pub async fn last_number_is_kept(storage: &mut dyn Storage) {
    let mut owner = Owner::fence(&storage.open().await, SLOT, 1).await;
    owner.append(queue(SLOT, 1), &messages([1])).await;
    owner.append(queue(SLOT, 1), &messages([2])).await;
    let batch = |seq, rank| owner.batch(seq, vec![appends(queue(SLOT, 1), &messages([rank]))]);
    let (stale, repeat, next, gap) = (batch(1, 3), batch(2, 2), batch(3, 3), batch(5, 4));
    drop(owner);

    let store = storage.open().await;
    assert!(matches!(store.commit(&stale).await, Err(StoreError::Stale)));
    store.commit(&repeat).await.unwrap();
    store.commit(&next).await.unwrap();
    assert!(matches!(store.commit(&gap).await, Err(StoreError::WentBack)));
    let all = store.scan(queue(SLOT, 1), Order::Ready, Direction::Up, None, 10, 1_000).await.unwrap();
    assert_eq!(all.messages, messages([1, 2, 3]));
}

pub async fn owner_of_the_same_epoch_continues(storage: &mut dyn Storage) {
    let mut owner = Owner::fence(&storage.open().await, SLOT, 3).await;
    owner.append(queue(SLOT, 1), &messages([1])).await;
    drop(owner);
    let mut owner = Owner::fence(&storage.open().await, SLOT, 3).await;
    owner.append(queue(SLOT, 1), &messages([2])).await;
    assert_eq!(owner.all(queue(SLOT, 1)).await, messages([1, 2]));
}
