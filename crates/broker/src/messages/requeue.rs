//! Requeues: a message that no claim holds is made available again under its id, with no attempts and a new life.
//!
//! The message is hidden first, then read, then written: no other change of it can precede the new header.

use angarium_catalogue::Schema;
use angarium_core::error::Error;
use angarium_core::ids::MessageId;
use angarium_core::message::{Header, Retention, State};
use angarium_core::names::QueueRef;
use angarium_core::outcome::{Event, EventKind};
use angarium_core::settle::Requeue;
use angarium_core::time::Timestamp;
use angarium_engine::{forget_claims, in_transfer_error};

use crate::messages::Messages;
use crate::messages::single::no_message;
use crate::slot::queue_handle::QueueHandle;
use crate::writer::pending::settled;

impl Messages {
    /// Makes a message available again. It is durable when this returns.
    pub(crate) async fn message_requeue(
        &self,
        at: &QueueRef,
        id: MessageId,
        when: Requeue,
    ) -> Result<(), Error> {
        self.0.replica.catalogue.schema_reach(Schema::OUTCOMES).await?;
        let queue = self.0.slots.queue(at).await?;
        let Some(open) = self.0.open_queues.open(&queue).await? else {
            return self.0.slots.check_ours(queue.slot()).and(Err(no_message(id)));
        };
        let messages = self.clone();
        let requeue = async move {
            let _guard = open.slot().lost_on_panic();
            let outcome = messages.requeue(&open, id, when).await;
            messages.0.slots.confirm_refusal(open.slot(), outcome)
        };
        self.0.replica.carry_out(requeue).await
    }

    async fn requeue(&self, queue: &QueueHandle, id: MessageId, when: Requeue) -> Result<(), Error> {
        queue.begin_requeue(id).map_err(begin_error)?;
        let stored = match queue.stored_header(id).await {
            Ok(stored) => stored,
            Err(error) => {
                queue.cancel_requeue(id);
                return Err(error);
            }
        };
        let now = self.0.replica.clock.now();
        let retention = queue.decide(|engine| engine.retention()).ok_or_else(|| queue.closed())?;
        let stored = match check_available(id, stored, now, retention) {
            Ok(stored) => stored,
            Err(error) => {
                queue.refuse_requeue(id);
                return Err(error);
            }
        };
        let again = available_again(stored.clone(), when, now);
        match queue.submit_requeue(&stored, again) {
            Ok(outcome) => settled(outcome).await,
            Err(error) => {
                queue.cancel_requeue(id);
                Err(error)
            }
        }
    }
}

/// Returns the error for a message that cannot be hidden.
pub(in crate::messages) fn begin_error(error: Error) -> Error {
    match error {
        Error::Claimed(id) => Error::Conflict(format!("message {id} is claimed")),
        error => error,
    }
}

/// Returns the header of a message that can be made available.
pub(in crate::messages) fn check_available(
    id: MessageId,
    stored: Option<Header>,
    now: Timestamp,
    retention: Retention,
) -> Result<Header, Error> {
    let stored = stored.ok_or_else(|| no_message(id))?;
    match stored.state {
        // In transfer it does not expire.
        State::Prepared(_) | State::Moving(_) | State::NoTarget => Err(in_transfer_error()),
        State::Ready | State::Scheduled | State::Done | State::Failed => {
            if stored.is_expired(now, retention) { Err(no_message(id)) } else { Ok(stored) }
        }
    }
}

/// The header of a message that is made available again: without attempts and outcome, and with the life that it had
/// before it was kept, from its ready time on.
pub(crate) fn available_again(mut header: Header, when: Requeue, now: Timestamp) -> Header {
    let ready = match when {
        Requeue::At(delay) => delay.ready(now),
        Requeue::Never => Timestamp::NEVER,
    };
    // The record of its last claim may still name it.
    forget_claims(&mut header);
    let extras = header.extras_mut();
    (extras.result, extras.reason, extras.by, extras.held) = (None, None, None, None);
    let life = extras.life.take();
    extras.note(Event { at: now, what: EventKind::Requeued, by: None, reason: None, seconds: 0 });
    let life = life.unwrap_or(header.life).begun_again(ready);
    let state = if ready > now { State::Scheduled } else { State::Ready };
    Header { ready, life, state, ..header }
}
