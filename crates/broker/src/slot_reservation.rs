//! Places of slots that a replica works on: it takes the slot, or hands it over. No other replica touches such a place,
//! so the task that works on it must be done with it however that ends.

use std::sync::Arc;
use std::time::Duration;

use super::Broker;
use super::slot::Slot;
use angarium_core::ids::Slot as SlotNumber;

/// How long a place stays as it is after a task has ended in a panic that worked on it: the next one may end so too.
const PAUSE: Duration = Duration::from_secs(2);

/// The place of a slot that a replica works on. When it is dropped the place is free, and who has the slot is looked up
/// again; by a panic too, but after a pause.
pub(super) struct SlotReservation {
    broker: Broker,
    number: SlotNumber,
    is_served: bool,
}

impl SlotReservation {
    /// The slot.
    pub(super) fn number(&self) -> SlotNumber {
        self.number
    }

    /// Puts the slot in its place.
    pub(super) fn enter(mut self, slot: Arc<Slot>) {
        self.is_served = true;
        self.broker.0.slot_table.enter(slot);
    }
}

impl Drop for SlotReservation {
    fn drop(&mut self) {
        if self.is_served {
            return;
        }
        let (broker, number) = (self.broker.clone(), self.number);
        if !std::thread::panicking() {
            return broker.set_free(number);
        }
        broker.clone().0.tasks.spawn(async move {
            broker.sleep_tick(PAUSE).await;
            broker.set_free(number);
        });
    }
}

impl Broker {
    /// Makes a free place that of the caller, who is to take the slot. None when it is not free.
    pub(super) fn reserve_slot(&self, number: SlotNumber, why: &'static str) -> Option<SlotReservation> {
        self.0.slot_table.claim(number, why).then(|| self.away(number))
    }

    /// Takes a slot out of its place, which is the caller's then. None when another replica did, or put another object
    /// there.
    pub(super) fn take_reserved(&self, slot: &Arc<Slot>, why: &'static str) -> Option<SlotReservation> {
        self.0.slot_table.leave(slot, why).then(|| self.away(slot.owned.slot))
    }

    fn away(&self, number: SlotNumber) -> SlotReservation {
        SlotReservation { broker: self.clone(), number, is_served: false }
    }

    fn set_free(&self, number: SlotNumber) {
        self.0.slot_table.free(number);
        self.refresh_owner(number);
    }
}
