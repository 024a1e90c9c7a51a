//! Removal of messages, by Zaqar's table of answers, and the outcomes of removals.

use super::hidden::{HiddenMessage, HiddenReason, RemovalKind};
use super::queue::QueueEngine;
use angarium_core::error::Error;
use angarium_core::ids::{ClaimId, MessageId};
use angarium_core::message::{Header, State};
use angarium_core::mutation::{Mutation, is_on};
use angarium_core::time::Timestamp;

/// The next step to remove a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    /// The message is hidden now: remove it from the pool, whether it exists there or not.
    Begun,
    /// The message is not in memory, and the pool's entry decides: look it up, and pass the result together with this
    /// token.
    AskPool(PoolLookup),
}

/// Token of a look-up: it tells whether entries were marked in transfer since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolLookup(pub(super) u64);

/// The result of a look-up of an id in the pool.
#[derive(Clone, Copy, Debug)]
pub enum LookupResult<'a> {
    /// No entry.
    Absent,
    /// An entry in this state.
    There(&'a State),
}

impl QueueEngine {
    /// Begins to remove a message for a client that names `claim`, by Zaqar's table of answers.
    pub fn begin_remove(
        &mut self,
        id: MessageId,
        claim: Option<ClaimId>,
        now: Timestamp,
    ) -> Result<Removal, Error> {
        if claim.is_some_and(|claim| self.is_recalled(id, claim)) {
            return Err(Error::Gone(id));
        }
        if claim.is_some_and(|claim| self.is_being_recalled(id, claim)) {
            return Err(changing_error());
        }
        match self.remove_known(id, claim, now) {
            Some(decided) => decided,
            None => match self.in_transfer.has(id) {
                Some(true) if !is_on(Mutation::DeleteMovingMessage) => Err(in_transfer_error()),
                // Only the pool knows whether it exists, or is in transfer to another queue.
                is_in_transfer if claim.is_some() || is_in_transfer.is_none() => {
                    Ok(Removal::AskPool(PoolLookup(self.in_transfer.times())))
                }
                _ => Ok(self.remove_absent(id)),
            },
        }
    }

    /// Begins to remove a message after its look-up in the pool. Asks for another look-up if entries were marked in
    /// transfer since.
    pub fn begin_remove_after_lookup(
        &mut self,
        id: MessageId,
        claim: Option<ClaimId>,
        lookup: PoolLookup,
        result: LookupResult<'_>,
        now: Timestamp,
    ) -> Result<Removal, Error> {
        if let Some(decided) = self.remove_known(id, claim, now) {
            return decided;
        }
        let current = PoolLookup(self.in_transfer.times());
        if lookup != current {
            return Ok(Removal::AskPool(current));
        }
        match result {
            LookupResult::There(state) if state.is_in_transfer() => Err(in_transfer_error()),
            LookupResult::There(_) if claim.is_some() => Err(Error::NotClaimed(id)),
            LookupResult::There(_) | LookupResult::Absent => Ok(self.remove_absent(id)),
        }
    }

    /// Decides about a message that is in memory; none if it is not.
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
            HiddenReason::Claimed(holder) => match claim {
                Some(named)
                    if named == holder && self.claims.get(named).is_some_and(|claim| claim.is_live(now)) =>
                {
                    hidden.why = HiddenReason::Removing(Some(holder));
                    hidden.removals = 1;
                    hidden.removed = RemovalKind::Acked;
                    Some(Ok(Removal::Begun))
                }
                _ => Some(Err(self.wrong_claim(id, claim, now))),
            },
            HiddenReason::Settling(holder) if claim == Some(holder) => Some(Err(changing_error())),
            // Clients do not know its claim yet, or must not use it any more.
            HiddenReason::Taking | HiddenReason::Returning(_) | HiddenReason::Settling(_) => {
                Some(Err(self.wrong_claim(id, claim, now)))
            }
            HiddenReason::Requeuing => Some(Err(changing_error())),
            HiddenReason::Removing(_) => Some(Ok(self.remove_absent(id))),
            HiddenReason::Waking | HiddenReason::Publishing | HiddenReason::Copying if claim.is_some() => {
                Some(Err(Error::NotClaimed(id)))
            }
            HiddenReason::Waking | HiddenReason::Publishing | HiddenReason::Copying => {
                hidden.why = HiddenReason::Removing(None);
                hidden.removals = 1;
                Some(Ok(Removal::Begun))
            }
            HiddenReason::Leaving => Some(Err(in_transfer_error())),
        }
    }

    /// Begins to remove a message that is under no claim, or that the pool does not have: then the durable removal
    /// proves that this engine still owns the queue.
    pub(super) fn remove_absent(&mut self, id: MessageId) -> Removal {
        if let Some(hidden) = self.hidden.get_mut(&id) {
            hidden.removals += 1;
            return Removal::Begun;
        }
        let ready = if is_on(Mutation::ClaimDuringDelete) { None } else { self.take_out(id) };
        let hidden = match ready {
            Some(header) => HiddenMessage::new(header, HiddenReason::Removing(None)),
            None => HiddenMessage {
                // While it is hidden no page of scheduled messages wakes it, and the schedule may forget that there
                // were any.
                may_be_delayed: self.schedule.has_any(),
                ..HiddenMessage::unknown(HiddenReason::Removing(None))
            },
        };
        self.hidden.insert(id, HiddenMessage { removals: 1, ..hidden });
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
        let mut ended = Vec::new();
        for id in ids {
            if let Some(refill) = &mut self.refill {
                refill.remove(*id);
            }
            self.schedule.note_change(*id);
            self.sweeps.note_change(*id);
            self.in_transfer.forget(*id);
            let hidden = self.hidden.remove(id);
            let header = hidden.as_ref().and_then(|hidden| hidden.header.as_ref());
            self.removed_from_group(*id, header.and_then(|header| header.group.as_ref()));
            let Some(hidden) = hidden else { continue };
            if hidden.header.is_none() && hidden.may_be_delayed {
                self.list_groups_again();
            }
            self.tally.count(hidden.removed);
            if let HiddenReason::Removing(Some(claim)) = hidden.why {
                self.claimed -= 1;
                if self.claims.forget(claim, *id) {
                    ended.push(claim);
                }
            }
        }
        ended
    }

    /// Removals were certainly not carried out: the messages become what they were before.
    pub fn remove_failed(&mut self, ids: &[MessageId]) {
        for id in ids {
            let Some(hidden) = self.hidden.get_mut(id) else { continue };
            hidden.removals = hidden.removals.saturating_sub(1);
            if hidden.removals == 0 && hidden.header.is_some() {
                self.recalls.forget(*id);
            }
            match hidden.why {
                HiddenReason::Removing(_) if hidden.removals > 0 => {}
                HiddenReason::Removing(Some(claim)) => {
                    hidden.why = HiddenReason::Claimed(claim);
                    hidden.removed = RemovalKind::default();
                }
                HiddenReason::Removing(None) => match self.hidden.remove(id).and_then(|hidden| hidden.header)
                {
                    Some(header) => self.show(header, None),
                    None => self.read_again(*id),
                },
                HiddenReason::Taking | HiddenReason::Claimed(_) | HiddenReason::Returning(_) => {}
                HiddenReason::Waking
                | HiddenReason::Publishing
                | HiddenReason::Leaving
                | HiddenReason::Copying
                | HiddenReason::Settling(_)
                | HiddenReason::Requeuing => {}
            }
        }
    }

    /// The headers of those messages whose first removal began while they were claimed, and that the pool certainly
    /// stores as ready. A release with a delay that began and did not end the claim makes this uncertain. Only that
    /// removal can take them out of the ready messages of the pool.
    pub fn leaving_claims(&self, ids: &[MessageId]) -> impl Iterator<Item = &Header> {
        let hidden = ids.iter().filter_map(|id| self.hidden.get(id));
        let is_certain = |hidden: &&HiddenMessage| {
            hidden.removals == 1
                && matches!(hidden.why, HiddenReason::Removing(Some(_)))
                && (hidden.is_stored_ready || is_on(Mutation::TrustOldHint))
        };
        hidden.filter(is_certain).filter_map(|hidden| hidden.header.as_ref())
    }

    /// Makes memory forget a range, so that a message which was hidden by its id alone is read from the pool again.
    pub(super) fn read_again(&mut self, id: MessageId) {
        // A page may have been read without it while it was hidden.
        if let Some(refill) = &mut self.refill {
            refill.void();
        }
        self.ready_cache.end_before(id);
        if let Some(groups) = &mut self.groups {
            groups.leave();
        }
        self.schedule.expect_any();
    }
}

/// Number of removed messages, for the counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemovalTally {
    /// Removed by the holders of their claims, or popped.
    pub acked: u64,
    /// Removed because they had expired.
    pub expired: u64,
}

impl RemovalTally {
    /// Counts a message that left its claim by a settle, in this state; none: it was removed.
    pub(super) fn count_settled(&mut self, state: Option<&State>) {
        self.acked += u64::from(state.is_none_or(|state| *state == State::Done));
    }

    fn count(&mut self, removed: RemovalKind) {
        match removed {
            RemovalKind::Uncounted => {}
            RemovalKind::Acked => self.acked += 1,
            RemovalKind::Expired => self.expired += 1,
        }
    }
}

impl QueueEngine {
    /// Returns the counts since the last call, and resets them.
    pub fn take_tally(&mut self) -> RemovalTally {
        self.enter_freed();
        std::mem::take(&mut self.tally)
    }
}

/// The error for a message that another request is changing.
pub(super) fn changing_error() -> Error {
    Error::Busy("another request is changing the message, please repeat this one")
}

/// The error of a request about a message that leaves its queue.
pub fn in_transfer_error() -> Error {
    Error::Busy("the message is in transfer to another queue, please try again in a few seconds")
}
