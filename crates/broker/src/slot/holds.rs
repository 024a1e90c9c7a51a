//! Holds of the queues of a slot, in memory as the tree has them; and the effects of all holds on a queue, those of its
//! pools and its project too.

use std::sync::Arc;

use angarium_catalogue::Placement;
use angarium_core::error::Error;
use angarium_core::hold::{AppliedHold, AppliedHolds, Hold};
use angarium_core::maps::HashMap;
use angarium_core::names::QueueRef;
use angarium_core::time::Timestamp;

use crate::slot::locked::LockedSlot;
use crate::slot::state::Slot;

/// The holds of a slot by the names of their queues. A queue that loses its pool has another id afterwards, and stays held.
#[derive(Debug, Default)]
pub(crate) struct SlotHolds(HashMap<QueueRef, Hold>);

impl SlotHolds {
    /// The holds that were found when the slot was acquired.
    pub(in crate::slot) fn new(found: Vec<(QueueRef, Hold)>) -> Self {
        Self(found.into_iter().collect())
    }

    /// Returns the hold of a queue that is in force now.
    fn get(&self, at: &QueueRef, now: Timestamp) -> Option<&Hold> {
        if self.0.is_empty() {
            return None;
        }
        self.0.get(at).filter(|hold| hold.is_in_force(now))
    }

    /// Whether a claim gets no message of a queue.
    fn bars_claims(&self, at: &QueueRef, now: Timestamp) -> bool {
        self.get(at, now).is_some_and(|hold| hold.effects.bars_claims())
    }

    /// Returns the times when the holds in force were made.
    pub(in crate::slot) fn times(&self, now: Timestamp) -> impl Iterator<Item = Timestamp> {
        self.0.values().filter(move |hold| hold.is_in_force(now)).map(|hold| hold.since)
    }
}

impl LockedSlot<'_> {
    /// Whether a claim gets no message of a queue, because of any hold, or because the queue is filled first.
    pub(in crate::slot) fn bars_claims(&self, at: &QueueRef, now: Timestamp) -> bool {
        if self.state.holds.bars_claims(at, now) || self.is_filling_in_order(at) {
            return true;
        }
        let shared = &self.slot.around.holds;
        !shared.is_empty() && shared.bars_claims(at, self.placement(at), now)
    }

    /// Checks that posts to a queue are stored.
    ///
    /// # Errors
    ///
    /// [`Error::Held`] when a hold refuses or discards them.
    pub(in crate::slot) fn check_post(&self, at: &QueueRef, now: Timestamp) -> Result<(), Error> {
        if self.state.holds.0.is_empty() && self.slot.around.holds.is_empty() {
            return Ok(());
        }
        self.applied_holds(at, self.placement(at), now).check_post(now)
    }

    fn applied_holds(&self, at: &QueueRef, placement: Option<&Placement>, now: Timestamp) -> AppliedHolds {
        let own = self.state.holds.get(at, now).map(|hold| AppliedHold { target: None, hold: hold.clone() });
        AppliedHolds(own.into_iter().chain(self.slot.around.holds.of_queue(at, placement, now)).collect())
    }

    /// Returns the pools of a queue, if it is open.
    fn placement(&self, at: &QueueRef) -> Option<&Placement> {
        self.state.queues.get(at).map(|queue| &queue.placement)
    }
}

impl Slot {
    /// Checks that posts to a queue are stored, as far as that is known while it is not open.
    ///
    /// # Errors
    ///
    /// [`Error::Held`] when a hold refuses or discards them.
    pub(crate) fn check_post(self: &Arc<Self>, at: &QueueRef) -> Result<(), Error> {
        let now = self.around.replica.clock.now();
        self.lock().check_post(at, now)
    }

    /// Returns all holds in force for a queue: of its pools, if it is open.
    pub(crate) fn applied_holds(self: &Arc<Self>, at: &QueueRef) -> AppliedHolds {
        let (state, now) = (self.lock(), self.around.replica.clock.now());
        state.applied_holds(at, state.placement(at), now)
    }

    /// As `applied_holds`, for a queue in these pools, open or not.
    pub(crate) fn holds_in(self: &Arc<Self>, at: &QueueRef, placement: &Placement) -> AppliedHolds {
        let now = self.around.replica.clock.now();
        self.lock().applied_holds(at, Some(placement), now)
    }

    /// Serves the claims that wait in the slot, after a hold of a pool or a project has ended.
    pub(crate) fn serve_all(self: &Arc<Self>) {
        let mut state = self.lock();
        let waiting: Vec<QueueRef> = state.lines.names().cloned().collect();
        for at in &waiting {
            state.serve(at);
        }
    }

    /// Returns the hold of a queue that is in force.
    pub(crate) fn hold(self: &Arc<Self>, at: &QueueRef) -> Option<Hold> {
        let now = self.around.replica.clock.now();
        self.lock().holds.get(at, now).cloned()
    }

    /// Whether a queue has a hold, in force or ended by itself.
    pub(crate) fn has_hold(self: &Arc<Self>, at: &QueueRef) -> bool {
        self.lock().holds.0.contains_key(at)
    }

    /// Enters a hold that the tree has. No later look at the queue chooses a message.
    pub(crate) fn enter_hold(self: &Arc<Self>, at: &QueueRef, hold: Hold) {
        let mut state = self.lock();
        state.holds.0.insert(at.clone(), hold);
        // The new hold may have fewer effects than the one before.
        state.serve(at);
    }

    /// Removes the hold of a deleted queue.
    pub(crate) fn forget_hold(self: &Arc<Self>, at: &QueueRef) {
        self.lock().holds.0.remove(at);
    }

    /// Removes a hold that the tree no longer has, and serves the claims that wait for the queue.
    pub(crate) fn end_hold(self: &Arc<Self>, at: &QueueRef) {
        let mut state = self.lock();
        state.holds.0.remove(at);
        state.serve(at);
    }

    /// Returns the queues whose holds have ended by themselves, and serves the claims that wait for them.
    pub(crate) fn serve_ended_holds(self: &Arc<Self>, now: Timestamp) -> Vec<QueueRef> {
        let mut state = self.lock();
        let ended = state.holds.0.iter().filter(|(_, hold)| !hold.is_in_force(now));
        let ended: Vec<QueueRef> = ended.map(|(at, _)| at.clone()).collect();
        for at in &ended {
            state.serve(at);
        }
        ended
    }

    /// Whether the hold of a queue has ended by itself.
    pub(crate) fn is_hold_ended(self: &Arc<Self>, at: &QueueRef, now: Timestamp) -> bool {
        self.lock().holds.0.get(at).is_some_and(|hold| !hold.is_in_force(now))
    }
}
