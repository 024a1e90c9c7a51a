//! The life of a slot: from its taking, by way of its loss, to its end, and the pace at which it is recovered.

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

/// When a slot was taken, and how long to wait before it is taken again if that is soon.
#[derive(Clone, Copy)]
pub(crate) struct RecoveryPace {
    pub(crate) at: Instant,
    pub(crate) pause: Duration,
}

impl RecoveryPace {
    /// At the start, now.
    pub(crate) fn first() -> Self {
        Self::now(Duration::ZERO)
    }

    /// Now, with a pause if it happens again soon.
    pub(crate) fn now(pause: Duration) -> Self {
        Self { at: Instant::now(), pause }
    }

    pub(crate) fn pause(self) -> Duration {
        if self.at.elapsed() > CALM { Duration::ZERO } else { self.pause }
    }
}

impl Slot {
    /// Notes that memory may no longer be right, and why.
    pub(crate) fn lose(&self, why: &'static str) {
        // The first reason is.
        let _ = self.lost.set(why);
    }

    /// Why it must be recovered, if it must.
    pub(crate) fn lost(&self) -> Option<&'static str> {
        if self.owned.is_lost() {
            self.lose("another replica took it");
        }
        self.lost.get().copied()
    }

    /// Ends all that waits here. Nothing begins from now on; who waits for what is under way learns its outcome.
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

    /// Whether its queues were all looked at for moves that an owner before has begun.
    pub(crate) fn is_searched(&self) -> bool {
        self.is_searched.load(Ordering::Relaxed)
    }

    /// Notes that they were.
    pub(crate) fn note_searched(&self) {
        self.is_searched.store(true, Ordering::Relaxed);
    }

    /// Waits until what was under way when it was closed has its outcome.
    pub(crate) async fn finished(&self) {
        // A task that creates a queue or fences a pool.
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

    /// Whether the record of a queue was replaced. When it is unknown, memory may say something else than it does.
    pub(crate) fn note_placed(self: &Arc<Self>, placed: Result<bool, Error>) -> Result<bool, Error> {
        if placed.as_ref().is_err_and(|error| !error.nothing_written()) {
            self.lose("the record of a queue may have changed");
        }
        placed
    }
}
