//! What is written of a queue: the changes that go to its pools by way of the slot writers.

use crate::writer::notes::copied_note_name;
use crate::writer::notes::dedup_note_name;
use crate::writer::notes::read_dedup_note;
use angarium_core::attributes::Attributes;
use angarium_core::dedup::DedupKey;
use angarium_core::durability::Durability;
use angarium_core::ids::MessageId;
use angarium_core::message::{Header, Message};
use angarium_engine::QueueEngine;
use angarium_storage::{KnownEntry, Note, QueueChanges};

/// A change of one queue's entries.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    /// New messages, and the notes of those that were posted with an id of deduplication.
    Post(Vec<Message>, Vec<(DedupKey, Note)>),
    /// Ids of deduplication that are forgotten.
    ForgetDedup(Vec<DedupKey>),
    /// Headers as they now are, of messages that stay hidden until their sender continues.
    Update(Vec<Header>),
    /// Messages that become ready, with their headers as they then are.
    Wake(Vec<Header>),
    /// Messages that go aside, to be moved to another queue.
    Transfer(Vec<Header>),
    /// Messages that come from another queue, and are not to be seen yet.
    Prepare(Vec<Message>),
    /// Messages that go.
    Remove(Vec<MessageId>),
    /// Messages that a move takes out: the other queue has them, or keeps them.
    Depart(Vec<MessageId>),
    /// Messages that go over to another pool with their queue, and the note that states which they are.
    Copy(Vec<Message>, Note),
    /// Messages that the newer pool has by now, and the older one need not have any more.
    Leave(Vec<MessageId>),
    /// Notes that go over to another pool with their queue.
    CopyNotes(Vec<Note>),
    /// The note of messages that went over leaves: none is in both pools.
    Arrived,
}

impl Change {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Post(messages, _) | Self::Prepare(messages) | Self::Copy(messages, _) => messages.len(),
            Self::ForgetDedup(keys) => keys.len(),
            Self::Update(headers) | Self::Wake(headers) | Self::Transfer(headers) => headers.len(),
            Self::Remove(ids) | Self::Depart(ids) | Self::Leave(ids) => ids.len(),
            Self::CopyNotes(notes) => notes.len(),
            Self::Arrived => 1,
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Post(messages, _) | Self::Prepare(messages) | Self::Copy(messages, _) => {
                messages.iter().map(|message| message.body.len()).sum()
            }
            Self::Update(_) | Self::Wake(_) | Self::Transfer(_) => 0,
            Self::Remove(_) | Self::Depart(_) | Self::Leave(_) => 0,
            Self::ForgetDedup(_) | Self::CopyNotes(_) | Self::Arrived => 0,
        }
    }

    /// The headers that it writes.
    pub(crate) fn headers(&self) -> impl Iterator<Item = &Header> {
        let (messages, headers) = match self {
            Self::Post(messages, _) | Self::Prepare(messages) | Self::Copy(messages, _) => {
                (&messages[..], &[][..])
            }
            Self::Update(headers) | Self::Wake(headers) | Self::Transfer(headers) => (&[][..], &headers[..]),
            Self::Remove(_) | Self::Depart(_) | Self::Leave(_) => (&[][..], &[][..]),
            Self::ForgetDedup(_) | Self::CopyNotes(_) | Self::Arrived => (&[][..], &[][..]),
        };
        messages.iter().map(|message| &message.header).chain(headers)
    }

    /// Whether the queue holds more or less by it. What is copied is counted when it is in one pool again.
    pub(crate) fn counts(&self) -> bool {
        match self {
            Self::Post(..) | Self::Prepare(_) | Self::Remove(_) | Self::Depart(_) | Self::Leave(_) => true,
            Self::Update(_) | Self::Wake(_) | Self::Transfer(_) | Self::ForgetDedup(_) => false,
            Self::Copy(..) | Self::CopyNotes(_) | Self::Arrived => false,
        }
    }

    /// Whether it only brings the queue to another pool.
    pub(crate) fn is_copy(&self) -> bool {
        match self {
            Self::Copy(..) | Self::Leave(_) | Self::CopyNotes(_) | Self::Arrived => true,
            Self::Post(..) | Self::Prepare(_) | Self::Remove(_) | Self::Depart(_) => false,
            Self::Update(_) | Self::Wake(_) | Self::Transfer(_) | Self::ForgetDedup(_) => false,
        }
    }

    /// Whether it brings messages: without room for them it is refused.
    pub(crate) fn is_post(&self) -> bool {
        match self {
            Self::Post(..) | Self::Prepare(_) | Self::Copy(..) => true,
            Self::Remove(_) | Self::Depart(_) | Self::Leave(_) | Self::Arrived => false,
            Self::Update(_) | Self::Wake(_) | Self::Transfer(_) => false,
            Self::ForgetDedup(_) | Self::CopyNotes(_) => false,
        }
    }

    /// Its pool while its queue is in two pools.
    pub(crate) fn way(&self) -> PoolRoute {
        match self {
            Self::Post(..) | Self::Prepare(_) | Self::Copy(..) | Self::CopyNotes(_) | Self::Arrived => {
                PoolRoute::Newer
            }
            Self::Leave(_) => PoolRoute::Older,
            // What is posted again with such an id moves to the newer pool, after this.
            Self::ForgetDedup(_) => PoolRoute::NewerFirst,
            Self::Update(_) | Self::Wake(_) | Self::Transfer(_) | Self::Remove(_) | Self::Depart(_) => {
                PoolRoute::Both
            }
        }
    }

    /// How durable it must be. Only posts and deletes may be less than synced (P11).
    pub(crate) fn durability(&self, attributes: &Attributes) -> Durability {
        match self {
            Self::Post(..) | Self::Remove(_) | Self::ForgetDedup(_) => {
                attributes.durability.unwrap_or_default()
            }
            Self::Update(_) | Self::Wake(_) | Self::Transfer(_) | Self::Prepare(_) | Self::Depart(_) => {
                Durability::Sync
            }
            Self::Copy(..) | Self::Leave(_) | Self::CopyNotes(_) | Self::Arrived => Durability::Sync,
        }
    }

    /// What the engine knows of the entries that it removes.
    pub(crate) fn leaving(&self, engine: &QueueEngine) -> Vec<KnownEntry> {
        match self {
            Self::Remove(ids) => engine.leaving_claims(ids).map(KnownEntry::of).collect(),
            _ => Vec::new(),
        }
    }

    pub(crate) fn add_to(&self, changes: &mut QueueChanges) {
        match self {
            Self::Post(messages, notes) => {
                changes.appends.extend_from_slice(messages);
                changes.notes.extend(notes.iter().map(|(_, note)| note.clone()));
            }
            Self::ForgetDedup(keys) => changes.forget_notes(keys.iter().map(dedup_note_name)),
            Self::Prepare(messages) => changes.appends.extend_from_slice(messages),
            Self::Update(headers) | Self::Wake(headers) | Self::Transfer(headers) => {
                changes.updates.extend_from_slice(headers);
            }
            Self::Remove(ids) | Self::Depart(ids) | Self::Leave(ids) => {
                changes.removes.extend_from_slice(ids)
            }
            Self::Copy(messages, note) => {
                changes.appends.extend_from_slice(messages);
                changes.notes.push(note.clone());
            }
            Self::CopyNotes(notes) => changes.notes.extend_from_slice(notes),
            Self::Arrived => changes.forget_notes([copied_note_name()]),
        }
    }
}

/// The pools to which a change of a queue leaves that is in two of them. In one that does not have what it changes it
/// does nothing (P6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PoolRoute {
    Newer,
    Older,
    /// To the one, and when that is done to the other, in any order.
    Both,
    /// To the newer one, and when that is done to the older one.
    NewerFirst,
}

/// The ids of deduplication that notes keep, with their messages.
pub(crate) fn duplicates(notes: &[(DedupKey, Note)]) -> Vec<(DedupKey, MessageId)> {
    notes.iter().filter_map(|(_, note)| read_dedup_note(note)).collect()
}

pub(crate) fn ids(headers: &[Header]) -> Vec<MessageId> {
    headers.iter().map(|header| header.id).collect()
}
