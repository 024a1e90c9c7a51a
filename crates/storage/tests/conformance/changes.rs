//! Effects of a batch: appends, updates and removes, all or none.

use bytes::Bytes;

use angarium_core::limits;
use angarium_storage::{Changes, Direction};

use angarium_testbed::drivers::Storage;
use angarium_testbed::owner::{
    Owner, SLOT, appends, both, claimed_again, id, ids, message, messages, queue, removes, with_body,
};

pub async fn entries_are_found_as_they_were_sent(storage: &mut dyn Storage) {
    let store = storage.open().await;
    let mut owner = Owner::fence(&store, SLOT, 1).await;
    let sent = [message(1, "{\"a\": 1.0}"), message(2, "\"\\u00e4\""), message(3, "")];
    owner.append(queue(SLOT, 1), &sent).await;
    assert_eq!(owner.all(queue(SLOT, 1)).await, sent);
    assert_eq!(owner.get(queue(SLOT, 1), &ids(&sent)).await, sent);
}

pub async fn batch_changes_all_its_queues(storage: &mut dyn Storage) {
    let store = storage.open().await;
    let mut owner = Owner::fence(&store, SLOT, 1).await;
    let (a, b, c) = (queue(SLOT, 1), queue(SLOT, 2), queue(SLOT, 3));
    owner.apply(vec![appends(a, &messages([1, 2])), appends(b, &messages([3]))]).await;
    let header = claimed_again(&messages([3])[0].header);
    let update = both(appends(b, &messages([4])), Changes::updates(vec![header.clone()]));
    owner.apply(vec![removes(a, &[id(1)]), update, appends(c, &messages([5]))]).await;
    assert_eq!(ids(&owner.all(a).await), [id(2)]);
    let in_b = owner.all(b).await;
    assert_eq!((ids(&in_b), &in_b[0].header), (vec![id(3), id(4)], &header));
    assert_eq!(ids(&owner.all(c).await), [id(5)]);
}

/// The copies of one post for all subscriptions of a queue.
pub async fn batch_of_a_thousand_queues_is_applied_whole(storage: &mut dyn Storage) {
    let store = storage.open().await;
    let mut owner = Owner::fence(&store, SLOT, 1).await;
    let numbers = 0..limits::SUBSCRIPTIONS as u64;
    let each = limits::FAN_OUT_COPIES as u64 / numbers.end;
    let of = |number: u64| messages(number * each + 1..=(number + 1) * each);
    let (last, count) = (numbers.end - 1, numbers.end);
    owner.apply(numbers.map(|number| appends(queue(SLOT, number + 1), &of(number))).collect()).await;
    for number in [0, count / 2, last] {
        assert_eq!(owner.all(queue(SLOT, number + 1)).await, of(number), "{number}");
        assert_eq!(owner.totals(queue(SLOT, number + 1)).await.0, each);
    }
}

pub async fn refused_batch_changes_none_of_its_queues(storage: &mut dyn Storage) {
    let store = storage.open().await;
    let mut owner = Owner::fence(&store, SLOT, 1).await;
    let (a, b) = (queue(SLOT, 1), queue(SLOT, 2));
    owner.apply(vec![appends(a, &messages([1])), appends(b, &messages([2]))]).await;
    let header = claimed_again(&messages([2])[0].header);
    let update = both(appends(b, &messages([3])), Changes::updates(vec![header]));
    owner.send(3, vec![removes(a, &[id(1)]), update]).await.unwrap_err();
    assert_eq!(owner.all(a).await, messages([1]));
    assert_eq!(owner.all(b).await, messages([2]));
    assert_eq!((owner.totals(a).await, owner.totals(b).await), ((1, 10), (1, 10)));
}

pub async fn update_replaces_the_header_and_keeps_the_body(storage: &mut dyn Storage) {
    let store = storage.open().await;
    let mut owner = Owner::fence(&store, SLOT, 1).await;
    let sent = messages([1, 2]);
    owner.append(queue(SLOT, 1), &sent).await;
    let header = claimed_again(&sent[0].header);
    owner.update(queue(SLOT, 1), std::slice::from_ref(&header)).await;
    let found = owner.get(queue(SLOT, 1), &[id(1), id(2)]).await;
    assert_eq!((&found[0].header, &found[0].body), (&header, &sent[0].body));
    assert_eq!(found[1], sent[1]);
}

pub async fn later_update_wins(storage: &mut dyn Storage) {
    let store = storage.open().await;
    let mut owner = Owner::fence(&store, SLOT, 1).await;
    let sent = messages([1]);
    owner.append(queue(SLOT, 1), &sent).await;
    let once = claimed_again(&sent[0].header);
    let twice = claimed_again(&once);
    owner.update(queue(SLOT, 1), std::slice::from_ref(&once)).await;
    owner.update(queue(SLOT, 1), std::slice::from_ref(&twice)).await;
    assert_eq!(owner.get(queue(SLOT, 1), &[id(1)]).await[0].header, twice);
    owner.update(queue(SLOT, 1), &[sent[0].header.clone(), once.clone()]).await;
    assert_eq!(owner.get(queue(SLOT, 1), &[id(1)]).await[0].header, once);
}

pub async fn update_of_an_absent_entry_leaves_it_absent(storage: &mut dyn Storage) {
    let store = storage.open().await;
    let mut owner = Owner::fence(&store, SLOT, 1).await;
    let (never, gone) = (messages([5])[0].header.clone(), messages([1])[0].header.clone());
    owner.append(queue(SLOT, 1), &messages([1, 2])).await;
    owner.remove(queue(SLOT, 1), &[id(1)]).await;
    owner.update(queue(SLOT, 1), &[claimed_again(&never), claimed_again(&gone)]).await;
    assert_eq!(owner.all(queue(SLOT, 1)).await, messages([2]));
    assert_eq!(owner.get(queue(SLOT, 1), &[id(5), id(1)]).await, []);
    assert_eq!(owner.totals(queue(SLOT, 1)).await, (1, 10));
}

pub async fn remove_of_an_absent_entry_does_no_harm(storage: &mut dyn Storage) {
    let store = storage.open().await;
    let mut owner = Owner::fence(&store, SLOT, 1).await;
    owner.append(queue(SLOT, 1), &messages([1, 2])).await;
    owner.remove(queue(SLOT, 1), &[id(1)]).await;
    owner.remove(queue(SLOT, 1), &[id(1), id(5)]).await;
    owner.remove(queue(SLOT, 9), &[id(1), id(2)]).await;
    assert_eq!(owner.all(queue(SLOT, 1)).await, messages([2]));
    assert_eq!(owner.totals(queue(SLOT, 1)).await, (1, 10));
    assert_eq!(owner.totals(queue(SLOT, 9)).await, (0, 0));
}

pub async fn remove_named_twice_counts_once(storage: &mut dyn Storage) {
    let store = storage.open().await;
    let mut owner = Owner::fence(&store, SLOT, 1).await;
    owner.append(queue(SLOT, 1), &messages([1, 2, 3])).await;
    owner.remove(queue(SLOT, 1), &[id(2), id(1), id(2), id(2)]).await;
    assert_eq!(owner.all(queue(SLOT, 1)).await, messages([3]));
    assert_eq!(owner.totals(queue(SLOT, 1)).await, (1, 10));
}

pub async fn append_then_update_in_one_batch_shows_the_update(storage: &mut dyn Storage) {
    let store = storage.open().await;
    let mut owner = Owner::fence(&store, SLOT, 1).await;
    let sent = messages([1, 2]);
    let header = claimed_again(&sent[0].header);
    let changes = both(appends(queue(SLOT, 1), &sent), Changes::updates(vec![header.clone()]));
    owner.apply(vec![changes]).await;
    let found = owner.all(queue(SLOT, 1)).await;
    assert_eq!((&found[0].header, &found[0].body), (&header, &sent[0].body));
    assert_eq!(found[1], sent[1]);
}

pub async fn append_then_remove_in_one_batch_leaves_nothing_behind(storage: &mut dyn Storage) {
    let store = storage.open().await;
    let mut owner = Owner::fence(&store, SLOT, 1).await;
    let changes = both(appends(queue(SLOT, 1), &messages([1, 2])), Changes::removes(vec![id(1)]));
    owner.apply(vec![changes]).await;
    assert_eq!(owner.all(queue(SLOT, 1)).await, messages([2]));
    assert_eq!(owner.get(queue(SLOT, 1), &[id(1)]).await, []);
    assert_eq!(owner.totals(queue(SLOT, 1)).await, (1, 10));
}

pub async fn update_then_remove_in_one_batch_leaves_nothing_behind(storage: &mut dyn Storage) {
    let store = storage.open().await;
    let mut owner = Owner::fence(&store, SLOT, 1).await;
    let sent = messages([1, 2]);
    owner.append(queue(SLOT, 1), &sent).await;
    owner.update(queue(SLOT, 1), &[claimed_again(&sent[0].header)]).await;
    let updates = vec![claimed_again(&claimed_again(&sent[0].header)), claimed_again(&sent[1].header)];
    let changes = both(removes(queue(SLOT, 1), &[id(1), id(2)]), Changes::updates(updates));
    owner.apply(vec![changes]).await;
    assert_eq!(owner.get(queue(SLOT, 1), &[id(1), id(2)]).await, []);
    for direction in [Direction::Up, Direction::Down] {
        assert_eq!(owner.page(queue(SLOT, 1), direction, None, 10).await.messages, []);
    }
    assert_eq!(owner.totals(queue(SLOT, 1)).await, (0, 0));
}

pub async fn bodies_of_any_size_come_back_whole(storage: &mut dyn Storage) {
    let store = storage.open().await;
    let mut owner = Owner::fence(&store, SLOT, 1).await;
    let body = |rank: u64, length: usize| {
        let bytes = (0..length as u64).map(|at| b'a' + ((at * 31 + at / 97 + rank) % 26) as u8);
        Bytes::from(bytes.collect::<Vec<u8>>())
    };
    let lengths = [0, 1, 4_096, 65_536, 262_144, 1 << 20];
    let sent: Vec<_> =
        lengths.iter().zip(1..).map(|(length, rank)| with_body(rank, body(rank, *length))).collect();
    owner.append(queue(SLOT, 1), &sent).await;
    owner.update(queue(SLOT, 1), &[sent[4].header.clone()]).await;
    assert!(owner.all(queue(SLOT, 1)).await == sent, "a body came back changed");
    assert_eq!(owner.totals(queue(SLOT, 1)).await, (6, lengths.iter().sum::<usize>() as u64));
}

/// No driver interprets bodies: the envelope before the JSON text of a traced message is not JSON.
pub async fn bodies_of_any_bytes_come_back_whole(storage: &mut dyn Storage) {
    let store = storage.open().await;
    let mut owner = Owner::fence(&store, SLOT, 1).await;
    let bodies: [Vec<u8>; 3] =
        [vec![0], (0..=u8::MAX).collect(), (0..=u8::MAX).rev().cycle().take(5_000).collect()];
    let sent: Vec<_> = bodies.into_iter().zip(1..).map(|(body, rank)| with_body(rank, body.into())).collect();
    owner.append(queue(SLOT, 1), &sent).await;
    assert_eq!(owner.all(queue(SLOT, 1)).await, sent);
    assert_eq!(owner.get(queue(SLOT, 1), &[id(2)]).await, sent[1..2]);
}
