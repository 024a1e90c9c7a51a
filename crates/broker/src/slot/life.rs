//! The life of a slot: from its acquisition, through its loss, to its end, and the pace of its recovery.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use angarium_core::error::{Error, Part};

use crate::slot::state::Slot;
use crate::writer::pending::{SlotWriter, Write};

/// A slot that was served for this long is recovered without a pause.
pub(crate) const CALM: Duration = Duration::from_secs(30);

/// When a slot was acquired, and the pause before it is acquired again if that is soon.
#[derive(Clone, Copy)]
pub(crate) struct RecoveryPace {
    pub(crate) at: Instant,
    pub(crate) pause: Duration,
}

impl RecoveryPace {
    /// The pace of the first acquisition, now.
    pub(crate) fn first() -> Self {
        Self::now(Duration::ZERO)
    }

    /// An acquisition now, with a pause before the next one if that is soon.
    pub(crate) fn now(pause: Duration) -> Self {
        Self { at: Instant::now(), pause }
    }

    pub(crate) fn pause(self) -> Duration {
        if self.at.elapsed() > CALM { Duration::ZERO } else { self.pause }
    }
}

impl Slot {
    /// Marks the slot as lost: its memory may no longer be right. `why` is the reason.
    pub(crate) fn lose(&self, why: &'static str) {
        // Only the first reason is kept.
        let _ = self.lost.set(why);
    }

    /// Returns why the slot must be recovered; none when it need not be.
    pub(crate) fn lost(&self) -> Option<&'static str> {
        if self.owned.is_lost() {
            self.lose("another replica took it");
        }
        self.lost.get().copied()
    }

    /// Ends all waits in the slot. No operation begins after this; a waiter for an operation in progress gets its
    /// outcome.
    pub(crate) fn close(&self) {
        let unsent = {
            let mut state = self.state.lock();
            self.closed.cancel();
            state.writers.values_mut().flat_map(SlotWriter::close).collect::<Vec<_>>()
        };
        unsent.into_iter().for_each(Write::refuse);
        self.changed.notify_waiters();
    }

    /// Whether this is still the object that serves the slot.
    pub(crate) fn check_served(&self) -> Result<(), Error> {
        if self.closed.is_cancelled() || self.lost().is_some() {
            return Err(Error::unavailable(Part::Coordination, "the slot is being recovered"));
        }
        Ok(())
    }

    /// Whether all queues of the slot were checked for transfers that an earlier owner has begun.
    pub(crate) fn is_searched(&self) -> bool {
        self.is_searched.load(Ordering::Relaxed)
    }

    /// Notes that all queues were checked.
    pub(crate) fn note_searched(&self) {
        self.is_searched.store(true, Ordering::Relaxed);
    }

    /// Waits until the operations that were in progress when the slot was closed have ended.
    pub(crate) async fn finished(&self) {
        // A task that creates a queue or fences a pool holds a gate.
        self.queue_gates.rest().await;
        self.pool_gates.rest().await;
        let uses: Vec<TaskTracker> = {
            let state = self.state.lock();
            state.queues.values().map(|queue| queue.uses.clone()).collect()
        };
        for uses in uses {
            uses.close();
            uses.wait().await;
        }
    }

    /// Passes on whether the record of a queue was replaced. When that is unknown, memory may differ from the record:
    /// then the slot is lost.
    pub(crate) fn note_placed(self: &Arc<Self>, placed: Result<bool, Error>) -> Result<bool, Error> {
        if placed.as_ref().is_err_and(|error| !error.nothing_written()) {
            self.lose("the record of a queue may have changed");
        }
        placed
    }
}
