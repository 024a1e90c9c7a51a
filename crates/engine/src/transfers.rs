//! Transfers to another queue, as one of the two queues sees them (P5).
//!
//! ```text
//! source:  ready ──take──▶ leaving ──▶ moving ─────────────────▶ gone
//! target:                               prepared ──────────────────▶ ready
//!          1. moving is durable   2. prepared is   3. removed   4. published
//! ```
//!
//! Between steps 1 and 4 no client sees, claims or deletes the message; each step begins when the one before is
//! durable. The pool has the entries in these states. Memory has a bounded number of their ids, so a million messages
//! that cannot reach their target cost no memory.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::hidden::HiddenReason;
use super::queue::QueueEngine;
use super::requeue::forget_claims;
use angarium_core::ids::MessageId;
use angarium_core::limits;
use angarium_core::message::{Header, Life, Peer, State};
use angarium_core::mutation::{Mutation, is_on};
use angarium_core::time::Timestamp;

/// The fate of a prepared entry at the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransferFate {
    /// The source has removed it: it belongs to this queue.
    Publish,
    /// The source has not removed it yet.
    Wait,
    /// The source has it and does not transfer it: it belongs to the source.
    Drop,
}

impl TransferFate {
    /// The fate of an entry by its state at the source; none when it is gone there.
    pub fn of(source: Option<&State>) -> Self {
        match source {
            None => Self::Publish,
            Some(State::Moving(_)) => Self::Wait,
            Some(
                State::Ready
                | State::Scheduled
                | State::Prepared(_)
                | State::NoTarget
                | State::Done
                | State::Failed,
            ) => Self::Drop,
        }
    }
}

/// Returns the header of a message at its target: it keeps its id and creation time, and starts with no attempts.
/// Without a `life` for the target it keeps its own.
pub fn prepared(header: &Header, source: &Arc<Peer>, life: Option<Life>, now: Timestamp) -> Header {
    let state = State::Prepared(Arc::clone(source));
    let life = life.unwrap_or(header.life);
    let mut there = Header { life, ready: now, state, ..header.clone() };
    // Without extras it is a new message there, in a form that every program reads.
    if there.extras.is_some() {
        forget_claims(&mut there);
    }
    Header { attempts: 0, first_claimed: None, ..there }
}

/// Ids of the entries that are prepared or moving.
#[derive(Debug)]
pub(super) struct TransferEntries {
    /// All of them; none when only the pool knows them, because it was not read yet or because they are too many.
    known: Option<BTreeSet<MessageId>>,
    /// Number of times that entries were marked in transfer.
    times: u64,
}

impl TransferEntries {
    pub(super) fn found(is_there: bool) -> Self {
        Self { known: (!is_there).then(BTreeSet::new), times: 0 }
    }

    pub(super) fn add(&mut self, ids: &[MessageId]) {
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

    /// Whether an answer of the pool is still valid: nothing was marked in transfer since, or memory knows the id.
    pub(super) fn is_answered(&self, id: MessageId, lookup: Option<u64>) -> bool {
        self.has(id).is_some() || lookup == Some(self.times)
    }

    /// Whether a message is in transfer; none when only the pool knows.
    pub(super) fn has(&self, id: MessageId) -> Option<bool> {
        self.known.as_ref().map(|known| known.contains(&id))
    }

    pub(super) fn times(&self) -> u64 {
        self.times
    }
}

impl QueueEngine {
    /// Messages that were leaving are durably marked in transfer.
    pub fn mark_in_transfer(&mut self, ids: &[MessageId]) {
        self.in_transfer.add(ids);
        for id in ids {
            // A page that is being read may show it as ready.
            if let Some(refill) = &mut self.refill {
                refill.remove(*id);
            }
            // One that a task selected may have been scheduled.
            self.schedule.note_change(*id);
            self.sweeps.note_change(*id);
            let Some(hidden) = self.hidden.get(id).filter(|hidden| hidden.why == HiddenReason::Leaving)
            else {
                continue;
            };
            let group = hidden.header.as_ref().and_then(|header| header.group.clone());
            self.hidden.mark_in_transfer(*id);
            if let Some(groups) = &mut self.groups
                && !is_on(Mutation::ReadMovingMessageAgain)
            {
                groups.gone(*id, group.as_ref());
            }
        }
    }

    /// Records entries that are prepared here. Called before they are written and again after that, because the pool
    /// may have been read in between.
    pub fn expect_in_transfer(&mut self, ids: &[MessageId]) {
        self.in_transfer.add(ids);
    }

    /// Whether there may be entries that are prepared or moving.
    pub fn has_in_transfer(&self) -> bool {
        self.in_transfer.known.as_ref().is_none_or(|known| !known.is_empty())
    }

    /// Whether one of these is in transfer; none when only the pool knows.
    pub fn are_leaving(&self, ids: &[MessageId]) -> Option<bool> {
        self.in_transfer.known.as_ref().map(|known| ids.iter().any(|id| known.contains(id)))
    }

    /// The first `limit` entries in transfer; none when only the pool knows.
    pub fn in_transfer(&self, limit: usize) -> Option<Vec<MessageId>> {
        self.in_transfer.known.as_ref().map(|known| known.iter().take(limit).copied().collect())
    }

    /// Number of times that entries were marked in transfer; for [`QueueEngine::clear_all_in_transfer`].
    pub fn transfer_count(&self) -> u64 {
        self.in_transfer.times
    }

    /// The pool has no entry in transfer under these ids.
    pub fn clear_in_transfer(&mut self, ids: &[MessageId]) {
        for id in ids {
            self.in_transfer.forget(*id);
            self.hidden.clear_in_transfer(*id);
        }
    }

    /// The pool has no entry in transfer. Valid only if `count` is still the value of [`QueueEngine::transfer_count`];
    /// from then on memory knows all of them.
    pub fn clear_all_in_transfer(&mut self, count: u64) {
        if self.in_transfer.times == count {
            self.in_transfer.known = Some(BTreeSet::new());
        }
    }
}
