//! Requeues of messages, as the slot begins and ends them. The procedure is in [`crate::messages::requeue`].

use angarium_core::error::Error;
use angarium_core::ids::MessageId;
use angarium_core::message::{Header, Message};
use angarium_core::names::PoolName;
use angarium_engine::QueueEngine;

use crate::ledger::quota_ledger::Reservation;
use crate::slot::gaps::position;
use crate::slot::queue_handle::QueueHandle;
use crate::slot::settle::route_to;
use crate::slot::state::SlotState;
use crate::writer::change::Change;
use crate::writer::pending::{SlotWriter, WriteOutcome};

/// The text of an error, see [`Error::Busy`].
const AWAITED: &str = "a subscription has yet to copy the message";

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

    /// Submits a new message in the place of a hidden one, which the pool has with the header `stored`. Returns the id of
    /// the new message. After an error the caller shows the hidden one again.
    pub(crate) fn submit_replacement(
        &self,
        stored: &Header,
        mut message: Message,
        pool: &PoolName,
        room: Reservation,
    ) -> Result<(MessageId, WriteOutcome), Error> {
        let now = self.slot.around.replica.clock.now();
        let mut locked = self.slot.lock();
        if locked.is_awaited_by_fill(&self.at, stored) {
            return Err(Error::Busy(AWAITED));
        }
        let state: &mut SlotState = &mut locked;
        let SlotState { queues, writers, ids, .. } = state;
        let queue =
            queues.get_mut(&self.at).filter(|queue| queue.id == self.id).ok_or_else(|| self.closed())?;
        let open = writers.get(pool).map_or_else(|| Err(self.closed()), SlotWriter::check_open);
        // A migration may have begun or been canceled since the pool was found; the message stays in that pool.
        let route = open.and_then(|()| route_to(&queue.placement, pool).ok_or_else(|| self.closed()))?;
        // Kept messages are outside the groups.
        if !stored.state.is_kept() {
            queue.engine.requeue_read(stored);
        }
        queue.engine.begin_remove_selected(&[stored.id]);
        if !queue.subscriptions.is_empty() {
            // It brings no copies: whether it has had them was decided where the old message is.
            message.header.extras_mut().arrived = Some(position(stored));
        }
        message.header.id = ids.next(now, &mut self.slot.around.replica.random.clone());
        let id = message.header.id;
        let submitted = locked.submit_reserved(&self.at, Change::replace(route, message, stored.id), room);
        if submitted.is_err()
            && let Some(queue) = locked.queue_mut(&self.at, self.id)
        {
            queue.engine.remove_failed(&[stored.id]);
        }
        submitted.map(|outcome| (id, outcome))
    }

    /// Submits the new header of a message that the pool has with the header `stored`.
    pub(crate) fn submit_requeue(&self, stored: &Header, again: Header) -> Result<WriteOutcome, Error> {
        let mut state = self.slot.lock();
        let queue = state.queue_mut(&self.at, self.id).ok_or_else(|| self.closed())?;
        queue.engine.requeue_read(stored);
        state.submit(&self.at, Change::requeue(vec![again]))
    }
}
