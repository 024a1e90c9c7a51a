//! Messages that are copied to another pool, in a migration of their queue (P6).
//!
//! ```text
//! ready, scheduled or failed ──begin_copy──▶ copying ──finish_copy──▶ as before
//!                                               └─────begin_remove──▶ removing
//! ```
//!
//! From the first read of a message until the older pool has removed it, no client claims it and no change of its
//! header begins, so both pools have the same. It may be browsed, and it may be removed: the removal is sent to both
//! pools. Ready messages after one that is being copied wait for it, so a migration does not change the order.

use super::dedup::DedupNote;
use super::hidden::{HiddenMessage, HiddenReason};
use super::queue::QueueEngine;
use angarium_core::dedup::DedupKey;
use angarium_core::ids::MessageId;
use angarium_core::message::{Header, State};
use angarium_core::time::Timestamp;

/// Whether a message in this state is copied. A message in transfer stays until the transfer has ended.
pub fn must_copy(state: &State) -> bool {
    match state {
        State::Ready | State::Scheduled | State::Failed => true,
        State::Prepared(_) | State::Moving(_) => false,
    }
}

impl QueueEngine {
    /// Hides those of these messages that no other operation is changing, as the older pool showed them. The caller
    /// must read them again, because some may have been removed since. Returns the ids of the hidden ones.
    pub fn begin_copy(&mut self, found: Vec<Header>) -> Vec<MessageId> {
        let mut begun = Vec::with_capacity(found.len());
        for header in found.into_iter().filter(|header| must_copy(&header.state)) {
            let id = header.id;
            // If only the pool knows which messages are in transfer, this one may be, and block its group.
            let is_in_transfer = self.in_transfer.has(id).unwrap_or(self.is_ordered());
            if self.hidden.contains_key(&id) || is_in_transfer {
                continue;
            }
            let header = self.take_out(id).unwrap_or(header);
            self.hidden.insert(id, HiddenMessage::new(header, HiddenReason::Copying));
            begun.push(id);
        }
        self.copying = begun.clone();
        self.copying.sort_unstable();
        begun
    }

    /// Records the header of a message that was read again. Returns false when it is no longer hidden for the copy,
    /// because a client is removing it.
    pub fn copy_read(&mut self, header: &Header) -> bool {
        let is_hidden = self.is_copying(header.id);
        if is_hidden {
            self.hidden.learn(header.clone());
        }
        is_hidden
    }

    /// Whether a message is still hidden for a copy.
    pub(super) fn is_copying(&self, id: MessageId) -> bool {
        self.hidden.get(&id).is_some_and(|hidden| hidden.why == HiddenReason::Copying)
    }

    /// The older pool did not have these when they were read again: they were removed.
    pub fn not_copied(&mut self, ids: &[MessageId]) {
        for id in ids.iter().filter(|id| self.is_copying(**id)).copied().collect::<Vec<_>>() {
            if let Some(refill) = &mut self.refill {
                refill.remove(id);
            }
            self.schedule.note_change(id);
            let hidden = self.hidden.remove(&id);
            let header = hidden.and_then(|hidden| hidden.header);
            self.removed_from_group(id, header.and_then(|header| header.group).as_ref());
        }
    }

    /// Each of these is in one pool: messages that are still hidden for the copy become what they were before.
    pub fn finish_copy(&mut self, ids: &[MessageId]) {
        for id in ids {
            if self.is_copying(*id)
                && let Some(header) = self.hidden.remove(id).and_then(|hidden| hidden.header)
            {
                self.show(header, None);
            }
        }
        self.copying.clear();
    }

    /// The first message that is being copied.
    pub(super) fn first_copying(&self) -> Option<MessageId> {
        self.copying.iter().copied().find(|id| self.is_copying(*id))
    }

    /// Whether a claim must wait, because messages are being copied. That ends soon.
    pub fn waits_for_copies(&self) -> bool {
        self.first_copying().is_some()
    }

    /// The durable deduplication ids after `after`, in order of their ends, at most `limit`: their notes are copied.
    pub fn durable_dedup(&self, after: Option<(Timestamp, DedupKey)>, limit: usize) -> Vec<DedupNote> {
        self.dedup.durable(after, limit)
    }
}
