//! Requeues with a new body: a new message takes the place of one that no claim holds.
//!
//! The message is hidden first, then read. One batch in the pool that has it appends the new message and removes the old
//! one, so no crash leaves both or none. During a migration that may be the older pool: the copy phase takes the new
//! message over like any other.

use bytes::Bytes;

use angarium_catalogue::Schema;
use angarium_core::envelope::Envelope;
use angarium_core::error::{Error, InvalidPart};
use angarium_core::ids::MessageId;
use angarium_core::message::{Header, Message};
use angarium_core::names::{PoolName, QueueRef};
use angarium_core::quota::Amount;
use angarium_core::settle::Requeue;
use angarium_storage::is_shareable;

use crate::ledger::quota_ledger::Reservation;
use crate::messages::Messages;
use crate::messages::requeue::{available_again, begin_error, check_available};
use crate::messages::single::no_message;
use crate::slot::queue_handle::QueueHandle;
use crate::writer::pending::settled;

/// A new message, and what its batch needs.
struct Replacement {
    /// The new message, under the id of the old one.
    message: Message,
    /// The pool that has the old message.
    pool: PoolName,
    /// Room for the bytes that the new message has more.
    room: Reservation,
}

impl Messages {
    /// Puts a new message with this body in the place of a message. It is durable, and the old message gone, when this
    /// returns the id of the new one.
    pub(crate) async fn message_replace(
        &self,
        at: &QueueRef,
        id: MessageId,
        when: Requeue,
        body: Bytes,
    ) -> Result<MessageId, Error> {
        self.0.replica.catalogue.schema_reach(Schema::OUTCOMES).await?;
        let queue = self.0.slots.queue(at).await?;
        let Some(open) = self.0.open_queues.open(&queue).await? else {
            return self.0.slots.check_ours(queue.slot()).and(Err(no_message(id)));
        };
        let messages = self.clone();
        let replace = async move {
            let _guard = open.slot().lost_on_panic();
            let outcome = messages.replace(&open, id, when, body).await;
            messages.0.slots.confirm_refusal(open.slot(), outcome)
        };
        self.0.replica.carry_out(replace).await
    }

    async fn replace(
        &self,
        queue: &QueueHandle,
        id: MessageId,
        when: Requeue,
        body: Bytes,
    ) -> Result<MessageId, Error> {
        for own in queue.closed_fills() {
            // Only an open one shows whether it has yet to copy the message.
            self.0.open_queues.open_if_there(&queue.slot().queue(&own)).await?;
        }
        queue.begin_requeue(id).map_err(begin_error)?;
        let found = async { queue.store()?.get(queue.id(), &[id]).await };
        let old = match found.await {
            Ok(mut found) => found.pop(),
            Err(error) => {
                queue.cancel_requeue(id);
                return Err(error);
            }
        };
        let Some(old) = old else {
            queue.refuse_requeue(id);
            return Err(no_message(id));
        };
        let stored = old.header.clone();
        match self.replacement(queue, old, when, body).await {
            Ok(Replacement { message, pool, room }) => {
                let submitted = queue.submit_replacement(&stored, message, &pool, room);
                let show = |_: &Error| queue.show_selected(std::iter::once(&stored), &[]);
                let (id, outcome) = submitted.inspect_err(show)?;
                settled(outcome).await.map(|()| id)
            }
            Err(error) => {
                queue.show_selected(std::iter::once(&stored), &[]);
                Err(error)
            }
        }
    }

    /// Makes the new message: group, tags, SQS attributes, trace and history are those of the old one.
    async fn replacement(
        &self,
        queue: &QueueHandle,
        old: Message,
        when: Requeue,
        body: Bytes,
    ) -> Result<Replacement, Error> {
        let now = self.0.replica.clock.now();
        let retention = queue.decide(|engine| engine.retention()).ok_or_else(|| queue.closed())?;
        let Message { header, body: before } = old;
        let id = header.id;
        let header = check_available(id, Some(header), now, retention)?;
        let (envelope, _) = Envelope::split(before.clone());
        let most = queue.message_bytes(self.0.replica.limits()).ok_or_else(|| queue.closed())?;
        let bytes = body.len() + envelope.attributes.size();
        if bytes > most {
            let why = format!("a message of this queue has at most {most} bytes, and this one has {bytes}");
            return Err(Error::invalid(InvalidPart::Limit, "body", why));
        }
        let body = envelope.before(body);
        let room = self.reserve_body(queue, before.len(), body.len()).await?;
        let pool = queue.pool_of(id).await?;
        let size = u32::try_from(body.len()).expect("bodies are within the bound of a request");
        let mut again = available_again(header, when, now);
        // No record of a claim names the new message.
        again.extras_mut().forgotten = 0;
        let header = Header { created: now, size, ..again };
        Ok(Replacement { message: Message { header, body }, pool, room })
    }

    /// Reserves room for the bytes that a new body needs more than the one before. A body that copies may share stays
    /// for the others.
    async fn reserve_body(
        &self,
        queue: &QueueHandle,
        before: usize,
        after: usize,
    ) -> Result<Reservation, Error> {
        let is_shared = is_shareable(before as u64)
            && (queue.at().name.subscription().is_some() || queue.has_subscriptions());
        let freed = if is_shared { 0 } else { before };
        match after.saturating_sub(freed) as u64 {
            0 => Ok(Reservation::none()),
            bytes => self.0.quotas.reserve(&queue.at().project, Amount { messages: 0, bytes }).await,
        }
    }
}
