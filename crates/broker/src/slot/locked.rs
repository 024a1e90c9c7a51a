//! A slot with its lock held: the verbs of one step.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use parking_lot::MutexGuard;

use crate::slot::state::{Slot, SlotState};

/// A slot and its state. Never held across an await, nor while a guard of a claim is dropped: the guard locks the slot
/// too.
pub(crate) struct LockedSlot<'a> {
    pub(in crate::slot) slot: &'a Arc<Slot>,
    pub(in crate::slot) state: MutexGuard<'a, SlotState>,
}

impl Slot {
    /// Locks the state for the few steps of a decision.
    pub(crate) fn lock(self: &Arc<Self>) -> LockedSlot<'_> {
        LockedSlot { slot: self, state: self.state.lock() }
    }
}

impl Deref for LockedSlot<'_> {
    type Target = SlotState;

    fn deref(&self) -> &SlotState {
        &self.state
    }
}

impl DerefMut for LockedSlot<'_> {
    fn deref_mut(&mut self) -> &mut SlotState {
        &mut self.state
    }
}
