//! Extras of headers: fields that few messages have.

use angarium_core::message::{Header, Message, State};
use angarium_core::outcome::{Extras, Keep, Outcome};
use angarium_core::time::Timestamp;
use angarium_storage::{Due, Order};
use bytes::Bytes;

use crate::groups::of_group;
use angarium_testbed::drivers::Storage;
use angarium_testbed::owner::{
    Owner, SLOT, all_extras, id, ids, in_state, living, message, messages, peer, queue, retained, scheduled,
    settled, start, with_extras,
};

/// One entry in each state, each with extras, some with a group, with an earlier claim, or with a life by queue.
fn entries() -> Vec<Message> {
    let plain = |rank| with_extras(message(rank, "\"1\""), all_extras());
    let claimed = |message: Message| {
        let first_claimed = Some(start().plus_seconds(9));
        Message { header: Header { first_claimed, attempts: 2, ..message.header }, ..message }
    };
    vec![
        plain(1),
        of_group(scheduled(plain(2), 30), "a"),
        in_state(claimed(plain(3)), State::Prepared(peer())),
        in_state(of_group(claimed(plain(4)), "b"), State::Moving(peer())),
        in_state(plain(5), State::NoTarget),
        of_group(claimed(settled(plain(6), State::Done, 5)), "a"),
        settled(plain(7), State::Failed, 5),
        retained(plain(8), start()),
        of_group(claimed(retained(plain(9), start())), "c"),
        message(10, "\"1\""),
    ]
}

async fn filled(storage: &mut dyn Storage) -> Owner {
    let mut owner = Owner::fence(&storage.open().await, SLOT, 1).await;
    owner.append(queue(SLOT, 1), &entries()).await;
    owner
}

pub async fn extras_are_found_as_they_were_sent(storage: &mut dyn Storage) {
    let owner = filled(storage).await;
    let (all, of) =
        (entries(), |ranks: &[usize]| ranks.iter().map(|rank| entries()[rank - 1].clone()).collect());
    assert_eq!(owner.get(queue(SLOT, 1), &ids(&all)).await, all);
    for (order, expected) in
        [(Order::Aside, vec![2, 3, 4, 5]), (Order::Schedule, vec![2]), (Order::Kept, vec![6, 7])]
    {
        let expected: Vec<Message> = of(&expected);
        let direction = angarium_storage::Direction::Up;
        let page = owner.store.scan(queue(SLOT, 1), order, direction, None, 99, usize::MAX).await.unwrap();
        assert_eq!(page.messages, expected, "{order:?}");
    }
    let ready: Vec<Message> = of(&[1, 8, 9, 10]);
    assert_eq!(owner.all(queue(SLOT, 1)).await, ready);
    let heads = owner.store.groups(queue(SLOT, 1), None, 9).await.unwrap();
    let heads: Vec<Message> = heads.into_iter().map(|head| head.message).collect();
    assert_eq!(heads, of(&[2, 4, 9]));
    assert_eq!(owner.totals(queue(SLOT, 1)).await, (10, 30));
}

pub async fn update_replaces_adds_and_removes_extras(storage: &mut dyn Storage) {
    let mut owner = filled(storage).await;
    let short = Extras { keep: Some(Keep::stored(9)), ..Extras::default() };
    for extras in [Some(short.clone()), None, Some(all_extras()), None, Some(short)] {
        let changed: Vec<Message> = entries()
            .into_iter()
            .map(|message| {
                let header = Header { extras: extras.clone().map(Box::new), ..message.header };
                Message { header, ..message }
            })
            .collect();
        let headers: Vec<Header> = changed.iter().map(|message| message.header.clone()).collect();
        owner.update(queue(SLOT, 1), &headers).await;
        assert_eq!(owner.get(queue(SLOT, 1), &ids(&changed)).await, changed);
    }
    assert_eq!(owner.totals(queue(SLOT, 1)).await, (10, 30));
}

pub async fn extras_go_through_all_states(storage: &mut dyn Storage) {
    let plain = messages([1]).remove(0);
    let mut owner = Owner::fence(&storage.open().await, SLOT, 1).await;
    owner.append(queue(SLOT, 1), std::slice::from_ref(&plain)).await;
    let states =
        [State::Ready, State::Scheduled, State::Done, State::Moving(peer()), State::Failed, State::Ready];
    for (round, state) in (1..).zip(states) {
        let extras = Extras { forgotten: round, ..all_extras() };
        let changed = in_state(with_extras(plain.clone(), extras), state);
        owner.update(queue(SLOT, 1), std::slice::from_ref(&changed.header)).await;
        assert_eq!(owner.get(queue(SLOT, 1), &[id(1)]).await, [changed]);
    }
}

pub async fn extras_are_kept_when_it_is_opened_again(storage: &mut dyn Storage) {
    let mut owner = filled(storage).await;
    let mut expected = entries();
    expected[9] = with_extras(expected[9].clone(), all_extras());
    owner.update(queue(SLOT, 1), &[expected[9].header.clone()]).await;
    drop(owner);
    let owner = Owner::fence(&storage.open().await, SLOT, 2).await;
    assert_eq!(owner.get(queue(SLOT, 1), &ids(&expected)).await, expected);
}

pub async fn large_results_come_back_whole(storage: &mut dyn Storage) {
    let mut owner = Owner::fence(&storage.open().await, SLOT, 1).await;
    let with_result = |rank: u64, length: usize| {
        let text: Vec<u8> =
            (0..length as u64).map(|at| b'a' + ((at * 31 + at / 97 + rank) % 26) as u8).collect();
        let extras = Extras { result: Some(Outcome::stored(Bytes::from(text))), ..all_extras() };
        settled(with_extras(message(rank, "1"), extras), State::Done, 5)
    };
    let sent = [with_result(1, 65_536), with_result(2, 1), with_result(3, 4_096)];
    owner.append(queue(SLOT, 1), &sent[..2]).await;
    owner.append(queue(SLOT, 1), &[message(3, "1")]).await;
    owner.update(queue(SLOT, 1), &[sent[2].header.clone()]).await;
    assert!(owner.get(queue(SLOT, 1), &ids(&sent)).await == sent, "a result came back changed");
    // Bytes are those of bodies.
    assert_eq!(owner.totals(queue(SLOT, 1)).await, (3, 3));
}

pub async fn due_headers_have_their_extras(storage: &mut dyn Storage) {
    let mut owner = Owner::fence(&storage.open().await, SLOT, 1).await;
    let plain = |rank| with_extras(living(message(rank, "1"), 60), all_extras());
    let (put_off, by_queue) = (scheduled(plain(2), 5), retained(plain(3), start()));
    let sent = [plain(1), put_off.clone(), by_queue.clone(), settled(plain(4), State::Done, 5)];
    owner.append(queue(SLOT, 1), &sent).await;
    let late = start().plus_seconds(1_000);
    let due = async |due, before: Timestamp| owner.store.due(SLOT, due, before, 9).await.unwrap();
    assert_eq!(due(Due::Schedule, start().plus_seconds(5)).await, [(queue(SLOT, 1), put_off.header)]);
    let mut expired = due(Due::Expiry, late).await;
    expired.sort_by_key(|(_, header)| header.id);
    let expired: Vec<Header> = expired.into_iter().map(|(_, header)| header).collect();
    assert_eq!(expired, [0, 1, 3].map(|at| sent[at].header.clone()));
    let found = owner.store.retained(queue(SLOT, 1), None, late, 9).await.unwrap().found;
    assert_eq!(found, [by_queue.header]);
}
