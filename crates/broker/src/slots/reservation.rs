//! Places of slots that a replica works on: it takes the slot, or hands it over. No other replica touches such a place,
//! so the task that works on it must be done with it however that ends.

use crate::slots::Slots;
use std::sync::Arc;
use std::time::Duration;

use crate::slot::state::Slot;
use angarium_core::ids::Slot as SlotNumber;

/// How long a place stays as it is after a task has ended in a panic that worked on it: the next one may end so too.
const PAUSE: Duration = Duration::from_secs(2);

/// The place of a slot that a replica works on. When it is dropped the place is free, and who has the slot is looked up
/// again; by a panic too, but after a pause.
pub(crate) struct SlotReservation {
    slots: Slots,
    number: SlotNumber,
    is_served: bool,
}

impl SlotReservation {
    /// The slot.
    pub(crate) fn number(&self) -> SlotNumber {
        self.number
    }

    /// Puts the slot in its place.
    pub(crate) fn enter(mut self, slot: Arc<Slot>) {
        self.is_served = true;
        self.slots.0.table.enter(slot);
    }
}

impl Drop for SlotReservation {
    fn drop(&mut self) {
        if self.is_served {
            return;
        }
        let (slots, number) = (self.slots.clone(), self.number);
        if !std::thread::panicking() {
            return slots.set_free(number);
        }
        slots.clone().0.replica.tasks.spawn(async move {
            slots.0.replica.sleep_tick(PAUSE).await;
            slots.set_free(number);
        });
    }
}

impl Slots {
    /// Makes a free place that of the caller, who is to take the slot. None when it is not free.
    pub(crate) fn reserve_slot(&self, number: SlotNumber, why: &'static str) -> Option<SlotReservation> {
        self.0.table.claim(number, why).then(|| self.away(number))
    }

    /// Takes a slot out of its place, which is the caller's then. None when another replica did, or put another object
    /// there.
    pub(crate) fn take_reserved(&self, slot: &Arc<Slot>, why: &'static str) -> Option<SlotReservation> {
        self.0.table.leave(slot, why).then(|| self.away(slot.owned.slot))
    }

    pub(crate) fn away(&self, number: SlotNumber) -> SlotReservation {
        SlotReservation { slots: self.clone(), number, is_served: false }
    }

    fn set_free(&self, number: SlotNumber) {
        self.0.table.free(number);
        self.refresh_owner(number);
    }
}
