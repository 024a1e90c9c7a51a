//! Messages: post, read, delete.

use uuid::Uuid;

use angarium_core::claim::Holdings;
use angarium_core::error::Error;
use angarium_core::ids::{ClaimId, MessageId};
use angarium_core::message::NewMessage;
use angarium_core::names::QueueRef;
use angarium_core::page::PopCount;

use crate::broker::Broker;
use crate::messages::list::{MessageFilter, MessagePage};
use crate::messages::peek::{PeekFilter, PeekPage};
use crate::messages::posts::PostResults;
use crate::messages::send::SendEntry;
use crate::messages::view::MessageView;
use crate::slot::post::PostResult;

impl Broker {
    /// Sends messages in this order, except messages that are longer than the queue allows. The others are as durable
    /// as the queue requires when this returns, all of them or none.
    pub async fn messages_send(
        &self,
        at: &QueueRef,
        messages: Vec<SendEntry>,
    ) -> Result<Vec<Result<MessageId, Error>>, Error> {
        self.0.messages.messages_send(at, messages).await
    }

    /// Deletes messages for a caller that holds claims: all of them, or none when one is under another live claim. They
    /// are gone from the pool when this returns. A missing message is no error.
    pub async fn messages_delete(
        &self,
        at: &QueueRef,
        ids: Vec<MessageId>,
        held: Holdings<'_>,
    ) -> Result<(), Error> {
        self.0.messages.messages_delete(at, ids, held).await
    }

    /// Deletes messages, each with its own outcome: a message under a claim of another caller stays. Messages with a
    /// successful outcome are gone from the pool when this returns.
    pub async fn messages_delete_each(
        &self,
        at: &QueueRef,
        ids: &[MessageId],
        held: Holdings<'_>,
    ) -> Result<Vec<Result<(), Error>>, Error> {
        self.0.messages.messages_delete_each(at, ids, held).await
    }

    /// Takes the oldest ready messages out of the queue. They are gone from the pool when this returns them, so they
    /// are lost if the answer is lost.
    pub async fn messages_pop(&self, at: &QueueRef, count: PopCount) -> Result<Vec<MessageView>, Error> {
        self.0.messages.messages_pop(at, count).await
    }

    /// Returns a page of the messages of a queue; an empty one when there is no such queue.
    pub async fn messages_list(&self, at: &QueueRef, filter: &MessageFilter) -> Result<MessagePage, Error> {
        self.0.messages.messages_list(at, filter).await
    }

    /// Returns a page of the messages of a queue in any state; an empty one when there is no such queue.
    pub async fn messages_peek(&self, at: &QueueRef, filter: &PeekFilter) -> Result<PeekPage, Error> {
        self.0.messages.messages_peek(at, filter).await
    }

    /// Returns the messages among `ids` that exist, claimed or not, in the order of `ids`.
    pub async fn messages_get(&self, at: &QueueRef, ids: &[MessageId]) -> Result<Vec<MessageView>, Error> {
        self.0.messages.messages_get(at, ids).await
    }

    /// Returns one message, claimed or not.
    pub async fn message_get(&self, at: &QueueRef, id: MessageId) -> Result<MessageView, Error> {
        self.0.messages.message_get(at, id).await
    }

    /// Deletes a message for a caller that holds `claim`, or no claim, by Zaqar's table of answers. It is gone from the
    /// pool when this returns. A missing message is no error.
    pub async fn message_delete(
        &self,
        at: &QueueRef,
        id: MessageId,
        claim: Option<ClaimId>,
    ) -> Result<(), Error> {
        self.0.messages.message_delete(at, id, claim).await
    }

    /// Posts messages, creating the queue when there is none. They are as durable as the result states, and ready in
    /// this order unless they have a delay; all of them or none.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for a message with more bytes than the queue allows.
    pub async fn messages_post(
        &self,
        at: &QueueRef,
        messages: Vec<NewMessage>,
        client: Option<Uuid>,
    ) -> Result<PostResult, Error> {
        self.0.messages.messages_post(at, messages, client).await
    }

    /// As [`Broker::messages_post`], but a message with more bytes than the queue allows does not prevent the others.
    pub async fn messages_post_each(
        &self,
        at: &QueueRef,
        messages: Vec<NewMessage>,
        client: Option<Uuid>,
    ) -> Result<PostResults, Error> {
        self.0.messages.messages_post_each(at, messages, client).await
    }
}
