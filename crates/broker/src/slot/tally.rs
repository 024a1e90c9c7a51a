//! Counters of the messages of a queue.

use angarium_engine::RemovalTally;

use crate::slot::release::ReleaseCause;
use crate::slot::state::OpenQueue;

impl OpenQueue {
    /// Counts the removed messages since the last call.
    pub(crate) fn count_removals(&mut self) {
        let RemovalTally { acked, expired } = self.engine.take_tally();
        self.counters.acked.inc_by(acked);
        self.counters.expired.inc_by(expired);
    }

    /// Counts the messages of a claim that has ended.
    pub(crate) fn count_released(&self, cause: ReleaseCause, messages: u64) {
        let counter = match cause {
            ReleaseCause::Released => &self.counters.nacked,
            ReleaseCause::Lapsed => &self.counters.lapsed,
            ReleaseCause::NeverHeld => return,
        };
        counter.inc_by(messages);
    }
}
