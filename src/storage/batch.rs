//! What an owner writes to a pool: numbered batches of changes, fenced by its epoch.

use bytes::Bytes;

use crate::domain::durability::Durability;
use crate::domain::group::GroupName;
use crate::domain::ids::{MessageId, QueueId, Slot};
use crate::domain::message::{Header, Message};
use crate::domain::time::Timestamp;

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
    /// Its number.
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

/// What a batch does to one queue, in this order: appends, updates, removes, notes, removes of notes.
#[derive(Clone, Debug)]
pub struct QueueChanges {
    /// The queue.
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
    /// Kinds and keys of notes that go. Absent ones do no harm.
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
}

/// A ready entry as its owner knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownEntry {
    /// Its id.
    pub id: MessageId,
    /// Its group.
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
    /// Its name within the kind, at most [`limits::NOTE_KEY_BYTES`](crate::domain::limits::NOTE_KEY_BYTES).
    pub key: Bytes,
    /// What it says, at most [`limits::NOTE_BYTES`](crate::domain::limits::NOTE_BYTES).
    pub value: Bytes,
    /// When its owner may forget it.
    pub expires: Timestamp,
}
