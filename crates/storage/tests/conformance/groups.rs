//! Groups: entries by their group, and the first entries of all groups.

use std::sync::Arc;

use angarium_core::group::GroupName;
use angarium_core::ids::MessageId;
use angarium_core::message::{Header, Message, State};
use angarium_storage::{Changes, DropResult, GroupHead, PoolStore};

use angarium_testbed::drivers::Storage;
use angarium_testbed::owner::{
    Owner, SLOT, appends, both, changes, claimed_again, epoch, id, ids, in_state, message, messages, peer,
    queue, scheduled, settled, start,
};

fn name(group: &str) -> GroupName {
    GroupName::new(group, "group").unwrap()
}

/// Returns the entry in a group.
pub fn of_group(message: Message, group: &str) -> Message {
    Message { header: Header { group: Some(name(group)), ..message.header }, ..message }
}

/// Entries of one group with these ranks.
fn group(group: &str, ranks: impl IntoIterator<Item = u64>) -> Vec<Message> {
    messages(ranks).into_iter().map(|message| of_group(message, group)).collect()
}

/// The owner of a queue with these entries.
async fn filled(storage: &mut dyn Storage, entries: &[Message]) -> Owner {
    let mut owner = Owner::fence(&storage.open().await, SLOT, 1).await;
    owner.append(queue(SLOT, 1), entries).await;
    owner
}

async fn all_of(store: &Arc<dyn PoolStore>, group: &str) -> Vec<Message> {
    let page = store.group(queue(SLOT, 1), &name(group), None, 100, usize::MAX).await.unwrap();
    assert!(page.is_last, "{group}");
    page.messages
}

/// Names and first entries of all groups, and whether each entry is the only one.
async fn heads(owner: &Owner) -> Vec<(String, MessageId, bool)> {
    let heads = owner.store.groups(queue(SLOT, 1), None, 100).await.unwrap();
    heads.into_iter().map(|head| shown(&head)).collect()
}

fn shown(head: &GroupHead) -> (String, MessageId, bool) {
    let header = &head.message.header;
    (header.group.as_ref().unwrap().to_string(), header.id, head.is_only)
}

fn head(group: &str, rank: u64, is_only: bool) -> (String, MessageId, bool) {
    (group.to_owned(), id(rank), is_only)
}

pub async fn group_entries_are_in_order_despite_others_between(storage: &mut dyn Storage) {
    let (one, other) = (group("a", [5, 1, 256]), group("b", [2, 6]));
    let owner = filled(storage, &[&one[..], &other[..], &messages([3, 4])[..]].concat()).await;
    assert_eq!(all_of(&owner.store, "a").await, group("a", [1, 5, 256]));
    assert_eq!(all_of(&owner.store, "b").await, other);
    assert_eq!(all_of(&owner.store, "c").await, []);
}

pub async fn entries_of_a_group_are_shown_unless_they_are_kept(storage: &mut dyn Storage) {
    let [ready, put_off, moving, failed, prepared] = [1, 2, 3, 4, 5].map(|rank| message(rank, "1"));
    let entries = [
        ready,
        scheduled(put_off, 10),
        in_state(moving, State::Moving(peer())),
        in_state(failed, State::NoTarget),
        in_state(prepared, State::Prepared(peer())),
    ]
    .map(|message| of_group(message, "a"));
    let mut owner = filled(storage, &entries).await;
    assert_eq!(all_of(&owner.store, "a").await, entries);
    let header = Header { state: State::Ready, ..entries[1].header.clone() };
    owner.update(queue(SLOT, 1), std::slice::from_ref(&header)).await;
    assert_eq!(all_of(&owner.store, "a").await[1].header, header);
}

pub async fn kept_entries_are_in_no_group(storage: &mut dyn Storage) {
    let kept = |group: &str, rank, state| of_group(settled(message(rank, "1"), state, 5), group);
    let entries = [
        vec![kept("a", 1, State::Done)],
        group("a", [2]),
        vec![kept("a", 3, State::Failed), kept("b", 4, State::Done), kept("c", 5, State::Failed)],
        group("c", [6, 7]),
    ]
    .concat();
    let mut owner = filled(storage, &entries).await;
    assert_eq!(heads(&owner).await, [head("a", 2, true), head("c", 6, false)]);
    for (name, ranks) in [("a", vec![2]), ("b", vec![]), ("c", vec![6, 7])] {
        assert_eq!(all_of(&owner.store, name).await, group(name, ranks), "{name}");
    }
    owner.remove(queue(SLOT, 1), &[id(1), id(4), id(6)]).await;
    assert_eq!(heads(&owner).await, [head("a", 2, true), head("c", 7, true)]);
    drop(owner);
    let store = storage.open().await;
    assert_eq!(all_of(&store, "b").await, []);
}

pub async fn entry_leaves_its_group_when_kept_and_enters_it_again(storage: &mut dyn Storage) {
    let mut owner = filled(storage, &group("a", [1, 2])).await;
    let states = [State::Ready, State::Scheduled, State::Moving(peer()), State::NoTarget];
    for (round, state) in (1..).zip(states.into_iter().cycle().take(8)) {
        let kept = [State::Done, State::Failed][round as usize % 2].clone();
        let kept = settled(group("a", [1]).remove(0), kept, round);
        owner.update(queue(SLOT, 1), std::slice::from_ref(&kept.header)).await;
        assert_eq!(heads(&owner).await, [head("a", 2, true)], "round {round}");
        assert_eq!(all_of(&owner.store, "a").await, group("a", [2]));
        // A kept entry that is settled again stays outside.
        owner.update(queue(SLOT, 1), &[claimed_again(&kept.header)]).await;
        assert_eq!(heads(&owner).await, [head("a", 2, true)], "round {round}");
        let again = in_state(group("a", [1]).remove(0), state);
        owner.update(queue(SLOT, 1), std::slice::from_ref(&again.header)).await;
        assert_eq!(heads(&owner).await, [head("a", 1, false)], "round {round}");
        assert_eq!(all_of(&owner.store, "a").await, [again, group("a", [2]).remove(0)]);
    }
    let all = [1, 2].map(|rank| settled(group("a", [rank]).remove(0), State::Done, 5));
    owner.update(queue(SLOT, 1), &all.clone().map(|message| message.header)).await;
    assert_eq!(heads(&owner).await, []);
    assert_eq!(owner.get(queue(SLOT, 1), &[id(1), id(2)]).await, all);
}

pub async fn group_changes_of_one_batch_end_in_the_last_state(storage: &mut dyn Storage) {
    let mut owner = filled(storage, &group("a", [1, 2])).await;
    let new = group("a", [3, 4]);
    let kept = |rank| settled(group("a", [rank]).remove(0), State::Done, 5).header;
    let plain = |rank| group("a", [rank]).remove(0).header;
    let updates = vec![kept(1), plain(1), plain(2), kept(2), kept(3), kept(4), plain(4)];
    owner.apply(vec![both(appends(queue(SLOT, 1), &new), Changes::updates(updates))]).await;
    assert_eq!(all_of(&owner.store, "a").await, group("a", [1, 4]));
    let more = Changes { removes: vec![id(1), id(3)], ..Changes::updates(vec![kept(1), plain(3)]) };
    owner.apply(vec![changes(queue(SLOT, 1), more)]).await;
    assert_eq!(all_of(&owner.store, "a").await, group("a", [4]));
    assert_eq!(heads(&owner).await, [head("a", 4, true)]);
}

pub async fn page_of_a_group_begins_behind_an_id_and_keeps_its_bounds(storage: &mut dyn Storage) {
    let owner = filled(storage, &group("a", 1..=6)).await;
    for (after, most, bytes, expected, is_last) in [
        (None, 2, 1_000, vec![1, 2], false),
        (Some(2), 2, 1_000, vec![3, 4], false),
        (Some(4), 2, 1_000, vec![5, 6], true),
        (Some(6), 2, 1_000, vec![], true),
        (None, 6, 1_000, (1..=6).collect(), true),
        (None, 6, 0, vec![1], false),
        (Some(1), 6, 10, vec![2, 3], false),
        (Some(3), 6, 10, vec![4, 5], false),
        (Some(4), 6, 10, vec![5, 6], true),
    ] {
        let page = owner.store.group(queue(SLOT, 1), &name("a"), after.map(id), most, bytes).await.unwrap();
        let expected: Vec<MessageId> = expected.into_iter().map(id).collect();
        assert_eq!((ids(&page.messages), page.is_last), (expected, is_last), "{after:?} {most} {bytes}");
    }
    let after = Some(MessageId::MAX);
    let page = owner.store.group(queue(SLOT, 1), &name("a"), after, 9, 9).await.unwrap();
    assert_eq!((page.messages, page.is_last), (vec![], true));
}

pub async fn groups_are_shown_by_name_each_with_its_first_entry(storage: &mut dyn Storage) {
    let names = [("b", vec![7, 2]), ("ab", vec![3]), ("a", vec![4, 9]), ("a!", vec![5]), ("~", vec![1, 6])];
    let mut entries = messages([8]);
    names.iter().for_each(|(name, ranks)| entries.extend(group(name, ranks.clone())));
    let owner = filled(storage, &entries).await;
    let expected = [
        head("a", 4, false),
        head("a!", 5, true),
        head("ab", 3, true),
        head("b", 2, false),
        head("~", 1, false),
    ];
    assert_eq!(heads(&owner).await, expected);
    let first = &owner.store.groups(queue(SLOT, 1), None, 1).await.unwrap()[0].message;
    assert_eq!(*first, group("a", [4])[0]);
}

pub async fn pages_of_groups_join_to_all(storage: &mut dyn Storage) {
    let names: Vec<String> = (0..150).map(|number| format!("g{number:03}")).collect();
    let ranks =
        |number: u64| if number.is_multiple_of(3) { vec![number, number + 500] } else { vec![number] };
    let entries: Vec<Message> =
        names.iter().zip(1_u64..).flat_map(|(name, number)| group(name, ranks(number))).collect();
    let owner = filled(storage, &entries).await;
    let all = owner.store.groups(queue(SLOT, 1), None, 1_000).await.unwrap();
    assert_eq!(all.iter().map(|head| shown(head).0).collect::<Vec<_>>(), names);
    for limit in [1, 2, 7, 150] {
        let (mut read, mut after) = (Vec::new(), None);
        loop {
            let page = owner.store.groups(queue(SLOT, 1), after, limit).await.unwrap();
            assert!(page.len() <= limit);
            let Some(last) = page.last() else { break };
            after = last.message.header.group.clone();
            read.extend(page);
        }
        assert_eq!(read, all, "{limit} at a time");
    }
    let absent = Some(name("g0005"));
    let behind = owner.store.groups(queue(SLOT, 1), absent, 1).await.unwrap();
    assert_eq!(shown(&behind[0]).0, "g001");
    assert_eq!(owner.store.groups(queue(SLOT, 1), None, 0).await.unwrap(), []);
}

pub async fn removed_entries_leave_group_and_empty_group_vanishes(storage: &mut dyn Storage) {
    let put_off = of_group(scheduled(message(4, "1"), 10), "b");
    let entries = [group("a", [1, 2, 3]), vec![put_off], group("b", [5])].concat();
    let mut owner = filled(storage, &entries).await;
    owner.update(queue(SLOT, 1), &[claimed_again(&entries[0].header)]).await;
    owner.remove(queue(SLOT, 1), &[id(1), id(4)]).await;
    assert_eq!(heads(&owner).await, [head("a", 2, false), head("b", 5, true)]);
    assert_eq!(all_of(&owner.store, "a").await, group("a", [2, 3]));
    owner.remove(queue(SLOT, 1), &[id(2), id(3), id(5)]).await;
    assert_eq!(heads(&owner).await, []);
    assert_eq!(all_of(&owner.store, "a").await, []);
}

pub async fn groups_of_other_queues_do_not_show(storage: &mut dyn Storage) {
    let mut owner = filled(storage, &group("a", [1])).await;
    for number in 2..=5 {
        owner.append(queue(SLOT, number), &group("a", [number * 10])).await;
        owner.append(queue(SLOT, number), &group("0", [number * 10 + 1])).await;
    }
    assert_eq!(all_of(&owner.store, "a").await, group("a", [1]));
    assert_eq!(heads(&owner).await, [head("a", 1, true)]);
}

pub async fn group_and_first_claim_are_kept_through_states_and_reopening(storage: &mut dyn Storage) {
    let mut owner = filled(storage, &group("a:b/c", [1])).await;
    let first_claimed = Some(start().plus_seconds(7));
    let claimed = Header { first_claimed, ..claimed_again(&group("a:b/c", [1])[0].header) };
    let states = [State::Ready, State::Scheduled, State::Ready, State::Moving(peer()), State::Scheduled];
    for state in states {
        let header = Header { state, ..claimed.clone() };
        owner.update(queue(SLOT, 1), std::slice::from_ref(&header)).await;
        assert_eq!(owner.store.get(queue(SLOT, 1), &[id(1)]).await.unwrap()[0].header, header);
    }
    drop(owner);
    let store = storage.open().await;
    let kept = all_of(&store, "a:b/c").await;
    assert_eq!(kept[0].header, Header { state: State::Scheduled, ..claimed });
}

pub async fn first_claim_is_kept_without_a_group(storage: &mut dyn Storage) {
    let mut owner = filled(storage, &messages([1])).await;
    let first_claimed = Some(start().plus_seconds(7));
    let claimed = Header { first_claimed, ..claimed_again(&messages([1])[0].header) };
    for state in [State::Ready, State::Scheduled, State::Ready] {
        let header = Header { state, ..claimed.clone() };
        owner.update(queue(SLOT, 1), std::slice::from_ref(&header)).await;
        assert_eq!(owner.store.get(queue(SLOT, 1), &[id(1)]).await.unwrap()[0].header, header);
    }
    let totals = owner.store.totals(queue(SLOT, 1)).await.unwrap();
    assert_eq!((totals.messages, totals.bytes), (1, 10));
    owner.remove(queue(SLOT, 1), &[id(1)]).await;
    let totals = owner.store.totals(queue(SLOT, 1)).await.unwrap();
    assert_eq!((totals.messages, totals.bytes), (0, 0));
}

pub async fn totals_count_entries_of_groups_as_others(storage: &mut dyn Storage) {
    let entries = [group("a", [1, 2]), vec![of_group(scheduled(message(3, "1"), 10), "b")]].concat();
    let mut owner = filled(storage, &entries).await;
    let totals = owner.store.totals(queue(SLOT, 1)).await.unwrap();
    assert_eq!((totals.messages, totals.bytes, totals.scheduled), (3, 21, 1));
    owner.remove(queue(SLOT, 1), &[id(1), id(3)]).await;
    let totals = owner.store.totals(queue(SLOT, 1)).await.unwrap();
    assert_eq!((totals.messages, totals.bytes, totals.scheduled), (1, 10, 0));
}

pub async fn a_dropped_queue_has_no_groups(storage: &mut dyn Storage) {
    let put_off = of_group(scheduled(message(4, "1"), 10), "b");
    let kept = of_group(settled(message(5, "1"), State::Done, 5), "c");
    let mut owner = filled(storage, &[group("a", [1, 2, 3]), vec![put_off, kept.clone()]].concat()).await;
    while owner.store.drop_queue(SLOT, epoch(1), queue(SLOT, 1), 2).await.unwrap() == DropResult::More {}
    assert_eq!(heads(&owner).await, []);
    assert_eq!(all_of(&owner.store, "a").await, []);
    owner.update(queue(SLOT, 1), &[in_state(kept, State::Ready).header]).await;
    assert_eq!(heads(&owner).await, []);
}
