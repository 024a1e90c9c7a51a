//! Durability, room and health.

use angarium_core::durability::Durability;
use angarium_core::ids::MessageId;
use angarium_storage::{Batch, Changes, StoreError};

use angarium_testbed::drivers::Storage;
use angarium_testbed::owner::{Owner, SLOT, appends, both, claimed_again, id, ids, messages, queue, removes};

pub async fn relaxed_batch_is_shown_once_it_is_answered(storage: &mut dyn Storage) {
    let owner = Owner::fence(&storage.open().await, SLOT, 1).await;
    for seq in 1..=20 {
        let queues = vec![appends(queue(SLOT, 1), &messages([seq]))];
        let durability = if seq % 3 == 0 { Durability::Sync } else { Durability::Relaxed };
        owner.store.commit(&Batch { durability, ..owner.batch(seq, queues) }).await.unwrap();
        assert_eq!(owner.totals(queue(SLOT, 1)).await.0, seq);
    }
    assert_eq!(owner.all(queue(SLOT, 1)).await, messages(1..=20));
}

pub async fn relaxed_batches_are_kept_when_it_is_closed(storage: &mut dyn Storage) {
    let owner = Owner::fence(&storage.open().await, SLOT, 1).await;
    let queues = vec![appends(queue(SLOT, 1), &messages([1]))];
    owner.store.commit(&Batch { durability: Durability::Relaxed, ..owner.batch(1, queues) }).await.unwrap();
    drop(owner);
    let owner = Owner::fence(&storage.open().await, SLOT, 2).await;
    assert_eq!(owner.all(queue(SLOT, 1)).await, messages([1]));
}

pub async fn without_room_only_appends_are_refused(storage: &mut dyn Storage) {
    let mut owner = Owner::fence(&storage.open().await, SLOT, 1).await;
    owner.append(queue(SLOT, 1), &messages([1, 2, 3])).await;
    drop(owner);

    let owner = Owner::fence(&storage.open_without_room().await, SLOT, 2).await;
    let mixed = both(appends(queue(SLOT, 1), &messages([4])), Changes::removes(vec![id(1)]));
    let refused = owner.send(1, vec![mixed]).await;
    assert!(matches!(refused, Err(StoreError::Full)), "{refused:?}");
    assert_eq!(owner.all(queue(SLOT, 1)).await, messages([1, 2, 3]));

    // The same number is free for the batch without its appends.
    let header = claimed_again(&messages([2])[0].header);
    let update = both(removes(queue(SLOT, 1), &[id(1)]), Changes::updates(vec![header.clone()]));
    owner.send(1, vec![update]).await.unwrap();
    assert_eq!(ids(&owner.all(queue(SLOT, 1)).await), [id(2), id(3)]);
    assert_eq!(owner.get(queue(SLOT, 1), &[id(2)]).await[0].header, header);
    owner.drop_queue(queue(SLOT, 1), 1).await;
    assert_eq!(owner.totals(queue(SLOT, 1)).await, (0, 0));
}

pub async fn applied_batch_is_done_without_room(storage: &mut dyn Storage) {
    let mut owner = Owner::fence(&storage.open().await, SLOT, 1).await;
    owner.append(queue(SLOT, 1), &messages([1])).await;
    let repeat = owner.batch(1, vec![appends(queue(SLOT, 1), &messages([1]))]);
    drop(owner);
    let store = storage.open_without_room().await;
    store.commit(&repeat).await.unwrap();
}

pub async fn health_reports_state_and_writes_nothing(storage: &mut dyn Storage) {
    let owner = Owner::fence(&storage.open().await, SLOT, 1).await;
    let health = owner.store.health().await.unwrap();
    assert_eq!(health.class, owner.store.reach());
    if let (Some(free), Some(total)) = (health.free, health.total) {
        assert!(free <= total && total > 0);
    }
    assert_eq!(owner.store.fence(SLOT, owner.epoch).await.unwrap(), MessageId::ZERO);
}
