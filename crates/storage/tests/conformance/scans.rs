//! Pages of a queue: their order, their bounds, and the entries that they leave out.

use angarium_core::ids::MessageId;
use angarium_storage::{Direction, Order, QueueChanges};

use angarium_testbed::drivers::Storage;
use angarium_testbed::owner::{
    Owner, SLOT, appends, claimed_again, id, ids, message, messages, queue, removes,
};

/// The owner of a queue with these entries.
async fn filled(storage: &mut dyn Storage, ranks: impl IntoIterator<Item = u64>) -> Owner {
    let mut owner = Owner::fence(&storage.open().await, SLOT, 1).await;
    owner.append(queue(SLOT, 1), &messages(ranks)).await;
    owner
}

pub async fn upwards_is_from_the_oldest(storage: &mut dyn Storage) {
    let owner = filled(storage, [5, 1, 256, 3]).await;
    let page = owner.page(queue(SLOT, 1), Direction::Up, None, 10).await;
    assert_eq!(page.messages, messages([1, 3, 5, 256]));
}

pub async fn downwards_is_from_the_newest(storage: &mut dyn Storage) {
    let owner = filled(storage, [5, 1, 256, 3]).await;
    let page = owner.page(queue(SLOT, 1), Direction::Down, None, 10).await;
    assert_eq!(page.messages, messages([256, 5, 3, 1]));
}

pub async fn after_is_left_out_whether_it_exists_or_not(storage: &mut dyn Storage) {
    let owner = filled(storage, [1, 3, 5]).await;
    let page =
        async |direction, after| ids(&owner.page(queue(SLOT, 1), direction, Some(after), 10).await.messages);
    assert_eq!(page(Direction::Up, id(3)).await, [id(5)]);
    assert_eq!(page(Direction::Up, id(2)).await, [id(3), id(5)]);
    assert_eq!(page(Direction::Up, MessageId::ZERO).await, [id(1), id(3), id(5)]);
    assert_eq!(page(Direction::Up, id(5)).await, []);
    assert_eq!(page(Direction::Down, id(3)).await, [id(1)]);
    assert_eq!(page(Direction::Down, id(4)).await, [id(3), id(1)]);
    assert_eq!(page(Direction::Down, MessageId::MAX).await, [id(5), id(3), id(1)]);
    assert_eq!(page(Direction::Down, id(1)).await, []);
}

pub async fn page_holds_at_most_the_messages_asked_for(storage: &mut dyn Storage) {
    let owner = filled(storage, [1, 2, 3]).await;
    for (direction, first_two) in [(Direction::Up, [1, 2]), (Direction::Down, [3, 2])] {
        let page = owner.page(queue(SLOT, 1), direction, None, 2).await;
        assert_eq!(page.messages, messages(first_two));
    }
}

pub async fn page_ends_once_its_bodies_exceed_the_bytes(storage: &mut dyn Storage) {
    let owner = filled(storage, 1..=6).await;
    for direction in [Direction::Up, Direction::Down] {
        for (bytes, expected) in [(0, 1), (9, 1), (10, 2), (25, 3), (30, 4), (1_000, 6)] {
            let page = owner.store.scan(queue(SLOT, 1), Order::Ready, direction, None, 10, bytes).await;
            let page = page.unwrap();
            assert_eq!((page.messages.len(), page.is_last), (expected, expected == 6), "{bytes} bytes");
        }
    }
}

pub async fn last_page_is_marked(storage: &mut dyn Storage) {
    let owner = filled(storage, [1, 2, 3]).await;
    for direction in [Direction::Up, Direction::Down] {
        for (limit, is_last) in [(1, false), (2, false), (3, true), (4, true)] {
            let page = owner.page(queue(SLOT, 1), direction, None, limit).await;
            assert_eq!(page.is_last, is_last, "{direction:?}, {limit} of 3");
        }
    }
    assert!(owner.page(queue(SLOT, 1), Direction::Up, Some(id(3)), 1).await.is_last);
    assert!(owner.page(queue(SLOT, 1), Direction::Down, Some(id(1)), 1).await.is_last);
}

pub async fn empty_queue_is_one_last_page(storage: &mut dyn Storage) {
    let mut owner = filled(storage, [1, 2]).await;
    owner.remove(queue(SLOT, 1), &[id(1), id(2)]).await;
    for direction in [Direction::Up, Direction::Down] {
        for number in [1, 2] {
            let page = owner.page(queue(SLOT, number), direction, None, 10).await;
            assert_eq!((page.messages, page.is_last), (vec![], true));
        }
    }
}

pub async fn pages_join_to_the_whole_queue(storage: &mut dyn Storage) {
    let mut owner = filled(storage, 1..=100).await;
    owner.remove(queue(SLOT, 1), &(20..40).map(id).collect::<Vec<_>>()).await;
    let left = || (1..20).chain(40..=100);
    let (up, down) = (left().collect::<Vec<_>>(), left().rev().collect::<Vec<_>>());
    for (direction, ranks) in [(Direction::Up, up), (Direction::Down, down)] {
        let (mut read, mut after) = (Vec::new(), None);
        loop {
            let page = owner.page(queue(SLOT, 1), direction, after, 7).await;
            after = page.messages.last().map(|message| message.header.id);
            read.extend(page.messages);
            if page.is_last {
                break;
            }
        }
        assert_eq!(read, messages(ranks));
    }
}

pub async fn updated_headers_are_shown(storage: &mut dyn Storage) {
    let mut owner = filled(storage, [1, 2]).await;
    let header = claimed_again(&messages([2])[0].header);
    owner.update(queue(SLOT, 1), std::slice::from_ref(&header)).await;
    assert_eq!(owner.page(queue(SLOT, 1), Direction::Up, None, 10).await.messages[1].header, header);
    assert_eq!(owner.page(queue(SLOT, 1), Direction::Down, None, 10).await.messages[0].header, header);
}

pub async fn removed_entries_are_not_shown(storage: &mut dyn Storage) {
    let mut owner = filled(storage, 1..=6).await;
    owner.remove(queue(SLOT, 1), &[id(1), id(4), id(6)]).await;
    assert_eq!(owner.page(queue(SLOT, 1), Direction::Up, None, 10).await.messages, messages([2, 3, 5]));
    assert_eq!(owner.page(queue(SLOT, 1), Direction::Down, None, 10).await.messages, messages([5, 3, 2]));
    assert_eq!(owner.page(queue(SLOT, 1), Direction::Up, Some(id(3)), 1).await.messages, messages([5]));
}

pub async fn head_begins_at_the_hint_and_misses_nothing(storage: &mut dyn Storage) {
    let mut owner = filled(storage, 1..=6).await;
    let gone: Vec<_> = (1..=3).map(id).collect();
    owner.apply(vec![QueueChanges { low: id(4), ..removes(queue(SLOT, 1), &gone) }]).await;
    assert_eq!(owner.page(queue(SLOT, 1), Direction::Up, None, 10).await.messages, messages([4, 5, 6]));
    assert_eq!(owner.page(queue(SLOT, 1), Direction::Down, None, 10).await.messages, messages([6, 5, 4]));
}

pub async fn smaller_id_pulls_the_hint_down(storage: &mut dyn Storage) {
    let mut owner = filled(storage, [8, 9]).await;
    owner.apply(vec![QueueChanges { low: id(8), ..appends(queue(SLOT, 1), &messages([5])) }]).await;
    assert_eq!(owner.page(queue(SLOT, 1), Direction::Up, None, 10).await.messages, messages([5, 8, 9]));
    owner.append(queue(SLOT, 1), &messages([3])).await;
    assert_eq!(owner.page(queue(SLOT, 1), Direction::Up, None, 10).await.messages, messages([3, 5, 8, 9]));
}

pub async fn older_hint_does_no_harm(storage: &mut dyn Storage) {
    let mut owner = filled(storage, 1..=3).await;
    owner.apply(vec![QueueChanges { low: id(2), ..removes(queue(SLOT, 1), &[id(1)]) }]).await;
    owner.apply(vec![QueueChanges { low: id(1), ..appends(queue(SLOT, 1), &messages([4])) }]).await;
    owner.append(queue(SLOT, 1), &messages([5])).await;
    assert_eq!(owner.page(queue(SLOT, 1), Direction::Up, None, 10).await.messages, messages([2, 3, 4, 5]));
}

pub async fn neighbouring_queues_do_not_show(storage: &mut dyn Storage) {
    let mut owner = Owner::fence(&storage.open().await, SLOT, 1).await;
    let mut neighbours: Vec<_> = (1..=5).map(|number| queue(SLOT, number)).collect();
    neighbours.sort_unstable();
    let of = |rank: u64| vec![message(rank, "1"), message(rank + 10, "2")];
    let changes = neighbours.iter().zip(1..).map(|(queue, rank)| appends(*queue, &of(rank)));
    owner.apply(changes.collect()).await;
    for (queue, rank) in neighbours.iter().zip(1..) {
        let up = owner.page(*queue, Direction::Up, None, 10).await;
        assert_eq!((up.messages, up.is_last), (of(rank), true));
        let down = owner.page(*queue, Direction::Down, None, 10).await;
        assert_eq!((ids(&down.messages), down.is_last), (vec![id(rank + 10), id(rank)], true));
    }
}
