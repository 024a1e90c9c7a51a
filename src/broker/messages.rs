//! Messages: post, get, delete.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::oneshot;
use uuid::Uuid;

use super::lanes::Change;
use super::slot::Slot;
use super::{Broker, storage_failed};
use crate::domain::ids::{ClaimId, MessageId};
use crate::domain::limits;
use crate::domain::message::{Header, Message, NewMessage, State};
use crate::domain::names::QueueRef;
use crate::engine::Removal;
use crate::error::{Error, Part};

/// A message as its readers see it.
#[derive(Clone, Debug)]
pub struct MessageView {
    /// Its id.
    pub id: MessageId,
    /// Seconds it lives in all.
    pub ttl: u32,
    /// Seconds since it was posted.
    pub age: u64,
    /// JSON text.
    pub body: Bytes,
    /// The claim it is under, if it is under one.
    pub claim: Option<ClaimId>,
}

pub(super) type Outcome = oneshot::Receiver<Result<(), Error>>;

/// Waits until a change on its way to the pool is settled.
pub(super) async fn settled(outcome: Outcome) -> Result<(), Error> {
    outcome.await.unwrap_or_else(|_| Err(Error::unknown(Part::Server, "a lane ended without an answer")))
}

impl Broker {
    /// Posts messages, creating the queue when there is none. They are durable, and ready in this order, when
    /// this returns their ids; all of them or none.
    pub async fn messages_post(
        &self,
        at: &QueueRef,
        messages: Vec<NewMessage>,
        client: Option<Uuid>,
    ) -> Result<Vec<MessageId>, Error> {
        let slot = self.slot(at).await?;
        self.open_or_create(&slot, at).await?;
        let (ids, outcome) = self.begin_post(&slot, at, messages, client)?;
        settled(outcome).await?;
        Ok(ids)
    }

    fn begin_post(
        &self,
        slot: &Arc<Slot>,
        at: &QueueRef,
        messages: Vec<NewMessage>,
        client: Option<Uuid>,
    ) -> Result<(Vec<MessageId>, Outcome), Error> {
        let now = self.0.clock.now();
        let mut state = slot.state.lock();
        let queue =
            state.queues.get(at).ok_or_else(|| Error::unavailable(Part::Server, "the queue was closed"))?;
        state.lanes.get(&queue.pool).map_or(Ok(()), super::lanes::Lane::check_open)?;
        let mut random = rand::rng();
        let message = |new: NewMessage| {
            let id = state.ids.next(now, &mut random);
            let ttl = new.ttl.map_or(limits::MESSAGE_TTL_DEFAULT, |ttl| ttl.seconds());
            let size = u32::try_from(new.body.len()).expect("bodies are within the bound of a request");
            let expires = now.plus_seconds(ttl);
            let header = Header {
                id,
                created: now,
                ready: now,
                ttl,
                expires,
                attempts: 0,
                client,
                size,
                state: State::Ready,
            };
            Message { header, body: new.body }
        };
        let messages: Vec<Message> = messages.into_iter().map(message).collect();
        let ids = messages.iter().map(|message| message.header.id).collect();
        let outcome = self.submit(slot, &mut state, at, Change::Post(messages))?;
        Ok((ids, outcome))
    }

    /// One message, claimed or not.
    pub async fn message_get(&self, at: &QueueRef, id: MessageId) -> Result<MessageView, Error> {
        let slot = self.slot(at).await?;
        let found = self.message_found(&slot, at, id).await;
        self.confirm(&slot, found)
    }

    async fn message_found(
        &self,
        slot: &Arc<Slot>,
        at: &QueueRef,
        id: MessageId,
    ) -> Result<MessageView, Error> {
        let missing = || Error::NotFound { what: "message", name: id.to_string() };
        if !self.open(slot, at).await? {
            return Err(missing());
        }
        let (queue, store, hold) = {
            let state = slot.state.lock();
            let queue = state.queues.get(at).ok_or_else(missing)?;
            (queue.id, self.pool(&queue.pool)?.store()?, queue.engine.hold(id))
        };
        let found = store.get(queue, &[id]).await.map_err(storage_failed)?;
        let Message { header, body } = found.into_iter().next().ok_or_else(missing)?;
        let (claim, header) = hold.map_or((None, header), |(claim, header)| (Some(claim), header));
        let now = self.0.clock.now();
        if header.is_expired(now) {
            return Err(missing());
        }
        Ok(MessageView { id, ttl: header.ttl, age: now.seconds_since(header.created), body, claim })
    }

    /// Deletes a message for somebody who holds `claim`, or no claim, by Zaqar's table of answers. It is gone
    /// from the pool when this returns; one that was not there is no error.
    pub async fn message_delete(
        &self,
        at: &QueueRef,
        id: MessageId,
        claim: Option<ClaimId>,
    ) -> Result<(), Error> {
        let slot = self.slot(at).await?;
        let removal = self.delete_or_refuse(&slot, at, id, claim).await;
        match self.confirm_refusal(&slot, removal)? {
            Some(outcome) => settled(outcome).await,
            None => self.check_ours(&slot),
        }
    }

    /// None when there is no such queue.
    async fn delete_or_refuse(
        &self,
        slot: &Arc<Slot>,
        at: &QueueRef,
        id: MessageId,
        claim: Option<ClaimId>,
    ) -> Result<Option<Outcome>, Error> {
        if !self.open(slot, at).await? {
            return Ok(None);
        }
        if let Some(outcome) = self.begin_delete(slot, at, id, claim)? {
            return Ok(Some(outcome));
        }
        if self.message_exists(slot, at, id).await? {
            return Err(Error::NotClaimed(id));
        }
        let mut state = slot.state.lock();
        let Some(queue) = state.queues.get_mut(at) else { return Ok(None) };
        queue.engine.begin_remove_absent(id);
        self.submit(slot, &mut state, at, Change::Remove(vec![id])).map(Some)
    }

    /// None when only the pool can tell whether the message is there.
    fn begin_delete(
        &self,
        slot: &Arc<Slot>,
        at: &QueueRef,
        id: MessageId,
        claim: Option<ClaimId>,
    ) -> Result<Option<Outcome>, Error> {
        let now = self.0.clock.now();
        let mut state = slot.state.lock();
        let gone = || Error::unavailable(Part::Server, "the queue was closed");
        let engine = &mut state.queues.get_mut(at).ok_or_else(gone)?.engine;
        match engine.begin_remove(id, claim, now)? {
            Removal::Begun => self.submit(slot, &mut state, at, Change::Remove(vec![id])).map(Some),
            Removal::AskPool => Ok(None),
        }
    }
}
