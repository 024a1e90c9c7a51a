//! The slot's steps for a task that redrives messages.

use tokio_util::task::task_tracker::TaskTrackerToken;

use angarium_core::error::Error;
use angarium_core::message::Header;
use angarium_core::time::Timestamp;
use angarium_engine::ClaimSelection;

use crate::slot::queue_handle::QueueHandle;
use crate::writer::change::Change;

/// Messages chosen to leave a queue.
pub(crate) struct RedriveChoice {
    pub(crate) headers: Vec<Header>,
    /// Whether messages may become ready without another write. Matters when none was chosen.
    pub(crate) is_pending: bool,
    /// Keeps the queue from being deleted until the outcome for the messages is known.
    pub(crate) in_use: TaskTrackerToken,
}

impl QueueHandle {
    /// Hides at most `most` ready messages that are to leave.
    pub(crate) fn choose_for_redrive(&self, most: usize, now: Timestamp) -> Result<RedriveChoice, Error> {
        let mut state = self.slot.lock();
        let queue = state.queue_mut(&self.at, self.id).ok_or_else(|| self.closed())?;
        let ClaimSelection { dead, expired, .. } = queue.engine.take_to_leave(most, now);
        let in_use = queue.uses.token();
        self.slot.start_refill(&self.at, queue);
        let is_more = queue.engine.has_more() || queue.engine.waits_for_copies();
        let is_pending = is_more || !expired.is_empty();
        if let Some(failure) = std::mem::take(&mut queue.pool_failed).filter(|_| dead.is_empty()) {
            return Err(failure.error());
        }
        if !expired.is_empty() {
            // No caller waits for the outcome: an expired message stays hidden until it is removed.
            drop(state.submit(&self.at, Change::remove(expired)));
        }
        Ok(RedriveChoice { headers: dead, is_pending, in_use })
    }

    /// Notes that a task does the redrives of the queue. Returns false when there is such a task, or when the queue is
    /// closed.
    pub(crate) fn begin_redrive_task(&self) -> bool {
        self.lock_queue(|queue| !std::mem::replace(&mut queue.has_task, true)).unwrap_or(false)
    }

    /// Notes that a redrive of the queue is active, and that a task does it. Returns none when the queue is closed.
    pub(crate) fn keep_redrive_task(&self) -> Option<()> {
        self.lock_queue(|queue| queue.has_task = true)
    }

    /// Notes that no redrive of the queue is active, so its task ends. Returns none when the queue is closed.
    pub(crate) fn end_redrive_task(&self) -> Option<()> {
        self.lock_queue(|queue| queue.has_task = false)
    }
}
