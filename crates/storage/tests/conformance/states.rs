//! States of entries: the orders that show each, and the effect of an update of the state.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use angarium_core::message::{Header, Message, State};
use angarium_storage::{Changes, Direction, Order, Position, QueueChanges, Totals};

use angarium_testbed::drivers::Storage;
use angarium_testbed::owner::{
    Owner, SLOT, appends, both, changes, id, ids, in_state, message, messages, peer, queue, removes,
    scheduled, settled, start,
};

/// One entry in each state, in order of their ids.
fn one_of_each() -> Vec<Message> {
    let plain = |rank| message(rank, "\"12345678\"");
    vec![
        plain(1),
        scheduled(plain(2), 30),
        in_state(plain(3), State::Prepared(peer())),
        in_state(plain(4), State::Moving(peer())),
        in_state(plain(5), State::NoTarget),
        settled(plain(6), State::Done, 20),
        settled(plain(7), State::Failed, 10),
    ]
}

async fn with_one_of_each(storage: &mut dyn Storage) -> Owner {
    let mut owner = Owner::fence(&storage.open().await, SLOT, 1).await;
    owner.append(queue(SLOT, 1), &one_of_each()).await;
    owner
}

pub async fn each_state_is_shown_where_it_belongs(storage: &mut dyn Storage) {
    let owner = with_one_of_each(storage).await;
    assert_eq!(owner.in_order(queue(SLOT, 1), Order::Ready).await, [id(1)]);
    assert_eq!(owner.in_order(queue(SLOT, 1), Order::Aside).await, [id(2), id(3), id(4), id(5)]);
    assert_eq!(owner.in_order(queue(SLOT, 1), Order::Schedule).await, [id(2)]);
    assert_eq!(owner.in_order(queue(SLOT, 1), Order::Kept).await, [id(7), id(6)]);
}

pub async fn entries_are_found_by_id_in_any_state(storage: &mut dyn Storage) {
    let owner = with_one_of_each(storage).await;
    let asked = [5, 7, 1, 2, 6, 3, 4].map(id);
    assert_eq!(ids(&owner.get(queue(SLOT, 1), &asked).await), asked);
    assert_eq!(owner.get(queue(SLOT, 1), &ids(&one_of_each())).await, one_of_each());
}

pub async fn totals_tell_states_apart(storage: &mut dyn Storage) {
    let owner = with_one_of_each(storage).await;
    let totals = owner.store.totals(queue(SLOT, 1)).await.unwrap();
    assert_eq!(
        totals,
        Totals { messages: 7, bytes: 70, scheduled: 1, in_transfer: 3, kept: 2, ..Totals::default() }
    );
    assert_eq!(totals.ready(), 1);
}

pub async fn entry_in_any_state_is_held(storage: &mut dyn Storage) {
    let mut owner = with_one_of_each(storage).await;
    let others = queue(SLOT, 2);
    assert!(owner.store.holds_any(queue(SLOT, 1)).await.unwrap());
    assert!(!owner.store.holds_any(others).await.unwrap());
    for message in one_of_each() {
        owner.append(others, std::slice::from_ref(&message)).await;
        assert!(owner.store.holds_any(others).await.unwrap(), "{:?}", message.header.state);
        owner.remove(others, &[message.header.id]).await;
        assert!(!owner.store.holds_any(others).await.unwrap(), "{:?}", message.header.state);
    }
}

pub async fn entry_is_held_while_it_changes_its_state(storage: &mut dyn Storage) {
    let mut owner = Owner::fence(&storage.open().await, SLOT, 1).await;
    let queue = queue(SLOT, 1);
    let states = [
        message(1, "\"1\""),
        scheduled(message(1, "\"1\""), 30),
        settled(message(1, "\"1\""), State::Done, 10),
    ];
    owner.append(queue, &states[..1]).await;
    let (store, is_over) = (Arc::clone(&owner.store), AtomicBool::new(false));
    let changing = async {
        for message in states.iter().cycle().take(150) {
            owner.update(queue, std::slice::from_ref(&message.header)).await;
        }
        is_over.store(true, Ordering::Relaxed);
    };
    let reading = async {
        while !is_over.load(Ordering::Relaxed) {
            assert!(store.holds_any(queue).await.unwrap());
        }
    };
    tokio::join!(changing, reading);
}

pub async fn update_moves_an_entry_from_any_state_to_any_other(storage: &mut dyn Storage) {
    let mut owner = with_one_of_each(storage).await;
    let states: Vec<Header> = one_of_each().into_iter().map(|message| message.header).collect();
    for shift in 1..=7 {
        let wanted: Vec<Message> = one_of_each()
            .into_iter()
            .zip(states.iter().cycle().skip(shift))
            .map(|(message, of)| {
                let header = Header { state: of.state.clone(), ready: of.ready, ..message.header };
                Message { header, ..message }
            })
            .collect();
        let headers: Vec<Header> = wanted.iter().map(|message| message.header.clone()).collect();
        owner.update(queue(SLOT, 1), &headers).await;
        assert_eq!(owner.get(queue(SLOT, 1), &ids(&wanted)).await, wanted, "shift {shift}");
        let shown = |is: fn(&State) -> bool| {
            let shown = wanted.iter().filter(|message| is(&message.header.state));
            shown.map(|message| message.header.id).collect::<Vec<_>>()
        };
        assert_eq!(owner.in_order(queue(SLOT, 1), Order::Ready).await, shown(|state| *state == State::Ready));
        let aside = shown(|state| *state != State::Ready && !state.is_kept());
        assert_eq!(owner.in_order(queue(SLOT, 1), Order::Aside).await, aside);
        let mut kept = owner.in_order(queue(SLOT, 1), Order::Kept).await;
        kept.sort_unstable();
        assert_eq!(kept, shown(State::is_kept));
        let totals = owner.store.totals(queue(SLOT, 1)).await.unwrap();
        assert_eq!(
            totals,
            Totals { messages: 7, bytes: 70, scheduled: 1, in_transfer: 3, kept: 2, ..Totals::default() }
        );
    }
}

pub async fn removed_entries_are_gone_from_every_state(storage: &mut dyn Storage) {
    let mut owner = with_one_of_each(storage).await;
    owner.remove(queue(SLOT, 1), &ids(&one_of_each())).await;
    assert_eq!(owner.get(queue(SLOT, 1), &ids(&one_of_each())).await, []);
    for order in [Order::Ready, Order::Aside, Order::Schedule, Order::Kept] {
        assert_eq!(owner.in_order(queue(SLOT, 1), order).await, []);
    }
    assert_eq!(owner.store.totals(queue(SLOT, 1)).await.unwrap(), Totals::default());
}

pub async fn state_of_an_absent_entry_changes_nothing(storage: &mut dyn Storage) {
    let mut owner = Owner::fence(&storage.open().await, SLOT, 1).await;
    let headers: Vec<Header> = one_of_each().into_iter().map(|message| message.header).collect();
    owner.update(queue(SLOT, 1), &headers).await;
    for order in [Order::Ready, Order::Aside, Order::Schedule, Order::Kept] {
        assert_eq!(owner.in_order(queue(SLOT, 1), order).await, []);
    }
    assert_eq!(owner.store.totals(queue(SLOT, 1)).await.unwrap(), Totals::default());
}

pub async fn entry_ready_below_the_head_is_shown(storage: &mut dyn Storage) {
    let mut owner = Owner::fence(&storage.open().await, SLOT, 1).await;
    let late = scheduled(message(1, "1"), 30);
    owner.append(queue(SLOT, 1), &[late.clone(), message(8, "8")]).await;
    owner.apply(vec![QueueChanges { low: id(8), ..appends(queue(SLOT, 1), &messages([9])) }]).await;
    let header = Header { state: State::Ready, ..late.header };
    let update = QueueChanges { low: id(8), ..changes(queue(SLOT, 1), Changes::updates(vec![header])) };
    owner.apply(vec![update]).await;
    assert_eq!(owner.in_order(queue(SLOT, 1), Order::Ready).await, [id(1), id(8), id(9)]);
}

pub async fn changes_of_one_batch_end_in_the_last_state(storage: &mut dyn Storage) {
    let mut owner = Owner::fence(&storage.open().await, SLOT, 1).await;
    let plain = messages([1, 2, 3]);
    let put_off = |at: usize| scheduled(plain[at].clone(), 30).header;
    let updates = vec![put_off(0), put_off(1), plain[1].header.clone(), put_off(2)];
    let changes =
        both(appends(queue(SLOT, 1), &plain), Changes { removes: vec![id(3)], ..Changes::updates(updates) });
    owner.apply(vec![changes]).await;
    assert_eq!(owner.in_order(queue(SLOT, 1), Order::Schedule).await, [id(1)]);
    assert_eq!(owner.in_order(queue(SLOT, 1), Order::Ready).await, [id(2)]);
}

pub async fn schedule_is_by_time_then_by_id(storage: &mut dyn Storage) {
    let mut owner = Owner::fence(&storage.open().await, SLOT, 1).await;
    let sent = [(1, 30), (2, 10), (3, 10), (4, 20)].map(|(rank, delay)| scheduled(message(rank, "1"), delay));
    owner.append(queue(SLOT, 1), &sent).await;
    let scan = async |direction, after| {
        let page = owner.store.scan(queue(SLOT, 1), Order::Schedule, direction, after, 10, 1_000).await;
        ids(&page.unwrap().messages)
    };
    assert_eq!(scan(Direction::Up, None).await, [id(2), id(3), id(4), id(1)]);
    assert_eq!(scan(Direction::Down, None).await, [id(1), id(4), id(3), id(2)]);
    let after = Some(Position::of(&sent[1].header));
    assert_eq!(scan(Direction::Up, after).await, [id(3), id(4), id(1)]);
    assert_eq!(scan(Direction::Down, after).await, []);
    let between = Some(Position { ready: start().plus_seconds(15), id: id(9) });
    assert_eq!(scan(Direction::Up, between).await, [id(4), id(1)]);
}

pub async fn entry_put_off_again_has_one_place_in_the_schedule(storage: &mut dyn Storage) {
    let mut owner = Owner::fence(&storage.open().await, SLOT, 1).await;
    let sent = [scheduled(message(1, "1"), 10), scheduled(message(2, "2"), 20)];
    owner.append(queue(SLOT, 1), &sent).await;
    owner.update(queue(SLOT, 1), &[scheduled(message(1, "1"), 30).header]).await;
    assert_eq!(owner.in_order(queue(SLOT, 1), Order::Schedule).await, [id(2), id(1)]);
    assert_eq!(owner.store.totals(queue(SLOT, 1)).await.unwrap().scheduled, 2);
}

pub async fn states_are_kept_when_it_is_opened_again(storage: &mut dyn Storage) {
    let mut owner = with_one_of_each(storage).await;
    let failed = in_state(one_of_each()[1].clone(), State::NoTarget);
    owner.update(queue(SLOT, 1), std::slice::from_ref(&failed.header)).await;
    owner.apply(vec![removes(queue(SLOT, 1), &[id(3)])]).await;
    drop(owner);
    let owner = Owner::fence(&storage.open().await, SLOT, 2).await;
    assert_eq!(owner.in_order(queue(SLOT, 1), Order::Aside).await, [id(2), id(4), id(5)]);
    assert_eq!(owner.get(queue(SLOT, 1), &[id(2)]).await, [failed]);
    assert_eq!(owner.in_order(queue(SLOT, 1), Order::Schedule).await, []);
    assert_eq!(owner.in_order(queue(SLOT, 1), Order::Kept).await, [id(7), id(6)]);
}
