//! Outcomes of messages: settle, wait, requeue, recall.

use bytes::Bytes;

use angarium_core::claim::ClaimWait;
use angarium_core::error::Error;
use angarium_core::ids::{ClaimId, MessageId};
use angarium_core::names::QueueRef;
use angarium_core::settle::{Requeue, SettleEntry, Settled};

use crate::broker::Broker;
use crate::messages::view::MessageStatus;

impl Broker {
    /// Settles messages for the holder of their claim, each with its own outcome, in one durable step with the messages
    /// that it forwards. A repeat by the same claim within five minutes has the same outcome.
    pub async fn messages_settle(
        &self,
        at: &QueueRef,
        claim: ClaimId,
        entries: Vec<SettleEntry>,
    ) -> Result<Vec<Result<Settled, Error>>, Error> {
        self.0.claims.messages_settle(at, claim, entries).await
    }

    /// Makes a ready, delayed, failed or done message available again under its id, with no attempts and a new life. It
    /// is durable when this returns.
    pub async fn message_requeue(&self, at: &QueueRef, id: MessageId, when: Requeue) -> Result<(), Error> {
        self.0.messages.message_requeue(at, id, when).await
    }

    /// Puts a new message with this body in the place of a ready, delayed, failed or done message. It is durable, and the
    /// old message gone, when this returns the id of the new one.
    pub async fn message_replace(
        &self,
        at: &QueueRef,
        id: MessageId,
        when: Requeue,
        body: Bytes,
    ) -> Result<MessageId, Error> {
        self.0.messages.message_replace(at, id, when, body).await
    }

    /// Returns a message, kept or not. With a wait, waits until it is done, failed or gone.
    pub async fn message_status(
        &self,
        at: &QueueRef,
        id: MessageId,
        wait: ClaimWait,
    ) -> Result<MessageStatus, Error> {
        self.0.messages.message_status(at, id, wait).await
    }

    /// Removes a message whatever its state, also under a claim of another caller: its holder's next settle or delete of
    /// it is refused. It is gone from the pool when this returns.
    pub async fn message_recall(&self, at: &QueueRef, id: MessageId) -> Result<(), Error> {
        self.0.messages.message_recall(at, id).await
    }

    /// Removes the kept messages of a queue: done and failed ones.
    pub async fn queue_purge_kept(&self, at: &QueueRef) -> Result<(), Error> {
        self.0.messages.queue_purge_kept(at).await
    }

    /// Returns the ids of the messages that a live claim holds.
    pub async fn claim_held(&self, at: &QueueRef, claim: ClaimId) -> Result<Vec<MessageId>, Error> {
        self.0.claims.claim_held(at, claim).await
    }
}
