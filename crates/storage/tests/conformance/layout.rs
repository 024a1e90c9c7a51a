//! The stored bytes of an embedded pool. This test reads and writes the journal, unlike most others here.

use std::sync::Arc;

use bytes::Bytes;

use angarium_clock::Clock;
use angarium_core::ids::QueueId;
use angarium_core::message::{Message, State};
use angarium_journal::{Journal, Space};
use angarium_storage::embedded::EmbeddedPool;
use angarium_storage::{Changes, Due, Note, Order, PoolStore, Totals};

use crate::groups::of_group;
use angarium_testbed::owner::{
    Owner, all_extras, appends, both, claimed_again, id, ids, in_state, message, scheduled, settled, start,
    with_extras,
};

const QUEUE: QueueId = QueueId::from_bytes([5; 16]);

/// The spaces of a pool.
const SPACES: [Space; 13] = [
    Space::Records,
    Space::Totals,
    Space::Entries,
    Space::Aside,
    Space::Headers,
    Space::Schedule,
    Space::Buckets,
    Space::Notes,
    Space::Groups,
    Space::Kept,
    Space::Settled,
    Space::Bodies,
    Space::Readers,
];

struct Pool {
    journal: Journal,
    store: Arc<dyn PoolStore>,
    _data: tempfile::TempDir,
}

impl Pool {
    fn new() -> Self {
        let data = tempfile::tempdir().unwrap();
        let journal = Journal::open(&data.path().join("journal"), &Clock::manual(0)).unwrap();
        let store = Arc::new(EmbeddedPool::new(journal.clone()));
        Self { journal, store, _data: data }
    }

    async fn owner(&self) -> Owner {
        Owner::fence(&self.store, QUEUE.slot(), 1).await
    }

    /// All keys and values: space, key and value in hexadecimal.
    fn stored(&self) -> Vec<String> {
        let view = self.journal.view().unwrap();
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let mut found = Vec::new();
        for space in SPACES {
            let pairs = view.scan(space, &[], &[]).map(Result::unwrap);
            found.extend(pairs.map(|(key, value)| format!("{} {} {}", space.name(), hex(&key), hex(&value))));
        }
        found
    }

    fn count(&self, space: Space) -> usize {
        self.journal.view().unwrap().scan(space, &[], &[]).count()
    }
}

/// Entries in the states that the first version knows.
fn entries() -> [Message; 3] {
    let failed = in_state(message(3, "3"), State::NoTarget);
    [message(1, "1"), of_group(scheduled(message(2, "2"), 9), "g"), failed]
}

/// A pool with these entries, of which the first was claimed again, and a note.
async fn filled() -> (Pool, Owner) {
    let pool = Pool::new();
    let mut owner = pool.owner().await;
    owner.apply(vec![both(appends(QUEUE, &entries()), Changes::notes(vec![note()]))]).await;
    owner.update(QUEUE, &[claimed_again(&entries()[0].header)]).await;
    (pool, owner)
}

fn note() -> Note {
    Note { kind: 1, key: "a".into(), value: "b".into(), expires: start() }
}

fn bytes(hex: &str) -> Bytes {
    let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    (0..hex.len()).step_by(2).map(byte).collect()
}

#[tokio::test]
async fn stored_bytes_without_kept_entries_never_change() {
    let (pool, _) = filled().await;
    assert_eq!(pool.stored(), STORED, "{}", pool.stored().join("\n"));
}

#[tokio::test]
async fn database_of_the_first_version_is_used() {
    let pool = Pool::new();
    let write = pool.journal.commit(|txn| {
        for line in STORED {
            let parts: Vec<&str> = line.split(' ').collect();
            let space = SPACES.into_iter().find(|space| space.name() == parts[0]).unwrap();
            txn.put(space, bytes(parts[1]), bytes(parts[2]));
        }
    });
    write.await.unwrap();
    let (mut owner, mut expected) = (pool.owner().await, entries());
    expected[0].header = claimed_again(&expected[0].header);
    assert_eq!(owner.get(QUEUE, &[1, 2, 3].map(id)).await, expected);
    let totals = Totals { messages: 3, bytes: 3, scheduled: 1, in_transfer: 1, kept: 0, ..Totals::default() };
    assert_eq!(pool.store.totals(QUEUE).await.unwrap(), totals);
    assert_eq!(owner.in_order(QUEUE, Order::Kept).await, []);
    assert_eq!(pool.store.notes(QUEUE, 1, None, 9).await.unwrap(), [note()]);
    // Its entries become kept, and are found by the buckets of their new lives.
    let kept = expected.clone().map(|message| settled(message, State::Done, 60));
    owner.update(QUEUE, &kept.clone().map(|message| message.header)).await;
    assert_eq!(owner.in_order(QUEUE, Order::Kept).await, [1, 2, 3].map(id));
    let totals = Totals { messages: 3, bytes: 3, kept: 3, ..Totals::default() };
    assert_eq!(pool.store.totals(QUEUE).await.unwrap(), totals);
    assert_eq!(owner.due(Due::Expiry, start().plus_seconds(100_000)).await.len(), 3);
    owner.drop_queue(QUEUE, 2).await;
    let left: Vec<String> = pool.stored().into_iter().filter(|line| !line.starts_with("buckets")).collect();
    assert!(left.iter().all(|line| line.starts_with("records")), "{left:?}");
}

#[tokio::test]
async fn kept_entry_has_its_keys_apart() {
    let (pool, mut owner) = filled().await;
    let before = pool.stored();
    let spaces = [Space::Entries, Space::Aside, Space::Headers, Space::Schedule, Space::Groups];
    let count =
        || (spaces.map(|space| pool.count(space)), [Space::Kept, Space::Settled].map(|s| pool.count(s)));
    assert_eq!(count(), ([1, 2, 1, 1, 1], [0, 0]));
    let kept = entries().map(|message| settled(with_extras(message, all_extras()), State::Failed, 60));
    owner.update(QUEUE, &kept.clone().map(|message| message.header)).await;
    assert_eq!(count(), ([0, 0, 0, 0, 0], [3, 3]));
    // A second change of a kept entry is a changed header, and at most another place.
    let later = [settled(kept[0].clone(), State::Done, 70), kept[1].clone()];
    owner.update(QUEUE, &later.map(|message| claimed_again(&message.header))).await;
    assert_eq!(count(), ([0, 0, 2, 0, 0], [3, 3]));
    owner.update(QUEUE, &entries().map(|message| message.header)).await;
    owner.update(QUEUE, &[claimed_again(&entries()[0].header)]).await;
    assert_eq!(count(), ([1, 2, 1, 1, 1], [0, 0]));
    // All is as it was, but for the number of the batch and the buckets.
    let stays = |line: &&String| !line.starts_with("records") && !line.starts_with("buckets");
    let after = pool.stored();
    assert!(after.iter().filter(stays).eq(before.iter().filter(stays)), "{}", after.join("\n"));
}

#[tokio::test]
async fn emptied_buckets_of_kept_entries_are_removed() {
    let pool = Pool::new();
    let mut owner = pool.owner().await;
    let kept = |rank: u64| settled(message(rank, "1"), State::Done, u32::try_from(1_000 - rank).unwrap());
    let all: Vec<Message> = (1..=900).map(kept).collect();
    owner.append(QUEUE, &all).await;
    // The ttl is an hour, so spans have 64 seconds.
    assert!((15..=16).contains(&pool.count(Space::Buckets)), "{}", pool.count(Space::Buckets));
    owner.remove(QUEUE, &ids(&all[1..])).await;
    let due = owner.due(Due::Expiry, start().plus_seconds(100_000)).await;
    assert_eq!((due, pool.count(Space::Buckets)), (vec![id(1)], 1));
    owner.remove(QUEUE, &[id(1)]).await;
    assert_eq!(owner.due(Due::Expiry, start().plus_seconds(100_000)).await, []);
    assert_eq!(pool.count(Space::Buckets), 0);
}

/// What [`filled`] stores: space, key, value.
const STORED: [&str; 12] = [
    "records 05 000000010000000000000001000000000000000200000000000000030000000000000009",
    "totals 05050505050505050505050505050505 \
     000000000000000300000000000000030000000000000001000000000000000100000000000000000000000000000000",
    "entries 0505050505050505050505050505050500000000000000010000000000000009 \
     02000000018bcfe568010000018bcfe568010000018bd01c568100000e10000000000000000100000000000000000000\
     00000000000031",
    "aside 0505050505050505050505050505050500000000000000020000000000000009 \
     03010000018bcfe568020000018bcfe58b280000018bd01c79a800000e10000000000000000100000000000000000000\
     0000000000030000000000000000016732",
    "aside 0505050505050505050505050505050500000000000000030000000000000009 \
     02040000018bcfe568030000018bcfe568030000018bd01c568300000e10000000000000000100000000000000000000\
     00000000000033",
    "headers 0505050505050505050505050505050500000000000000010000000000000009 \
     02000000018bcfe568010000018bcfe568010000018bd01d40e100000e4c000000010000000100000000000000000000\
     000000000000",
    "schedule 050505050505050505050505050505050000018bcfe58b2800000000000000020000000000000009 ",
    "buckets 05000000018bcfe5a6800505050505050505050505050505050500000000 \
     000000000000000200000000000000090000000000000002000000000000000900000000",
    "buckets 05010000018bd01d12000505050505050505050505050505050500000e10 \
     000000000000000100000000000000090000000000000003000000000000000900000000",
    "buckets 05010000018bd01e0c000505050505050505050505050505050500000e4c \
     000000000000000100000000000000090000000000000001000000000000000900000000",
    "notes 050505050505050505050505050505050161 0000018bcfe5680062",
    "groups 05050505050505050505050505050505670000000000000000020000000000000009 ",
];
