//! Removing many messages at once: by their ids, as soon as they are taken, or all that there are.

use super::hidden::{Removed, Why};
use super::queue::QueueEngine;
use super::removal::{Asked, Removal, on_its_way};
use crate::domain::ids::{ClaimId, MessageId};
use crate::domain::time::Timestamp;
use crate::error::Error;

impl QueueEngine {
    /// Begins to remove messages for somebody who holds `claims`: all of them, or none when one is claimed by
    /// somebody else or on its way to another queue. Ids must differ; one that is not known here is removed from the
    /// pool, whether it is there or not. Where only the pool knows what is on its way it must be asked first, and `asked`
    /// says when none of them was.
    pub fn begin_remove_all(
        &mut self,
        ids: &[MessageId],
        claims: &[ClaimId],
        asked: Option<Asked>,
        now: Timestamp,
    ) -> Result<Removal, Error> {
        let is_held = |holder: ClaimId| {
            claims.contains(&holder) && self.claims.get(holder).is_some_and(|claim| claim.is_live(now))
        };
        for id in ids {
            match self.hidden.get(id).map(|hidden| hidden.why) {
                None if self.aside.has(*id) == Some(true) => return Err(on_its_way()),
                None if !self.aside.is_answered(*id, asked.map(|asked| asked.0)) => {
                    return Ok(Removal::AskPool(Asked(self.aside.times())));
                }
                Some(Why::Leaving) => return Err(on_its_way()),
                None | Some(Why::Removing(_) | Why::Waking | Why::Copying) => {}
                Some(Why::Claimed(holder)) if is_held(holder) => {}
                Some(Why::Claimed(_) | Why::Taking | Why::Returning(_)) => return Err(Error::Claimed(*id)),
            }
        }
        for id in ids {
            self.begin_remove_whatever(*id, Removed::Acked);
        }
        Ok(Removal::Begun)
    }

    /// Begins to remove messages, claimed or not. Returns those that are on their way out now; the others are about
    /// to change: ask again when that is over.
    pub fn begin_purge(&mut self, ids: &[MessageId]) -> Vec<MessageId> {
        let is_changing = |id: &MessageId| match self.hidden.get(id).map(|hidden| hidden.why) {
            Some(Why::Taking | Why::Returning(_) | Why::Waking | Why::Leaving) => true,
            Some(Why::Claimed(_) | Why::Removing(_) | Why::Copying) => false,
            None => self.aside.has(*id) == Some(true),
        };
        let begun: Vec<MessageId> = ids.iter().copied().filter(|id| !is_changing(id)).collect();
        for id in &begun {
            self.begin_remove_whatever(*id, Removed::Uncounted);
        }
        begun
    }

    /// Begins to remove a message, which is counted as `claimed` if it is under a claim.
    pub(super) fn begin_remove_whatever(&mut self, id: MessageId, claimed: Removed) {
        match self.hidden.get_mut(&id) {
            Some(hidden) if matches!(hidden.why, Why::Claimed(_)) => {
                if let Why::Claimed(holder) = hidden.why {
                    hidden.why = Why::Removing(Some(holder));
                    hidden.removals = 1;
                    hidden.removed = claimed;
                }
            }
            Some(hidden) if matches!(hidden.why, Why::Waking | Why::Copying) => {
                hidden.why = Why::Removing(None);
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
            if let Some(hidden) = self.hidden.get_mut(id).filter(|hidden| hidden.why == Why::Taking) {
                hidden.why = Why::Removing(None);
                hidden.removals = 1;
                hidden.removed = Removed::Acked;
                self.claimed -= 1;
            }
        }
    }
}
