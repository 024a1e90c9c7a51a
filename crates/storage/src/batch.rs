//! What an owner writes to a pool: numbered batches of changes, fenced by its epoch.

use std::collections::HashSet;

use bytes::Bytes;

use angarium_core::durability::Durability;
use angarium_core::group::GroupName;
use angarium_core::ids::{MessageId, QueueId, Slot};
use angarium_core::message::{Header, Message};
use angarium_core::time::Timestamp;

/// Grows with each owner of a slot: how often the tree was rebuilt, then the transaction that took the slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Epoch {
    /// `generation` of `/meta/system`.
    pub generation: u32,
    /// The transaction that made the owner.
    pub transaction: u64,
}

/// Changes of one slot that are made together or not at all.
///
/// Batches of one (slot, epoch) are numbered from 1 without a gap, and the next is sent when the outcome of
/// the last is known. A batch may be repeated under its number: it takes effect once.
#[derive(Clone, Debug)]
pub struct Batch {
    /// The slot of all its queues.
    pub slot: Slot,
    /// Who sends it.
    pub epoch: Epoch,
    /// Its number, one more than that of the batch before.
    pub seq: u64,
    /// How durable it must be when it is answered. A pool may do more, and never less than it can reach.
    pub durability: Durability,
    /// What it does, one element a queue.
    pub queues: Vec<QueueChanges>,
}

impl Batch {
    /// Whether it brings new messages: below the reserve such a batch is refused.
    pub fn has_appends(&self) -> bool {
        self.queues.iter().any(|changes| !changes.appends.is_empty())
    }
}

/// What a batch does to one queue, in this order: appends, updates, removes, removes of notes, notes.
///
/// An id of a message is never used again, so that its removal is always the last that is said of it. The key of a note
/// is: one that is forgotten and posted again in one batch stays, and where it is the other way round any process that
/// makes the batch leaves the note out ([`QueueChanges::forget_notes`]).
#[derive(Clone, Debug)]
pub struct QueueChanges {
    /// A queue of the batch's slot.
    pub queue: QueueId,
    /// New entries. Their ids were never used before.
    pub appends: Vec<Message>,
    /// Headers that replace those of their entries, their states too. An entry that is absent stays absent, and the group
    /// of one never changes.
    pub updates: Vec<Header>,
    /// Entries that go. Absent ones, and ones named twice, do no harm.
    pub removes: Vec<MessageId>,
    /// Some of those that go, as their owner knows them to lie here: a pool may believe it instead of reading them.
    pub leaving: Vec<KnownEntry>,
    /// Notes to keep. One of the same kind and key is replaced.
    pub notes: Vec<Note>,
    /// Kinds and keys of notes that go, before the batch's own are kept. Absent ones do no harm.
    pub note_removes: Vec<(u8, Bytes)>,
    /// No ready entry below this id is left, as far as the owner knows: scans from the head begin here, so that
    /// they do not walk over what was removed.
    pub low: MessageId,
}

impl QueueChanges {
    /// No changes of a queue that has nothing ready below `low`.
    pub fn of(queue: QueueId, low: MessageId) -> Self {
        Self {
            queue,
            appends: Vec::new(),
            updates: Vec::new(),
            removes: Vec::new(),
            leaving: Vec::new(),
            notes: Vec::new(),
            note_removes: Vec::new(),
            low,
        }
    }

    /// Adds removals of notes that come after all that the batch does so far: a note of the same kind and key that it
    /// was to keep leaves too.
    pub fn forget_notes(&mut self, names: impl IntoIterator<Item = (u8, Bytes)>) {
        let first = self.note_removes.len();
        self.note_removes.extend(names);
        if !self.notes.is_empty() {
            let gone: HashSet<&(u8, Bytes)> = self.note_removes[first..].iter().collect();
            self.notes.retain(|note| !gone.contains(&(note.kind, note.key.clone())));
        }
    }
}

/// A ready entry as its owner knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownEntry {
    /// Unique in its queue, for ever.
    pub id: MessageId,
    /// The group that it was appended with.
    pub group: Option<GroupName>,
    /// Bytes of its body.
    pub bytes: u64,
}

impl KnownEntry {
    /// The entry of a header.
    pub fn of(header: &Header) -> Self {
        Self { id: header.id, group: header.group.clone(), bytes: header.size.into() }
    }
}

/// Something small that a queue must remember beside its messages, and longer than they live. A pool never looks
/// into it, and never removes it by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// What it is: kinds are numbered by the engine.
    pub kind: u8,
    /// Its name within the kind, at most [`limits::NOTE_KEY_BYTES`](limits::NOTE_KEY_BYTES).
    pub key: Bytes,
    /// What it states, at most [`limits::NOTE_BYTES`](limits::NOTE_BYTES).
    pub value: Bytes,
    /// When its owner may forget it.
    pub expires: Timestamp,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removal_of_a_note_after_it_leaves_no_note() {
        let note = |key: &'static [u8], value: &'static [u8]| Note {
            kind: 1,
            key: Bytes::from_static(key),
            value: Bytes::from_static(value),
            expires: Timestamp::default(),
        };
        let queue = QueueId::from_bytes([1; 16]);
        let mut changes = QueueChanges::of(queue, MessageId::ZERO);
        changes.notes.extend([note(b"a", b"1"), note(b"b", b"1")]);
        changes.forget_notes([(1, Bytes::from_static(b"a")), (2, Bytes::from_static(b"b"))]);
        changes.notes.push(note(b"a", b"2"));
        assert_eq!(changes.notes, [note(b"b", b"1"), note(b"a", b"2")]);
        assert_eq!(changes.note_removes.len(), 2);
    }
}
