//! Messages that go over to another pool with their queue (P6).
//!
//! ```text
//! ready, scheduled or failed ──begin_copy──▶ copying ──finish_copy──▶ as before
//!                                               └─────begin_remove──▶ removing
//! ```
//!
//! From the first read of one until the older pool has let it go no caller claims it or changes its header, so both
//! pools have the same of it. It may be looked at, and it may be removed: that moves to both pools. Ready messages
//! behind one that is being copied wait for it, so that a migration changes no order.

use super::dedup::DedupNote;
use super::hidden::{HiddenMessage, HiddenReason};
use super::queue::QueueEngine;
use angarium_core::dedup::DedupKey;
use angarium_core::ids::MessageId;
use angarium_core::message::{Header, State};
use angarium_core::time::Timestamp;

/// Whether a message in this state is copied. One on its way to another queue stays until that has ended.
pub fn must_copy(state: &State) -> bool {
    match state {
        State::Ready | State::Scheduled | State::Failed => true,
        State::Prepared(_) | State::Moving(_) => false,
    }
}

impl QueueEngine {
    /// Hides what no other caller changes of these messages, as the older pool shows them. They must be read again:
    /// what was removed since is no more. Returns their ids.
    pub fn begin_copy(&mut self, found: Vec<Header>) -> Vec<MessageId> {
        let mut begun = Vec::with_capacity(found.len());
        for header in found.into_iter().filter(|header| must_copy(&header.state)) {
            let id = header.id;
            // Where only the pool knows what is on its way, that may block its group.
            let is_aside = self.in_transfer.has(id).unwrap_or(self.is_ordered());
            if self.hidden.contains_key(&id) || is_aside {
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

    /// A message was read again, and is what its header states now. False when it is not hidden for this any more: a
    /// caller removes it by now.
    pub fn copy_read(&mut self, header: &Header) -> bool {
        let goes_on = self.is_copying(header.id);
        if goes_on {
            self.hidden.learn(header.clone());
        }
        goes_on
    }

    /// Whether a message is hidden for this still.
    pub(super) fn is_copying(&self, id: MessageId) -> bool {
        self.hidden.get(&id).is_some_and(|hidden| hidden.why == HiddenReason::Copying)
    }

    /// The older pool had these no more when they were read again: they were removed.
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

    /// Each of these is in one pool: those that are hidden for this still are what they were before.
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

    /// Whether ready messages may be among those that are being copied, which has ended soon.
    pub fn waits_for_copies(&self) -> bool {
        self.first_copying().is_some()
    }

    /// The durable ids of deduplication behind this one, in the order of their ends, at most `limit`: their notes go over.
    pub fn durable_dedup(&self, after: Option<(Timestamp, DedupKey)>, limit: usize) -> Vec<DedupNote> {
        self.dedup.durable(after, limit)
    }
}
