//! Which slots other replicas serve, for parts below the slot table.

use std::sync::atomic::{AtomicU64, Ordering};

use angarium_core::ids::Slot;

/// A bit for each slot. Written by the slot table.
#[derive(Debug, Default)]
pub(crate) struct ForeignSlots([AtomicU64; 4]);

impl ForeignSlots {
    pub(crate) fn set(&self, Slot(number): Slot, is_foreign: bool) {
        let (word, bit) = (&self.0[usize::from(number / 64)], 1 << (number % 64));
        if is_foreign {
            word.fetch_or(bit, Ordering::Relaxed);
        } else {
            word.fetch_and(!bit, Ordering::Relaxed);
        }
    }

    pub(crate) fn has(&self, Slot(number): Slot) -> bool {
        self.0[usize::from(number / 64)].load(Ordering::Relaxed) >> (number % 64) & 1 == 1
    }
}
