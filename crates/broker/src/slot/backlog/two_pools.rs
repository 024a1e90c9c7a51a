//! The copies of a subscription whose queue is in two pools, during the migration of its source (P6).
//!
//! The totals of both pools count a message twice while it is being copied from one to the other. Such totals are not
//! entered: until then the stored amount is the sum of the copies since it was last read.

use angarium_storage::Note;

use crate::slot::backlog::Backlog;
use crate::writer::change::Change;
use crate::writer::notes::fill_note;
use crate::writer::purpose::Purpose;

/// Whether a change leaves copied messages in the newer pool alone.
pub(super) fn ends_copy(change: &Change) -> bool {
    change.purpose() == Purpose::RemoveCopied && !change.changes().removes.is_empty()
}

impl Backlog {
    /// Notes that a batch is submitted that copies messages to the newer pool.
    pub(in crate::slot) fn begin_copy(&mut self) {
        self.in_two_pools = true;
        self.pool_copies += 1;
    }

    /// Enters the outcome of a change that copies messages, or removes copied ones from the older pool.
    pub(super) fn settle_copy(&mut self, change: &Change, is_done: bool) {
        let is_over = if is_done { ends_copy(change) } else { change.purpose() == Purpose::Copy };
        self.in_two_pools &= !is_over;
    }

    /// Whether totals count each message once that were read since the number of steps was this one.
    pub(super) fn is_read_once(&self, pool_copies: u64) -> bool {
        !self.in_two_pools && self.pool_copies == pool_copies
    }

    /// Notes that the note of a fill is submitted.
    pub(in crate::slot) fn begin_fill_note(&mut self) {
        self.fills_unsettled += 1;
    }

    /// Enters that the present notes are about to be submitted to the newer pool, and returns them. None while a note of a
    /// fill is being written: it is not known then what the later one will be.
    pub(in crate::slot) fn submit_notes(&mut self) -> Option<Vec<Note>> {
        if self.fills_unsettled > 0 {
            return None;
        }
        let omissions = self.submit_note(|_| ());
        Some(self.fill_noted.map(fill_note).into_iter().chain([omissions]).collect())
    }
}
