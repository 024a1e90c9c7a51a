//! Removal of many messages: by their ids, at a pop, or all of a queue.

use super::hidden::{HiddenReason, RemovalKind};
use super::queue::QueueEngine;
use super::removal::{PoolLookup, Removal, changing_error, in_transfer_error};
use angarium_core::claim::Holdings;
use angarium_core::error::Error;
use angarium_core::ids::{ClaimId, MessageId};
use angarium_core::message::Header;
use angarium_core::mutation::{Mutation, is_on};
use angarium_core::time::Timestamp;

/// The purges of a queue that are in progress.
///
/// A purge reads first the ready messages and then the others. It may miss a message that changes between the two
/// states meanwhile, so it then reads both again.
#[derive(Debug, Default)]
pub(super) struct Purges {
    count: usize,
    /// The greatest id that any of them removes.
    until: Option<MessageId>,
    /// Number of such messages that were shown after they had been hidden: their state in the pool may have changed.
    shown: u64,
}

impl Purges {
    /// Records that a hidden message is shown.
    pub(super) fn note_shown(&mut self, id: MessageId) {
        self.shown += u64::from(self.until.is_some_and(|until| id <= until));
    }
}

/// State of the purges at the begin of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PurgePass {
    last: MessageId,
    shown: u64,
}

impl QueueEngine {
    /// Begins a purge of all messages up to `last`.
    pub fn begin_purging(&mut self, last: MessageId) {
        self.purges.count += 1;
        self.purges.until = self.purges.until.max(Some(last));
    }

    /// Ends a purge, with any outcome.
    pub fn end_purging(&mut self) {
        self.purges.count = self.purges.count.saturating_sub(1);
        self.purges.until = self.purges.until.filter(|_| self.purges.count > 0);
    }

    /// Begins a pass of a purge over all messages up to `last`.
    pub fn begin_purge_pass(&self, last: MessageId) -> PurgePass {
        PurgePass { last, shown: self.purges.shown }
    }

    /// Whether the pass met all messages that existed when it began: none became ready or scheduled meanwhile.
    pub fn is_purge_whole(&self, PurgePass { last, shown }: PurgePass) -> bool {
        let is_changing = |why: HiddenReason| {
            matches!(
                why,
                HiddenReason::Waking
                    | HiddenReason::Publishing
                    | HiddenReason::Returning(_)
                    | HiddenReason::Leaving
                    | HiddenReason::Settling(_)
                    | HiddenReason::Requeuing
            )
        };
        let mut changing = self.hidden.values().filter(|hidden| is_changing(hidden.why));
        // One without a known header may be any message.
        let is_later = |header: &Header| header.id > last;
        (self.purges.shown == shown || is_on(Mutation::PurgeInOnePass))
            && changing.all(|hidden| hidden.header.as_ref().is_some_and(is_later))
    }

    /// Begins to remove messages for a client that holds claims: all of them, or none when one is under a claim of
    /// another client or in transfer. Ids must differ. A message that is not in memory is removed from the pool,
    /// whether it exists there or not. If only the pool knows which messages are in transfer, it must be read first;
    /// `lookup` is the token of a look-up that found none of them in transfer.
    pub fn begin_remove_all(
        &mut self,
        ids: &[MessageId],
        held: Holdings<'_>,
        lookup: Option<PoolLookup>,
        now: Timestamp,
    ) -> Result<Removal, Error> {
        let is_held = |holder: ClaimId| {
            held.has(holder, self.client_of(holder))
                && self.claims.get(holder).is_some_and(|claim| claim.is_live(now))
        };
        for id in ids {
            match self.hidden.get(id).map(|hidden| hidden.why) {
                None if self.in_transfer.has(*id) == Some(true) => return Err(in_transfer_error()),
                None if !self.in_transfer.is_answered(*id, lookup.map(|lookup| lookup.0)) => {
                    return Ok(Removal::AskPool(PoolLookup(self.in_transfer.times())));
                }
                Some(HiddenReason::Leaving) => return Err(in_transfer_error()),
                None
                | Some(
                    HiddenReason::Removing(_)
                    | HiddenReason::Waking
                    | HiddenReason::Publishing
                    | HiddenReason::Copying,
                ) => {}
                Some(HiddenReason::Claimed(holder)) if is_held(holder) => {}
                Some(HiddenReason::Requeuing) => return Err(changing_error()),
                Some(
                    HiddenReason::Claimed(_)
                    | HiddenReason::Taking
                    | HiddenReason::Returning(_)
                    | HiddenReason::Settling(_),
                ) => {
                    return Err(Error::Claimed(*id));
                }
            }
        }
        for id in ids {
            self.begin_remove_any(*id, RemovalKind::Acked);
        }
        Ok(Removal::Begun)
    }

    /// Begins to remove messages, claimed or not. Returns those whose removal has begun; the others are being changed:
    /// call again after that.
    pub fn begin_purge(&mut self, ids: &[MessageId]) -> Vec<MessageId> {
        let is_changing = |id: &MessageId| match self.hidden.get(id).map(|hidden| hidden.why) {
            Some(
                HiddenReason::Taking
                | HiddenReason::Returning(_)
                | HiddenReason::Waking
                | HiddenReason::Publishing
                | HiddenReason::Leaving
                | HiddenReason::Settling(_)
                | HiddenReason::Requeuing,
            ) => true,
            Some(HiddenReason::Claimed(_) | HiddenReason::Removing(_) | HiddenReason::Copying) => false,
            None => self.in_transfer.has(*id) == Some(true),
        };
        let begun: Vec<MessageId> = ids.iter().copied().filter(|id| !is_changing(id)).collect();
        for id in &begun {
            self.begin_remove_any(*id, RemovalKind::Uncounted);
        }
        begun
    }

    /// Begins to remove a message; its removal counts as `claimed` if it is under a claim.
    pub(super) fn begin_remove_any(&mut self, id: MessageId, claimed: RemovalKind) {
        match self.hidden.get_mut(&id) {
            Some(hidden) if matches!(hidden.why, HiddenReason::Claimed(_)) => {
                if let HiddenReason::Claimed(holder) = hidden.why {
                    hidden.why = HiddenReason::Removing(Some(holder));
                    hidden.removals = 1;
                    hidden.removed = claimed;
                }
            }
            Some(hidden)
                if matches!(
                    hidden.why,
                    HiddenReason::Waking | HiddenReason::Publishing | HiddenReason::Copying
                ) =>
            {
                hidden.why = HiddenReason::Removing(None);
                hidden.removals = 1;
            }
            _ => {
                self.remove_absent(id);
            }
        }
    }

    /// Begins to remove messages that were taken, instead of claiming them.
    pub fn begin_remove_taken(&mut self, ids: &[MessageId]) {
        for id in ids {
            if let Some(hidden) = self.hidden.get_mut(id).filter(|hidden| hidden.why == HiddenReason::Taking)
            {
                hidden.why = HiddenReason::Removing(None);
                hidden.removals = 1;
                hidden.removed = RemovalKind::Acked;
                self.claimed -= 1;
            }
        }
    }
}
