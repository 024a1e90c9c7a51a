//! The right to write: the promises of `fence`.

use angarium_core::ids::{MessageId, Slot};
use angarium_storage::{Epoch, StoreError};

use angarium_testbed::drivers::Storage;
use angarium_testbed::owner::{Owner, SLOT, appends, epoch, id, ids, messages, queue, removes};

pub async fn unused_slot_has_no_greatest_id(storage: &mut dyn Storage) {
    let store = storage.open().await;
    assert_eq!(store.fence(SLOT, epoch(1)).await.unwrap(), MessageId::ZERO);
}

pub async fn greatest_id_ever_appended_is_returned(storage: &mut dyn Storage) {
    let store = storage.open().await;
    let mut owner = Owner::fence(&store, SLOT, 1).await;
    owner.append(queue(SLOT, 1), &messages([3, 9])).await;
    owner.append(queue(SLOT, 2), &messages([5])).await;
    assert_eq!(store.fence(SLOT, epoch(2)).await.unwrap(), id(9));
}

pub async fn greatest_id_outlives_its_entry(storage: &mut dyn Storage) {
    let store = storage.open().await;
    let mut owner = Owner::fence(&store, SLOT, 1).await;
    owner.append(queue(SLOT, 1), &messages([3, 9])).await;
    owner.remove(queue(SLOT, 1), &[id(9)]).await;
    assert_eq!(store.fence(SLOT, epoch(2)).await.unwrap(), id(9));
    assert_eq!(store.fence(SLOT, epoch(3)).await.unwrap(), id(9));
}

pub async fn greatest_id_counts_ids_removed_in_its_batch(storage: &mut dyn Storage) {
    let store = storage.open().await;
    let mut owner = Owner::fence(&store, SLOT, 1).await;
    let mut changes = appends(queue(SLOT, 1), &messages([4]));
    changes.changes.removes = vec![id(4)];
    owner.apply(vec![changes]).await;
    assert_eq!(store.fence(SLOT, epoch(2)).await.unwrap(), id(4));
}

pub async fn greatest_id_is_per_slot(storage: &mut dyn Storage) {
    let store = storage.open().await;
    let other = Slot(SLOT.0 + 1);
    let mut owner = Owner::fence(&store, SLOT, 1).await;
    owner.append(queue(SLOT, 1), &messages([9])).await;
    assert_eq!(store.fence(other, epoch(2)).await.unwrap(), MessageId::ZERO);
}

pub async fn lower_epoch_is_refused(storage: &mut dyn Storage) {
    let store = storage.open().await;
    store.fence(SLOT, epoch(5)).await.unwrap();
    let refused = store.fence(SLOT, epoch(4)).await;
    assert!(matches!(refused, Err(StoreError::Fenced(by)) if by == epoch(5)), "{refused:?}");
}

pub async fn generation_counts_before_transaction(storage: &mut dyn Storage) {
    let store = storage.open().await;
    store.fence(SLOT, epoch(500)).await.unwrap();
    let rebuilt = Epoch { generation: 2, transaction: 1 };
    store.fence(SLOT, rebuilt).await.unwrap();
    let refused = store.fence(SLOT, epoch(501)).await;
    assert!(matches!(refused, Err(StoreError::Fenced(by)) if by == rebuilt), "{refused:?}");
}

pub async fn refused_fence_leaves_the_owner_alone(storage: &mut dyn Storage) {
    let store = storage.open().await;
    let mut owner = Owner::fence(&store, SLOT, 5).await;
    owner.append(queue(SLOT, 1), &messages([1])).await;
    store.fence(SLOT, epoch(4)).await.unwrap_err();
    owner.append(queue(SLOT, 1), &messages([2])).await;
    assert_eq!(ids(&owner.all(queue(SLOT, 1)).await), [id(1), id(2)]);
}

pub async fn same_epoch_begins_a_numbering_of_its_own(storage: &mut dyn Storage) {
    let store = storage.open().await;
    let mut owner = Owner::fence(&store, SLOT, 5).await;
    owner.append(queue(SLOT, 1), &messages([1])).await;
    owner.append(queue(SLOT, 1), &messages([2])).await;
    let mut again = Owner::fence(&store, SLOT, 5).await;
    again.append(queue(SLOT, 1), &messages([3])).await;
    assert_eq!(ids(&again.all(queue(SLOT, 1)).await), [id(1), id(2), id(3)]);
}

pub async fn replaced_owner_writes_nothing(storage: &mut dyn Storage) {
    let store = storage.open().await;
    let mut old = Owner::fence(&store, SLOT, 1).await;
    old.append(queue(SLOT, 1), &messages([1])).await;
    let new = Owner::fence(&store, SLOT, 2).await;
    for seq in [1, 2, 3] {
        for late in [appends(queue(SLOT, 1), &messages([2])), removes(queue(SLOT, 1), &[id(1)])] {
            let refused = old.send(seq, vec![late]).await;
            assert!(matches!(refused, Err(StoreError::Fenced(by)) if by == epoch(2)), "{refused:?}");
        }
    }
    assert_eq!(new.all(queue(SLOT, 1)).await, messages([1]));
    assert_eq!(store.fence(SLOT, epoch(3)).await.unwrap(), id(1));
}

pub async fn fence_and_batch_at_the_same_time_come_one_after_the_other(storage: &mut dyn Storage) {
    let store = storage.open().await;
    for round in 0..20 {
        let mut old = Owner::fence(&store, SLOT, 2 * round).await;
        old.append(queue(SLOT, round), &messages([1])).await;
        let late = old.batch(2, vec![appends(queue(SLOT, round), &messages([100 + round]))]);
        let (written, last) = tokio::join!(store.commit(&late), store.fence(SLOT, epoch(2 * round + 1)));
        let mut new = Owner { epoch: epoch(2 * round + 1), seq: 0, ..old };
        let found = ids(&new.all(queue(SLOT, round)).await);
        match written {
            Ok(()) => assert_eq!((last.unwrap(), found), (id(100 + round), vec![id(1), id(100 + round)])),
            Err(refused) => {
                assert!(matches!(refused, StoreError::Fenced(_)), "{refused}");
                assert!(last.unwrap() < id(100 + round));
                assert_eq!(found, [id(1)]);
            }
        }
        new.append(queue(SLOT, round), &messages([2])).await;
    }
}
