//! The drop of a queue.

use angarium_core::message::State;
use angarium_core::time::Timestamp;
use angarium_storage::{Changes, DropResult, Due, Note, Order, QueueChanges, StoreError, Totals};

use crate::groups::of_group;
use angarium_testbed::drivers::Storage;
use angarium_testbed::owner::{
    Owner, SLOT, appends, both, claimed_again, epoch, id, ids, in_state, message, messages, peer, queue,
    removes, scheduled, settled, start,
};

/// An owner with a queue that has data of every kind, and another queue.
async fn with_all(storage: &mut dyn Storage) -> Owner {
    let mut owner = Owner::fence(&storage.open().await, SLOT, 1).await;
    let mut sent = messages(1..=10);
    sent.push(scheduled(message(11, "1"), 30));
    sent.push(in_state(message(12, "1"), State::Prepared(peer())));
    sent.push(in_state(message(13, "1"), State::Moving(peer())));
    sent.push(settled(message(14, "1"), State::Done, 30));
    sent.push(of_group(settled(message(15, "1"), State::Failed, 20), "a"));
    let note = Note { kind: 1, key: "a".into(), value: "1".into(), expires: Timestamp::default() };
    let changes = both(appends(queue(SLOT, 1), &sent), Changes::notes(vec![note]));
    owner.apply(vec![changes, appends(queue(SLOT, 2), &messages([21, 22]))]).await;
    let claimed = [4, 12, 13].map(|at| claimed_again(&sent[at].header));
    owner.update(queue(SLOT, 1), &claimed).await;
    owner.apply(vec![QueueChanges { low: id(2), ..removes(queue(SLOT, 1), &[id(1)]) }]).await;
    owner
}

async fn assert_gone(owner: &Owner) {
    for order in [Order::Ready, Order::Aside, Order::Schedule, Order::Kept] {
        assert_eq!(owner.in_order(queue(SLOT, 1), order).await, []);
    }
    let all: Vec<_> = (1..=15).map(id).collect();
    assert_eq!(owner.get(queue(SLOT, 1), &all).await, []);
    assert_eq!(owner.store.notes(queue(SLOT, 1), 1, None, 10).await.unwrap(), []);
    assert_eq!(owner.store.totals(queue(SLOT, 1)).await.unwrap(), Totals::default());
    assert_eq!(owner.due(Due::Schedule, start().plus_seconds(1_000)).await, []);
    let mut left = owner.due(Due::Expiry, start().plus_seconds(1_000_000)).await;
    left.sort_unstable();
    assert_eq!(left, [id(21), id(22)]);
}

pub async fn nothing_of_a_dropped_queue_is_left(storage: &mut dyn Storage) {
    let owner = with_all(storage).await;
    owner.drop_queue(queue(SLOT, 1), 1_000).await;
    assert_gone(&owner).await;
    assert_eq!(ids(&owner.all(queue(SLOT, 2)).await), [id(21), id(22)]);
}

pub async fn queue_is_dropped_in_as_many_parts_as_asked(storage: &mut dyn Storage) {
    let owner = with_all(storage).await;
    let mut held = 14;
    while owner.store.drop_queue(SLOT, owner.epoch, queue(SLOT, 1), 5).await.unwrap() == DropResult::More {
        let now = owner.store.totals(queue(SLOT, 1)).await.unwrap().messages;
        assert!(now < held || now == 0, "a part removes something");
        assert!(now + 5 >= held, "a part removes at most five");
        held = now;
    }
    assert_gone(&owner).await;
}

pub async fn dropping_missing_queue_is_done_at_once(storage: &mut dyn Storage) {
    let owner = with_all(storage).await;
    owner.drop_queue(queue(SLOT, 1), 1_000).await;
    for number in [1, 9] {
        let again = owner.store.drop_queue(SLOT, owner.epoch, queue(SLOT, number), 5).await;
        assert_eq!(again.unwrap(), DropResult::Done);
    }
}

pub async fn only_the_owner_drops(storage: &mut dyn Storage) {
    let owner = with_all(storage).await;
    let later = owner.store.drop_queue(SLOT, epoch(2), queue(SLOT, 1), 5).await;
    assert!(matches!(later, Err(StoreError::WentBack)), "{later:?}");
    owner.store.fence(SLOT, epoch(2)).await.unwrap();
    let before = owner.store.drop_queue(SLOT, epoch(1), queue(SLOT, 1), 5).await;
    assert!(matches!(before, Err(StoreError::Fenced(by)) if by == epoch(2)), "{before:?}");
    assert_eq!(owner.totals(queue(SLOT, 1)).await.0, 14);
}

pub async fn other_queues_of_the_slot_go_on_meanwhile(storage: &mut dyn Storage) {
    let mut owner = with_all(storage).await;
    for rank in 30..40 {
        let store = std::sync::Arc::clone(&owner.store);
        let part = store.drop_queue(SLOT, owner.epoch, queue(SLOT, 1), 2);
        let posted = messages([rank]);
        let (part, ()) = tokio::join!(part, owner.append(queue(SLOT, 2), &posted));
        part.unwrap();
    }
    assert_gone_but(&owner, 10).await;
}

async fn assert_gone_but(owner: &Owner, posted: usize) {
    assert_eq!(owner.store.totals(queue(SLOT, 1)).await.unwrap(), Totals::default());
    assert_eq!(owner.all(queue(SLOT, 2)).await.len(), 2 + posted);
    assert_eq!(owner.totals(queue(SLOT, 2)).await.0, 2 + posted as u64);
}

pub async fn drop_takes_no_number(storage: &mut dyn Storage) {
    let mut owner = with_all(storage).await;
    owner.drop_queue(queue(SLOT, 1), 4).await;
    owner.append(queue(SLOT, 2), &messages([30])).await;
    assert_eq!(owner.store.fence(SLOT, epoch(2)).await.unwrap(), id(30));
}
