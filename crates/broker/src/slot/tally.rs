//! Counters of the messages of a queue.

use angarium_core::ids::MessageId;
use angarium_core::message::{Header, Message, State};
use angarium_core::outcome::EventKind;
use angarium_engine::RemovalTally;

use crate::slot::commit::count;
use crate::slot::release::ReleaseCause;
use crate::slot::state::OpenQueue;

impl OpenQueue {
    /// Counts the removed messages since the last call.
    pub(crate) fn count_removals(&mut self) {
        let RemovalTally { acked, expired } = self.engine.take_tally();
        self.counters.acked.inc_by(acked);
        self.counters.expired.inc_by(expired);
    }

    /// Counts messages that were settled durably: forwarded ones, changed ones, and done ones that are not kept.
    pub(crate) fn count_settled(&self, appends: &[Message], updates: &[Header], removes: &[MessageId]) {
        let settled = &self.counters.settled;
        settled.forwarded.inc_by(count(appends));
        settled.done.inc_by(count(removes));
        for header in updates {
            if header.state == State::Done {
                settled.done.inc();
                continue;
            }
            // The last event in its history is this settle.
            let event = header.extras.as_ref().and_then(|extras| extras.history.last());
            match event.map(|event| event.what) {
                Some(EventKind::Moved) => drop(settled.moved.inc()),
                Some(EventKind::Failed) => drop(settled.failed.inc()),
                Some(EventKind::Deferred) => drop(settled.deferred.inc()),
                Some(EventKind::Expired | EventKind::Released | EventKind::Requeued) | None => {}
            }
        }
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
