//! Sending through SQS: each message of a batch with its own outcome, and only to a queue that exists.

use angarium_catalogue::Schema;
use angarium_core::attributes::Attributes;
use angarium_core::delay::Delay;
use angarium_core::error::{Error, InvalidPart, Part};
use angarium_core::ids::MessageId;
use angarium_core::message::{MessageTtl, NewMessage};
use angarium_core::names::QueueRef;
use angarium_core::quota::Amount;

use crate::messages::Messages;
use crate::open_queues::lookup::no_queue;

/// A message to send.
#[derive(Clone, Debug)]
pub struct SendEntry {
    /// The message.
    pub message: NewMessage,
    /// Bytes that count for the queue's maximum: body and attributes.
    pub size: usize,
}

impl Messages {
    /// Sends messages in this order, except messages that are longer than the queue allows and messages of groups whose
    /// hold refuses posts. The others are as durable as the queue requires when this returns, all of them or none.
    pub async fn messages_send(
        &self,
        at: &QueueRef,
        messages: Vec<SendEntry>,
    ) -> Result<Vec<Result<MessageId, Error>>, Error> {
        let attributes = self.0.open_queues.opened(at).await?.attributes;
        let most = attributes.message_bytes(self.0.replica.limits());
        let is_retained = self.0.replica.may_store(Schema::RETENTION).await;
        let queue = self.0.slots.queue(at).await?;
        let has_group_holds = queue.slot().has_group_holds(at);
        let (mut refused, mut sent) =
            (Vec::with_capacity(messages.len()), Vec::with_capacity(messages.len()));
        for SendEntry { message, size } in messages {
            if attributes.is_fifo && message.dedup.is_none() && !attributes.has_content_dedup {
                let why = "The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId \
                           provided explicitly";
                return Err(Error::invalid(InvalidPart::Limit, "", why));
            }
            let refusal = if size > most {
                Some(too_long(most))
            } else if has_group_holds {
                queue.slot().check_group_post(at, &message).err()
            } else {
                None
            };
            if refusal.is_none() {
                sent.push(if is_retained {
                    NewMessage { is_retained, ..message }
                } else {
                    self.retained_from_now(message, &attributes)
                });
            }
            refused.push(refusal);
        }
        let mut ids = self.send_checked(at, sent).await?.into_iter();
        let lost = || Error::unknown(Part::Server, "a message that was sent has no id");
        Ok(refused
            .into_iter()
            .map(|refused| refused.map_or_else(|| ids.next().ok_or_else(lost), Err))
            .collect())
    }

    /// Gives a message a lifetime that begins now: the current retention of its queue, less its delay, at least a
    /// second. It is used while messages may not be stored as retained; a retained message lives from the moment when
    /// it is ready.
    fn retained_from_now(&self, message: NewMessage, attributes: &Attributes) -> NewMessage {
        let limits = self.0.replica.limits();
        let queue = attributes.message_delay.unwrap_or(limits.message_delay.default_value());
        let Delay::Seconds(delay) = message.delay.unwrap_or(Delay::Seconds(queue)) else { return message };
        let kept = attributes.message_ttl.map_or(limits.message_ttl.default_value(), MessageTtl::seconds);
        let ttl = (delay > 0).then(|| MessageTtl::stored(kept.saturating_sub(delay).max(1)));
        NewMessage { ttl: message.ttl.or(ttl), ..message }
    }

    async fn send_checked(&self, at: &QueueRef, messages: Vec<NewMessage>) -> Result<Vec<MessageId>, Error> {
        if messages.is_empty() {
            return Ok(Vec::new());
        }
        let room = self.0.quotas.reserve(&at.project, Amount::of(&messages)).await?;
        let queue = self.0.slots.queue(at).await?;
        let Some(queue) = self.0.open_queues.open(&queue).await? else {
            return self.0.slots.check_ours(queue.slot()).and(Err(no_queue(at)));
        };
        Ok(self.post_opened(&queue, messages, None, room).await?.ids)
    }
}

/// Returns the error for a message that is longer than its queue allows, in the words of SQS.
fn too_long(most: usize) -> Error {
    let why = format!("Message must be shorter than {most} bytes");
    Error::invalid(InvalidPart::Limit, "MessageBody", why)
}
