//! Bodies that entries of one batch share: a pool may store them once, and nothing shows whether it does.

use bytes::Bytes;

use angarium_core::ids::{MessageId, QueueId};
use angarium_core::message::{Header, Message, State};
use angarium_storage::{Changes, DropResult, QueueChanges, Totals};

use angarium_testbed::drivers::Storage;
use angarium_testbed::owner::{
    Owner, SLOT, appends, both, changes, claimed_again, id, in_state, queue, removes, scheduled, settled,
    with_body,
};

/// Longer than what any pool would rather store again.
const BODY_BYTES: usize = 5_000;
/// The queue whose copies they are.
pub const LENDER: QueueId = QueueId::from_bytes([SLOT.0; 16]);
/// Queues with a copy.
pub const COPIES: u64 = 4;

pub fn body(letter: u8) -> Bytes {
    Bytes::from(vec![letter; BODY_BYTES])
}

pub fn copies_to(queue: QueueId, copies: &[Message]) -> QueueChanges {
    changes(queue, Changes { lender: Some(LENDER), ..Changes::appends(copies.to_vec()) })
}

/// A queue and the copies of two of its messages: `copy(queue, message)` is their id.
pub fn post() -> Vec<QueueChanges> {
    let (one, two) = (body(b'1'), body(b'2'));
    let copies = |at: u64| [with_body(at * 10, one.clone()), with_body(at * 10 + 1, two.clone())];
    (1..=COPIES).map(|at| copies_to(queue(SLOT, at), &copies(at))).collect()
}

/// The same where not all programs that read the pool know shared bodies.
pub fn post_apart() -> Vec<QueueChanges> {
    let mut apart = post();
    apart.iter_mut().for_each(|queue| queue.changes.lender = None);
    apart
}

/// Copies in the queues 5 and 6 with nothing to share: a short body, and equal bodies of two posts.
pub fn post_unlike() -> Vec<QueueChanges> {
    let short = Bytes::from_static(b"short");
    let copies = |at: u64| [with_body(at * 10, short.clone()), with_body(at * 10 + 1, body(b'1'))];
    (5..=6).map(|at| copies_to(queue(SLOT, at), &copies(at))).collect()
}

pub fn copy(at: u64, number: u64) -> MessageId {
    id(at * 10 + number)
}

pub async fn letters(owner: &Owner, at: u64) -> Vec<u8> {
    let found = owner.get(queue(SLOT, at), &[copy(at, 0), copy(at, 1)]).await;
    let is_whole = |message: &Message| message.body.len() == BODY_BYTES;
    assert!(found.iter().all(is_whole), "{found:?}");
    found.iter().map(|message| message.body[0]).collect()
}

pub async fn shared_body_stays_until_its_last_message_is_removed(storage: &mut dyn Storage) {
    let mut owner = Owner::fence(&storage.open().await, SLOT, 1).await;
    owner.apply(post()).await;
    for at in 1..=COPIES {
        assert_eq!(owner.all(queue(SLOT, at)).await.len(), 2);
        assert_eq!(owner.totals(queue(SLOT, at)).await, (2, 2 * BODY_BYTES as u64));
        owner.remove(queue(SLOT, at), &[copy(at, 0), copy(at, 0)]).await;
        for later in at + 1..=COPIES {
            assert_eq!(letters(&owner, later).await, *b"12");
        }
        assert_eq!(letters(&owner, at).await, *b"2");
        assert_eq!(owner.totals(queue(SLOT, at)).await, (1, BODY_BYTES as u64));
    }
}

pub async fn message_with_shared_body_keeps_it_in_every_state(storage: &mut dyn Storage) {
    let mut owner = Owner::fence(&storage.open().await, SLOT, 1).await;
    owner.apply(post()).await;
    let sent = owner.get(queue(SLOT, 1), &[copy(1, 0)]).await[0].clone();
    let changed = |message: Message| claimed_again(&message.header);
    for header in [
        changed(scheduled(sent.clone(), 30)),
        changed(settled(sent.clone(), State::Done, 30)),
        changed(in_state(sent.clone(), State::NoTarget)),
        changed(sent.clone()),
    ] {
        owner.update(queue(SLOT, 1), std::slice::from_ref(&header)).await;
        let found = owner.get(queue(SLOT, 1), &[copy(1, 0)]).await;
        assert_eq!(found, [Message { header, body: sent.body.clone() }]);
    }
    owner.remove(queue(SLOT, 1), &[copy(1, 0)]).await;
    assert_eq!(letters(&owner, 1).await, *b"2");
    assert_eq!(letters(&owner, 2).await, *b"12");
}

pub async fn copies_outlive_the_queues_that_are_dropped(storage: &mut dyn Storage) {
    let mut owner = Owner::fence(&storage.open().await, SLOT, 1).await;
    owner.apply(post()).await;
    for at in 1..COPIES {
        while owner.store.drop_queue(SLOT, owner.epoch, queue(SLOT, at), 1).await.unwrap() == DropResult::More
        {
        }
        assert_eq!(letters(&owner, at + 1).await, *b"12");
    }
    drop(owner);
    let mut owner = Owner::fence(&storage.open().await, SLOT, 2).await;
    assert_eq!(letters(&owner, COPIES).await, *b"12");
    owner.apply(post().into_iter().take(2).collect()).await;
    assert_eq!(letters(&owner, COPIES).await, *b"12");
}

pub async fn message_that_its_batch_removes_leaves_the_body_to_others(storage: &mut dyn Storage) {
    let mut owner = Owner::fence(&storage.open().await, SLOT, 1).await;
    let mut batch = post();
    for at in [1, 2] {
        let gone = Changes::removes(vec![copy(at as u64, 0)]);
        batch[at - 1].changes.merge(&gone);
    }
    owner.apply(batch).await;
    assert_eq!(letters(&owner, 1).await, *b"2");
    owner.apply((1..COPIES).map(|at| removes(queue(SLOT, at), &[copy(at, 0), copy(at, 1)])).collect()).await;
    assert_eq!(letters(&owner, COPIES).await, *b"12");
}

pub async fn bodies_with_nothing_to_share_are_read_as_they_were_sent(storage: &mut dyn Storage) {
    let mut owner = Owner::fence(&storage.open().await, SLOT, 1).await;
    for batch in [post_apart(), post_unlike()] {
        owner.apply(batch.clone()).await;
        for QueueChanges { queue, changes, .. } in batch {
            assert_eq!(owner.all(queue).await, changes.appends);
        }
    }
}

pub async fn lender_counts_a_body_until_its_last_message_is_removed(storage: &mut dyn Storage) {
    const BODY: u64 = BODY_BYTES as u64;
    let mut owner = Owner::fence(&storage.open().await, SLOT, 1).await;
    owner.apply(post()).await;
    let numbers = async |owner: &Owner, queue| {
        let Totals { messages, bytes, shared, lent, .. } = owner.store.totals(queue).await.unwrap();
        (messages, bytes, shared, lent)
    };
    for at in 1..=COPIES {
        assert_eq!(numbers(&owner, queue(SLOT, at)).await, (2, 2 * BODY, 2 * BODY, 0));
    }
    assert_eq!(numbers(&owner, LENDER).await, (0, 0, 0, 2 * BODY));
    for at in 1..COPIES {
        owner.remove(queue(SLOT, at), &[copy(at, 0)]).await;
        assert_eq!(numbers(&owner, queue(SLOT, at)).await, (1, BODY, BODY, 0));
        assert_eq!(numbers(&owner, LENDER).await, (0, 0, 0, 2 * BODY));
    }
    owner.remove(queue(SLOT, COPIES), &[copy(COPIES, 0)]).await;
    assert_eq!(numbers(&owner, LENDER).await, (0, 0, 0, BODY));
    let header = claimed_again(&owner.get(queue(SLOT, 1), &[copy(1, 1)]).await[0].header);
    owner.update(queue(SLOT, 1), &[Header { state: State::NoTarget, ..header }]).await;
    assert_eq!(numbers(&owner, queue(SLOT, 1)).await, (1, BODY, BODY, 0));
    drop(owner);

    let owner = Owner::fence(&storage.open().await, SLOT, 2).await;
    assert_eq!(numbers(&owner, LENDER).await, (0, 0, 0, BODY));
    for at in 1..=COPIES {
        owner.drop_queue(queue(SLOT, at), 10).await;
    }
    assert_eq!(numbers(&owner, LENDER).await, (0, 0, 0, 0));
}

pub async fn dropped_lender_leaves_copies_and_returns_with_nothing(storage: &mut dyn Storage) {
    let mut owner = Owner::fence(&storage.open().await, SLOT, 1).await;
    owner.apply(post()).await;
    owner.drop_queue(LENDER, 10).await;
    assert_eq!(owner.store.totals(LENDER).await.unwrap(), Totals::default());
    for at in 1..=COPIES {
        assert_eq!(letters(&owner, at).await, *b"12");
        owner.remove(queue(SLOT, at), &[copy(at, 0), copy(at, 1)]).await;
    }
    assert_eq!(owner.store.totals(LENDER).await.unwrap(), Totals::default());
}

pub async fn lender_counts_its_own_messages_beside_what_it_lends(storage: &mut dyn Storage) {
    const BODY: u64 = BODY_BYTES as u64;
    let mut owner = Owner::fence(&storage.open().await, SLOT, 1).await;
    let (one, two) = (body(b'1'), body(b'2'));
    let both_count = Totals { messages: 1, bytes: BODY, shared: BODY, lent: BODY, ..Totals::default() };
    let first = appends(LENDER, &[with_body(50, one.clone())]);
    owner.apply(vec![first, copies_to(queue(SLOT, 1), &[with_body(10, one)])]).await;
    assert_eq!(owner.store.totals(LENDER).await.unwrap(), both_count);
    // The batch removes the last messages of one body, and adds those of another.
    let next = both(appends(LENDER, &[with_body(51, two.clone())]), Changes::removes(vec![id(50)]));
    let copies = copies_to(queue(SLOT, 2), &[with_body(20, two)]);
    owner.apply(vec![removes(queue(SLOT, 1), &[id(10)]), next, copies]).await;
    assert_eq!(owner.store.totals(LENDER).await.unwrap(), both_count);
    owner.remove(LENDER, &[id(51)]).await;
    let lent = Totals { lent: BODY, ..Totals::default() };
    assert_eq!(owner.store.totals(LENDER).await.unwrap(), lent);
    assert!(!owner.store.holds_any(LENDER).await.unwrap());
    owner.drop_queue(queue(SLOT, 2), 10).await;
    assert_eq!(owner.store.totals(LENDER).await.unwrap(), Totals::default());
}
