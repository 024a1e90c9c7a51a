//! Publication of messages that arrive from other queues.
//!
//! ```text
//! prepared ─▶ one batch: ready in its queue, a copy in the queue of each subscription
//! ```
//!
//! The copies are in the batch that publishes the message, so a transfer that is repeated after a kill makes them once. A
//! forward, a moved message and the copy of a `queue:` subscription are new in the queue and bring copies; dead letters and
//! redriven messages are not.

use angarium_core::error::Error;
use angarium_core::ids::MessageId;
use angarium_core::message::{Header, Message};
use angarium_core::mutation::{Mutation, is_on};
use angarium_core::names::PoolName;

use crate::ledger::quota_ledger::Reservation;
use crate::slot::copies::as_posted;
use crate::slot::queue_handle::QueueHandle;
use crate::slot::settle::route_to;
use crate::slot::state::SlotState;
use crate::slot::subscriptions::{FanOut, NewInSource, PostCopies};
use crate::writer::change::Change;
use crate::writer::pending::{WriteOutcome, settled};

/// Result of an attempt to begin the publication of a message.
pub(crate) enum ArrivalStart {
    Begun(BegunArrival),
    /// Another caller is changing the message.
    Skipped,
    /// Nothing is written: the subscriptions of the queue have changed, or their queues are not open.
    Unprepared {
        room: Reservation,
    },
}

/// A submitted publication.
pub(crate) struct BegunArrival {
    pub(crate) outcome: WriteOutcome,
    /// The queues of subscriptions whose oldest copies must be removed once it is durable.
    pub(crate) beyond: Vec<QueueHandle>,
}

/// Whether a prepared message is new in its queue.
pub(crate) fn is_new(header: &Header) -> bool {
    header.extras.as_ref().is_some_and(|extras| extras.arrival.is_some())
}

/// The header of a prepared message as it is published, with its position in the queue.
fn published(mut header: Header, arrived: Option<MessageId>) -> Header {
    if arrived.is_some() || header.extras.is_some() {
        let extras = header.extras_mut();
        (extras.arrival, extras.arrived) = (None, arrived);
    }
    header.extras = header.extras.filter(|extras| !extras.is_empty());
    header
}

impl QueueHandle {
    /// Whether messages that arrive may bring copies. False when the queue is closed.
    pub(crate) fn has_subscriptions(&self) -> bool {
        self.lock_queue(|queue| !queue.subscriptions.is_empty()).unwrap_or(false)
    }

    /// Publishes prepared messages that bring no copies, in one write, and skips messages that another caller is changing.
    /// Returns the other messages. The caller holds the transfers into the slot, so no other task removes or wakes them.
    pub(crate) async fn publish_plain(&self, headers: Vec<Header>) -> Result<Vec<Header>, Error> {
        let (outcome, new) = {
            let mut state = self.slot.lock();
            let queue = state.queue_mut(&self.at, self.id).ok_or_else(|| self.closed())?;
            let fans_out = !queue.subscriptions.is_empty();
            let (new, plain): (Vec<Header>, Vec<Header>) =
                headers.into_iter().partition(|header| fans_out && is_new(header));
            // A returning message has had its copies.
            let arrived = fans_out.then_some(MessageId::ZERO);
            let plain = plain.into_iter().map(|header| published(header, arrived)).collect();
            let ready = queue.engine.wake(plain, self.slot.around.replica.clock.now());
            (state.submit_wake(&self.at, ready)?, new)
        };
        if let Some(outcome) = outcome {
            settled(outcome).await?;
        }
        Ok(new)
    }

    /// Begins to publish a prepared message, with its copies, in the `pool` that has it. The caller holds the transfers into the
    /// queue.
    ///
    /// # Errors
    ///
    /// [`Error::SubscriptionFull`] when a subscription refuses it until it has room.
    pub(crate) fn begin_arrival(
        &self,
        message: &Message,
        pool: &PoolName,
        room: Reservation,
        fan_out: &FanOut,
    ) -> Result<ArrivalStart, Error> {
        let now = self.slot.around.replica.clock.now();
        let mut locked = self.slot.lock();
        let state: &mut SlotState = &mut locked;
        let SlotState { queues, writers, ids, .. } = state;
        let queue = queues.get(&self.at).filter(|queue| queue.id == self.id).ok_or_else(|| self.closed())?;
        // A migration may have begun or been canceled since the pool was found; the message stays in that pool.
        let route = route_to(&queue.placement, pool).ok_or_else(|| self.closed())?;
        writers.get(pool).ok_or_else(|| self.closed())?.check_open()?;
        if !fan_out.is_prepared(queue, queues) {
            return Ok(ArrivalStart::Unprepared { room });
        }
        fan_out.check_refusal(&[(0, message)], queues)?;
        let mut random = self.slot.around.replica.random.clone();
        let arrived = ids.next(now, &mut random);
        let header = published(message.header.clone(), Some(arrived));
        let queue = queues.get_mut(&self.at).ok_or_else(|| self.closed())?;
        let Some(ready) = queue.engine.wake(vec![header], now).pop() else {
            return Ok(ArrivalStart::Skipped);
        };
        let posted = Message { header: as_posted(&ready), body: message.body.clone() };
        let mut next_id = || ids.next(now, &mut random);
        let mut copied = vec![(0, &posted)];
        if is_on(Mutation::LeaveOutArrivalCopies) {
            copied.clear();
        }
        let copied = NewInSource { messages: &copied, arrived: Some(arrived) };
        let PostCopies { writes, beyond } = fan_out.copies(self, &copied, queues, now, &mut next_id);
        let id = ready.id;
        let submitted = locked.submit_with_copies(&self.at, Change::publish(route, ready), writes, room);
        let outcome = submitted.inspect_err(|_| {
            if let Some(queue) = locked.queue_mut(&self.at, self.id) {
                queue.engine.wake_failed(&[id]);
            }
        })?;
        Ok(ArrivalStart::Begun(BegunArrival { outcome, beyond }))
    }
}
