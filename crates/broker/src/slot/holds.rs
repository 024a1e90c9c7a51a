//! Holds of the queues of a slot, in memory as the tree has them.

use std::sync::Arc;

use angarium_core::hold::Hold;
use angarium_core::maps::HashMap;
use angarium_core::names::QueueRef;
use angarium_core::time::Timestamp;

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
    pub(in crate::slot) fn get(&self, at: &QueueRef, now: Timestamp) -> Option<&Hold> {
        if self.0.is_empty() {
            return None;
        }
        self.0.get(at).filter(|hold| hold.is_in_force(now))
    }

    /// Whether a claim gets no message of a queue.
    pub(in crate::slot) fn bars_claims(&self, at: &QueueRef, now: Timestamp) -> bool {
        self.get(at, now).is_some_and(|hold| hold.effects.bars_claims())
    }

    /// Returns the times when the holds in force were made.
    pub(in crate::slot) fn times(&self, now: Timestamp) -> impl Iterator<Item = Timestamp> {
        self.0.values().filter(move |hold| hold.is_in_force(now)).map(|hold| hold.since)
    }
}

impl Slot {
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
