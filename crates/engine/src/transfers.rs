//! Moves to another queue, as far as one queue sees them (P5).
//!
//! ```text
//! source:  ready ──take──▶ leaving ──▶ moving ─────────────────▶ gone
//! target:                               prepared ──────────────────▶ ready
//!          1. moving is durable   2. prepared is   3. removed   4. published
//! ```
//!
//! Between 1 and 4 no caller claims, deletes or sees the message; each step begins when the one before is durable.
//! Entries in these states are in the pool; of a bounded number the ids are here too, so that a million of them that
//! cannot get to their target cost no memory.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::hidden::HiddenReason;
use super::queue::QueueEngine;
use angarium_core::ids::MessageId;
use angarium_core::limits;
use angarium_core::message::{Header, Life, Peer, State};
use angarium_core::time::Timestamp;

/// What becomes of a prepared entry that is found at the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransferFate {
    /// The source has it no more: it is this queue's.
    Publish,
    /// The source is still to let it go.
    Wait,
    /// The source has it, and does not move it: it is the source's.
    Drop,
}

impl TransferFate {
    /// The fate of an entry by the state that it has at its source; absent when it is gone there.
    pub fn of(source: Option<&State>) -> Self {
        match source {
            None => Self::Publish,
            Some(State::Moving(_)) => Self::Wait,
            Some(State::Ready | State::Scheduled | State::Prepared(_) | State::Failed) => Self::Drop,
        }
    }
}

/// The header of a message at the queue it moves to: its id and its age stay, and it was never claimed there. Without a life
/// that begins there it keeps its own.
pub fn prepared(header: &Header, source: &Arc<Peer>, life: Option<Life>, now: Timestamp) -> Header {
    let state = State::Prepared(Arc::clone(source));
    let life = life.unwrap_or(header.life);
    Header { life, ready: now, attempts: 0, first_claimed: None, state, ..header.clone() }
}

/// What is known of the entries that are prepared, moving or failed.
#[derive(Debug)]
pub(super) struct TransferEntries {
    /// All those that are prepared or moving; absent when only the pool knows, because it was not asked yet or because
    /// they are too many.
    known: Option<BTreeSet<MessageId>>,
    /// How often entries were marked in transfer.
    times: u64,
}

impl TransferEntries {
    pub(super) fn found(is_there: bool) -> Self {
        Self { known: (!is_there).then(BTreeSet::new), times: 0 }
    }

    fn add(&mut self, ids: &[MessageId]) {
        self.times += 1;
        if let Some(known) = &mut self.known {
            known.extend(ids);
            if known.len() > limits::IN_TRANSFER_KNOWN {
                self.known = None;
            }
        }
    }

    pub(super) fn forget(&mut self, id: MessageId) {
        if let Some(known) = &mut self.known {
            known.remove(&id);
        }
    }

    /// Whether an answer of the pool is as new as what is known here.
    pub(super) fn is_answered(&self, id: MessageId, asked: Option<u64>) -> bool {
        self.has(id).is_some() || asked == Some(self.times)
    }

    /// Whether a message is on its way; absent when only the pool knows.
    pub(super) fn has(&self, id: MessageId) -> Option<bool> {
        self.known.as_ref().map(|known| known.contains(&id))
    }

    pub(super) fn times(&self) -> u64 {
        self.times
    }
}

impl QueueEngine {
    /// Messages that were leaving are marked in transfer, durably.
    pub fn mark_in_transfer(&mut self, ids: &[MessageId]) {
        self.in_transfer.add(ids);
        for id in ids {
            // A page under way may show it as it was.
            if let Some(refill) = &mut self.refill {
                refill.remove(*id);
            }
            let Some(hidden) = self.hidden.get(id).filter(|hidden| hidden.why == HiddenReason::Leaving)
            else {
                continue;
            };
            let group = hidden.header.as_ref().and_then(|header| header.group.clone());
            self.hidden.mark_in_transfer(*id);
            if let Some(groups) = &mut self.groups {
                groups.gone(*id, group.as_ref());
            }
        }
    }

    /// Entries are prepared here: said before they are written, and again when they are, since in between the pool may
    /// have been asked for them.
    pub fn expect_in_transfer(&mut self, ids: &[MessageId]) {
        self.in_transfer.add(ids);
    }

    /// Whether there may be entries that are prepared or moving.
    pub fn has_in_transfer(&self) -> bool {
        self.in_transfer.known.as_ref().is_none_or(|known| !known.is_empty())
    }

    /// Whether one of these is on its way; none when only the pool knows.
    pub fn are_leaving(&self, ids: &[MessageId]) -> Option<bool> {
        self.in_transfer.known.as_ref().map(|known| ids.iter().any(|id| known.contains(id)))
    }

    /// Those entries, the first `limit` of them; none when only the pool knows.
    pub fn in_transfer(&self, limit: usize) -> Option<Vec<MessageId>> {
        self.in_transfer.known.as_ref().map(|known| known.iter().take(limit).copied().collect())
    }

    /// How often entries were marked in transfer; for [`QueueEngine::clear_all_in_transfer`].
    pub fn transfer_count(&self) -> u64 {
        self.in_transfer.times
    }

    /// The pool has no such entry under these ids.
    pub fn clear_in_transfer(&mut self, ids: &[MessageId]) {
        for id in ids {
            self.in_transfer.forget(*id);
            self.hidden.clear_in_transfer(*id);
        }
    }

    /// The pool, asked for all of them when there had been `asides`, had none: they are known from here on.
    pub fn clear_all_in_transfer(&mut self, asides: u64) {
        if self.in_transfer.times == asides {
            self.in_transfer.known = Some(BTreeSet::new());
        }
    }
}
