//! Which messages were posted with an id of deduplication lately, so that the same again is answered and not kept
//! (P10).
//!
//! It holds whether the message is still there or not. The pool has a note of each, written with the message; an entry
//! here whose note is not durable yet answers no caller.

use std::collections::{BTreeSet, HashMap};
use std::ops::Bound;

use super::queue::QueueEngine;
use angarium_core::dedup::DedupKey;
use angarium_core::ids::MessageId;
use angarium_core::limits;
use angarium_core::time::Timestamp;

/// A message that was posted before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirstPost {
    /// The answer to the duplicate names it too.
    pub id: MessageId,
    /// Whether it is durable. If not, what becomes of it must be awaited.
    pub is_durable: bool,
}

/// An id of deduplication, the message that was posted with it, and when it is forgotten.
pub type DedupNote = (DedupKey, MessageId, Timestamp);

#[derive(Clone, Copy, Debug)]
struct DedupEntry {
    duplicate: FirstPost,
    expires: Timestamp,
}

/// What is known of the ids of one queue.
#[derive(Debug, Default)]
pub(super) struct Dedup {
    known: HashMap<DedupKey, DedupEntry>,
    /// By the time when each is forgotten.
    ends: BTreeSet<(Timestamp, DedupKey)>,
}

impl Dedup {
    fn forget(&mut self, key: DedupKey) {
        if let Some(known) = self.known.remove(&key) {
            self.ends.remove(&(known.expires, key));
        }
    }

    /// The durable ones behind `after`, in the order of their ends.
    pub(super) fn durable(&self, after: Option<(Timestamp, DedupKey)>, limit: usize) -> Vec<DedupNote> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let behind = self.ends.range((from, Bound::Unbounded)).map(|(_, key)| *key);
        let note = |key: DedupKey| {
            let known = self.known.get(&key).filter(|known| known.duplicate.is_durable)?;
            Some((key, known.duplicate.id, known.expires))
        };
        behind.filter_map(note).take(limit).collect()
    }

    fn put(&mut self, key: DedupKey, duplicate: FirstPost, expires: Timestamp) {
        self.forget(key);
        self.known.insert(key, DedupEntry { duplicate, expires });
        self.ends.insert((expires, key));
    }
}

impl QueueEngine {
    /// The message that was posted with this id before, and is not forgotten by `now`.
    pub fn first_post(&self, key: DedupKey, now: Timestamp) -> Option<FirstPost> {
        self.dedup.known.get(&key).filter(|known| now < known.expires).map(|known| known.duplicate)
    }

    /// How many ids more can be remembered.
    pub fn dedup_room(&self) -> usize {
        limits::DEDUP_KNOWN.saturating_sub(self.dedup.known.len())
    }

    /// How many ids are remembered.
    pub fn dedup_count(&self) -> usize {
        self.dedup.known.len()
    }

    /// A message with this id is on its way to the pool, with its note.
    pub fn begin_dedup(&mut self, key: DedupKey, id: MessageId, expires: Timestamp) {
        self.dedup.put(key, FirstPost { id, is_durable: false }, expires);
    }

    /// A note that was found when the queue was opened.
    pub fn restore_dedup(&mut self, key: DedupKey, id: MessageId, expires: Timestamp) {
        self.dedup.put(key, FirstPost { id, is_durable: true }, expires);
    }

    /// Messages are durable, and with them their notes. An id that had ended meanwhile, and that another message on its
    /// way has, is not: what becomes of that must be awaited.
    pub fn dedup_posted(&mut self, posted: &[(DedupKey, MessageId)]) {
        for (key, id) in posted {
            if let Some(known) = self.dedup.known.get_mut(key).filter(|known| known.duplicate.id == *id) {
                known.duplicate.is_durable = true;
            }
        }
    }

    /// Messages were certainly not posted.
    pub fn dedup_failed(&mut self, failed: &[(DedupKey, MessageId)]) {
        for (key, id) in failed {
            let is_failed = self.dedup.known.get(key).is_some_and(|known| known.duplicate.id == *id);
            if is_failed {
                self.dedup.forget(*key);
            }
        }
    }

    /// Forgets what has ended by `now`, at most `limit` of it. Their notes are to be removed.
    pub fn forget_dedup_ids(&mut self, now: Timestamp, limit: usize) -> Vec<DedupKey> {
        let is_over = |(expires, _): &&(Timestamp, DedupKey)| *expires <= now;
        let over = self.dedup.ends.iter().take_while(is_over).map(|(_, key)| *key);
        // What is on its way to the pool is left for later: its note could come after its removal.
        let is_settled =
            |key: &DedupKey| self.dedup.known.get(key).is_some_and(|known| known.duplicate.is_durable);
        let over: Vec<DedupKey> = over.filter(is_settled).take(limit).collect();
        over.iter().for_each(|key| self.dedup.forget(*key));
        over
    }

    /// Forgets all that is durable. The notes are to be removed.
    pub fn forget_dedup(&mut self) -> Vec<DedupKey> {
        let is_durable = |(key, known): (&DedupKey, &DedupEntry)| known.duplicate.is_durable.then_some(*key);
        let mut keys: Vec<DedupKey> = self.dedup.known.iter().filter_map(is_durable).collect();
        keys.sort_unstable();
        keys.iter().for_each(|key| self.dedup.forget(*key));
        keys
    }
}
