//! Due entries of a slot: by the schedule at once, by expiry a little later, and every entry within some calls.

use angarium_core::ids::{MessageId, Slot};
use angarium_core::message::{Header, Message, State};
use angarium_core::time::Timestamp;
use angarium_storage::{Changes, Due, QueueChanges};

use angarium_testbed::drivers::Storage;
use angarium_testbed::owner::{
    Owner, SLOT, appends, both, id, in_state, living, message, peer, queue, removes, scheduled, start,
};

fn after(seconds: u32) -> Timestamp {
    start().plus_seconds(seconds)
}

fn in_a_minute(ranks: std::ops::RangeInclusive<u64>) -> Vec<Message> {
    ranks.map(|rank| living(message(rank, "1"), 60)).collect()
}

pub async fn scheduled_entries_are_due_at_their_time(storage: &mut dyn Storage) {
    let mut owner = Owner::fence(&storage.open().await, SLOT, 1).await;
    owner.append(queue(SLOT, 1), &[scheduled(message(1, "1"), 5)]).await;
    let before = Timestamp::from_millis(after(5).as_millis() - 1);
    assert_eq!(owner.due(Due::Schedule, before).await, []);
    assert_eq!(owner.due(Due::Schedule, after(5)).await, [id(1)]);
    assert_eq!(owner.due(Due::Schedule, after(1_000_000)).await, [id(1)]);
}

pub async fn schedule_of_all_queues_is_shown_the_earliest_first(storage: &mut dyn Storage) {
    let mut owner = Owner::fence(&storage.open().await, SLOT, 1).await;
    let (a, b) = (queue(SLOT, 1), queue(SLOT, 2));
    let of_a = [(1, 9), (2, 30), (3, 1_000)].map(|(rank, delay)| scheduled(message(rank, "1"), delay));
    let of_b = [(4, 10), (5, 8), (6, 500)].map(|(rank, delay)| scheduled(message(rank, "1"), delay));
    owner.apply(vec![appends(a, &of_a), appends(b, &of_b)]).await;
    assert_eq!(owner.due(Due::Schedule, after(600)).await, [id(5), id(1), id(4), id(2), id(6)]);
    let first = owner.store.due(SLOT, Due::Schedule, after(600), 2).await.unwrap();
    assert_eq!(first, [(b, of_b[1].header.clone()), (a, of_a[0].header.clone())]);
}

pub async fn unscheduled_entry_is_not_due(storage: &mut dyn Storage) {
    let mut owner = Owner::fence(&storage.open().await, SLOT, 1).await;
    let sent = [1, 2, 3, 4].map(|rank| scheduled(message(rank, "1"), 5));
    owner.append(queue(SLOT, 1), &sent).await;
    let ready = Header { state: State::Ready, ..sent[0].header.clone() };
    let later = scheduled(message(2, "1"), 50).header;
    let update = both(removes(queue(SLOT, 1), &[id(3)]), Changes::updates(vec![ready, later]));
    owner.apply(vec![update]).await;
    assert_eq!(owner.due(Due::Schedule, after(20)).await, [id(4)]);
    // The same again, after a first look-up.
    assert_eq!(owner.due(Due::Schedule, after(20)).await, [id(4)]);
    assert_eq!(owner.due(Due::Schedule, after(50)).await, [id(4), id(2)]);
}

pub async fn late_entry_in_scanned_time_is_due(storage: &mut dyn Storage) {
    let mut owner = Owner::fence(&storage.open().await, SLOT, 1).await;
    for rank in 1..=3 {
        owner.append(queue(SLOT, 1), &[scheduled(living(message(rank, "1"), 60), 5)]).await;
        assert_eq!(owner.due(Due::Schedule, after(1_000)).await, [id(rank)]);
        assert_eq!(owner.due(Due::Expiry, after(1_000)).await, [id(rank)]);
        owner.remove(queue(SLOT, 1), &[id(rank)]).await;
        assert_eq!(owner.due(Due::Schedule, after(1_000)).await, []);
        assert_eq!(owner.due(Due::Expiry, after(1_000)).await, []);
    }
}

pub async fn slots_are_looked_at_apart(storage: &mut dyn Storage) {
    let store = storage.open().await;
    let other = Slot(SLOT.0 + 1);
    let (mut one, mut two) = (Owner::fence(&store, SLOT, 1).await, Owner::fence(&store, other, 1).await);
    one.append(queue(SLOT, 1), &[scheduled(message(1, "1"), 5)]).await;
    two.append(queue(other, 1), &[scheduled(message(2, "1"), 5)]).await;
    assert_eq!(one.due(Due::Schedule, after(5)).await, [id(1)]);
    assert_eq!(two.due(Due::Expiry, after(100_000)).await, [id(2)]);
}

pub async fn expired_entries_are_shown_after_a_while_and_others_never(storage: &mut dyn Storage) {
    let mut owner = Owner::fence(&storage.open().await, SLOT, 1).await;
    let ttls = [60, 61, 300, 3_600, 86_400, 1_209_600];
    let sent: Vec<Message> =
        ttls.iter().zip(1..).map(|(ttl, rank)| living(message(rank, "1"), *ttl)).collect();
    owner.append(queue(SLOT, 1), &sent).await;
    for (shown, ttl) in ttls.iter().enumerate() {
        let early = Timestamp::from_millis(after(*ttl).as_millis() - 1);
        assert!(owner.due(Due::Expiry, early).await.len() <= shown, "just before {ttl} s");
        let late = after(ttl + 8.max(ttl / 32));
        assert!(owner.due(Due::Expiry, late).await.len() > shown, "late after {ttl} s");
    }
}

pub async fn lengthened_life_counts(storage: &mut dyn Storage) {
    let mut owner = Owner::fence(&storage.open().await, SLOT, 1).await;
    owner.append(queue(SLOT, 1), &in_a_minute(1..=3)).await;
    owner.update(queue(SLOT, 1), &[living(message(2, "1"), 600).header]).await;
    assert_eq!(owner.due(Due::Expiry, after(200)).await, [id(1), id(3)]);
    let mut all = owner.due(Due::Expiry, after(2_000)).await;
    all.sort_unstable();
    assert_eq!(all, [id(1), id(2), id(3)]);
}

pub async fn every_state_expires_but_those_of_a_move(storage: &mut dyn Storage) {
    let mut owner = Owner::fence(&storage.open().await, SLOT, 1).await;
    let one = |rank| living(message(rank, "1"), 60);
    let states = [State::Ready, State::Failed, State::Prepared(peer()), State::Moving(peer())];
    let mut sent: Vec<Message> =
        states.into_iter().zip(1..).map(|(state, rank)| in_state(one(rank), state)).collect();
    sent.push(scheduled(one(5), 40));
    owner.append(queue(SLOT, 1), &sent).await;
    let mut due = owner.due(Due::Expiry, after(200)).await;
    due.sort_unstable();
    assert_eq!(due, [id(1), id(2), id(5)]);
    // An entry that was in transfer at the first look-up expires when it stays.
    owner.update(queue(SLOT, 1), &[in_state(one(4), State::Failed).header]).await;
    let mut due = owner.due(Due::Expiry, after(200)).await;
    due.sort_unstable();
    assert_eq!(due, [id(1), id(2), id(4), id(5)]);
}

pub async fn remaining_entries_keep_no_others_out(storage: &mut dyn Storage) {
    let mut owner = Owner::fence(&storage.open().await, SLOT, 1).await;
    let (a, b) = (queue(SLOT, 1), queue(SLOT, 2));
    let mark_in_transfer = |message| in_state(message, State::Failed);
    let in_transfer: Vec<Message> = in_a_minute(11..=20).into_iter().map(mark_in_transfer).collect();
    owner.apply(vec![appends(a, &in_a_minute(1..=10)), appends(b, &in_transfer)]).await;
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..20 {
        let found = owner.store.due(SLOT, Due::Expiry, after(200), 3).await.unwrap();
        assert!(found.len() <= 3);
        seen.extend(found.into_iter().map(|(_, header)| header.id));
    }
    assert_eq!(seen.into_iter().collect::<Vec<MessageId>>(), (1..=20).map(id).collect::<Vec<_>>());
}

pub async fn head_past_expired_entries_shows_none_of_them(storage: &mut dyn Storage) {
    let mut owner = Owner::fence(&storage.open().await, SLOT, 1).await;
    owner.append(queue(SLOT, 1), &in_a_minute(1..=6)).await;
    let gone: Vec<MessageId> = (1..=5).map(id).collect();
    owner.apply(vec![QueueChanges { low: id(6), ..removes(queue(SLOT, 1), &gone) }]).await;
    assert_eq!(owner.due(Due::Expiry, after(200)).await, [id(6)]);
}

pub async fn due_entries_are_found_when_it_is_opened_again(storage: &mut dyn Storage) {
    let mut owner = Owner::fence(&storage.open().await, SLOT, 1).await;
    let sent = [scheduled(message(1, "1"), 5), living(message(2, "1"), 60)];
    owner.append(queue(SLOT, 1), &sent).await;
    drop(owner);
    let owner = Owner::fence(&storage.open().await, SLOT, 2).await;
    assert_eq!(owner.due(Due::Schedule, after(5)).await, [id(1)]);
    assert_eq!(owner.due(Due::Expiry, after(100)).await, [id(2)]);
}
