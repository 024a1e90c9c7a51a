//! Removing many messages at once: by their ids, as soon as they are taken, or all that there are.

use super::queue::{QueueEngine, Why};
use crate::domain::ids::{ClaimId, MessageId};
use crate::domain::time::Timestamp;
use crate::error::Error;

impl QueueEngine {
    /// Begins to remove messages for somebody who holds `claims`: all of them, or none when one is claimed by
    /// somebody else. Ids must differ; one that is not known here is removed from the pool, whether it is there or not.
    pub fn begin_remove_all(
        &mut self,
        ids: &[MessageId],
        claims: &[ClaimId],
        now: Timestamp,
    ) -> Result<(), Error> {
        let is_held = |holder: ClaimId| {
            claims.contains(&holder) && self.claims.get(holder).is_some_and(|claim| claim.is_live(now))
        };
        for id in ids {
            match self.hidden.get(id).map(|hidden| hidden.why) {
                None | Some(Why::Removing(_)) => {}
                Some(Why::Claimed(holder)) if is_held(holder) => {}
                Some(Why::Claimed(_) | Why::Taking | Why::Returning(_)) => return Err(Error::Claimed(*id)),
            }
        }
        for id in ids {
            self.begin_remove_whatever(*id);
        }
        Ok(())
    }

    /// Begins to remove messages, claimed or not. Returns those that are on their way out now; the others are about
    /// to change: ask again when that is over.
    pub fn begin_purge(&mut self, ids: &[MessageId]) -> Vec<MessageId> {
        let is_changing = |id: &MessageId| {
            self.hidden.get(id).is_some_and(|hidden| matches!(hidden.why, Why::Taking | Why::Returning(_)))
        };
        let begun: Vec<MessageId> = ids.iter().copied().filter(|id| !is_changing(id)).collect();
        for id in &begun {
            self.begin_remove_whatever(*id);
        }
        begun
    }

    fn begin_remove_whatever(&mut self, id: MessageId) {
        match self.hidden.get_mut(&id) {
            Some(hidden) if matches!(hidden.why, Why::Claimed(_)) => {
                if let Why::Claimed(holder) = hidden.why {
                    hidden.why = Why::Removing(Some(holder));
                    hidden.removals = 1;
                }
            }
            _ => self.begin_remove_absent(id),
        }
    }

    /// Begins to remove messages that were taken, instead of claiming them.
    pub fn begin_remove_taken(&mut self, ids: &[MessageId]) {
        for id in ids {
            if let Some(hidden) = self.hidden.get_mut(id).filter(|hidden| hidden.why == Why::Taking) {
                hidden.why = Why::Removing(None);
                hidden.removals = 1;
                self.claimed -= 1;
            }
        }
    }
}
