//! Claims that wait, served as the broker serves them.

use super::*;

impl World {
    /// Takes messages for the first waiters of the line.
    pub(super) fn serve(&mut self) {
        while let Some(limit) = self.line.first(&()).copied() {
            let taken = self.take(limit);
            if taken.is_empty() {
                return;
            }
            if !taken.messages.is_empty() {
                assert_eq!(self.line.take_first(&()), Some(limit));
            }
        }
    }

    pub(super) fn leave(&mut self, number: u8) {
        if let Some(at) = nth(&self.turns, number) {
            self.line.leave(&(), self.turns.swap_remove(at));
        }
    }

    /// Checks that no claim waits while there are messages for it.
    pub(super) fn check_line(&self) {
        if !self.line.is_empty() && !self.engine.has_more() {
            let is_free =
                if self.bounds.is_some() { self.is_any_free() } else { !self.truth.ready().is_empty() };
            assert!(!is_free, "a claim waits while messages are ready");
        }
    }
}
