//! What only the embedded pool does: it stores a body that messages share once.

use std::sync::Arc;

use bytes::Bytes;

use angarium_clock::Clock;
use angarium_core::group::GroupName;
use angarium_core::message::State;
use angarium_journal::{Journal, Space};
use angarium_storage::embedded::{EmbeddedPool, audit};
use angarium_storage::{Changes, Order, PoolStore, RemoveHint};

use crate::groups::of_group;
use crate::shared::{COPIES, copy, letters, post, post_apart, post_unlike};
use angarium_testbed::owner::{Owner, SLOT, changes, id, queue, settled};

/// An embedded pool with its journal.
struct Embedded {
    _dir: tempfile::TempDir,
    journal: Journal,
    store: Arc<dyn PoolStore>,
}

impl Embedded {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let journal = Journal::open(dir.path(), &Clock::manual(1_000)).unwrap();
        let store = Arc::new(EmbeddedPool::new(journal.clone()));
        Self { _dir: dir, journal, store }
    }

    /// The bodies that are stored beside their messages.
    fn bodies(&self) -> u64 {
        let found = audit(&self.journal.view().unwrap());
        let wrong: Vec<_> = found.queues.iter().filter(|queue| !queue.is_whole()).collect();
        assert!(wrong.is_empty() && found.unlisted.is_empty(), "{wrong:?} {:?}", found.unlisted);
        found.shared_bodies
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn embedded_pool_stores_a_shared_body_once() {
    let embedded = Embedded::new();
    let mut owner = Owner::fence(&embedded.store, SLOT, 1).await;
    owner.apply(post()).await;
    assert_eq!(embedded.bodies(), 2);
    let sent = owner.all(queue(SLOT, 1)).await;
    let grouped = of_group(settled(sent[0].clone(), State::Done, 30), "a");
    owner.update(queue(SLOT, 1), &[grouped.header]).await;
    // As the owner of ready entries removes them.
    for at in 2..=COPIES {
        let known = owner.all(queue(SLOT, at)).await;
        let remove_hints = known.iter().map(|message| RemoveHint::of(&message.header)).collect();
        let gone = Changes { remove_hints, ..Changes::removes(vec![copy(at, 0), copy(at, 1)]) };
        assert_eq!(embedded.bodies(), 2);
        owner.apply(vec![changes(queue(SLOT, at), gone)]).await;
    }
    owner.remove(queue(SLOT, 1), &[copy(1, 1)]).await;
    assert_eq!(embedded.bodies(), 1);
    assert_eq!(letters(&owner, 1).await, *b"1");
    assert_eq!(owner.in_order(queue(SLOT, 1), Order::Kept).await.len(), 1);
    owner.drop_queue(queue(SLOT, 1), 10).await;
    assert_eq!(embedded.bodies(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn embedded_pool_shares_no_body_without_need() {
    let embedded = Embedded::new();
    let mut owner = Owner::fence(&embedded.store, SLOT, 1).await;
    owner.apply(post_apart()).await;
    owner.apply(post_unlike()).await;
    assert_eq!(embedded.bodies(), 0);
}

/// As after damage of the store that an operator has accepted.
#[tokio::test(flavor = "multi_thread")]
async fn lost_body_takes_its_messages_and_no_others() {
    let embedded = Embedded::new();
    let mut owner = Owner::fence(&embedded.store, SLOT, 1).await;
    let batch = post().into_iter().map(|mut queue| {
        for message in &mut queue.changes.appends {
            *message = of_group(message.clone(), "a");
        }
        queue
    });
    owner.apply(batch.collect()).await;
    let view = embedded.journal.view().unwrap();
    let keys: Vec<Bytes> = view.scan(Space::Bodies, &[], &[]).map(|pair| pair.unwrap().0).collect();
    let lost =
        keys.into_iter().find(|key| view.get(Space::Bodies, key).unwrap().unwrap()[0] == b'1').unwrap();
    embedded.journal.commit(move |txn| txn.remove(Space::Bodies, lost)).await.unwrap();
    let (at, group) = (queue(SLOT, 1), GroupName::new("a", "group").unwrap());
    assert_eq!(letters(&owner, 1).await, *b"2");
    assert_eq!(owner.all(at).await.len(), 1);
    let page = owner.store.group(at, &group, None, 10, usize::MAX).await.unwrap();
    assert_eq!(page.messages.len(), 1);
    let heads = owner.store.groups(at, None, 10).await.unwrap();
    assert_eq!(heads[0].message.header.id, copy(1, 1));
    let found = audit(&embedded.journal.view().unwrap());
    assert!(found.queues.iter().any(|queue| !queue.unreadable.is_empty()));
    for at in 1..=COPIES {
        owner.remove(queue(SLOT, at), &[copy(at, 0), copy(at, 1)]).await;
    }
    assert_eq!(embedded.bodies(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_drop_takes_no_body_of_other_queues() {
    let embedded = Embedded::new();
    let mut owner = Owner::fence(&embedded.store, SLOT, 1).await;
    for round in 0..50 {
        let mut batch = post();
        for (at, queue) in (1..).zip(&mut batch) {
            for (number, message) in (0..).zip(&mut queue.changes.appends) {
                message.header.id = id(round * 100 + at * 10 + number);
            }
        }
        owner.apply(batch).await;
        let part = || owner.store.drop_queue(SLOT, owner.epoch, queue(SLOT, 1), 10);
        let _ = tokio::join!(part(), part(), part());
        for at in 2..=COPIES {
            assert_eq!(owner.all(queue(SLOT, at)).await.len(), 2, "round {round}");
        }
        for at in 1..=COPIES {
            owner.drop_queue(queue(SLOT, at), 10).await;
        }
        assert_eq!(embedded.bodies(), 0, "round {round}");
    }
}
