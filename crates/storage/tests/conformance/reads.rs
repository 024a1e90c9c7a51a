//! Reads by id, totals, and whether the store is open.

use angarium_core::ids::Slot;
use angarium_core::message::State;
use angarium_storage::Usage;

use angarium_testbed::drivers::Storage;
use angarium_testbed::owner::{
    Owner, SLOT, appends, claimed_again, id, ids, in_state, message, messages, queue, settled,
};

pub async fn get_keeps_the_order_asked_for(storage: &mut dyn Storage) {
    let mut owner = Owner::fence(&storage.open().await, SLOT, 1).await;
    owner.append(queue(SLOT, 1), &messages(1..=4)).await;
    let asked = [id(3), id(1), id(4)];
    assert_eq!(ids(&owner.get(queue(SLOT, 1), &asked).await), asked);
    assert_eq!(owner.get(queue(SLOT, 1), &[]).await, []);
}

pub async fn get_leaves_out_absent_entries(storage: &mut dyn Storage) {
    let mut owner = Owner::fence(&storage.open().await, SLOT, 1).await;
    owner.append(queue(SLOT, 1), &messages(1..=3)).await;
    owner.remove(queue(SLOT, 1), &[id(2)]).await;
    assert_eq!(owner.get(queue(SLOT, 1), &[id(9), id(3), id(2), id(1)]).await, messages([3, 1]));
}

pub async fn ids_of_another_queue_are_not_found(storage: &mut dyn Storage) {
    let store = storage.open().await;
    let other = Slot(SLOT.0 + 1);
    let (mut one, mut two) = (Owner::fence(&store, SLOT, 1).await, Owner::fence(&store, other, 1).await);
    one.append(queue(SLOT, 1), &messages([1])).await;
    two.append(queue(other, 1), &messages([2])).await;
    assert_eq!(one.get(queue(SLOT, 2), &[id(1)]).await, []);
    assert_eq!(one.get(queue(SLOT, 1), &[id(2)]).await, []);
    assert_eq!(one.get(queue(other, 1), &[id(1), id(2)]).await, messages([2]));
}

pub async fn unknown_queue_has_no_totals(storage: &mut dyn Storage) {
    let owner = Owner::fence(&storage.open().await, SLOT, 1).await;
    assert_eq!(owner.totals(queue(SLOT, 1)).await, (0, 0));
}

pub async fn totals_are_those_of_the_queue_alone(storage: &mut dyn Storage) {
    let mut owner = Owner::fence(&storage.open().await, SLOT, 1).await;
    let (a, b) = (queue(SLOT, 1), queue(SLOT, 2));
    owner.apply(vec![appends(a, &messages([1, 2])), appends(b, &[message(3, "123")])]).await;
    owner.remove(b, &[id(1)]).await;
    assert_eq!((owner.totals(a).await, owner.totals(b).await), ((2, 20), (1, 3)));
}

pub async fn totals_follow_appends_and_removes(storage: &mut dyn Storage) {
    let mut owner = Owner::fence(&storage.open().await, SLOT, 1).await;
    let sent: Vec<_> = (1..=5).map(|rank| message(rank, &"x".repeat(rank as usize))).collect();
    owner.append(queue(SLOT, 1), &sent).await;
    assert_eq!(owner.totals(queue(SLOT, 1)).await, (5, 15));
    owner.remove(queue(SLOT, 1), &[id(5), id(2)]).await;
    assert_eq!(owner.totals(queue(SLOT, 1)).await, (3, 8));
    owner.remove(queue(SLOT, 1), &[id(1), id(3), id(4)]).await;
    assert_eq!(owner.totals(queue(SLOT, 1)).await, (0, 0));
}

pub async fn totals_do_not_follow_updates(storage: &mut dyn Storage) {
    let mut owner = Owner::fence(&storage.open().await, SLOT, 1).await;
    owner.append(queue(SLOT, 1), &messages([1, 2])).await;
    owner.update(queue(SLOT, 1), &[claimed_again(&messages([1])[0].header)]).await;
    assert_eq!(owner.totals(queue(SLOT, 1)).await, (2, 20));
    owner.remove(queue(SLOT, 1), &[id(1)]).await;
    assert_eq!(owner.totals(queue(SLOT, 1)).await, (1, 10));
}

pub async fn store_in_use_accepts_batches(storage: &mut dyn Storage) {
    let mut owner = Owner::fence(&storage.open().await, SLOT, 1).await;
    owner.store.check_open().unwrap();
    owner.store.check_room().unwrap();
    owner.append(queue(SLOT, 1), &messages([1])).await;
    owner.store.check_open().unwrap();
}

pub async fn usage_is_the_sum_over_all_queues_with_entries(storage: &mut dyn Storage) {
    let store = storage.open().await;
    assert_eq!(store.usage().await.unwrap(), Usage::default());
    let other = Slot(SLOT.0 + 1);
    let (mut one, mut two) = (Owner::fence(&store, SLOT, 1).await, Owner::fence(&store, other, 1).await);
    let in_transfer = in_state(message(3, "123"), State::NoTarget);
    one.apply(vec![appends(queue(SLOT, 1), &messages([1, 2])), appends(queue(SLOT, 2), &[in_transfer])])
        .await;
    two.append(queue(other, 1), &messages([4, 5])).await;
    two.remove(queue(other, 1), &[id(4)]).await;
    assert_eq!(store.usage().await.unwrap(), Usage { queues: 3, messages: 4, bytes: 33 });
    two.remove(queue(other, 1), &[id(5)]).await;
    assert_eq!(store.usage().await.unwrap(), Usage { queues: 2, messages: 3, bytes: 23 });
    // Kept entries count as others, also where they are the only ones.
    two.append(queue(other, 1), &[settled(message(6, "12"), State::Done, 5)]).await;
    one.update(queue(SLOT, 1), &[settled(messages([1]).remove(0), State::Failed, 5).header]).await;
    assert_eq!(store.usage().await.unwrap(), Usage { queues: 3, messages: 4, bytes: 25 });
    two.remove(queue(other, 1), &[id(6)]).await;
    assert_eq!(store.usage().await.unwrap(), Usage { queues: 2, messages: 3, bytes: 23 });
}
