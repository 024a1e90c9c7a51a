//! Kept entries: done or failed ones, in an order of their own and in no group.

use angarium_core::message::{Header, Message, State};
use angarium_storage::{Changes, Direction, Order, Position, QueueChanges, Totals};

use angarium_testbed::drivers::Storage;
use angarium_testbed::owner::{
    Owner, SLOT, all_extras, appends, both, changes, claimed_again, id, ids, in_state, message, messages,
    peer, queue, removes, scheduled, settled, start, with_extras,
};

const STATES: [State; 2] = [State::Done, State::Failed];

/// Entries with bodies of ten bytes: each rank with the seconds when it was settled.
fn kept<const N: usize>(ranks: [(u64, u32); N]) -> [Message; N] {
    ranks.map(|(rank, seconds)| {
        let state = STATES[(rank % 2) as usize].clone();
        settled(message(rank, "\"12345678\""), state, seconds)
    })
}

/// The owner of a queue with these entries.
async fn filled(storage: &mut dyn Storage, entries: &[Message]) -> Owner {
    let mut owner = Owner::fence(&storage.open().await, SLOT, 1).await;
    owner.append(queue(SLOT, 1), entries).await;
    owner
}

async fn totals(owner: &Owner) -> Totals {
    owner.store.totals(queue(SLOT, 1)).await.unwrap()
}

pub async fn kept_entries_are_by_settlement_then_by_id(storage: &mut dyn Storage) {
    let sent = kept([(1, 30), (2, 10), (3, 10), (4, 20)]);
    let owner = filled(storage, &[&sent[..], &messages([5])].concat()).await;
    let scan = async |direction, after| {
        let page = owner.store.scan(queue(SLOT, 1), Order::Kept, direction, after, 10, 1_000).await.unwrap();
        assert!(page.is_last);
        ids(&page.messages)
    };
    assert_eq!(scan(Direction::Up, None).await, [id(2), id(3), id(4), id(1)]);
    assert_eq!(scan(Direction::Down, None).await, [id(1), id(4), id(3), id(2)]);
    let after = Some(Position::of(&sent[1].header));
    assert_eq!(scan(Direction::Up, after).await, [id(3), id(4), id(1)]);
    assert_eq!(scan(Direction::Down, after).await, []);
    let between = Some(Position { ready: start().plus_seconds(15), id: id(9) });
    assert_eq!(scan(Direction::Up, between).await, [id(4), id(1)]);
    assert_eq!(scan(Direction::Down, between).await, [id(3), id(2)]);
}

pub async fn page_of_kept_entries_keeps_its_bounds(storage: &mut dyn Storage) {
    let sent = kept([(1, 10), (2, 20), (3, 30), (4, 40)]);
    let owner = filled(storage, &sent).await;
    for (most, bytes, expected) in [(2, 1_000, 2), (9, 0, 1), (9, 9, 1), (9, 10, 2), (4, 1_000, 4)] {
        for direction in [Direction::Up, Direction::Down] {
            let page = owner.store.scan(queue(SLOT, 1), Order::Kept, direction, None, most, bytes).await;
            let page = page.unwrap();
            let found = (page.messages.len(), page.is_last);
            assert_eq!(found, (expected, expected == 4), "{direction:?} {most} {bytes}");
        }
    }
    let page = owner.store.scan(queue(SLOT, 2), Order::Kept, Direction::Up, None, 9, 9).await.unwrap();
    assert_eq!((page.messages, page.is_last), (vec![], true));
}

pub async fn kept_entries_of_other_queues_do_not_show(storage: &mut dyn Storage) {
    let mut owner = filled(storage, &kept([(1, 10)])).await;
    for number in 2..=5 {
        owner.append(queue(SLOT, number), &kept([(number * 10, 10)])).await;
    }
    for number in 2..=5 {
        assert_eq!(owner.in_order(queue(SLOT, number), Order::Kept).await, [id(number * 10)]);
    }
    assert_eq!(owner.in_order(queue(SLOT, 1), Order::Kept).await, [id(1)]);
}

pub async fn kept_entry_is_in_no_other_order(storage: &mut dyn Storage) {
    let mut owner = filled(storage, &[&messages([1, 2])[..], &kept([(3, 5), (4, 6)])].concat()).await;
    owner.update(queue(SLOT, 1), &[settled(message(2, "\"12345678\""), State::Done, 9).header]).await;
    assert_eq!(owner.in_order(queue(SLOT, 1), Order::Ready).await, [id(1)]);
    for order in [Order::Aside, Order::Schedule] {
        assert_eq!(owner.in_order(queue(SLOT, 1), order).await, []);
    }
    assert_eq!(owner.in_order(queue(SLOT, 1), Order::Kept).await, [id(3), id(4), id(2)]);
}

pub async fn kept_entries_have_a_total_of_their_own(storage: &mut dyn Storage) {
    let others = [message(5, "1"), scheduled(message(6, "1"), 9), in_state(message(7, "1"), State::NoTarget)];
    let sent = kept([(1, 10), (2, 20)]);
    let mut owner = filled(storage, &[&others[..], &sent].concat()).await;
    let all = Totals { messages: 5, bytes: 23, scheduled: 1, in_transfer: 1, kept: 2, ..Totals::default() };
    assert_eq!((totals(&owner).await, all.ready()), (all, 1));
    let settle = settled(others[2].clone(), State::Failed, 9);
    owner.update(queue(SLOT, 1), &[settle.header]).await;
    assert_eq!(totals(&owner).await, Totals { in_transfer: 0, kept: 3, ..all });
    let again = [scheduled(sent[0].clone(), 9).header, in_state(sent[1].clone(), State::Ready).header];
    owner.update(queue(SLOT, 1), &again).await;
    let mixed = Totals { scheduled: 2, in_transfer: 0, kept: 1, ..all };
    assert_eq!((totals(&owner).await, mixed.ready()), (mixed, 2));
    owner.remove(queue(SLOT, 1), &[id(7), id(7), id(1)]).await;
    assert_eq!(
        totals(&owner).await,
        Totals { messages: 3, bytes: 12, scheduled: 1, in_transfer: 0, kept: 0, ..Totals::default() }
    );
}

pub async fn kept_entry_settled_again_has_one_place(storage: &mut dyn Storage) {
    let sent = kept([(1, 10), (2, 20)]);
    let mut owner = filled(storage, &sent).await;
    let again = settled(sent[0].clone(), State::Failed, 30);
    owner.update(queue(SLOT, 1), std::slice::from_ref(&again.header)).await;
    assert_eq!(owner.in_order(queue(SLOT, 1), Order::Kept).await, [id(2), id(1)]);
    // The same once more, and another state at the same time.
    let same = settled(sent[0].clone(), State::Done, 30);
    owner.update(queue(SLOT, 1), std::slice::from_ref(&again.header)).await;
    owner.update(queue(SLOT, 1), std::slice::from_ref(&same.header)).await;
    assert_eq!(owner.in_order(queue(SLOT, 1), Order::Kept).await, [id(2), id(1)]);
    assert_eq!(owner.get(queue(SLOT, 1), &[id(1)]).await, [same]);
    assert_eq!(totals(&owner).await, Totals { messages: 2, bytes: 20, kept: 2, ..Totals::default() });
}

pub async fn entry_is_kept_and_made_ready_any_number_of_times(storage: &mut dyn Storage) {
    let plain = with_extras(message(1, "\"12345678\""), all_extras());
    let mut owner = filled(storage, std::slice::from_ref(&plain)).await;
    let states = [State::Ready, State::Scheduled, State::Moving(peer()), State::NoTarget];
    for (round, state) in (1..).zip(states.into_iter().cycle().take(9)) {
        let kept = settled(plain.clone(), STATES[round as usize % 2].clone(), round);
        owner.update(queue(SLOT, 1), std::slice::from_ref(&kept.header)).await;
        assert_eq!(owner.get(queue(SLOT, 1), &[id(1)]).await, std::slice::from_ref(&kept));
        assert_eq!(owner.in_order(queue(SLOT, 1), Order::Kept).await, [id(1)]);
        assert_eq!(totals(&owner).await, Totals { messages: 1, bytes: 10, kept: 1, ..Totals::default() });
        let again = in_state(Message { header: claimed_again(&kept.header), ..kept }, state.clone());
        owner.update(queue(SLOT, 1), std::slice::from_ref(&again.header)).await;
        assert_eq!(owner.get(queue(SLOT, 1), &[id(1)]).await, std::slice::from_ref(&again));
        assert_eq!(owner.in_order(queue(SLOT, 1), Order::Kept).await, [], "{state:?}");
        let order = if state == State::Ready { Order::Ready } else { Order::Aside };
        assert_eq!(owner.in_order(queue(SLOT, 1), order).await, [id(1)]);
        assert_eq!((totals(&owner).await.kept, totals(&owner).await.messages), (0, 1));
    }
}

pub async fn kept_entry_ready_below_the_head_is_shown(storage: &mut dyn Storage) {
    let mut owner = filled(storage, &messages([1, 8])).await;
    let low = |changes| QueueChanges { low: id(8), ..changes };
    let kept = settled(messages([1]).remove(0), State::Failed, 5);
    owner.apply(vec![low(changes(queue(SLOT, 1), Changes::updates(vec![kept.header])))]).await;
    assert_eq!(owner.in_order(queue(SLOT, 1), Order::Ready).await, [id(8)]);
    let again = messages([1]);
    let update = changes(queue(SLOT, 1), Changes::updates(vec![again[0].header.clone()]));
    owner.apply(vec![low(update)]).await;
    assert_eq!(owner.all(queue(SLOT, 1)).await, messages([1, 8]));
}

pub async fn changes_of_one_batch_end_kept_or_not(storage: &mut dyn Storage) {
    let mut owner = filled(storage, &messages([4])).await;
    let plain = messages([1, 2, 3]);
    let settle = |at: usize| settled(plain[at].clone(), State::Done, 7).header;
    let kept_after_all = settled(messages([4]).remove(0), State::Failed, 3);
    let updates = vec![
        settle(0),
        settle(1),
        plain[1].header.clone(),
        settle(2),
        scheduled(messages([4]).remove(0), 9).header,
        kept_after_all.header,
    ];
    let more = Changes { removes: vec![id(3)], ..Changes::updates(updates) };
    owner.apply(vec![both(appends(queue(SLOT, 1), &plain), more)]).await;
    assert_eq!(owner.in_order(queue(SLOT, 1), Order::Kept).await, [id(4), id(1)]);
    assert_eq!(owner.in_order(queue(SLOT, 1), Order::Ready).await, [id(2)]);
    assert_eq!(owner.in_order(queue(SLOT, 1), Order::Schedule).await, []);
    assert_eq!(totals(&owner).await, Totals { messages: 3, bytes: 30, kept: 2, ..Totals::default() });
}

pub async fn removed_kept_entry_is_gone(storage: &mut dyn Storage) {
    let sent = kept([(1, 10), (2, 20), (3, 30)]);
    let mut owner = filled(storage, &sent).await;
    owner.update(queue(SLOT, 1), &[Header { attempts: 9, ..sent[0].header.clone() }]).await;
    owner.remove(queue(SLOT, 1), &[id(1), id(3)]).await;
    assert_eq!(owner.in_order(queue(SLOT, 1), Order::Kept).await, [id(2)]);
    assert_eq!(owner.get(queue(SLOT, 1), &[id(3), id(2), id(1)]).await, sent[1..2]);
    owner.remove(queue(SLOT, 1), &[id(2)]).await;
    assert_eq!(totals(&owner).await, Totals::default());
    owner.update(queue(SLOT, 1), &[sent[0].header.clone()]).await;
    assert_eq!(owner.in_order(queue(SLOT, 1), Order::Kept).await, []);
}

pub async fn kept_entries_are_there_when_it_is_opened_again(storage: &mut dyn Storage) {
    let sent = kept([(1, 30), (2, 20), (3, 10)]);
    let mut owner = filled(storage, &[&sent[..], &messages([4, 5])].concat()).await;
    let late = settled(messages([4]).remove(0), State::Done, 40);
    owner.update(queue(SLOT, 1), &[late.header.clone(), messages([3]).remove(0).header]).await;
    owner.apply(vec![removes(queue(SLOT, 1), &[id(2)])]).await;
    drop(owner);
    let owner = Owner::fence(&storage.open().await, SLOT, 2).await;
    assert_eq!(owner.in_order(queue(SLOT, 1), Order::Kept).await, [id(1), id(4)]);
    assert_eq!(owner.in_order(queue(SLOT, 1), Order::Ready).await, [id(3), id(5)]);
    assert_eq!(owner.get(queue(SLOT, 1), &[id(4), id(1)]).await, [late, sent[0].clone()]);
    assert_eq!(totals(&owner).await, Totals { messages: 4, bytes: 40, kept: 2, ..Totals::default() });
}
