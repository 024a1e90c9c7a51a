//! Numbered batches of changes that the owner of a slot writes to a pool, fenced by its epoch.

use std::collections::HashSet;

use bytes::Bytes;

use angarium_core::durability::Durability;
use angarium_core::group::GroupName;
use angarium_core::ids::{MessageId, QueueId, Slot};
use angarium_core::message::{Header, Message};
use angarium_core::mutation::{Mutation, is_on};
use angarium_core::time::Timestamp;

/// The epoch of an owner of a slot; each owner has a greater one. It is the number of rebuilds of the tree, then the
/// transaction that took the slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Epoch {
    /// `generation` of `/meta/system`.
    pub generation: u32,
    /// The transaction that recorded the owner.
    pub transaction: u64,
}

/// Changes of the queues of one slot, all made or none.
///
/// Batches of one (slot, epoch) are numbered from 1 without a gap, and the next is sent when the outcome of the last is
/// known. A batch may be repeated under its number: it takes effect once.
#[derive(Clone, Debug)]
pub struct Batch {
    /// The slot of all its queues.
    pub slot: Slot,
    /// The epoch of the owner that sends it.
    pub epoch: Epoch,
    /// Its number, one more than the number of the batch before.
    pub seq: u64,
    /// Minimum durability at the time of the answer. A pool may exceed it, and never does less than it can reach.
    pub durability: Durability,
    /// The changes, one element for each queue.
    pub queues: Vec<QueueChanges>,
}

impl Batch {
    /// Whether a queue gets new messages or results. A pool whose free space is below its reserve refuses such a batch.
    pub fn needs_room(&self) -> bool {
        self.queues.iter().any(|queue| queue.changes.needs_room())
    }

    /// Whether a body that several of its appends have may be stored once.
    pub fn shares_bodies(&self) -> bool {
        self.queues.iter().any(|queue| queue.changes.lender.is_some())
    }
}

/// The changes of one queue in a batch.
#[derive(Clone, Debug)]
pub struct QueueChanges {
    /// A queue of the batch's slot.
    pub queue: QueueId,
    /// A lower bound of the ids of its ready entries, as the owner knows them: a scan from the head begins here and
    /// skips no removed entries.
    pub low: MessageId,
    /// The changes of its entries and notes.
    pub changes: Changes,
}

impl QueueChanges {
    /// Returns empty changes of a queue that has no ready entry below `low`.
    pub fn of(queue: QueueId, low: MessageId) -> Self {
        Self { queue, low, changes: Changes::default() }
    }
}

/// Changes of the entries and notes of a queue. A pool makes them in this order: appends, updates, removes, removes of
/// notes, notes.
///
/// A message id is never used again, so its remove is the last change of its entry. The key of a note may be used
/// again: a note that one batch removes and then writes stays. If a batch writes a note first and removes it then,
/// [`Changes::merge`] leaves the note out.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// New entries. Their ids were never used before.
    pub appends: Vec<Message>,
    /// New headers of entries, with their states. An entry that is absent stays absent, and the group of an entry never
    /// changes.
    pub updates: Vec<Header>,
    /// Ids of entries to remove. An absent entry or a repeated id does no harm.
    pub removes: Vec<MessageId>,
    /// Removed ready entries, as their owner knows that they are stored. A pool may rely on them instead of a read.
    pub remove_hints: Vec<RemoveHint>,
    /// Notes to write. A note of the same kind and key is replaced.
    pub notes: Vec<Note>,
    /// Kinds and keys of notes to remove, before `notes` are written. An absent note does no harm.
    pub note_removes: Vec<(u8, Bytes)>,
    /// The queue whose messages the appends are copies of, if every program that may read the pool knows bodies that
    /// several entries share: then a pool may store such a body once. This queue is the lender: the body counts as
    /// `lent` in its totals, until no entry of any queue has the body. The lender is in the slot of the batch, and
    /// outlives the queues with the copies. All else is as without a lender.
    pub lender: Option<QueueId>,
}

impl Changes {
    /// Returns changes that append entries.
    pub fn appends(appends: Vec<Message>) -> Self {
        Self { appends, ..Self::default() }
    }

    /// Returns changes that replace headers.
    pub fn updates(updates: Vec<Header>) -> Self {
        Self { updates, ..Self::default() }
    }

    /// Returns changes that remove entries, without hints.
    pub fn removes(removes: Vec<MessageId>) -> Self {
        Self { removes, ..Self::default() }
    }

    /// Returns changes that write notes.
    pub fn notes(notes: Vec<Note>) -> Self {
        Self { notes, ..Self::default() }
    }

    /// Returns changes that remove notes, by kind and key.
    pub fn note_removes(note_removes: Vec<(u8, Bytes)>) -> Self {
        Self { note_removes, ..Self::default() }
    }

    /// Number of changes that count for the bounds of a batch. Notes beside appends are not counted separately.
    pub fn len(&self) -> usize {
        let notes = if self.appends.is_empty() { self.notes.len() } else { 0 };
        self.appends.len() + self.updates.len() + self.removes.len() + self.note_removes.len() + notes
    }

    /// Whether nothing is changed.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the ids of the entries to remove, in order and each once.
    pub fn sorted_removes(&self) -> Vec<MessageId> {
        let mut removes = self.removes.clone();
        removes.sort_unstable();
        removes.dedup();
        removes
    }

    /// Bytes of the new bodies.
    pub fn bytes(&self) -> usize {
        self.appends.iter().map(|message| message.body.len()).sum()
    }

    /// Bytes of the new bodies, and of the extras of all headers: what counts for the bounds of a batch.
    pub fn bytes_in_all(&self) -> usize {
        self.bytes() + self.headers().map(Header::extras_bytes).sum::<usize>()
    }

    /// Whether there are new messages or results, which take room.
    pub fn needs_room(&self) -> bool {
        let has_result =
            |header: &Header| header.extras.as_ref().is_some_and(|extras| extras.result.is_some());
        !self.appends.is_empty() || self.updates.iter().any(has_result)
    }

    /// Returns the headers to write: of appends, then of updates.
    pub fn headers(&self) -> impl Iterator<Item = &Header> {
        self.appends.iter().map(|message| &message.header).chain(&self.updates)
    }

    /// Adds later changes of the same queue: the sum has the effect of one after the other. A note that the later
    /// changes remove is not written.
    pub fn merge(&mut self, later: &Self) {
        self.appends.extend_from_slice(&later.appends);
        self.updates.extend_from_slice(&later.updates);
        self.removes.extend_from_slice(&later.removes);
        self.remove_hints.extend_from_slice(&later.remove_hints);
        if !later.note_removes.is_empty() {
            self.note_removes.extend_from_slice(&later.note_removes);
            let removed: HashSet<(u8, &[u8])> =
                later.note_removes.iter().map(|(kind, key)| (*kind, &key[..])).collect();
            self.notes.retain(|note| !removed.contains(&(note.kind, &note.key[..])));
        }
        self.notes.extend_from_slice(&later.notes);
        self.lender = later.lender.or(self.lender);
        if is_on(Mutation::RemoveNewDedupNote) {
            self.notes.retain(|note| !self.note_removes.contains(&(note.kind, note.key.clone())));
        }
    }
}

/// A ready entry that a batch removes, as its owner knows it to be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoveHint {
    /// The id of the message.
    pub id: MessageId,
    /// The group with which it was appended.
    pub group: Option<GroupName>,
    /// Bytes of its body.
    pub bytes: u64,
}

impl RemoveHint {
    /// Returns the hint for the entry of a header.
    pub fn of(header: &Header) -> Self {
        Self { id: header.id, group: header.group.clone(), bytes: header.size.into() }
    }
}

/// A small value that a queue keeps beside its messages and longer than these live. A pool never interprets it, and
/// never removes it by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Its kind. The engine numbers the kinds.
    pub kind: u8,
    /// Its name within the kind, at most [`limits::NOTE_KEY_BYTES`](limits::NOTE_KEY_BYTES).
    pub key: Bytes,
    /// Its content, at most [`limits::NOTE_BYTES`](limits::NOTE_BYTES).
    pub value: Bytes,
    /// When its owner may forget it.
    pub expires: Timestamp,
}

#[cfg(test)]
mod tests {
    use angarium_core::message::{Life, State};
    use angarium_core::outcome::{Extras, Outcome};

    use super::*;

    fn note(key: &'static [u8], value: &'static [u8]) -> Note {
        Note {
            kind: 1,
            key: Bytes::from_static(key),
            value: Bytes::from_static(value),
            expires: Timestamp::default(),
        }
    }

    #[test]
    fn removal_of_a_note_after_it_leaves_no_note() {
        let mut changes = Changes::notes(vec![note(b"a", b"1"), note(b"b", b"1")]);
        let removes = vec![(1, Bytes::from_static(b"a")), (2, Bytes::from_static(b"b"))];
        changes.merge(&Changes::note_removes(removes));
        changes.merge(&Changes::notes(vec![note(b"a", b"2")]));
        assert_eq!(changes.notes, [note(b"b", b"1"), note(b"a", b"2")]);
        assert_eq!(changes.note_removes.len(), 2);
    }

    #[test]
    fn removed_and_rewritten_note_of_one_merge_stays() {
        let mut changes = Changes::notes(vec![note(b"a", b"1")]);
        let note_removes = vec![(1, Bytes::from_static(b"a"))];
        changes.merge(&Changes { note_removes, ..Changes::notes(vec![note(b"a", b"2")]) });
        assert_eq!(changes.notes, [note(b"a", b"2")]);
    }

    #[test]
    fn result_of_a_message_counts_and_takes_room() {
        let text = Bytes::from(format!("\"{}\"", "x".repeat(998)));
        let extras = Extras { result: Some(Outcome::stored(text)), ..Extras::default() };
        let plain = Header {
            id: MessageId::ZERO,
            created: Timestamp::default(),
            ready: Timestamp::default(),
            life: Life::lasting(60, Timestamp::default()),
            attempts: 1,
            client: None,
            size: 1,
            state: State::Done,
            group: None,
            first_claimed: None,
            extras: None,
        };
        let done = Header { extras: Some(Box::new(extras)), ..plain.clone() };
        let [plain, done] = [plain, done].map(|header| Changes::updates(vec![header]));
        assert_eq!((plain.bytes_in_all(), plain.needs_room()), (0, false));
        assert_eq!((done.bytes(), done.bytes_in_all(), done.needs_room()), (0, 1_000, true));
    }

    #[test]
    fn notes_beside_appends_are_not_counted() {
        let removes = vec![MessageId::ZERO, MessageId::ZERO];
        let mut changes = Changes { removes, ..Changes::notes(vec![note(b"a", b"1")]) };
        assert_eq!((changes.len(), changes.bytes()), (3, 0));
        changes.removes.clear();
        assert!(!changes.is_empty());
        changes.notes.clear();
        assert!(changes.is_empty());
    }
}
