//! Removing messages, by Zaqar's table of answers, and what becomes of a removal.

use super::hidden::{Hidden, Removed, Why};
use super::queue::QueueEngine;
use crate::domain::ids::{ClaimId, MessageId};
use crate::domain::message::{Header, State};
use crate::domain::time::Timestamp;
use crate::error::{Error, Part};

/// What has to be done to remove a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    /// It is hidden now: remove it from the pool, whether it is there or not.
    Begun,
    /// It is not in memory, and what the pool has decides: read it and say so with this.
    AskPool(Asked),
}

/// When the pool was asked for a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked(pub(super) u64);

/// What the pool has under an id.
#[derive(Clone, Copy, Debug)]
pub enum Answered<'a> {
    /// No entry.
    Absent,
    /// An entry in this state.
    There(&'a State),
}

impl QueueEngine {
    /// Begins to remove a message for somebody who names `claim`, by Zaqar's table of answers.
    pub fn begin_remove(
        &mut self,
        id: MessageId,
        claim: Option<ClaimId>,
        now: Timestamp,
    ) -> Result<Removal, Error> {
        match self.remove_known(id, claim, now) {
            Some(decided) => decided,
            None => match self.aside.has(id) {
                Some(true) => Err(on_its_way()),
                // Only the pool knows whether it is there, or on its way to another queue.
                is_aside if claim.is_some() || is_aside.is_none() => {
                    Ok(Removal::AskPool(Asked(self.aside.times())))
                }
                _ => Ok(self.remove_absent(id)),
            },
        }
    }

    /// Begins to remove a message that the pool was asked for. It is asked again when entries were set aside since.
    pub fn begin_remove_asked(
        &mut self,
        id: MessageId,
        claim: Option<ClaimId>,
        (asked, answered): (Asked, Answered<'_>),
        now: Timestamp,
    ) -> Result<Removal, Error> {
        if let Some(decided) = self.remove_known(id, claim, now) {
            return decided;
        }
        let now_asked = Asked(self.aside.times());
        if asked != now_asked {
            return Ok(Removal::AskPool(now_asked));
        }
        match answered {
            Answered::There(State::Moving(_) | State::Prepared(_)) => Err(on_its_way()),
            Answered::There(_) if claim.is_some() => Err(Error::NotClaimed(id)),
            Answered::There(_) | Answered::Absent => Ok(self.remove_absent(id)),
        }
    }

    /// Decides about a message that is in memory.
    fn remove_known(
        &mut self,
        id: MessageId,
        claim: Option<ClaimId>,
        now: Timestamp,
    ) -> Option<Result<Removal, Error>> {
        let Some(hidden) = self.hidden.get_mut(&id) else {
            self.ready(id)?;
            return Some(if claim.is_some() {
                Err(Error::NotClaimed(id))
            } else {
                Ok(self.remove_absent(id))
            });
        };
        match hidden.why {
            Why::Claimed(holder) => match claim {
                Some(named)
                    if named == holder && self.claims.get(named).is_some_and(|claim| claim.is_live(now)) =>
                {
                    hidden.why = Why::Removing(Some(holder));
                    hidden.removals = 1;
                    hidden.removed = Removed::Acked;
                    Some(Ok(Removal::Begun))
                }
                _ => Some(Err(self.wrong_claim(id, claim, now))),
            },
            // Its claim is not known to anybody yet, or not any more.
            Why::Taking | Why::Returning(_) => Some(Err(self.wrong_claim(id, claim, now))),
            Why::Removing(_) => Some(Ok(self.remove_absent(id))),
            Why::Waking | Why::Copying if claim.is_some() => Some(Err(Error::NotClaimed(id))),
            Why::Waking | Why::Copying => {
                hidden.why = Why::Removing(None);
                hidden.removals = 1;
                Some(Ok(Removal::Begun))
            }
            Why::Leaving => Some(Err(on_its_way())),
        }
    }

    /// Begins to remove a message that is under no claim, or that the pool does not have: the removal is what
    /// proves that this engine still owns the queue.
    pub(super) fn remove_absent(&mut self, id: MessageId) -> Removal {
        if let Some(hidden) = self.hidden.get_mut(&id) {
            hidden.removals += 1;
            return Removal::Begun;
        }
        let hidden = match self.take_out(id) {
            Some(header) => Hidden::new(header, Why::Removing(None)),
            None => Hidden::unknown(Why::Removing(None)),
        };
        self.hidden.insert(id, Hidden { removals: 1, ..hidden });
        Removal::Begun
    }

    fn wrong_claim(&self, id: MessageId, claim: Option<ClaimId>, now: Timestamp) -> Error {
        match claim {
            None => Error::Claimed(id),
            Some(claim) if self.claims.get(claim).is_some_and(|claim| claim.is_live(now)) => {
                Error::Claimed(id)
            }
            Some(claim) => Error::ClaimEnded(claim.to_string()),
        }
    }

    /// Removals are durable. Returns the claims that have no message left.
    pub fn removed(&mut self, ids: &[MessageId]) -> Vec<ClaimId> {
        let mut over = Vec::new();
        for id in ids {
            if let Some(refill) = &mut self.refill {
                refill.remove(*id);
            }
            self.schedule.note_change(*id);
            self.aside.forget(*id);
            let hidden = self.hidden.remove(id);
            let header = hidden.as_ref().and_then(|hidden| hidden.header.as_ref());
            self.gone_from_group(*id, header.and_then(|header| header.group.as_ref()));
            let Some(hidden) = hidden else { continue };
            self.tally.count(hidden.removed);
            if let Why::Removing(Some(claim)) = hidden.why {
                self.claimed -= 1;
                if self.claims.forget(claim, *id) {
                    over.push(claim);
                }
            }
        }
        over
    }

    /// Removals certainly did not happen: what was known here is as before.
    pub fn remove_failed(&mut self, ids: &[MessageId]) {
        for id in ids {
            let Some(hidden) = self.hidden.get_mut(id) else { continue };
            hidden.removals = hidden.removals.saturating_sub(1);
            match hidden.why {
                Why::Removing(_) if hidden.removals > 0 => {}
                Why::Removing(Some(claim)) => {
                    hidden.why = Why::Claimed(claim);
                    hidden.removed = Removed::default();
                }
                Why::Removing(None) => match self.hidden.remove(id).and_then(|hidden| hidden.header) {
                    Some(header) => self.show(header, None),
                    None => self.read_again(*id),
                },
                Why::Taking | Why::Claimed(_) | Why::Returning(_) => {}
                Why::Waking | Why::Leaving | Why::Copying => {}
            }
        }
    }

    /// Those of these messages whose first removal began while they were claimed, and that the pool certainly stores as
    /// ready: not after a release with a delay that was begun and did not end the claim. Nothing but that removal can take
    /// them out of the ready ones of the pool.
    pub fn leaving_claims(&self, ids: &[MessageId]) -> impl Iterator<Item = &Header> {
        let hidden = ids.iter().filter_map(|id| self.hidden.get(id));
        let is_certain = |hidden: &&Hidden| {
            hidden.removals == 1 && matches!(hidden.why, Why::Removing(Some(_))) && hidden.is_stored_ready
        };
        hidden.filter(is_certain).filter_map(|hidden| hidden.header.as_ref())
    }

    /// Leaves a message to the pool that was hidden without being known here.
    fn read_again(&mut self, id: MessageId) {
        // A page may have been read around it while it was hidden.
        if let Some(refill) = &mut self.refill {
            refill.distrust();
        }
        self.window.end_before(id);
        if let Some(groups) = &mut self.groups {
            groups.leave();
        }
        self.schedule.look_again();
    }
}

/// How many messages were removed, for whoever counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// By the holders of their claims, or popped.
    pub acked: u64,
    /// Because their life was over.
    pub expired: u64,
}

impl Tally {
    fn count(&mut self, removed: Removed) {
        match removed {
            Removed::Uncounted => {}
            Removed::Acked => self.acked += 1,
            Removed::Expired => self.expired += 1,
        }
    }
}

impl QueueEngine {
    /// What was removed since the last call.
    pub fn take_tally(&mut self) -> Tally {
        self.enter_freed();
        std::mem::take(&mut self.tally)
    }
}

pub(super) fn on_its_way() -> Error {
    Error::unavailable(Part::Storage, "the message is on its way to another queue")
}
