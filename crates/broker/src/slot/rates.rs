//! Rates of writes to queues, for the figures and for the balance of pools.

use std::sync::Arc;

use angarium_cluster::peer_client::QueueLoad;
use angarium_core::time::Timestamp;

use crate::slot::state::{Slot, SlotState};

/// Counts of the changes of a queue since it was opened.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ChangeCount {
    /// Changes of its entries in its pools.
    pub(crate) changes: u64,
    /// Messages that entered the queue.
    pub(crate) posted: u64,
    /// Messages that left the queue.
    pub(crate) removed: u64,
}

/// The counts of a queue now and at the last two samples.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ChangeRate {
    pub(crate) written: ChangeCount,
    pub(crate) newer: ChangeCount,
    pub(crate) older: ChangeCount,
}

impl ChangeRate {
    /// Counts a change.
    pub(crate) fn count(&mut self) {
        self.written.changes += 1;
    }

    /// Counts messages that entered the queue.
    pub(crate) fn count_posted(&mut self, messages: u64) {
        self.written.posted += messages;
    }

    /// Counts messages that left the queue.
    pub(crate) fn count_removed(&mut self, messages: u64) {
        self.written.removed += messages;
    }
}

/// When a slot took the last two samples.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RateSample {
    pub(crate) older: Timestamp,
    pub(crate) newer: Timestamp,
}

impl RateSample {
    /// The samples of a slot that was acquired at `taken`.
    pub(crate) fn since(taken: Timestamp) -> Self {
        Self { older: taken, newer: taken }
    }
}

impl Slot {
    /// Returns the queues that were changed, with their rates of changes.
    pub(crate) fn loads(self: &Arc<Self>, now: Timestamp) -> Vec<QueueLoad> {
        self.lock().loads(now).collect()
    }

    /// Takes the next sample of the counts of all open queues.
    pub(crate) fn note_paces(self: &Arc<Self>, now: Timestamp) {
        self.lock().note_paces(now);
    }
}

impl SlotState {
    /// Takes the next sample of the counts of all open queues.
    pub(crate) fn note_paces(&mut self, now: Timestamp) {
        self.paced = RateSample { older: self.paced.newer, newer: now };
        for queue in self.queues.values_mut() {
            let ChangeRate { written, newer, .. } = queue.pace;
            queue.pace = ChangeRate { written, newer: written, older: newer };
        }
    }

    /// Messages per minute that entered an open queue, and that left it, over the last 30 to 60 seconds.
    pub(in crate::slot) fn rates(&self, pace: ChangeRate, now: Timestamp) -> (u64, u64) {
        let seconds = now.seconds_since(self.paced.older).max(1);
        let per_minute = |messages: u64| (messages * 60).div_ceil(seconds);
        let ChangeRate { written, older, .. } = pace;
        (per_minute(written.posted - older.posted), per_minute(written.removed - older.removed))
    }

    /// The queues that were changed, with their rates of changes.
    pub(crate) fn loads(&self, now: Timestamp) -> impl Iterator<Item = QueueLoad> {
        let seconds = now.seconds_since(self.paced.older).max(1);
        let changes = |pace: ChangeRate| pace.written.changes - pace.older.changes;
        let written = self.queues.values().map(move |queue| (queue.id, changes(queue.pace)));
        let written = written.filter(|(_, changes)| *changes > 0);
        written.map(move |(queue, changes)| QueueLoad { queue, per_minute: (changes * 60).div_ceil(seconds) })
    }
}
