//! Deduplication ids of recent posts: a duplicate is answered and not stored (P10).
//!
//! An id is remembered even after its message was removed. The pool has a note of each id, written with the message.
//! Until that note is durable, the entry here must not answer a duplicate.

use std::collections::BTreeSet;
use std::ops::Bound;

use super::queue::QueueEngine;
use angarium_core::dedup::DedupKey;
use angarium_core::ids::MessageId;
use angarium_core::limits;
use angarium_core::maps::HashMap;
use angarium_core::time::Timestamp;

/// The first post of a message, to which duplicates refer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirstPost {
    /// The id of the message, also for the answer to the duplicate.
    pub id: MessageId,
    /// Whether the message is durable, and the id is not being forgotten. If not, the outcome of that must be awaited.
    pub is_durable: bool,
}

/// A deduplication id, the message that was posted with it, and when the id is forgotten.
pub type DedupNote = (DedupKey, MessageId, Timestamp);

#[derive(Clone, Copy, Debug)]
struct DedupEntry {
    duplicate: FirstPost,
    expires: Timestamp,
    /// Removals of its note in progress, by purges. Meanwhile a duplicate of it must wait.
    removals: u32,
}

/// The deduplication ids of one queue.
#[derive(Debug, Default)]
pub(super) struct Dedup {
    known: HashMap<DedupKey, DedupEntry>,
    /// Ids by the time when each is forgotten.
    ends: BTreeSet<(Timestamp, DedupKey)>,
}

impl Dedup {
    fn forget(&mut self, key: DedupKey) {
        if let Some(known) = self.known.remove(&key) {
            self.ends.remove(&(known.expires, key));
        }
    }

    /// The durable ones after `after`, in order of their ends, without the ones that are being forgotten.
    pub(super) fn durable(&self, after: Option<(Timestamp, DedupKey)>, limit: usize) -> Vec<DedupNote> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let following = self.ends.range((from, Bound::Unbounded)).map(|(_, key)| *key);
        let note = |key: DedupKey| {
            let is_known = |known: &&DedupEntry| known.duplicate.is_durable && known.removals == 0;
            let known = self.known.get(&key).filter(is_known)?;
            Some((key, known.duplicate.id, known.expires))
        };
        following.filter_map(note).take(limit).collect()
    }

    fn put(&mut self, key: DedupKey, duplicate: FirstPost, expires: Timestamp) {
        self.forget(key);
        self.known.insert(key, DedupEntry { duplicate, expires, removals: 0 });
        self.ends.insert((expires, key));
    }
}

impl QueueEngine {
    /// The message that was posted with this id before, if the id is remembered at `now`.
    pub fn first_post(&self, key: DedupKey, now: Timestamp) -> Option<FirstPost> {
        let known = self.dedup.known.get(&key).filter(|known| now < known.expires)?;
        let FirstPost { id, is_durable } = known.duplicate;
        Some(FirstPost { id, is_durable: is_durable && known.removals == 0 })
    }

    /// Number of ids that can still be remembered.
    pub fn dedup_room(&self) -> usize {
        limits::DEDUP_KNOWN.saturating_sub(self.dedup.known.len())
    }

    /// Number of remembered ids.
    pub fn dedup_count(&self) -> usize {
        self.dedup.known.len()
    }

    /// A message with this id is being written to the pool, together with its note.
    pub fn begin_dedup(&mut self, key: DedupKey, id: MessageId, expires: Timestamp) {
        self.dedup.put(key, FirstPost { id, is_durable: false }, expires);
    }

    /// Adds a note that was read when the queue was opened.
    pub fn restore_dedup(&mut self, key: DedupKey, id: MessageId, expires: Timestamp) {
        self.dedup.put(key, FirstPost { id, is_durable: true }, expires);
    }

    /// Messages and their notes are durable. If an id has expired meanwhile and a later message in flight has it now,
    /// that entry is not durable: the outcome of the later post must be awaited.
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

    /// Forgets at most `limit` ids that have expired by `now`, and returns them. The caller removes their notes.
    pub fn expire_dedup_ids(&mut self, now: Timestamp, limit: usize) -> Vec<DedupKey> {
        let has_expired = |(expires, _): &&(Timestamp, DedupKey)| *expires <= now;
        let expired = self.dedup.ends.iter().take_while(has_expired).map(|(_, key)| *key);
        // An id whose message is being written stays: its note could be written after the removal of the note.
        let is_settled =
            |key: &DedupKey| self.dedup.known.get(key).is_some_and(|known| known.duplicate.is_durable);
        let expired: Vec<DedupKey> = expired.filter(is_settled).take(limit).collect();
        expired.iter().for_each(|key| self.dedup.forget(*key));
        expired
    }

    /// Begins to forget all durable ids, and returns them with their messages. The caller removes their notes, and reports
    /// the outcome: until then a duplicate must await it.
    pub fn begin_forget_dedup(&mut self) -> Vec<(DedupKey, MessageId)> {
        let mut ids = Vec::new();
        for (key, known) in self.dedup.known.iter_mut().filter(|(_, known)| known.duplicate.is_durable) {
            known.removals += 1;
            ids.push((*key, known.duplicate.id));
        }
        ids.sort_unstable();
        ids
    }

    /// Whether some ids are being forgotten: their notes may stay or not.
    pub fn is_forgetting_dedup(&self) -> bool {
        self.dedup.known.values().any(|known| known.removals > 0)
    }

    /// The notes of ids that were to be forgotten are removed. An id that has expired and was posted again meanwhile stays.
    pub fn dedup_forgotten(&mut self, ids: &[(DedupKey, MessageId)]) {
        for (key, id) in ids {
            if self.dedup.known.get(key).is_some_and(|known| known.duplicate.id == *id) {
                self.dedup.forget(*key);
            }
        }
    }

    /// The notes of ids that were to be forgotten were certainly not removed: the ids are known as before.
    pub fn dedup_kept(&mut self, ids: &[(DedupKey, MessageId)]) {
        for (key, id) in ids {
            if let Some(known) = self.dedup.known.get_mut(key).filter(|known| known.duplicate.id == *id) {
                known.removals = known.removals.saturating_sub(1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{GroupBounds, StoredTotals};

    /// Regression: a purge forgot the ids before their notes were removed. When that failed, a duplicate was posted.
    #[test]
    fn id_is_known_until_its_note_is_removed() {
        let tail = MessageId::ZERO;
        let found = StoredTotals { tail, has_ready: false, is_scheduled: false, has_aside: false };
        let mut engine = QueueEngine::open_ordered(found, GroupBounds::default());
        let (key, id) = (DedupKey::from_bytes([1; 16]), MessageId::from_bytes([2; 16]));
        let (now, expires) = (Timestamp::from_millis(1), Timestamp::from_millis(2));
        engine.restore_dedup(key, id, expires);
        let first = |engine: &QueueEngine| engine.first_post(key, now);
        let known = |is_durable| Some(FirstPost { id, is_durable });
        assert_eq!(engine.begin_forget_dedup(), [(key, id)]);
        assert!(first(&engine) == known(false) && engine.is_forgetting_dedup());
        engine.dedup_kept(&[(key, id)]);
        assert!(first(&engine) == known(true) && !engine.is_forgetting_dedup());
        // Of two purges one fails.
        assert_eq!(engine.begin_forget_dedup(), [(key, id)]);
        assert_eq!(engine.begin_forget_dedup(), [(key, id)]);
        engine.dedup_kept(&[(key, id)]);
        assert_eq!(first(&engine), known(false));
        engine.dedup_forgotten(&[(key, id)]);
        assert_eq!(first(&engine), None);
    }

    /// Regression: the outcome of a purge was taken for that of a later one, which had a later message with the id.
    #[test]
    fn outcome_of_purge_counts_for_its_own_message() {
        let tail = MessageId::ZERO;
        let found = StoredTotals { tail, has_ready: false, is_scheduled: false, has_aside: false };
        let key = DedupKey::from_bytes([1; 16]);
        let [old, new] = [2, 3].map(|byte| MessageId::from_bytes([byte; 16]));
        let [begin, later, end] = [1, 2, 3].map(Timestamp::from_millis);
        for is_removed in [true, false] {
            let mut engine = QueueEngine::open_ordered(found, GroupBounds::default());
            engine.restore_dedup(key, old, later);
            let first = engine.begin_forget_dedup();
            assert!(engine.first_post(key, later).is_none() && engine.first_post(key, begin).is_some());
            engine.begin_dedup(key, new, end);
            engine.dedup_posted(&[(key, new)]);
            assert_eq!(engine.begin_forget_dedup(), [(key, new)]);
            if is_removed {
                engine.dedup_forgotten(&first)
            } else {
                engine.dedup_kept(&first)
            }
            let waits = Some(FirstPost { id: new, is_durable: false });
            assert_eq!(engine.first_post(key, later), waits, "the later purge has no outcome");
        }
    }
}
