//! Posting through REST: many messages, all of them or none, or each with its own outcome. A missing queue is created.

use uuid::Uuid;

use angarium_catalogue::Schema;
use angarium_core::durability::Durability;
use angarium_core::error::{Error, InvalidPart, Part};
use angarium_core::ids::MessageId;
use angarium_core::message::NewMessage;
use angarium_core::names::QueueRef;
use angarium_core::quota::Amount;

use crate::ledger::quota_ledger::Reservation;
use crate::limits;
use crate::messages::Messages;
use crate::slot::dedup::PendingDuplicate;
use crate::slot::post::{BegunPost, PostResult, PostStart, TopicCounts};
use crate::slot::queue_handle::QueueHandle;
use crate::slot::slot_queue::SlotQueue;
use crate::slot::subscriptions::FanOut;
use crate::writer::pending::{WriteOutcome, settled};

/// Attempts to begin a post while the subscriptions of its queue change, or their queues are closed.
const FAN_OUT_TRIES: usize = 8;

/// The outcome of each message of a batch.
#[derive(Debug, Default)]
pub struct PostResults {
    /// The id of each message, or the reason of its refusal, in order.
    pub outcomes: Vec<Result<MessageId, Error>>,
    /// Durability of the posted messages; none when none was posted.
    pub durability: Option<Durability>,
}

impl Messages {
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
        let named = self.0.slots.queue(at).await?;
        let most = self.message_bytes(&named).await?;
        for (index, message) in messages.iter().enumerate() {
            check_bytes(message, most, || format!("messages[{index}].body"))?;
        }
        self.reach_outcomes(&messages).await?;
        // Before a queue is created for them.
        let room = self.0.quotas.reserve(&at.project, kept_amount(at, &messages)).await?;
        let queue = self.0.open_queues.open_or_create(&named).await?;
        self.post_opened(&queue, messages, client, room).await
    }

    /// Posts to an open queue. A message whose duplicate is still being written or forgotten waits for the outcome of
    /// that, and so do the messages behind it in its group.
    pub(crate) async fn post_opened(
        &self,
        queue: &QueueHandle,
        messages: Vec<NewMessage>,
        client: Option<Uuid>,
        room: Reservation,
    ) -> Result<PostResult, Error> {
        let BegunPost { result: mut posted, outcome, mut awaited, beyond, topic } =
            self.begin_post(queue, messages, client, room).await?;
        settled_post(queue, outcome, topic).await?;
        self.drop_beyond(beyond).await;
        // If some messages are written by now, later failures are partial.
        let mut is_written = posted.ids.len() > awaited.len();
        let after = |is_written: bool, error: Error| {
            if is_written {
                Error::unknown(Part::Storage, format!("a part of the messages is posted; {error}"))
            } else {
                error
            }
        };
        // The earlier writes of their duplicates have an outcome now. A purge of their ids may have none.
        while !awaited.is_empty() {
            let (indexes, messages): (Vec<usize>, Vec<NewMessage>) =
                awaited.into_iter().map(|PendingDuplicate { index, message }| (index, message)).unzip();
            let room = self.0.quotas.reserve(&queue.at().project, kept_amount(queue.at(), &messages)).await;
            let room = room.map_err(|error| after(is_written, error))?;
            let begun = self.begin_post(queue, messages, client, room).await;
            let BegunPost { result: again, outcome, awaited: rest, beyond, topic } =
                begun.map_err(|error| after(is_written, error))?;
            settled_post(queue, outcome, topic).await.map_err(|error| after(is_written, error))?;
            self.drop_beyond(beyond).await;
            is_written |= again.ids.len() > rest.len();
            indexes.iter().zip(again.ids).for_each(|(index, id)| posted.ids[*index] = id);
            let outer = |rest: PendingDuplicate| PendingDuplicate { index: indexes[rest.index], ..rest };
            awaited = rest.into_iter().map(outer).collect();
            if !awaited.is_empty() {
                tokio::time::sleep(limits::DEDUP_PAUSE).await;
            }
        }
        Ok(posted)
    }

    /// As `messages_post`, but a message with more bytes than the queue allows does not prevent the others.
    pub async fn messages_post_each(
        &self,
        at: &QueueRef,
        messages: Vec<NewMessage>,
        client: Option<Uuid>,
    ) -> Result<PostResults, Error> {
        self.reach_outcomes(&messages).await?;
        let named = self.0.slots.queue(at).await?;
        let most = self.message_bytes(&named).await?;
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
            let room = self.0.quotas.reserve(&at.project, kept_amount(at, &taken)).await?;
            let queue = self.0.open_queues.open_or_create(&named).await?;
            let PostResult { ids, durability } = self.post_opened(&queue, taken, client, room).await?;
            (ids, Some(durability))
        };
        let mut ids = ids.into_iter();
        let lost = || Error::unknown(Part::Server, "a message that was posted has no id");
        let outcome = |refused: Option<Error>| refused.map_or_else(|| ids.next().ok_or_else(lost), Err);
        Ok(PostResults { outcomes: refused.into_iter().map(outcome).collect(), durability })
    }

    /// Begins a post, once the queues of its subscriptions are open and there is room for the copies.
    async fn begin_post(
        &self,
        queue: &QueueHandle,
        mut messages: Vec<NewMessage>,
        client: Option<Uuid>,
        mut room: Reservation,
    ) -> Result<BegunPost, Error> {
        // Most queues have no subscriptions.
        let (mut fan_out, mut reserved) = (FanOut::default(), Amount::default());
        for _ in 0..FAN_OUT_TRIES {
            match queue.begin_post(messages, client, room, &fan_out)? {
                PostStart::Begun(begun) => return Ok(begun),
                PostStart::Unprepared { messages: again, room: held } => (messages, room) = (again, held),
            }
            let bodies: Vec<_> = messages.iter().map(|message| message.body.clone()).collect();
            let found = queue.fan_out(&bodies, self.0.replica.clock.now()).await;
            fan_out = found.ok_or_else(|| queue.closed())?;
            fan_out.share_bodies(&self.0.replica);
            self.0.open_queues.open_subscriptions(queue, &fan_out.fanned).await?;
            queue.weigh(&mut fan_out);
            fan_out.check_bounds()?;
            // Subscriptions that have ended meanwhile leave room until the post ends.
            let more = fan_out.room().minus(reserved);
            if more != Amount::default() {
                room = room.with(self.0.quotas.reserve(&queue.at().project, more).await?);
                reserved = reserved.plus(more);
            }
        }
        Err(Error::unavailable(Part::Server, "the subscriptions of the queue changed each time"))
    }

    /// Makes sure that every replica can read these messages: those with tags, or that are to be kept, have a newer form.
    async fn reach_outcomes(&self, messages: &[NewMessage]) -> Result<(), Error> {
        if !messages.iter().any(NewMessage::has_extras) {
            return Ok(());
        }
        self.0.replica.catalogue.schema_reach(Schema::OUTCOMES).await
    }

    /// Returns the maximum of bytes of a message of this queue. For a missing queue it is the value that a new one
    /// gets.
    pub(crate) async fn message_bytes(&self, queue: &SlotQueue) -> Result<usize, Error> {
        let queue = self.0.open_queues.open(queue).await?;
        let limits = self.0.replica.limits();
        let most = queue.and_then(|queue| queue.message_bytes(limits));
        Ok(most.unwrap_or_else(|| limits.rest_message_bytes()))
    }
}

/// Waits until a post is settled, and counts it if it was made to a topic.
async fn settled_post(
    queue: &QueueHandle,
    outcome: WriteOutcome,
    topic: Option<TopicCounts>,
) -> Result<(), Error> {
    settled(outcome).await?;
    topic.into_iter().for_each(|counts| queue.count_topic_post(counts));
    Ok(())
}

/// The amount of the messages that the queue itself stores: a topic has only the copies for its subscriptions.
fn kept_amount(at: &QueueRef, messages: &[NewMessage]) -> Amount {
    if at.name.is_topic() { Amount::default() } else { Amount::of(messages) }
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
