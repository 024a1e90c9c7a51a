//! Due entries of a slot: by the schedule at once, by expiry a little later, and every entry within some calls.

use angarium_core::ids::{MessageId, Slot};
use angarium_core::message::{Header, Message, State};
use angarium_core::time::Timestamp;
use angarium_storage::{Changes, Due, QueueChanges};

use angarium_testbed::drivers::Storage;
use angarium_testbed::owner::{
    Owner, SLOT, appends, both, changes, id, in_state, living, message, peer, queue, removes, scheduled,
    settled, start,
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
    let states = [State::Ready, State::NoTarget, State::Prepared(peer()), State::Moving(peer())];
    let mut sent: Vec<Message> =
        states.into_iter().zip(1..).map(|(state, rank)| in_state(one(rank), state)).collect();
    sent.push(scheduled(one(5), 40));
    sent.push(settled(one(6), State::Done, 40));
    sent.push(settled(one(7), State::Failed, 41));
    owner.append(queue(SLOT, 1), &sent).await;
    let mut due = owner.due(Due::Expiry, after(200)).await;
    due.sort_unstable();
    assert_eq!(due, [1, 2, 5, 6, 7].map(id));
    // An entry that was in transfer at the first look-up expires when it stays.
    owner.update(queue(SLOT, 1), &[in_state(one(4), State::NoTarget).header]).await;
    let mut due = owner.due(Due::Expiry, after(200)).await;
    due.sort_unstable();
    assert_eq!(due, [1, 2, 4, 5, 6, 7].map(id));
    // Kept entries in transfer expire no longer, and others do once they are kept.
    let headers = [in_state(one(6), State::Moving(peer())), settled(one(3), State::Failed, 1)];
    owner.update(queue(SLOT, 1), &headers.map(|message| message.header)).await;
    let mut due = owner.due(Due::Expiry, after(200)).await;
    due.sort_unstable();
    assert_eq!(due, [1, 2, 3, 4, 5, 7].map(id));
}

pub async fn kept_entry_expires_by_its_own_life(storage: &mut dyn Storage) {
    let mut owner = Owner::fence(&storage.open().await, SLOT, 1).await;
    let long = |rank| living(message(rank, "1"), 100_000);
    owner.append(queue(SLOT, 1), &[long(1), long(2), scheduled(long(3), 5)]).await;
    let kept = |rank, state| settled(living(message(rank, "1"), 60), state, 1_000).header;
    owner.update(queue(SLOT, 1), &[kept(1, State::Done), kept(3, State::Failed)]).await;
    let early = Timestamp::from_millis(after(1_060).as_millis() - 1);
    assert_eq!(owner.due(Due::Expiry, early).await, []);
    let mut due = owner.due(Due::Expiry, after(1_068)).await;
    due.sort_unstable();
    assert_eq!(due, [id(1), id(3)]);
    // One is kept longer, the other one is made ready.
    let longer = settled(living(message(1, "1"), 600), State::Done, 1_000).header;
    owner.update(queue(SLOT, 1), &[longer, long(3).header]).await;
    assert_eq!(owner.due(Due::Expiry, after(1_500)).await, []);
    assert_eq!(owner.due(Due::Expiry, after(2_000)).await, [id(1)]);
    owner.remove(queue(SLOT, 1), &[id(1)]).await;
    assert_eq!(owner.due(Due::Expiry, after(2_000)).await, []);
    let mut due = owner.due(Due::Expiry, after(110_000)).await;
    due.sort_unstable();
    assert_eq!(due, [id(2), id(3)]);
}

pub async fn kept_entry_is_not_due_by_schedule(storage: &mut dyn Storage) {
    let mut owner = Owner::fence(&storage.open().await, SLOT, 1).await;
    let sent = [1, 2, 3].map(|rank| scheduled(message(rank, "1"), 5));
    let all = [&sent[..], &[settled(message(4, "1"), State::Done, 5)]].concat();
    owner.append(queue(SLOT, 1), &all).await;
    let kept = [State::Done, State::Failed].into_iter().zip(sent.clone());
    let kept = kept.map(|(state, message)| settled(message, state, 5).header);
    owner.update(queue(SLOT, 1), &kept.collect::<Vec<_>>()).await;
    assert_eq!(owner.due(Due::Schedule, after(100)).await, [id(3)]);
    // The same again, after a first look-up; then one is scheduled again.
    assert_eq!(owner.due(Due::Schedule, after(100)).await, [id(3)]);
    owner.update(queue(SLOT, 1), &[sent[1].header.clone()]).await;
    assert_eq!(owner.due(Due::Schedule, after(100)).await, [id(2), id(3)]);
}

pub async fn kept_entries_expire_in_any_order_of_ids(storage: &mut dyn Storage) {
    let mut owner = Owner::fence(&storage.open().await, SLOT, 1).await;
    let place = |rank: u64| u32::try_from(rank * 37 % 101).unwrap();
    let kept = |rank| settled(living(message(rank, "1"), 60), State::Done, 20 * place(rank));
    let ready: Vec<Message> = (1..=100).map(|rank| message(rank, "1")).collect();
    owner.append(queue(SLOT, 1), &ready).await;
    for ranks in (1..=100).collect::<Vec<_>>().chunks(7) {
        let headers = ranks.iter().map(|rank| kept(*rank).header).collect();
        owner.apply(vec![changes(queue(SLOT, 1), Changes::updates(headers))]).await;
    }
    let mut left: Vec<u64> = (1..=100).collect();
    for seconds in (0..=2_400).step_by(300) {
        let due = owner.due(Due::Expiry, after(seconds)).await;
        let of = |late: u32| -> Vec<MessageId> {
            let is_due = |rank: &&u64| 20 * place(**rank) + 60 + late <= seconds;
            left.iter().filter(is_due).map(|rank| id(*rank)).collect()
        };
        assert!(of(8).iter().all(|id| due.contains(id)), "one is missing after {seconds} s");
        assert!(due.iter().all(|id| of(0).contains(id)), "one is early after {seconds} s");
        // Every second look-up removes its entries.
        if seconds.is_multiple_of(600) {
            owner.remove(queue(SLOT, 1), &due).await;
            left.retain(|rank| !due.contains(&id(*rank)));
            assert_eq!(owner.due(Due::Expiry, after(seconds)).await, []);
        }
    }
}

pub async fn remaining_entries_keep_no_others_out(storage: &mut dyn Storage) {
    let mut owner = Owner::fence(&storage.open().await, SLOT, 1).await;
    let (a, b) = (queue(SLOT, 1), queue(SLOT, 2));
    let mark_in_transfer = |message| in_state(message, State::NoTarget);
    let in_transfer: Vec<Message> = in_a_minute(11..=20).into_iter().map(mark_in_transfer).collect();
    let mark_kept = |message| settled(message, State::Done, 1);
    let kept: Vec<Message> = in_a_minute(21..=30).into_iter().map(mark_kept).collect();
    let all = vec![appends(a, &[in_a_minute(1..=10), kept].concat()), appends(b, &in_transfer)];
    owner.apply(all).await;
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..30 {
        let found = owner.store.due(SLOT, Due::Expiry, after(200), 3).await.unwrap();
        assert!(found.len() <= 3);
        seen.extend(found.into_iter().map(|(_, header)| header.id));
    }
    assert_eq!(seen.into_iter().collect::<Vec<MessageId>>(), (1..=30).map(id).collect::<Vec<_>>());
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
    let kept = settled(living(message(3, "1"), 60), State::Failed, 500);
    let sent = [scheduled(message(1, "1"), 5), living(message(2, "1"), 60), kept];
    owner.append(queue(SLOT, 1), &sent).await;
    drop(owner);
    let owner = Owner::fence(&storage.open().await, SLOT, 2).await;
    assert_eq!(owner.due(Due::Schedule, after(5)).await, [id(1)]);
    assert_eq!(owner.due(Due::Expiry, after(100)).await, [id(2)]);
    let mut due = owner.due(Due::Expiry, after(600)).await;
    due.sort_unstable();
    assert_eq!(due, [id(2), id(3)]);
}
