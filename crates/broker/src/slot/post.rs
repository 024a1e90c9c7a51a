//! Posts to a queue, and removals of single messages, as the slot begins them.

use uuid::Uuid;

use angarium_core::attributes::Attributes;
use angarium_core::delay::Delay;
use angarium_core::durability::Durability;
use angarium_core::error::Error;
use angarium_core::ids::MessageId;
use angarium_core::limits::Limits;
use angarium_core::message::{Header, Life, Message, MessageTtl, NewMessage, State};
use angarium_core::names::QueueRef;
use angarium_core::outcome::Extras;
use angarium_core::time::Timestamp;
use angarium_engine::{QueueEngine, Removal};

use crate::ledger::quota_ledger::Reservation;
use crate::slot::dedup::{DedupPost, PendingDuplicate, dedup_expires};
use crate::slot::delete::DeleteStart;
use crate::slot::locked::LockedSlot;
use crate::slot::queue_handle::QueueHandle;
use crate::slot::state::SlotState;
use crate::slot::subscriptions::{FanOut, NewInSource, PostCopies};
use crate::writer::change::Change;
use crate::writer::pending::WriteOutcome;

impl LockedSlot<'_> {
    /// Submits a removal, if the engine has begun it.
    pub(crate) fn submit_removal(
        &mut self,
        at: &QueueRef,
        id: MessageId,
        removal: Removal,
    ) -> Result<DeleteStart, Error> {
        match removal {
            Removal::Begun => self.submit(at, Change::remove(vec![id])).map(DeleteStart::Removal),
            Removal::AskPool(asked) => Ok(DeleteStart::Asked(asked)),
        }
    }
}

impl QueueHandle {
    /// Begins a post, with copies for the subscriptions of the queue.
    pub(crate) fn begin_post(
        &self,
        messages: Vec<NewMessage>,
        client: Option<Uuid>,
        room: Reservation,
        fan_out: &FanOut,
    ) -> Result<PostStart, Error> {
        let now = self.slot.around.replica.clock.now();
        let mut locked = self.slot.lock();
        locked.check_post(&self.at, now)?;
        let state: &mut SlotState = &mut locked;
        let SlotState { queues, writers, ids, group_holds, .. } = state;
        group_holds.check_post(&self.at, &messages, now)?;
        let queue = queues.get(&self.at).filter(|queue| queue.id == self.id).ok_or_else(|| self.closed())?;
        let pool = &queue.placement.pool;
        let writer = writers.get(pool).ok_or_else(|| self.closed())?;
        writer.check_open()?;
        if !queue.attributes.allow(writer.reach()) {
            return Err(Error::NotDurable(pool.clone()));
        }
        let durability = queue.attributes.durability.unwrap_or_default().min(writer.reach());
        if !fan_out.is_prepared(queue, queues) {
            return Ok(PostStart::Unprepared { messages, room });
        }
        let defaults = MessageDefaults::of(&queue.attributes, &self.slot.around.replica.limits);
        let mut random = self.slot.around.replica.random.clone();
        let mut posting = DedupPost::within(self.slot.around.dedup.room());
        let mut stored = Vec::new();
        for (index, new) in messages.into_iter().enumerate() {
            let Some((new, key)) = posting.admit(queue, new, now)? else { continue };
            let header = header(&new, &defaults, client, now, ids.next(now, &mut random));
            posting.add(Message { header, body: new.body }, key, now);
            if !fan_out.fanned.is_empty() {
                stored.push(index);
            }
        }
        let DedupPost { ids: posted, messages, notes, awaited, own, .. } = posting;
        let numbered: Vec<(usize, &Message)> = stored.into_iter().zip(&messages).collect();
        fan_out.check_refusal(&numbered, queues)?;
        let mut next_id = || ids.next(now, &mut random);
        let new = NewInSource { messages: &numbered, arrived: None };
        let PostCopies { writes, beyond } = fan_out.copies(self, &new, queues, now, &mut next_id);
        // The batch of a topic may have nothing but its number: a replaced owner is fenced all the same, and does not
        // drop a message that has subscriptions by now.
        let topic = self.at.name.is_topic().then(|| fan_out.topic_counts(&numbered, messages.len()));
        let kept = if self.at.name.is_topic() { Vec::new() } else { messages };
        let outcome = locked.submit_with_copies(&self.at, Change::post(kept, notes), writes, room)?;
        self.slot.around.dedup.add(own.len());
        if let Some(queue) = locked.queue_mut(&self.at, self.id) {
            own.iter().for_each(|(key, id)| queue.engine.begin_dedup(*key, *id, dedup_expires(now)));
        }
        let result = PostResult { ids: posted, durability };
        Ok(PostStart::Begun(BegunPost { result, outcome, awaited, beyond, topic }))
    }

    /// Counts a durable post to a topic, which has no messages that the engine would count.
    pub(crate) fn count_topic_post(&self, TopicCounts { posted, unrouted }: TopicCounts) {
        self.lock_queue(|queue| {
            queue.counters.sent.inc_by(posted);
            queue.counters.unrouted.inc_by(unrouted);
            queue.pace.count_posted(posted);
        });
    }

    pub(crate) fn begin_delete(
        &self,
        id: MessageId,
        now: Timestamp,
        decide: impl FnOnce(&mut QueueEngine, Timestamp) -> Result<Removal, Error>,
    ) -> Result<DeleteStart, Error> {
        let mut state = self.slot.lock();
        let queue = state.queue_mut(&self.at, self.id).ok_or_else(|| self.closed())?;
        let removal = decide(&mut queue.engine, now)?;
        state.submit_removal(&self.at, id, removal)
    }

    /// Returns the state of a message in the pool; none when the pool does not have the message.
    pub(crate) async fn message_state(&self, id: MessageId) -> Result<Option<State>, Error> {
        let store = self.store()?;
        let found = store.get(self.id, &[id]).await?;
        Ok(found.into_iter().next().map(|message| message.header.state))
    }
}

/// Result of an attempt to begin a post.
pub(crate) enum PostStart {
    Begun(BegunPost),
    /// Nothing is written: the subscriptions of the queue have changed, or their queues are not open.
    Unprepared {
        messages: Vec<NewMessage>,
        room: Reservation,
    },
}

/// A submitted post.
pub(crate) struct BegunPost {
    pub(crate) result: PostResult,
    pub(crate) outcome: WriteOutcome,
    /// Its messages that must wait for the outcome of other ones.
    pub(crate) awaited: Vec<PendingDuplicate>,
    /// The queues of subscriptions whose oldest copies must be removed once it is durable.
    pub(crate) beyond: Vec<QueueHandle>,
    /// The messages of a post to a topic, to be counted when it is durable.
    pub(crate) topic: Option<TopicCounts>,
}

/// Numbers of messages that were posted to a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TopicCounts {
    /// All of them, without duplicates.
    pub(crate) posted: u64,
    /// The ones that no subscription accepts.
    pub(crate) unrouted: u64,
}

/// The result of a post.
#[derive(Clone, Debug)]
pub struct PostResult {
    /// The ids of the messages, in order.
    pub ids: Vec<MessageId>,
    /// How durable the messages are.
    pub durability: Durability,
}

/// Values for messages that have none of their own.
pub(crate) struct MessageDefaults {
    pub(crate) ttl: u32,
    pub(crate) delay: Delay,
}

impl MessageDefaults {
    pub(crate) fn of(attributes: &Attributes, limits: &Limits) -> Self {
        let ttl = attributes.message_ttl.map_or(limits.message_ttl.default_value(), MessageTtl::seconds);
        let delay = attributes.message_delay.unwrap_or(limits.message_delay.default_value());
        Self { ttl, delay: Delay::Seconds(delay) }
    }
}

/// The header of a message that is posted now to a queue with these defaults.
pub(crate) fn header(
    new: &NewMessage,
    defaults: &MessageDefaults,
    client: Option<Uuid>,
    now: Timestamp,
    id: MessageId,
) -> Header {
    let ready = new.delay.unwrap_or(defaults.delay).ready(now);
    let state = if ready > now { State::Scheduled } else { State::Ready };
    let size = u32::try_from(new.body.len()).expect("bodies are within the bound of a request");
    let life = if new.is_retained {
        Life::Retained { since: now }
    } else {
        Life::lasting(new.ttl.map_or(defaults.ttl, MessageTtl::seconds), ready)
    };
    Header {
        id,
        created: now,
        ready,
        life,
        attempts: 0,
        client,
        size,
        state,
        group: new.group.clone(),
        first_claimed: None,
        extras: new.has_extras().then(|| Box::new(extras_of(new))),
    }
}

fn extras_of(new: &NewMessage) -> Extras {
    Extras { keep: new.keep, tags: new.tags.clone(), ..Extras::default() }
}
