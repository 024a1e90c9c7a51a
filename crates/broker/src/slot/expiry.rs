//! Expired claims of a slot, for the task that releases them.

use std::cmp::Reverse;
use std::sync::Arc;

use angarium_catalogue::Placement;
use angarium_core::ids::ClaimId;
use angarium_core::maps::HashMap;
use angarium_core::time::Timestamp;

use crate::limits;
use crate::slot::deadlines::Deadline;
use crate::slot::release::ClaimKey;
use crate::slot::state::{Slot, SlotState};

/// Expired claims, at most those of one tick.
#[derive(Default)]
pub(crate) struct DueClaims {
    /// Claims of open queues, by placement.
    pub(crate) claims: HashMap<Option<Placement>, Vec<ClaimKey>>,
    /// Deadlines of claims of queues that no caller has opened.
    pub(crate) unopened: Vec<Deadline>,
}

/// Expired claims of one placement.
#[derive(Default)]
pub(crate) struct DuePlacement {
    pub(crate) claims: Vec<ClaimKey>,
    pub(crate) unopened: Vec<Deadline>,
}

impl Slot {
    /// Like [`SlotState::begin_expiry`]; also sets the alarm.
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

    /// Notes that the claims of a placement were released, or are due again.
    pub(crate) fn end_expiry_at(self: &Arc<Self>, placement: &Option<Placement>) {
        self.lock().expiring.remove(placement);
    }

    /// Notes that the task has expired all claims that were due when it began.
    pub(crate) fn finish_expiry(self: &Arc<Self>) {
        self.lock().finish_expiry();
    }

    /// Has claims that could not be released expire again at `at`.
    pub(crate) fn await_again(self: &Arc<Self>, deadlines: impl Iterator<Item = Deadline>, at: Timestamp) {
        self.lock().await_again(deadlines, at);
    }

    /// Removes a claim of a queue that does not exist any more.
    pub(crate) fn spend_orphan(self: &Arc<Self>, claim: ClaimId) {
        self.lock().spend_orphan(claim);
    }
}

impl SlotState {
    /// Takes expired claims. Claims of placements whose claims are being released are due again at `again`. Returns
    /// none when no deadline has passed.
    pub(crate) fn take_due_claims(&mut self, now: Timestamp, again: Timestamp) -> Option<DueClaims> {
        let (mut due, mut busy, mut looked) = (DueClaims::default(), Vec::new(), 0);
        while looked < limits::expiry_turn()
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
                // A claim that was extended before its queue was opened has another deadline.
                Some(_) => {}
                None => due.unopened.push(deadline),
            }
        }
        self.await_again(busy.into_iter(), again);
        (looked > 0).then_some(due)
    }

    /// Begins to release the claims of a placement. Returns false when earlier ones are still being released: then
    /// these are due again at `again`.
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
