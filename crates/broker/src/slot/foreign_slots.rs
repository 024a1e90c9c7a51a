//! The slots that other replicas serve, for parts below the slot table.

use std::sync::atomic::{AtomicU64, Ordering};

use angarium_core::ids::Slot;

/// One bit for each slot, written by the slot table.
#[derive(Debug, Default)]
pub(crate) struct ForeignSlots([AtomicU64; 4]);

/// The bit of a slot in its word.
fn bit(Slot(number): Slot) -> u64 {
    1 << (number % 64)
}

impl ForeignSlots {
    /// Notes that another replica serves the slot.
    pub(crate) fn add(&self, slot: Slot) {
        self.word(slot).fetch_or(bit(slot), Ordering::Relaxed);
    }

    /// Notes that no other replica serves the slot.
    pub(crate) fn remove(&self, slot: Slot) {
        self.word(slot).fetch_and(!bit(slot), Ordering::Relaxed);
    }

    pub(crate) fn has(&self, slot: Slot) -> bool {
        self.word(slot).load(Ordering::Relaxed) & bit(slot) != 0
    }

    fn word(&self, Slot(number): Slot) -> &AtomicU64 {
        &self.0[usize::from(number / 64)]
    }
}
