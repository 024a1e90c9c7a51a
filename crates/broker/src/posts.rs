//! Posting through REST: many messages, all of them or none, or each for itself. The queue is created when there is none.

use std::sync::Arc;

use uuid::Uuid;

use super::Broker;
use super::messages::PostResult;
use super::slot::Slot;
use angarium_core::durability::Durability;
use angarium_core::error::{Error, InvalidPart, Part};
use angarium_core::ids::MessageId;
use angarium_core::message::NewMessage;
use angarium_core::names::QueueRef;
use angarium_core::quota::Amount;

/// What became of each message of a batch.
#[derive(Debug, Default)]
pub struct PostResults {
    /// The id of each message, or why it is refused, in order.
    pub outcomes: Vec<Result<MessageId, Error>>,
    /// How durable those are that were posted; none when none was.
    pub durability: Option<Durability>,
}

impl Broker {
    /// Posts messages, creating the queue when there is none. They are as durable as this states when it returns, and
    /// ready in this order unless they have a delay; all of them or none.
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
        let slot = self.slot(at).await?;
        let most = self.message_bytes(&slot, at).await?;
        for (index, message) in messages.iter().enumerate() {
            check_bytes(message, most, || format!("messages[{index}].body"))?;
        }
        // Before anything is made for them.
        let room = self.reserve(&at.project, Amount::of(&messages)).await?;
        self.open_or_create(&slot, at).await?;
        self.post_opened(&slot, at, messages, client, room).await
    }

    /// As [`Broker::messages_post`], but messages with more bytes than the queue allows do not keep the others from it.
    pub async fn messages_post_each(
        &self,
        at: &QueueRef,
        messages: Vec<NewMessage>,
        client: Option<Uuid>,
    ) -> Result<PostResults, Error> {
        let slot = self.slot(at).await?;
        let most = self.message_bytes(&slot, at).await?;
        let count = messages.len();
        let (mut refused, mut taken) = (Vec::with_capacity(count), Vec::with_capacity(count));
        for message in messages {
            let check = check_bytes(&message, most, || "body".to_owned());
            if check.is_ok() {
                taken.push(message);
            }
            refused.push(check.err());
        }
        let (ids, durability) = if taken.is_empty() {
            (Vec::new(), None)
        } else {
            let room = self.reserve(&at.project, Amount::of(&taken)).await?;
            self.open_or_create(&slot, at).await?;
            let PostResult { ids, durability } = self.post_opened(&slot, at, taken, client, room).await?;
            (ids, Some(durability))
        };
        let mut ids = ids.into_iter();
        let lost = || Error::unknown(Part::Server, "a message that was posted has no id");
        let outcome = |refused: Option<Error>| refused.map_or_else(|| ids.next().ok_or_else(lost), Err);
        Ok(PostResults { outcomes: refused.into_iter().map(outcome).collect(), durability })
    }

    /// Bytes that a message of a queue may have; of one that is not there, what it would be created with.
    async fn message_bytes(&self, slot: &Arc<Slot>, at: &QueueRef) -> Result<usize, Error> {
        let is_open = self.open(slot, at).await?;
        let limits = self.limits();
        let state = slot.state.lock();
        let queue = state.queues.get(at).filter(|_| is_open);
        Ok(queue.map_or(limits.rest_message_bytes(), |queue| queue.attributes.message_bytes(limits)))
    }
}

fn check_bytes(message: &NewMessage, most: usize, field: impl FnOnce() -> String) -> Result<(), Error> {
    match message.bytes() {
        bytes if bytes > most => {
            let why = format!("a message of this queue has at most {most} bytes, and this one has {bytes}");
            Err(Error::invalid(InvalidPart::Limit, field(), why))
        }
        _ => Ok(()),
    }
}
