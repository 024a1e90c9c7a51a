//! Changes of queues that the slot writers send to pools: each with its purpose, and the changes as the pool gets them.

use crate::writer::notes::copied_note_name;
use crate::writer::notes::dedup_note_name;
use crate::writer::notes::read_dedup_note;
use crate::writer::notes::{FILL_KIND, FillProgress, fill_note, read_fill_note};
use crate::writer::notes::{SettleKey, settle_note_name};
use crate::writer::purpose::{PoolRoute, Purpose};
use angarium_core::attributes::Attributes;
use angarium_core::dedup::DedupKey;
use angarium_core::durability::Durability;
use angarium_core::ids::{MessageId, QueueId};
use angarium_core::message::{Header, Message};
use angarium_core::mutation::{Mutation, is_on};
use angarium_engine::QueueEngine;
use angarium_storage::{Changes, Note, RemoveHint};

/// Changes of one queue for one purpose. The constructors hold each purpose to its kinds of changes.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    purpose: Purpose,
    changes: Changes,
}

impl Change {
    /// Appends posted messages, with the notes of their deduplication ids.
    pub(crate) fn post(messages: Vec<Message>, notes: Vec<Note>) -> Self {
        Self::of(Purpose::Post, Changes { notes, ..Changes::appends(messages) })
    }

    /// Appends copies of posted messages, ready or in transfer, with the note of the messages that the subscription did not
    /// get, if it changes.
    pub(crate) fn fan_out(copies: Vec<Message>, omissions: Option<Note>) -> Self {
        let notes = omissions.into_iter().collect();
        Self::of(Purpose::FanOut, Changes { notes, ..Changes::appends(copies) })
    }

    /// The same change, whose copies may share their bodies with their messages and with each other. `lender`: the
    /// queue of the messages, in which these bodies count; none when they are not shared.
    pub(crate) fn lent_by(mut self, lender: Option<QueueId>) -> Self {
        self.changes.lender = lender;
        self
    }

    /// Removes copies beyond the bounds of a subscription, with the note of their number. Without ids it is written so that
    /// the totals are read after it.
    pub(crate) fn drop_copies(ids: Vec<MessageId>, omissions: Option<Note>) -> Self {
        let notes = omissions.into_iter().collect();
        Self::of(Purpose::Remove, Changes { notes, ..Changes::removes(ids) })
    }

    /// Appends copies of messages that waited when a subscription was created, with the note of the progress, and that of
    /// the messages which the subscription did not get, if it changes.
    pub(crate) fn fill(copies: Vec<Message>, progress: FillProgress, omissions: Option<Note>) -> Self {
        let notes = std::iter::once(fill_note(progress)).chain(omissions).collect();
        Self::of(Purpose::FanOut, Changes { notes, ..Changes::appends(copies) })
    }

    /// Removes the notes of deduplication ids.
    pub(crate) fn forget_dedup(keys: &[DedupKey]) -> Self {
        let names = keys.iter().map(dedup_note_name).collect();
        Self::of(Purpose::ForgetDedup, Changes::note_removes(names))
    }

    /// Writes headers of messages that stay hidden until the submitter continues.
    pub(crate) fn update(headers: Vec<Header>) -> Self {
        Self::of(Purpose::Update, Changes::updates(headers))
    }

    /// Makes messages ready, with the headers that they have then.
    pub(crate) fn wake(headers: Vec<Header>) -> Self {
        Self::of(Purpose::Wake, Changes::updates(headers))
    }

    /// Makes a prepared message ready that brings copies. The caller names the pool that has the message, which gets the copies
    /// too.
    pub(crate) fn publish(pool: PoolRoute, header: Header) -> Self {
        let purpose = match pool {
            PoolRoute::Older => Purpose::PublishInOlder,
            PoolRoute::Newer | PoolRoute::Both | PoolRoute::NewerFirst => Purpose::Publish,
        };
        Self::of(purpose, Changes::updates(vec![header]))
    }

    /// Marks messages in transfer to another queue.
    pub(crate) fn mark_in_transfer(headers: Vec<Header>) -> Self {
        Self::of(Purpose::MarkInTransfer, Changes::updates(headers))
    }

    /// Appends messages of another queue as prepared.
    pub(crate) fn prepare(messages: Vec<Message>) -> Self {
        Self::of(Purpose::Prepare, Changes::appends(messages))
    }

    /// Removes messages that were deleted or have expired.
    pub(crate) fn remove(ids: Vec<MessageId>) -> Self {
        Self::of(Purpose::Remove, Changes::removes(ids))
    }

    /// Removes messages that a transfer has moved, or leaves at the other queue.
    pub(crate) fn remove_transferred(ids: Vec<MessageId>) -> Self {
        Self::of(Purpose::RemoveTransferred, Changes::removes(ids))
    }

    /// Appends messages to the newer pool, with the note of their ids.
    pub(crate) fn copy(messages: Vec<Message>, note: Note) -> Self {
        Self::of(Purpose::Copy, Changes { notes: vec![note], ..Changes::appends(messages) })
    }

    /// Removes copied messages from the older pool. Without ids it is done once all earlier writes there are done.
    pub(crate) fn remove_copied(ids: Vec<MessageId>) -> Self {
        Self::of(Purpose::RemoveCopied, Changes::removes(ids))
    }

    /// Writes notes to the newer pool.
    pub(crate) fn copy_notes(notes: Vec<Note>) -> Self {
        Self::of(Purpose::CopyNotes, Changes::notes(notes))
    }

    /// Removes the note of the last copied messages.
    pub(crate) fn forget_copied() -> Self {
        Self::of(Purpose::ForgetCopied, Changes::note_removes(vec![copied_note_name()]))
    }

    /// Writes the outcome of a message that its holder settles. The caller names the pool that has the message.
    pub(crate) fn settle(pool: PoolRoute, changes: Changes) -> Self {
        let purpose = match pool {
            PoolRoute::Older => Purpose::SettleInOlder,
            PoolRoute::Newer | PoolRoute::Both | PoolRoute::NewerFirst => Purpose::Settle,
        };
        Self::of(purpose, changes)
    }

    /// Writes the headers of messages that are made available again.
    pub(crate) fn requeue(headers: Vec<Header>) -> Self {
        Self::of(Purpose::Requeue, Changes::updates(headers))
    }

    /// Appends a message in the place of another one. The caller names the pool that has that.
    pub(crate) fn replace(pool: PoolRoute, message: Message, gone: MessageId) -> Self {
        let purpose = match pool {
            PoolRoute::Older => Purpose::ReplaceInOlder,
            PoolRoute::Newer | PoolRoute::Both | PoolRoute::NewerFirst => Purpose::Replace,
        };
        Self::of(purpose, Changes { removes: vec![gone], ..Changes::appends(vec![message]) })
    }

    /// Removes the notes of settles.
    pub(crate) fn forget_settles(keys: &[SettleKey]) -> Self {
        let names = keys.iter().map(settle_note_name).collect();
        Self::of(Purpose::ForgetSettles, Changes::note_removes(names))
    }

    /// Whether the change brings messages or results: a pool without room refuses it.
    pub(crate) fn needs_room(&self) -> bool {
        let is_settle = matches!(self.purpose, Purpose::Settle | Purpose::SettleInOlder);
        self.purpose.brings_messages() || is_settle && self.changes.needs_room()
    }

    /// The progress of a fill in the note that the change writes.
    pub(crate) fn fill_progress(&self) -> Option<FillProgress> {
        self.changes.notes.iter().find(|note| note.kind == FILL_KIND).and_then(read_fill_note)
    }

    fn of(purpose: Purpose, changes: Changes) -> Self {
        Self { purpose, changes }
    }

    /// How durable the change must be, in a queue with these attributes. Messages that it stores in transfer are synced: the
    /// other queue may have them before this one loses them (P11).
    pub(crate) fn durability(&self, attributes: &Attributes) -> Durability {
        let mut appends = self.changes.appends.iter();
        if appends.any(|message| message.header.state.is_in_transfer())
            && !is_on(Mutation::SendUnsyncedCopies)
        {
            return Durability::Sync;
        }
        self.purpose.durability(attributes)
    }

    pub(crate) fn purpose(&self) -> Purpose {
        self.purpose
    }

    pub(crate) fn changes(&self) -> &Changes {
        &self.changes
    }

    pub(crate) fn into_changes(self) -> Changes {
        self.changes
    }

    /// Adds what the engine knows of the messages to remove, for a pool that has them all.
    pub(crate) fn add_hints(&mut self, engine: &QueueEngine) {
        if self.purpose == Purpose::Remove {
            let claimed = engine.leaving_claims(&self.changes.removes);
            self.changes.remove_hints = claimed.map(RemoveHint::of).collect();
        }
    }
}

/// The deduplication ids in notes, with their messages.
pub(crate) fn duplicates(notes: &[Note]) -> Vec<(DedupKey, MessageId)> {
    notes.iter().filter_map(read_dedup_note).collect()
}

pub(crate) fn ids(headers: &[Header]) -> Vec<MessageId> {
    headers.iter().map(|header| header.id).collect()
}
