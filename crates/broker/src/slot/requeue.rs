//! Requeues of messages, as the slot begins and ends them. The procedure is in [`crate::messages::requeue`].

use angarium_core::error::Error;
use angarium_core::ids::MessageId;
use angarium_core::message::Header;
use angarium_engine::QueueEngine;

use crate::slot::queue_handle::QueueHandle;
use crate::writer::change::Change;
use crate::writer::pending::WriteOutcome;

impl QueueHandle {
    /// Hides a message to make it available again.
    pub(crate) fn begin_requeue(&self, id: MessageId) -> Result<(), Error> {
        self.decide(|engine| engine.begin_requeue(id)).ok_or_else(|| self.closed())?
    }

    /// Shows a message again as it was: there is none to make available, or it must stay.
    pub(crate) fn refuse_requeue(&self, id: MessageId) {
        self.end_requeue(|engine| engine.requeue_absent(id));
    }

    /// Shows a message again as it was: its pool could not be read.
    pub(crate) fn cancel_requeue(&self, id: MessageId) {
        self.end_requeue(|engine| engine.cancel_requeue(id));
    }

    fn end_requeue(&self, end: impl FnOnce(&mut QueueEngine)) {
        let mut state = self.slot.lock();
        if let Some(queue) = state.queue_mut(&self.at, self.id) {
            end(&mut queue.engine);
        }
        state.note_wake(&self.at);
        state.serve(&self.at);
    }

    /// Submits the new header of a message that the pool has with the header `stored`.
    pub(crate) fn submit_requeue(&self, stored: &Header, again: Header) -> Result<WriteOutcome, Error> {
        let mut state = self.slot.lock();
        let queue = state.queue_mut(&self.at, self.id).ok_or_else(|| self.closed())?;
        queue.engine.requeue_read(stored);
        state.submit(&self.at, Change::requeue(vec![again]))
    }
}
