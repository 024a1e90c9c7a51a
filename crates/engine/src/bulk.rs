//! Removing many messages at once: by their ids, as soon as they are taken, or all that there are.

use super::hidden::{HiddenReason, RemovalKind};
use super::queue::QueueEngine;
use super::removal::{PoolLookup, Removal, on_its_way};
use angarium_core::claim::Holdings;
use angarium_core::error::Error;
use angarium_core::ids::{ClaimId, MessageId};
use angarium_core::time::Timestamp;

/// The purges of a queue that are under way.
///
/// A purge reads what is ready and what is not one after the other. A message that changes from the one to the other in
/// between is met in neither, so it is copied both again.
#[derive(Debug, Default)]
pub(super) struct Purges {
    running: usize,
    /// The newest message that one of them is to remove.
    until: Option<MessageId>,
    /// How often such a message was shown that had been hidden: what it is in the pool may have changed.
    shown: u64,
}

impl Purges {
    /// A message that was hidden is shown.
    pub(super) fn note_shown(&mut self, id: MessageId) {
        self.shown += u64::from(self.until.is_some_and(|until| id <= until));
    }
}

/// What a purge knows when a pass over all that there is begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PurgePass {
    last: MessageId,
    shown: u64,
}

impl QueueEngine {
    /// A purge begins that is to remove what there is up to this message.
    pub fn begin_purging(&mut self, last: MessageId) {
        self.purges.running += 1;
        self.purges.until = self.purges.until.max(Some(last));
    }

    /// A purge has ended, however it ended.
    pub fn end_purging(&mut self) {
        self.purges.running = self.purges.running.saturating_sub(1);
        self.purges.until = self.purges.until.filter(|_| self.purges.running > 0);
    }

    /// A purge begins to go over all that there is up to this message.
    pub fn begin_purge_pass(&self, last: MessageId) -> PurgePass {
        PurgePass { last, shown: self.purges.shown }
    }

    /// Whether the pass met all that there was when it began: no message became ready, or was put off, meanwhile.
    pub fn is_purge_whole(&self, PurgePass { last, shown }: PurgePass) -> bool {
        let is_changing = |why: HiddenReason| {
            matches!(why, HiddenReason::Waking | HiddenReason::Returning(_) | HiddenReason::Leaving)
        };
        let ids = self.hidden.values().filter(|hidden| is_changing(hidden.why));
        let mut ids = ids.filter_map(|hidden| hidden.header.as_ref()).map(|header| header.id);
        self.purges.shown == shown && ids.all(|id| id > last)
    }

    /// Begins to remove messages for a caller who holds claims: all of them, or none when one is claimed by another
    /// caller or on its way to another queue. Ids must differ; one that is not known here is removed from the pool,
    /// whether it is there or not. Where only the pool knows what is on its way it must be asked first, and `asked`
    /// states when none of them was.
    pub fn begin_remove_all(
        &mut self,
        ids: &[MessageId],
        held: Holdings<'_>,
        asked: Option<PoolLookup>,
        now: Timestamp,
    ) -> Result<Removal, Error> {
        let is_held = |holder: ClaimId| {
            held.has(holder, self.client_of(holder))
                && self.claims.get(holder).is_some_and(|claim| claim.is_live(now))
        };
        for id in ids {
            match self.hidden.get(id).map(|hidden| hidden.why) {
                None if self.in_transfer.has(*id) == Some(true) => return Err(on_its_way()),
                None if !self.in_transfer.is_answered(*id, asked.map(|asked| asked.0)) => {
                    return Ok(Removal::AskPool(PoolLookup(self.in_transfer.times())));
                }
                Some(HiddenReason::Leaving) => return Err(on_its_way()),
                None | Some(HiddenReason::Removing(_) | HiddenReason::Waking | HiddenReason::Copying) => {}
                Some(HiddenReason::Claimed(holder)) if is_held(holder) => {}
                Some(HiddenReason::Claimed(_) | HiddenReason::Taking | HiddenReason::Returning(_)) => {
                    return Err(Error::Claimed(*id));
                }
            }
        }
        for id in ids {
            self.begin_remove_whatever(*id, RemovalKind::Acked);
        }
        Ok(Removal::Begun)
    }

    /// Begins to remove messages, claimed or not. Returns those that are on their way out now; the others are about
    /// to change: ask again when that has ended.
    pub fn begin_purge(&mut self, ids: &[MessageId]) -> Vec<MessageId> {
        let is_changing = |id: &MessageId| match self.hidden.get(id).map(|hidden| hidden.why) {
            Some(
                HiddenReason::Taking
                | HiddenReason::Returning(_)
                | HiddenReason::Waking
                | HiddenReason::Leaving,
            ) => true,
            Some(HiddenReason::Claimed(_) | HiddenReason::Removing(_) | HiddenReason::Copying) => false,
            None => self.in_transfer.has(*id) == Some(true),
        };
        let begun: Vec<MessageId> = ids.iter().copied().filter(|id| !is_changing(id)).collect();
        for id in &begun {
            self.begin_remove_whatever(*id, RemovalKind::Uncounted);
        }
        begun
    }

    /// Begins to remove a message, which is counted as `claimed` if it is under a claim.
    pub(super) fn begin_remove_whatever(&mut self, id: MessageId, claimed: RemovalKind) {
        match self.hidden.get_mut(&id) {
            Some(hidden) if matches!(hidden.why, HiddenReason::Claimed(_)) => {
                if let HiddenReason::Claimed(holder) = hidden.why {
                    hidden.why = HiddenReason::Removing(Some(holder));
                    hidden.removals = 1;
                    hidden.removed = claimed;
                }
            }
            Some(hidden) if matches!(hidden.why, HiddenReason::Waking | HiddenReason::Copying) => {
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
