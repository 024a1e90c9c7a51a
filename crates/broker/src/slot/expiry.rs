//! Claims whose time has ended, as the slot hands them to the task that ends them.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use angarium_catalogue::Placement;
use angarium_core::ids::ClaimId;
use angarium_core::time::Timestamp;

use crate::limits;
use crate::slot::deadlines::Deadline;
use crate::slot::release::ClaimKey;
use crate::slot::state::{Slot, SlotState};

/// Claims whose time has ended, at most one turn's worth.
#[derive(Default)]
pub(crate) struct DueClaims {
    /// Those of open queues, by where these lie.
    pub(crate) claims: HashMap<Option<Placement>, Vec<ClaimKey>>,
    /// Those of queues that no caller has opened.
    pub(crate) unopened: Vec<Deadline>,
}

/// The claims of one placement that are due together.
#[derive(Default)]
pub(crate) struct DuePlacement {
    pub(crate) claims: Vec<ClaimKey>,
    pub(crate) unopened: Vec<Deadline>,
}

impl Slot {
    /// Whether claims are due that no task is ending yet; the caller then starts one. Sets the alarm too.
    pub(crate) fn begin_expiry(self: &Arc<Self>, now: Timestamp) -> bool {
        let mut state = self.lock();
        let begins = state.begin_expiry(now);
        state.set_expiry_alarm();
        begins
    }

    pub(crate) fn take_due_claims(self: &Arc<Self>, now: Timestamp, again: Timestamp) -> Option<DueClaims> {
        self.lock().take_due_claims(now, again)
    }

    pub(crate) fn begin_expiry_at(
        self: &Arc<Self>,
        placement: &Option<Placement>,
        part: &DuePlacement,
        again: Timestamp,
    ) -> bool {
        self.lock().begin_part(placement, part, again)
    }

    /// The claims of a placement were ended, or are due again.
    pub(crate) fn end_expiry_at(self: &Arc<Self>, placement: &Option<Placement>) {
        self.lock().expiring.remove(placement);
    }

    /// The task has ended all that was due when it began.
    pub(crate) fn finish_expiry(self: &Arc<Self>) {
        self.lock().finish_expiry();
    }

    /// Notes that claims which could not be ended are due again.
    pub(crate) fn await_again(self: &Arc<Self>, deadlines: impl Iterator<Item = Deadline>, at: Timestamp) {
        self.lock().await_again(deadlines, at);
    }

    /// Clears away a claim of a queue that does not exist any more.
    pub(crate) fn spend_orphan(self: &Arc<Self>, claim: ClaimId) {
        self.lock().spend_orphan(claim);
    }
}

impl SlotState {
    /// Takes claims whose deadline has passed. Those of placements where claims are being ended are due again later. None when
    /// there is none any more.
    pub(crate) fn take_due_claims(&mut self, now: Timestamp, again: Timestamp) -> Option<DueClaims> {
        let (mut due, mut busy, mut looked) = (DueClaims::default(), Vec::new(), 0);
        while looked < limits::EXPIRY_TURN
            && self.deadlines.peek().is_some_and(|Reverse(first)| first.at <= now)
        {
            let Some(Reverse(deadline)) = self.deadlines.pop() else { break };
            looked += 1;
            match self.queues.get(&deadline.queue) {
                Some(queue) if queue.engine.is_due(deadline.claim, now) => {
                    let placement = Some(queue.placement.clone());
                    if self.expiring.contains(&placement) {
                        busy.push(deadline);
                    } else {
                        let key = ClaimKey { queue: deadline.queue, claim: deadline.claim };
                        due.claims.entry(placement).or_default().push(key);
                    }
                }
                // One whose time was not over when its queue was opened has another deadline.
                Some(_) => {}
                None => due.unopened.push(deadline),
            }
        }
        self.await_again(busy.into_iter(), again);
        (looked > 0).then_some(due)
    }

    /// Begins to end the claims of a placement. False when earlier ones are still being ended: then these are due again later.
    pub(crate) fn begin_part(
        &mut self,
        placement: &Option<Placement>,
        part: &DuePlacement,
        again: Timestamp,
    ) -> bool {
        let begins = self.expiring.insert(placement.clone());
        if !begins {
            let claims = part.claims.iter().cloned();
            let open = claims.map(|ClaimKey { queue, claim }| Deadline { at: again, claim, queue });
            self.await_again(open.chain(part.unopened.iter().cloned()), again);
        }
        begins
    }

    pub(crate) fn await_again(&mut self, deadlines: impl Iterator<Item = Deadline>, at: Timestamp) {
        deadlines.for_each(|deadline| self.note_deadline(Deadline { at, ..deadline }));
    }
}
