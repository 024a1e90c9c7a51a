//! The numbers of batches (P1): the next one is applied, a repetition of the last one succeeds, all others are refused.

use angarium_core::durability::Durability;
use angarium_core::ids::{MessageId, Slot};
use angarium_storage::{Batch, StoreError};

use angarium_testbed::drivers::Storage;
use angarium_testbed::owner::{Owner, SLOT, appends, epoch, id, ids, messages, queue};

pub async fn batches_of_an_epoch_are_numbered_from_one(storage: &mut dyn Storage) {
    let store = storage.open().await;
    let owner = Owner::fence(&store, SLOT, 1).await;
    for (seq, rank) in [(1, 10), (2, 20), (3, 30)] {
        owner.send(seq, vec![appends(queue(SLOT, 1), &messages([rank]))]).await.unwrap();
    }
    assert_eq!(ids(&owner.all(queue(SLOT, 1)).await), [id(10), id(20), id(30)]);
}

pub async fn repeated_number_succeeds_and_changes_nothing(storage: &mut dyn Storage) {
    let store = storage.open().await;
    let mut owner = Owner::fence(&store, SLOT, 1).await;
    owner.append(queue(SLOT, 1), &messages([1, 2])).await;
    owner.remove(queue(SLOT, 1), &[id(1)]).await;
    for _ in 0..2 {
        // Even if its content is different.
        owner.send(2, vec![appends(queue(SLOT, 1), &messages([1, 3]))]).await.unwrap();
    }
    assert_eq!(owner.all(queue(SLOT, 1)).await, messages([2]));
    assert_eq!(owner.totals(queue(SLOT, 1)).await, (1, 10));
    assert_eq!(store.fence(SLOT, epoch(2)).await.unwrap(), id(2));
}

pub async fn gap_is_refused_and_changes_nothing(storage: &mut dyn Storage) {
    let store = storage.open().await;
    let mut owner = Owner::fence(&store, SLOT, 1).await;
    owner.append(queue(SLOT, 1), &messages([1])).await;
    for seq in [3, 4, u64::MAX] {
        let refused = owner.send(seq, vec![appends(queue(SLOT, 1), &messages([2]))]).await;
        assert!(matches!(refused, Err(StoreError::WentBack)), "{seq}: {refused:?}");
    }
    assert_eq!(owner.all(queue(SLOT, 1)).await, messages([1]));
    assert_eq!(owner.totals(queue(SLOT, 1)).await, (1, 10));
}

pub async fn older_number_is_stale_and_changes_nothing(storage: &mut dyn Storage) {
    let store = storage.open().await;
    let mut owner = Owner::fence(&store, SLOT, 1).await;
    for rank in [1, 2, 3] {
        owner.append(queue(SLOT, 1), &messages([rank])).await;
    }
    owner.remove(queue(SLOT, 1), &[id(1)]).await;
    for seq in [1, 2, 3] {
        let refused = owner.send(seq, vec![appends(queue(SLOT, 1), &messages([1]))]).await;
        assert!(matches!(refused, Err(StoreError::Stale)), "{seq}: {refused:?}");
    }
    assert_eq!(owner.all(queue(SLOT, 1)).await, messages([2, 3]));
    assert_eq!(owner.totals(queue(SLOT, 1)).await, (2, 20));
}

pub async fn slot_without_a_record_went_back(storage: &mut dyn Storage) {
    let store = storage.open().await;
    let other = Slot(SLOT.0 + 1);
    let owner = Owner::fence(&store, other, 1).await;
    let queues = vec![appends(queue(SLOT, 1), &messages([1]))];
    let batch = Batch { slot: SLOT, epoch: epoch(1), seq: 1, durability: Durability::Sync, queues };
    let refused = store.commit(&batch).await;
    assert!(matches!(refused, Err(StoreError::WentBack)), "{refused:?}");
    assert_eq!(owner.all(queue(SLOT, 1)).await, []);
}

pub async fn epoch_beyond_the_record_went_back(storage: &mut dyn Storage) {
    let store = storage.open().await;
    let owner = Owner::fence(&store, SLOT, 1).await;
    let batch = Batch { epoch: epoch(2), ..owner.batch(1, vec![appends(queue(SLOT, 1), &messages([1]))]) };
    let refused = store.commit(&batch).await;
    assert!(matches!(refused, Err(StoreError::WentBack)), "{refused:?}");
    assert_eq!(owner.all(queue(SLOT, 1)).await, []);
}

pub async fn refused_batch_may_come_again_under_its_right_number(storage: &mut dyn Storage) {
    let store = storage.open().await;
    let owner = Owner::fence(&store, SLOT, 1).await;
    let changes = || vec![appends(queue(SLOT, 1), &messages([1]))];
    owner.send(2, changes()).await.unwrap_err();
    owner.send(1, changes()).await.unwrap();
    assert_eq!(owner.all(queue(SLOT, 1)).await, messages([1]));
}

pub async fn slots_are_numbered_apart(storage: &mut dyn Storage) {
    let store = storage.open().await;
    let other = Slot(SLOT.0 + 1);
    let (mut one, mut two) = (Owner::fence(&store, SLOT, 5).await, Owner::fence(&store, other, 1).await);
    one.append(queue(SLOT, 1), &messages([1])).await;
    one.append(queue(SLOT, 1), &messages([2])).await;
    two.append(queue(other, 1), &messages([3])).await;
    one.append(queue(SLOT, 1), &messages([4])).await;
    assert_eq!(ids(&two.all(queue(other, 1)).await), [id(3)]);
    assert_eq!(ids(&one.all(queue(SLOT, 1)).await), [id(1), id(2), id(4)]);
}

pub async fn batch_without_changes_takes_its_number(storage: &mut dyn Storage) {
    let store = storage.open().await;
    let mut owner = Owner::fence(&store, SLOT, 1).await;
    owner.apply(vec![]).await;
    owner.append(queue(SLOT, 1), &messages([1])).await;
    assert!(matches!(owner.send(1, vec![]).await, Err(StoreError::Stale)));
    assert_eq!(store.fence(SLOT, epoch(1)).await.unwrap(), id(1));
    assert_ne!(id(1), MessageId::ZERO);
}

pub async fn batch_sent_twice_at_the_same_time_is_applied_once(storage: &mut dyn Storage) {
    let store = storage.open().await;
    let owner = Owner::fence(&store, SLOT, 1).await;
    for seq in 1..=20 {
        let batch = owner.batch(seq, vec![appends(queue(SLOT, 1), &messages([seq]))]);
        let (first, second) = tokio::join!(store.commit(&batch), store.commit(&batch));
        first.and(second).unwrap();
    }
    assert_eq!(owner.all(queue(SLOT, 1)).await, messages(1..=20));
    assert_eq!(owner.totals(queue(SLOT, 1)).await, (20, 200));
}

/// The message of a batch is claimed and removed after the repetition; then the first attempt arrives.
pub async fn first_try_after_its_repeat_restores_nothing(storage: &mut dyn Storage) {
    let mut owner = Owner::fence(&storage.open().await, SLOT, 1).await;
    let batch = owner.batch(1, vec![appends(queue(SLOT, 1), &messages([1]))]);
    owner.store.commit(&batch).await.unwrap();
    owner.store.commit(&batch).await.unwrap();
    owner.seq = 1;
    owner.remove(queue(SLOT, 1), &[id(1)]).await;
    let late = owner.store.commit(&batch).await;
    assert!(matches!(late, Err(StoreError::Stale)), "{late:?}");
    assert_eq!((owner.all(queue(SLOT, 1)).await, owner.totals(queue(SLOT, 1)).await), (vec![], (0, 0)));
}
