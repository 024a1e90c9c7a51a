//! The messages that a task changes, as the slot hides, changes and shows them. The procedure is in
//! [`crate::redrive::selected`].

use tokio_util::task::task_tracker::TaskTrackerToken;

use angarium_core::error::Error;
use angarium_core::ids::MessageId;
use angarium_core::message::Header;

use crate::slot::queue_handle::QueueHandle;
use crate::slot::state::OpenQueue;
use crate::writer::change::{self, Change};
use crate::writer::pending::WriteOutcome;

/// Messages that a task wants to change.
pub(crate) struct HiddenSelection {
    /// Hidden from every other caller.
    pub(crate) hidden: Vec<MessageId>,
    /// Another request is changing these.
    pub(crate) changing: Vec<MessageId>,
    /// Number of messages under claims.
    pub(crate) claimed: u64,
    /// Keeps the queue from being deleted until the outcome for the messages is known.
    pub(crate) in_use: TaskTrackerToken,
}

impl QueueHandle {
    /// Returns the newest message that the slot knows: no later one has been posted.
    pub(crate) fn newest_message(&self) -> MessageId {
        self.slot.lock().ids.last()
    }

    /// Hides messages that neither a claim nor another request holds.
    pub(crate) fn hide_selected(&self, ids: &[MessageId]) -> Result<HiddenSelection, Error> {
        let hide = |queue: &mut OpenQueue| {
            let (mut hidden, mut changing, mut claimed) = (Vec::with_capacity(ids.len()), Vec::new(), 0);
            for id in ids {
                match queue.engine.begin_requeue(*id) {
                    Ok(()) => hidden.push(*id),
                    Err(Error::Claimed(_)) => claimed += 1,
                    Err(_) => changing.push(*id),
                }
            }
            HiddenSelection { hidden, changing, claimed, in_use: queue.uses.token() }
        };
        self.lock_queue(hide).ok_or_else(|| self.closed())
    }

    /// Shows hidden messages again as the pool has them, with these headers; it has none under the ids of `absent`.
    pub(crate) fn show_selected<'a>(&self, stored: impl Iterator<Item = &'a Header>, absent: &[MessageId]) {
        let mut state = self.slot.lock();
        if let Some(queue) = state.queue_mut(&self.at, self.id) {
            stored.for_each(|header| queue.engine.leave_selected_as_is(header));
            absent.iter().for_each(|id| queue.engine.requeue_absent(*id));
        }
        state.note_wake(&self.at);
        state.serve(&self.at);
    }

    /// Shows hidden messages again as they were: the pool could not be read, or nothing was written.
    pub(crate) fn cancel_selected(&self, ids: &[MessageId]) {
        let mut state = self.slot.lock();
        if let Some(queue) = state.queue_mut(&self.at, self.id) {
            ids.iter().for_each(|id| queue.engine.cancel_requeue(*id));
        }
        state.note_wake(&self.at);
        state.serve(&self.at);
    }

    /// Submits the headers of hidden messages that are made available again. `stored`: their headers in the pool.
    pub(crate) fn requeue_selected(
        &self,
        stored: &[Header],
        again: Vec<Header>,
    ) -> Result<WriteOutcome, Error> {
        let mut state = self.slot.lock();
        let queue = state.queue_mut(&self.at, self.id).ok_or_else(|| self.closed())?;
        stored.iter().for_each(|header| queue.engine.requeue_read(header));
        let submitted = state.submit(&self.at, Change::requeue(again));
        drop(state);
        submitted.inspect_err(|_| self.cancel_selected(&change::ids(stored)))
    }

    /// Submits the removal of hidden messages. `stored`: their headers in the pool.
    pub(crate) fn remove_selected(&self, stored: &[Header]) -> Result<WriteOutcome, Error> {
        self.remove_hidden(stored, |_, ids| Change::remove(ids))
    }

    /// Submits a change that removes hidden messages. `stored`: their headers in the pool.
    pub(in crate::slot) fn remove_hidden(
        &self,
        stored: &[Header],
        removal: impl FnOnce(&mut OpenQueue, Vec<MessageId>) -> Change,
    ) -> Result<WriteOutcome, Error> {
        let ids = change::ids(stored);
        let mut state = self.slot.lock();
        let queue = state.queue_mut(&self.at, self.id).ok_or_else(|| self.closed())?;
        // Kept messages are outside the groups.
        let open = stored.iter().filter(|header| !header.state.is_kept());
        open.for_each(|header| queue.engine.requeue_read(header));
        queue.engine.begin_remove_selected(&ids);
        let removal = removal(queue, ids.clone());
        let submitted = state.submit(&self.at, removal);
        if submitted.is_err()
            && let Some(queue) = state.queue_mut(&self.at, self.id)
        {
            queue.engine.remove_failed(&ids);
        }
        submitted
    }

    /// Submits the headers of hidden messages that leave for other queues. `stored`: their headers in the pool.
    pub(crate) fn leave_selected(
        &self,
        stored: &[Header],
        moving: Vec<Header>,
    ) -> Result<WriteOutcome, Error> {
        let ids = change::ids(stored);
        let mut state = self.slot.lock();
        let queue = state.queue_mut(&self.at, self.id).ok_or_else(|| self.closed())?;
        let open = stored.iter().filter(|header| !header.state.is_kept());
        open.for_each(|header| queue.engine.requeue_read(header));
        queue.engine.begin_leave_selected(&ids);
        let submitted = state.submit(&self.at, Change::mark_in_transfer(moving));
        if submitted.is_err()
            && let Some(queue) = state.queue_mut(&self.at, self.id)
        {
            queue.engine.put_back(&ids);
        }
        submitted
    }
}
