//! Deduplication of posts by id: which message is the first, and the note that the pool keeps of it (P10).
//!
//! The note of a message is in the batch of the message, so both are durable or neither. A duplicate is answered once
//! the first post is durable; if the first post failed, the duplicate is posted. While a purge removes the note, a
//! duplicate waits as well.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use angarium_core::dedup::DedupKey;
use angarium_core::envelope::Envelope;
use angarium_core::error::{Error, InvalidPart};
use angarium_core::group::{DedupId, GroupName};
use angarium_core::ids::MessageId;
use angarium_core::limits as core_limits;
use angarium_core::maps::HashMap;
use angarium_core::message::{Message, NewMessage};
use angarium_core::mutation::{Mutation, is_on};
use angarium_core::names::QueueRef;
use angarium_core::time::Timestamp;
use angarium_storage::Note;

use crate::limits;
use crate::slot::queue_handle::QueueHandle;
use crate::slot::state::{OpenQueue, Slot};
use crate::writer::change::Change;
use crate::writer::notes::dedup_note;
use crate::writer::pending::{WriteOutcome, settled};

/// A message of a post that duplicates a message which is not durable yet or is being forgotten, or that follows such a
/// message in its group.
pub(crate) struct PendingDuplicate {
    /// Its index in the post.
    pub(crate) index: usize,
    pub(crate) message: NewMessage,
}

/// Number of deduplication ids that all open queues remember. The check of the ready caches' memory counts them; posts
/// since then are added.
#[derive(Debug, Default)]
pub(crate) struct DedupUsage(AtomicUsize);

impl DedupUsage {
    /// How many more ids may be remembered.
    pub(crate) fn room(&self) -> usize {
        core_limits::DEDUP_KNOWN_ALL.saturating_sub(self.0.load(Ordering::Relaxed))
    }

    pub(crate) fn add(&self, more: usize) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    pub(crate) fn recount(&self, slots: &[Arc<Slot>]) {
        let of_slot = |slot: &Arc<Slot>| {
            let state = slot.lock();
            state.queues.values().map(|queue| queue.engine.dedup_count()).sum::<usize>()
        };
        self.0.store(slots.iter().map(of_slot).sum(), Ordering::Relaxed);
    }
}

/// A post that has begun, with those of its messages that are new.
#[derive(Default)]
pub(crate) struct DedupPost {
    /// Ids for the response, one for each message.
    pub(crate) ids: Vec<MessageId>,
    pub(crate) messages: Vec<Message>,
    pub(crate) notes: Vec<Note>,
    pub(crate) awaited: Vec<PendingDuplicate>,
    /// The new messages that have a deduplication id.
    pub(crate) own: HashMap<DedupKey, MessageId>,
    /// Max length of `own`, for the bound of all queues together.
    pub(crate) room: usize,
}

/// When a deduplication id that is posted now expires.
pub(crate) fn dedup_expires(now: Timestamp) -> Timestamp {
    let parts = if is_on(Mutation::ForgetDedupEarly) { 10 } else { 1 };
    now.plus_seconds(core_limits::DEDUP_SECONDS / parts)
}

impl DedupPost {
    /// A post without messages, with room for this many deduplication ids.
    pub(crate) fn within(room: usize) -> Self {
        Self { room, ..Self::default() }
    }

    /// Returns a new message with its deduplication key, if it has one; none when the message is a duplicate.
    pub(crate) fn admit(
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
        if self.awaited.iter().any(|awaited| awaited.message.group.as_ref() == Some(group)) {
            // The one before it may have to be posted, and this one after it.
            self.awaited.push(PendingDuplicate { index: self.ids.len(), message: new });
            self.ids.push(MessageId::ZERO);
            return Ok(None);
        }
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
        // Keys from before a change of the scope are in the other scope.
        let before = || queue.engine.first_post(DedupKey::of(&id, scope.other(), group), now);
        if let Some(duplicate) = queue.engine.first_post(key, now).or_else(before) {
            if !duplicate.is_durable && !is_on(Mutation::AnswerDuplicateInDoubt) {
                self.awaited.push(PendingDuplicate { index: self.ids.len(), message: new });
            }
            self.ids.push(duplicate.id);
            return Ok(None);
        }
        if self.own.len() >= queue.engine.dedup_room() {
            let what = "ids of deduplication that a queue remembers";
            return Err(Error::TooMany { what, bound: core_limits::DEDUP_KNOWN });
        }
        if self.own.len() >= self.room {
            let what = "ids of deduplication that all queues remember";
            return Err(Error::TooMany { what, bound: core_limits::DEDUP_KNOWN_ALL });
        }
        Ok(Some((new, Some(key))))
    }

    pub(crate) fn add(&mut self, message: Message, key: Option<DedupKey>, now: Timestamp) {
        let id = message.header.id;
        if let Some(key) = key {
            let at_once = is_on(Mutation::ExpireDedupNoteAtOnce);
            self.notes.push(dedup_note(&key, id, if at_once { now } else { dedup_expires(now) }));
            self.own.insert(key, id);
        }
        self.ids.push(id);
        self.messages.push(message);
    }
}

/// Deduplication ids whose notes are being removed.
struct ForgottenPage {
    ids: Vec<(DedupKey, MessageId)>,
    /// The removal, if it was begun.
    submitted: Result<WriteOutcome, Error>,
}

impl Slot {
    /// Forgets the expired deduplication ids of the open queues.
    pub(crate) fn expire_dedup(self: &Arc<Self>) {
        let now = self.around.replica.clock.now();
        let mut state = self.lock();
        let ordered = state.queues.iter().filter(|(_, queue)| queue.engine.is_ordered());
        let names: Vec<QueueRef> = ordered.map(|(at, _)| at.clone()).collect();
        for at in names {
            while let Some(queue) = state.queues.get_mut(&at) {
                let keys = queue.engine.expire_dedup_ids(now, limits::notes_page());
                // No caller waits for the outcome: ids that stay in the pool are forgotten after the queue is opened
                // again.
                if keys.is_empty() || state.submit(&at, Change::forget_dedup(&keys)).is_err() {
                    break;
                }
            }
        }
    }
}

impl QueueHandle {
    /// Forgets all deduplication ids of the queue, durably. Returns whether there were any. Posts with such an id wait for
    /// the outcome, and an id whose note is not removed is known as before.
    pub(crate) async fn forget_dedup_ids(&self) -> Result<bool, Error> {
        let (mut is_written, mut failure) = (false, None);
        for ForgottenPage { ids, submitted } in self.begin_forget_dedup()? {
            let outcome = match submitted {
                Ok(outcome) => settled(outcome).await,
                Err(error) => Err(error),
            };
            match outcome {
                Ok(()) => {
                    self.decide(|engine| engine.dedup_forgotten(&ids));
                    is_written = true;
                }
                Err(error) => {
                    // After an unknown outcome the slot is recovered.
                    if error.nothing_written() {
                        self.decide(|engine| engine.dedup_kept(&ids));
                    }
                    failure.get_or_insert(error);
                }
            }
        }
        match failure {
            Some(error) if is_written => Err(error.into_unknown()),
            Some(error) => Err(error),
            None => Ok(is_written),
        }
    }

    fn begin_forget_dedup(&self) -> Result<Vec<ForgottenPage>, Error> {
        let mut state = self.slot.lock();
        let open = state.queue_mut(&self.at, self.id).ok_or_else(|| self.closed())?;
        let all = open.engine.begin_forget_dedup();
        let submit = |ids: &[(DedupKey, MessageId)]| {
            let keys: Vec<DedupKey> = ids.iter().map(|(key, _)| *key).collect();
            ForgottenPage {
                ids: ids.to_vec(),
                submitted: state.submit(&self.at, Change::forget_dedup(&keys)),
            }
        };
        Ok(all.chunks(limits::notes_page()).map(submit).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use angarium_engine::{GroupBounds, QueueEngine, StoredTotals};

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
        known.add(core_limits::DEDUP_KNOWN_ALL - 1);
        let mut posting = DedupPost::within(known.room());
        let (_, key) = posting.admit(&queue, with_id("a"), now).unwrap().unwrap();
        posting.own.insert(key.unwrap(), MessageId::ZERO);
        let refused = posting.admit(&queue, with_id("b"), now).err().unwrap();
        assert!(matches!(refused, Error::TooMany { bound: core_limits::DEDUP_KNOWN_ALL, .. }), "{refused:?}");
        // A duplicate needs no room, nor does a message without an id.
        assert!(posting.admit(&queue, with_id("a"), now).unwrap().is_none());
        assert!(posting.admit(&queue, NewMessage::default(), now).unwrap().is_some());
        known.add(2);
        assert_eq!(known.room(), 0);
        known.recount(&[]);
        assert_eq!(known.room(), core_limits::DEDUP_KNOWN_ALL);
    }
}
