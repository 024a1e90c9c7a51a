//! Messages that are posted twice with one id of deduplication: which is the first, and what the pool keeps of it (P10).
//!
//! The note of a message is in the batch of the message, so both are durable or neither. A second post is answered once the
//! first is durable; if that failed, the second is posted after all.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;

use super::Broker;
use super::changes::Change;
use super::messages::settled;
use super::queue_store::QueueStore;
use super::slot::{OpenQueue, Slot};
use angarium_core::dedup::DedupKey;
use angarium_core::envelope::Envelope;
use angarium_core::error::{Error, InvalidPart};
use angarium_core::group::{DedupId, GroupName};
use angarium_core::ids::{MessageId, QueueId};
use angarium_core::limits;
use angarium_core::message::{Message, NewMessage};
use angarium_core::names::QueueRef;
use angarium_core::time::Timestamp;
use angarium_engine::{GroupBounds, QueueEngine, StoredTotals};
use angarium_storage::Note;

/// The kind of the notes of ids of deduplication. It is in pools and never changes.
const KIND: u8 = 1;

/// Kind and key of the note of an id.
pub(super) fn note_name(key: &DedupKey) -> (u8, Bytes) {
    (KIND, Bytes::copy_from_slice(key.as_bytes()))
}

pub(super) fn note(key: &DedupKey, id: MessageId, expires: Timestamp) -> Note {
    let (kind, key) = note_name(key);
    Note { kind, key, value: Bytes::copy_from_slice(id.as_bytes()), expires }
}

/// What a note states; none when it is not what this program writes.
pub(super) fn read_note(note: &Note) -> Option<(DedupKey, MessageId)> {
    let key = DedupKey::from_bytes(note.key[..].try_into().ok()?);
    Some((key, MessageId::from_bytes(note.value[..].try_into().ok()?)))
}

/// A message of a post whose duplicate is not durable yet.
pub(super) struct PendingDuplicate {
    /// Its place in the post.
    pub(super) place: usize,
    pub(super) message: NewMessage,
}

/// How many ids of deduplication all open queues remember: as counted in each look at the memory of ready caches, with
/// those that were posted since.
#[derive(Debug, Default)]
pub(super) struct DedupUsage(AtomicUsize);

impl DedupUsage {
    /// How many more may be remembered.
    pub(super) fn room(&self) -> usize {
        limits::DEDUP_KNOWN_ALL.saturating_sub(self.0.load(Ordering::Relaxed))
    }

    pub(super) fn add(&self, more: usize) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    pub(super) fn recount(&self, slots: &[Arc<Slot>]) {
        let of_slot = |slot: &Arc<Slot>| {
            let state = slot.state.lock();
            state.queues.values().map(|queue| queue.engine.dedup_count()).sum::<usize>()
        };
        self.0.store(slots.iter().map(of_slot).sum(), Ordering::Relaxed);
    }
}

/// A post on its way: which of its messages are new.
#[derive(Default)]
pub(super) struct DedupPost {
    /// The ids that are answered, one for each message.
    pub(super) ids: Vec<MessageId>,
    pub(super) messages: Vec<Message>,
    pub(super) notes: Vec<(DedupKey, Note)>,
    pub(super) awaited: Vec<PendingDuplicate>,
    /// Those of its messages that are new and have an id of deduplication.
    pub(super) own: HashMap<DedupKey, MessageId>,
    /// How many of those all queues have room for.
    room: usize,
}

/// Until when what is posted now is remembered.
pub(super) fn dedup_expires(now: Timestamp) -> Timestamp {
    now.plus_seconds(limits::DEDUP_SECONDS)
}

impl DedupPost {
    /// One without messages, that may bring so many ids of deduplication.
    pub(super) fn within(room: usize) -> Self {
        Self { room, ..Self::default() }
    }

    /// What is to be kept of a message that is posted now, and under which id of deduplication; none when it was posted
    /// before.
    pub(super) fn admit(
        &mut self,
        queue: &OpenQueue,
        mut new: NewMessage,
        now: Timestamp,
    ) -> Result<Option<(NewMessage, Option<DedupKey>)>, Error> {
        if !queue.engine.is_ordered() {
            return match new.dedup {
                Some(_) => Err(Error::invalid(
                    InvalidPart::Limit,
                    "dedup_id",
                    "only a queue with _fifo remembers it",
                )),
                None => Ok(Some((new, None))),
            };
        }
        let group = new.group.get_or_insert_with(GroupName::default);
        let by_content = || {
            let (_, body) = Envelope::split(new.body.clone());
            queue.attributes.has_content_dedup.then(|| DedupId::of_body(&body))
        };
        let Some(id) = new.dedup.clone().or_else(by_content) else { return Ok(Some((new, None))) };
        let scope = queue.attributes.dedup_scope;
        let key = DedupKey::of(&id, scope, group);
        if let Some(own) = self.own.get(&key) {
            self.ids.push(*own);
            return Ok(None);
        }
        // What was posted before the scope was changed is remembered as it was.
        let before = || queue.engine.first_post(DedupKey::of(&id, scope.other(), group), now);
        if let Some(duplicate) = queue.engine.first_post(key, now).or_else(before) {
            if !duplicate.is_durable {
                self.awaited.push(PendingDuplicate { place: self.ids.len(), message: new });
            }
            self.ids.push(duplicate.id);
            return Ok(None);
        }
        if self.own.len() >= queue.engine.dedup_room() {
            let what = "ids of deduplication that a queue remembers";
            return Err(Error::TooMany { what, bound: limits::DEDUP_KNOWN });
        }
        if self.own.len() >= self.room {
            let what = "ids of deduplication that all queues remember";
            return Err(Error::TooMany { what, bound: limits::DEDUP_KNOWN_ALL });
        }
        Ok(Some((new, Some(key))))
    }

    pub(super) fn add(&mut self, message: Message, key: Option<DedupKey>, now: Timestamp) {
        let id = message.header.id;
        if let Some(key) = key {
            self.notes.push((key, note(&key, id, dedup_expires(now))));
            self.own.insert(key, id);
        }
        self.ids.push(id);
        self.messages.push(message);
    }
}

impl Broker {
    /// The engine of an ordered queue, with the ids of deduplication that its pool has notes of.
    pub(super) async fn open_ordered(
        &self,
        queue: QueueId,
        found: StoredTotals,
        store: &QueueStore,
    ) -> Result<QueueEngine, Error> {
        let mut engine = QueueEngine::open_ordered(found, GroupBounds::default());
        let mut after = None;
        loop {
            let page = store.notes(queue, KIND, after, limits::NOTES_PAGE).await?;
            for (key, id, expires) in
                page.iter().filter_map(|note| read_note(note).map(|(key, id)| (key, id, note.expires)))
            {
                engine.restore_dedup(key, id, expires);
            }
            match page.last() {
                Some(last) if page.len() >= limits::NOTES_PAGE => after = Some(last.key.clone()),
                _ => return Ok(engine),
            }
        }
    }

    /// Forgets the ids of deduplication of the open queues of a slot whose time has ended.
    pub(super) fn expire_dedup(&self, slot: &Arc<Slot>) {
        let now = self.0.clock.now();
        let mut state = slot.state.lock();
        let ordered = state.queues.iter().filter(|(_, queue)| queue.engine.is_ordered());
        let names: Vec<QueueRef> = ordered.map(|(at, _)| at.clone()).collect();
        for at in names {
            while let Some(queue) = state.queues.get_mut(&at) {
                let keys = queue.engine.forget_dedup_ids(now, limits::NOTES_PAGE);
                // No caller waits for this: what stays in the pool is forgotten after the queue was opened again.
                if keys.is_empty() || self.submit(slot, &mut state, &at, Change::ForgetTwins(keys)).is_err() {
                    break;
                }
            }
        }
    }

    /// Forgets all ids of deduplication of a queue, durably. Returns whether there were any.
    pub(super) async fn forget_dedup_ids(
        &self,
        slot: &Arc<Slot>,
        at: &QueueRef,
        queue: QueueId,
    ) -> Result<bool, Error> {
        let mut outcomes = Vec::new();
        {
            let mut state = slot.state.lock();
            let Some(open) = state.queue_mut(at, queue) else { return Ok(false) };
            let keys = open.engine.forget_dedup();
            for keys in keys.chunks(limits::NOTES_PAGE) {
                outcomes.push(self.submit(slot, &mut state, at, Change::ForgetTwins(keys.to_vec()))?);
            }
        }
        let mut is_written = false;
        for outcome in outcomes {
            settled(outcome).await.map_err(|error| if is_written { error.into_unknown() } else { error })?;
            is_written = true;
        }
        Ok(is_written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_id(id: &str) -> NewMessage {
        let dedup = Some(DedupId::new(id, "dedup_id").unwrap());
        NewMessage { body: "1".into(), dedup, ..NewMessage::default() }
    }

    #[test]
    fn dedup_ids_beyond_global_bound_are_refused() {
        let found =
            StoredTotals { tail: MessageId::ZERO, has_ready: false, is_scheduled: false, has_aside: false };
        let queue = OpenQueue::of(QueueEngine::open_ordered(found, GroupBounds::default()));
        let now = Timestamp::from_millis(1);
        let known = DedupUsage::default();
        known.add(limits::DEDUP_KNOWN_ALL - 1);
        let mut posting = DedupPost::within(known.room());
        let (_, key) = posting.admit(&queue, with_id("a"), now).unwrap().unwrap();
        posting.own.insert(key.unwrap(), MessageId::ZERO);
        let refused = posting.admit(&queue, with_id("b"), now).err().unwrap();
        assert!(matches!(refused, Error::TooMany { bound: limits::DEDUP_KNOWN_ALL, .. }), "{refused:?}");
        // A duplicate needs no room, nor does a message without an id.
        assert!(posting.admit(&queue, with_id("a"), now).unwrap().is_none());
        assert!(posting.admit(&queue, NewMessage::default(), now).unwrap().is_some());
        known.add(2);
        assert_eq!(known.room(), 0);
        known.recount(&[]);
        assert_eq!(known.room(), limits::DEDUP_KNOWN_ALL);
    }
}
