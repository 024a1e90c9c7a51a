//! Audit of a pool: reads all messages and counts them, to report unreadable data and wrong totals. Changes nothing.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use super::stored::{self, BodyReaders, QueueTotals};
use super::{batch, bodies, entries, failed, scan};
use crate::{StoreError, Totals};
use angarium_core::ids::{MessageId, QueueId};
use angarium_core::message::State;
use angarium_journal::{Space, View};

/// Findings about all queues.
#[derive(Debug, Default)]
pub struct Audit {
    /// Each queue that has any key, in order of its id.
    pub queues: Vec<AuditedQueue>,
    /// Number of bodies that several messages have, or had.
    pub shared_bodies: u64,
    /// Reasons why queues may be missing here.
    pub unlisted: Vec<String>,
}

/// Findings about one queue.
#[derive(Debug)]
pub struct AuditedQueue {
    /// The id of the queue.
    pub queue: QueueId,
    /// Its stored totals; none when they cannot be read.
    pub stored: Option<Totals>,
    /// The counted totals, of the entries that can be read.
    pub counted: Totals,
    /// Reasons why some of its data cannot be read.
    pub unreadable: Vec<String>,
}

impl AuditedQueue {
    /// Whether all its data can be read, and its totals are correct.
    pub fn is_whole(&self) -> bool {
        self.unreadable.is_empty() && self.stored == Some(self.counted)
    }
}

/// The spaces whose keys begin with a queue id.
const SPACES: [Space; 9] = [
    Space::Totals,
    Space::Entries,
    Space::Aside,
    Space::Kept,
    Space::Headers,
    Space::Schedule,
    Space::Settled,
    Space::Groups,
    Space::Notes,
];

/// Reads all queues of the pool in `view`. The time grows with the stored data; the memory is that of one message.
pub fn audit(view: &View) -> Audit {
    let mut audit = Audit::default();
    let mut queues = BTreeSet::new();
    for space in SPACES {
        if let Err(error) = list(view, space, &mut queues) {
            audit.unlisted.push(format!("queues of key space {} are not all known: {error}", space.name()));
        }
    }
    for space in [Space::Tree, Space::Records, Space::Stamps, Space::Buckets, Space::Bodies, Space::Readers] {
        let keys = read(view, space, &[]);
        if let (Space::Bodies, Ok(keys)) = (space, &keys) {
            audit.shared_bodies = *keys;
        }
        if let Err(error) = keys {
            audit.unlisted.push(format!("key space {} cannot be read: {error}", space.name()));
        }
    }
    let lent = lent(view).unwrap_or_else(|error| {
        audit.unlisted.push(format!("lenders of bodies are not all known: {error}"));
        BTreeMap::new()
    });
    let audited = |queue| audit_queue(view, QueueId::from_bytes(queue), &lent);
    audit.queues = queues.into_iter().map(audited).collect();
    audit
}

/// Adds the queues that have a key in `space`, at the cost of one seek for each.
fn list(view: &View, space: Space, queues: &mut BTreeSet<[u8; 16]>) -> Result<(), StoreError> {
    let mut from = Vec::new();
    while let Some(pair) = view.scan(space, &[], &from).next() {
        let (key, _) = pair.map_err(failed)?;
        let queue = key.first_chunk().copied().ok_or_else(|| stored::damaged("the key of a queue"))?;
        queues.insert(queue);
        match u128::from_be_bytes(queue).checked_add(1) {
            Some(next) => from = next.to_be_bytes().to_vec(),
            None => break,
        }
    }
    Ok(())
}

/// Reads all keys with `prefix`. Returns their number.
fn read(view: &View, space: Space, prefix: &[u8]) -> Result<u64, StoreError> {
    let mut keys = 0;
    for pair in view.scan(space, prefix, prefix) {
        pair.map_err(failed)?;
        keys += 1;
    }
    Ok(keys)
}

/// Sums the bytes of the shared bodies of each lender.
fn lent(view: &View) -> Result<BTreeMap<QueueId, u64>, StoreError> {
    let mut lent: BTreeMap<QueueId, u64> = BTreeMap::new();
    for pair in view.scan(Space::Readers, &[], &[]) {
        let (_, value) = pair.map_err(failed)?;
        let BodyReaders { lender, bytes, .. } = BodyReaders::decode(&value)?;
        *lent.entry(lender).or_default() += u64::from(bytes);
    }
    Ok(lent)
}

fn audit_queue(view: &View, queue: QueueId, lent: &BTreeMap<QueueId, u64>) -> AuditedQueue {
    let mut found = AuditedQueue { queue, stored: None, counted: Totals::default(), unreadable: Vec::new() };
    match view.get(Space::Totals, queue.as_bytes()).map_err(failed) {
        Ok(value) => match QueueTotals::decode(value.as_ref()) {
            Ok(totals) => found.stored = Some(totals.totals),
            Err(error) => found.unreadable.push(error.to_string()),
        },
        Err(error) => found.unreadable.push(error.to_string()),
    }
    for space in [Space::Entries, Space::Aside, Space::Kept] {
        if let Err(error) = count(view, space, queue, &mut found.counted) {
            found.unreadable.push(error.to_string());
        }
    }
    for space in [Space::Headers, Space::Schedule, Space::Settled, Space::Groups, Space::Notes] {
        if let Err(error) = read(view, space, queue.as_bytes()) {
            found.unreadable.push(error.to_string());
        }
    }
    found.counted.lent = lent.get(&queue).copied().unwrap_or_default();
    found
}

fn count(view: &View, space: Space, queue: QueueId, totals: &mut Totals) -> Result<(), StoreError> {
    let from: Bytes = stored::entry_key(queue, MessageId::ZERO);
    for pair in view.scan(space, queue.as_bytes(), &from) {
        let (key, value) = pair.map_err(failed)?;
        let stored = entries::decode_entry(stored::entry_id(&key)?, &value)?;
        let state = match space {
            Space::Entries => State::Ready,
            _ => scan::header(view, queue, &stored)?.state,
        };
        if let Some(place) = stored.body.shared() {
            totals.shared += u64::from(place.bytes);
            bodies::read(view, place)?.ok_or_else(|| stored::damaged("the body that messages share"))?;
        }
        batch::count(totals, &state, stored.body.bytes());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::entries::StoredBody;
    use super::*;
    use angarium_clock::Clock;
    use angarium_core::message::{Header, Life};
    use angarium_core::time::Timestamp;
    use angarium_journal::Journal;

    fn queue(number: u8) -> QueueId {
        QueueId::from_bytes([number; 16])
    }

    fn entry(number: u8, state: State, body: &[u8]) -> (Bytes, Bytes) {
        let id = MessageId::from_bytes([number; 16]);
        let header = Header {
            id,
            created: Timestamp::from_millis(1),
            ready: Timestamp::from_millis(1),
            life: Life::Own { ttl: 60, expires: Timestamp::from_millis(60_001) },
            attempts: 0,
            client: None,
            size: 2,
            state,
            group: None,
            first_claimed: None,
            extras: None,
        };
        let body = StoredBody::Own(Bytes::copy_from_slice(body));
        (stored::entry_key(queue(number), id), entries::encode_entry(&header, &body))
    }

    fn totals(messages: u64, bytes: u64) -> Bytes {
        let totals = Totals { messages, bytes, ..Totals::default() };
        QueueTotals { totals, low: MessageId::ZERO }.encode()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn wrong_totals_and_unreadable_messages_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let journal = Journal::open(dir.path(), &Clock::manual(1_000)).unwrap();
        let write = journal.commit(|txn| {
            for number in 1..=4 {
                let (key, value) = entry(number, State::Ready, b"{}");
                txn.put(Space::Entries, key, value);
            }
            for (number, value) in [(1, totals(1, 2)), (2, totals(2, 2)), (4, totals(1, 2))] {
                txn.put(Space::Totals, Bytes::copy_from_slice(queue(number).as_bytes()), value);
            }
            let (key, value) = entry(4, State::Ready, b"{}");
            txn.put(Space::Entries, key, value.slice(..10));
        });
        write.await.unwrap();
        let found = audit(&journal.view().unwrap());
        assert!(found.unlisted.is_empty(), "{:?}", found.unlisted);
        let whole: Vec<_> = found.queues.iter().map(|found| (found.queue, found.is_whole())).collect();
        // The third queue has no totals, and the fourth has a truncated entry.
        assert_eq!(whole, [(queue(1), true), (queue(2), false), (queue(3), false), (queue(4), false)]);
        assert_eq!(found.queues[1].counted.messages, 1);
        assert_eq!(found.queues[3].unreadable.len(), 1);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn kept_messages_are_counted_by_themselves() {
        let dir = tempfile::tempdir().unwrap();
        let journal = Journal::open(dir.path(), &Clock::manual(1_000)).unwrap();
        let write = journal.commit(|txn| {
            for number in 1..=2 {
                let (key, value) = entry(number, State::Done, b"{}");
                txn.put(Space::Kept, key, value);
                let totals =
                    Totals { messages: 1, bytes: 2, kept: 2 - u64::from(number), ..Totals::default() };
                let value = QueueTotals { totals, low: MessageId::ZERO }.encode();
                txn.put(Space::Totals, Bytes::copy_from_slice(queue(number).as_bytes()), value);
            }
        });
        write.await.unwrap();
        let found = audit(&journal.view().unwrap());
        let whole: Vec<_> = found.queues.iter().map(AuditedQueue::is_whole).collect();
        // The second queue has totals without its kept message.
        assert_eq!(whole, [true, false]);
        assert_eq!(found.queues[1].counted.kept, 1);
    }
}
