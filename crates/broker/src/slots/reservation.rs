//! Reservations of entries in the slot table: the task that holds one takes the slot, or hands it over. No other task
//! changes the entry, so the reservation frees it whenever the task ends.

use std::sync::Arc;
use std::time::Duration;

use angarium_core::ids::Slot as SlotNumber;

use crate::slot::state::Slot;
use crate::slots::Slots;

/// How long an entry stays reserved after its task has panicked: the next task may panic too.
const PAUSE: Duration = Duration::from_secs(2);

/// Why a slot is recovered that was acquired in an earlier session than the present one.
const SESSION_ENDED: &str = "the session that took it has ended";

/// The entry of a slot, reserved for a task. When the reservation is dropped, the entry becomes free, and the owner of
/// the slot is looked up again; after a panic with a pause.
pub(crate) struct SlotReservation {
    slots: Slots,
    number: SlotNumber,
    is_served: bool,
}

impl SlotReservation {
    /// Returns the number of the slot.
    pub(crate) fn number(&self) -> SlotNumber {
        self.number
    }

    /// Enters the slot in the table. It was acquired in `session`. If that session has ended since, the slot has no owner
    /// node, another replica may have had it meanwhile, and the replica has not held it again with its other slots. So the
    /// slot is recovered, and nothing is answered from its memory.
    pub(crate) fn enter(mut self, slot: Arc<Slot>, session: u64) {
        self.is_served = true;
        let slots = self.slots.clone();
        if slots.session() != session {
            slot.lose(SESSION_ENDED);
        }
        slots.0.table.enter(Arc::clone(&slot));
        // The slots that are held again in a session are read from the table after its begin.
        if slots.session() != session {
            slot.lose(SESSION_ENDED);
            slots.begin_recovery(&slot, SESSION_ENDED);
        }
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
    /// Reserves a free entry for the caller, which must take the slot. Returns none when the entry is not free.
    pub(crate) fn reserve_slot(&self, number: SlotNumber, why: &'static str) -> Option<SlotReservation> {
        self.0.table.claim(number, why).then(|| self.away(number))
    }

    /// Takes a slot out of the table and reserves its entry for the caller. Returns none when another task did, or
    /// entered another object of the slot.
    pub(crate) fn take_reserved(&self, slot: &Arc<Slot>, why: &'static str) -> Option<SlotReservation> {
        self.0.table.take_out(slot, why).then(|| self.away(slot.owned.slot))
    }

    pub(crate) fn away(&self, number: SlotNumber) -> SlotReservation {
        SlotReservation { slots: self.clone(), number, is_served: false }
    }

    fn set_free(&self, number: SlotNumber) {
        self.0.table.free(number);
        self.refresh_owner(number);
    }
}
