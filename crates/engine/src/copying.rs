//! Messages that are copied to another pool, in a migration of their queue (P6).
//!
//! ```text
//! ready, scheduled or kept ──begin_copy──▶ copying ──finish_copy──▶ as before
//!                                             └─────begin_remove──▶ removing
//! ```
//!
//! From the first read of a message until the older pool has removed it, no client claims it and no change of its
//! header begins, so both pools have the same. It may be browsed, and it may be removed: the removal is sent to both
//! pools. Ready messages after one that is being copied wait for it, so a migration does not change the order. No
//! message waits for one that is done or has failed, and such a message does not block its group.

use super::dedup::DedupNote;
use super::hidden::{HiddenMessage, HiddenReason};
use super::queue::QueueEngine;
use angarium_core::dedup::DedupKey;
use angarium_core::ids::MessageId;
use angarium_core::message::{Header, State};
use angarium_core::mutation::{Mutation, is_on};
use angarium_core::time::Timestamp;

/// Whether a message in this state is copied. A message in transfer stays until the transfer has ended.
pub fn must_copy(state: &State) -> bool {
    match state {
        State::Ready | State::Scheduled | State::NoTarget | State::Done | State::Failed => true,
        State::Prepared(_) | State::Moving(_) => false,
    }
}

/// Returns the header of a message that is hidden: a kept message is in no group.
pub(super) fn outside_group(mut header: Header) -> Header {
    header.group = header.group.filter(|_| !header.state.is_kept());
    header
}

impl QueueEngine {
    /// Hides those of these messages that no other operation is changing, as the older pool showed them. The caller
    /// must read them again, because some may have been removed since. Returns the ids of the hidden ones.
    pub fn begin_copy(&mut self, found: Vec<Header>) -> Vec<MessageId> {
        let mut begun = Vec::with_capacity(found.len());
        self.copying.clear();
        for header in found.into_iter().filter(|header| must_copy(&header.state)) {
            let id = header.id;
            // If only the pool knows which messages are in transfer, this one may be, and block its group.
            let is_in_transfer = self.in_transfer.has(id).unwrap_or(self.is_ordered());
            if (self.hidden.contains_key(&id) && !is_on(Mutation::CopyClaims)) || is_in_transfer {
                continue;
            }
            let header = self.take_out(id).unwrap_or(header);
            if !header.state.is_kept() {
                self.copying.push(id);
            }
            self.hidden.insert(id, HiddenMessage::new(outside_group(header), HiddenReason::Copying));
            begun.push(id);
        }
        self.copying.sort_unstable();
        begun
    }

    /// Records the header of a message that was read again. Returns false when it is no longer hidden for the copy,
    /// because a client is removing it.
    pub fn copy_read(&mut self, header: &Header) -> bool {
        let id = header.id;
        let is_hidden = self.is_copying(id);
        if is_hidden && header.state.is_kept() {
            // It may have been settled since the first read: it blocks its group no more.
            self.hidden.remove(&id);
            let header = outside_group(header.clone());
            self.hidden.insert(id, HiddenMessage::new(header, HiddenReason::Copying));
            self.copying.retain(|copying| *copying != id);
        } else if is_hidden {
            self.hidden.learn(header.clone());
            if let Err(place) = self.copying.binary_search(&id) {
                self.copying.insert(place, id);
            }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{GroupBounds, StoredTotals};
    use angarium_core::group::GroupName;
    use angarium_core::message::Life;

    fn header(number: u8, state: State) -> Header {
        let created = Timestamp::from_millis(1);
        Header {
            id: MessageId::from_bytes([number; 16]),
            created,
            ready: created,
            life: Life::lasting(3_600, created),
            attempts: 0,
            client: None,
            size: 1,
            state,
            group: Some(GroupName::default()),
            first_claimed: None,
            extras: None,
        }
    }

    fn blocks(engine: &mut QueueEngine) -> bool {
        let first = engine.hidden.blocking().unwrap().first(&GroupName::default());
        assert_eq!(first.is_some(), engine.waits_for_copies());
        first.is_some()
    }

    #[test]
    fn kept_message_in_copy_blocks_no_group() {
        let found =
            StoredTotals { tail: MessageId::ZERO, has_ready: true, is_scheduled: false, has_aside: false };
        let mut engine = QueueEngine::open_ordered(found, GroupBounds::default());
        let id = header(1, State::Done).id;
        for (first, then) in [(State::Done, State::Done), (State::Ready, State::Done)] {
            let is_kept = first.is_kept();
            assert_eq!(engine.begin_copy(vec![header(1, first)]), [id]);
            assert_eq!(blocks(&mut engine), !is_kept);
            assert!(engine.copy_read(&header(1, then)) && !blocks(&mut engine));
            engine.finish_copy(&[id]);
            assert!(!engine.hidden.contains_key(&id));
        }
        // It was made available again since the first read.
        engine.begin_copy(vec![header(1, State::Done)]);
        assert!(engine.copy_read(&header(1, State::Ready)) && blocks(&mut engine));
        engine.finish_copy(&[id]);
        assert!(!blocks(&mut engine));
    }
}
