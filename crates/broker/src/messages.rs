//! Messages: post, get, delete.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::oneshot;
use uuid::Uuid;

use super::Broker;
use super::changes::Change;
use super::duplicates::{DedupPost, PendingDuplicate, dedup_expires};
use super::ledger::Reservation;
use super::slot::{Slot, SlotState};
use angarium_core::attributes::Attributes;
use angarium_core::delay::Delay;
use angarium_core::durability::Durability;
use angarium_core::envelope::Envelope;
use angarium_core::error::{Error, Part, Resource};
use angarium_core::group::GroupName;
use angarium_core::ids::{ClaimId, MessageId};
use angarium_core::limits::Limits;
use angarium_core::message::{Header, Life, Message, MessageTtl, NewMessage, Retention, State};
use angarium_core::names::QueueRef;
use angarium_core::quota::Amount;
use angarium_core::time::Timestamp;
use angarium_core::trace::TraceContext;
use angarium_engine::{LookupResult, PoolLookup, QueueEngine, Removal};

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
    /// What it remembers beside its body.
    pub envelope: Option<Box<Envelope>>,
    /// When it was posted.
    pub created: Timestamp,
    /// How often it has been claimed.
    pub attempts: u32,
    /// When it was claimed for the first time.
    pub first_claimed: Option<Timestamp>,
    /// The group that it belongs to.
    pub group: Option<GroupName>,
    /// The claim it is under, if it is under one.
    pub claim: Option<ClaimId>,
    /// The rest of its delay, if that has not ended.
    pub delay: Option<DelayLeft>,
}

/// The rest of a message's delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DelayLeft {
    /// Whole seconds, rounded up.
    pub seconds: u64,
    /// When it ends.
    pub until: Timestamp,
}

impl MessageView {
    /// A message as the holder of its claim sees it.
    pub(super) fn claimed(
        header: &Header,
        claim: ClaimId,
        kept: Bytes,
        (now, retention): (Timestamp, Retention),
    ) -> Self {
        Self { claim: Some(claim), delay: None, ..Self::free(header, kept, (now, retention)) }
    }

    /// A message that is under no claim.
    pub(super) fn free(header: &Header, kept: Bytes, (now, retention): (Timestamp, Retention)) -> Self {
        let (age, attempts) = (now.seconds_since(header.created), header.attempts);
        let (envelope, body) = Envelope::split(kept);
        let envelope = (!envelope.is_empty()).then(|| Box::new(envelope));
        let (id, ttl, created) = (header.id, header.ttl(retention), header.created);
        let (first_claimed, group) = (header.first_claimed, header.group.clone());
        let delay = (header.state == State::Scheduled).then(|| DelayLeft {
            seconds: header.ready.as_millis().saturating_sub(now.as_millis()).div_ceil(1_000),
            until: header.ready,
        });
        Self { id, ttl, age, body, envelope, created, attempts, first_claimed, group, claim: None, delay }
    }

    /// The trace that it was posted in.
    pub fn trace(&self) -> Option<&TraceContext> {
        self.envelope.as_deref()?.trace.as_ref()
    }
}

/// What was posted.
#[derive(Clone, Debug)]
pub struct PostResult {
    /// The ids of the messages, in order.
    pub ids: Vec<MessageId>,
    /// How durable they are.
    pub durability: Durability,
}

pub(super) type WriteOutcome = oneshot::Receiver<Result<(), Error>>;

/// Waits until a change on its way to the pool is settled.
pub(super) async fn settled(outcome: WriteOutcome) -> Result<(), Error> {
    outcome
        .await
        .unwrap_or_else(|_| Err(Error::unknown(Part::Server, "a slot writer ended without an answer")))
}

impl Broker {
    /// Posts to a queue that is open. A message whose duplicate is on its way waits for what becomes of that.
    pub(super) async fn post_opened(
        &self,
        slot: &Arc<Slot>,
        at: &QueueRef,
        messages: Vec<NewMessage>,
        client: Option<Uuid>,
        room: Reservation,
    ) -> Result<PostResult, Error> {
        let (mut posted, outcome, mut awaited) = self.begin_post(slot, at, messages, client, room)?;
        settled(outcome).await?;
        // What fails from here on fails after that.
        let mut is_written = posted.ids.len() > awaited.len();
        let after = |is_written: bool, error: Error| match is_written {
            true => Error::unknown(Part::Storage, format!("a part of the messages is posted; {error}")),
            false => error,
        };
        // Their duplicates were on the way before: now it is known what became of them.
        while !awaited.is_empty() {
            let (places, messages): (Vec<usize>, Vec<NewMessage>) =
                awaited.into_iter().map(|PendingDuplicate { place, message }| (place, message)).unzip();
            let room = self.reserve(&at.project, Amount::of(&messages)).await;
            let room = room.map_err(|error| after(is_written, error))?;
            let begun = self.begin_post(slot, at, messages, client, room);
            let (again, outcome, rest) = begun.map_err(|error| after(is_written, error))?;
            settled(outcome).await.map_err(|error| after(is_written, error))?;
            is_written |= again.ids.len() > rest.len();
            places.iter().zip(again.ids).for_each(|(place, id)| posted.ids[*place] = id);
            let outer = |rest: PendingDuplicate| PendingDuplicate { place: places[rest.place], ..rest };
            awaited = rest.into_iter().map(outer).collect();
        }
        Ok(posted)
    }

    fn begin_post(
        &self,
        slot: &Arc<Slot>,
        at: &QueueRef,
        messages: Vec<NewMessage>,
        client: Option<Uuid>,
        room: Reservation,
    ) -> Result<(PostResult, WriteOutcome, Vec<PendingDuplicate>), Error> {
        let now = self.0.clock.now();
        let mut guard = slot.state.lock();
        let state = &mut *guard;
        let gone = || Error::unavailable(Part::Server, "the queue was closed");
        let queue = state.queues.get(at).ok_or_else(gone)?;
        let pool = &queue.placement.pool;
        let writer = state.writers.get(pool).ok_or_else(gone)?;
        writer.check_open()?;
        if !queue.attributes.allow(writer.reach()) {
            return Err(Error::NotDurable(pool.clone()));
        }
        let durability = queue.attributes.durability.unwrap_or_default().min(writer.reach());
        let defaults = MessageDefaults::of(&queue.attributes, &self.0.limits);
        let mut random = rand::rng();
        let mut posting = DedupPost::within(self.0.duplicates.room());
        for new in messages {
            let Some((new, key)) = posting.admit(queue, new, now)? else { continue };
            let header = header(&new, &defaults, client, now, state.ids.next(now, &mut random));
            posting.add(Message { header, body: new.body }, key, now);
        }
        let DedupPost { ids, messages, notes, awaited, own, .. } = posting;
        let outcome = self.submit_reserved(slot, state, at, Change::Post(messages, notes), room)?;
        self.0.duplicates.add(own.len());
        if let Some(queue) = state.queues.get_mut(at) {
            own.iter().for_each(|(key, id)| queue.engine.begin_dedup(*key, *id, dedup_expires(now)));
        }
        Ok((PostResult { ids, durability }, outcome, awaited))
    }

    /// One message, claimed or not.
    pub async fn message_get(&self, at: &QueueRef, id: MessageId) -> Result<MessageView, Error> {
        let slot = self.slot(at).await?;
        let found = self.read_message(&slot, at, id).await;
        self.confirm(&slot, found)
    }

    async fn read_message(
        &self,
        slot: &Arc<Slot>,
        at: &QueueRef,
        id: MessageId,
    ) -> Result<MessageView, Error> {
        let missing = || Error::NotFound { resource: Resource::Message, name: id.to_string() };
        if !self.open(slot, at).await? {
            return Err(missing());
        }
        let (queue, store, hold, retention) = {
            let state = slot.state.lock();
            let queue = state.queues.get(at).ok_or_else(missing)?;
            (queue.id, self.store_of(queue)?, queue.engine.hold(id), queue.engine.retention())
        };
        let found = store.get(queue, &[id]).await?;
        let Message { header, body } = found.into_iter().next().ok_or_else(missing)?;
        let now = self.0.clock.now();
        match hold {
            Some((claim, header)) if !header.is_expired(now, retention) => {
                Ok(MessageView::claimed(&header, claim, body, (now, retention)))
            }
            None if !header.is_expired(now, retention) && !matches!(header.state, State::Prepared(_)) => {
                Ok(MessageView::free(&header, body, (now, retention)))
            }
            Some(_) | None => Err(missing()),
        }
    }

    /// Deletes a message for a caller who holds `claim`, or no claim, by Zaqar's table of answers. It is gone
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
    ) -> Result<Option<WriteOutcome>, Error> {
        if !self.open(slot, at).await? {
            return Ok(None);
        }
        let mut begun = self.begin_delete(slot, at, id, |engine, now| engine.begin_remove(id, claim, now))?;
        loop {
            let asked = match begun {
                DeleteStart::Removal(outcome) => return Ok(Some(outcome)),
                DeleteStart::Asked(asked) => asked,
            };
            let state = self.message_state(slot, at, id).await?;
            let answered = state.as_ref().map_or(LookupResult::Absent, LookupResult::There);
            begun = self.begin_delete(slot, at, id, |engine, now| {
                engine.begin_remove_after_lookup(id, claim, asked, answered, now)
            })?;
        }
    }

    pub(super) fn begin_delete(
        &self,
        slot: &Arc<Slot>,
        at: &QueueRef,
        id: MessageId,
        decide: impl FnOnce(&mut QueueEngine, Timestamp) -> Result<Removal, Error>,
    ) -> Result<DeleteStart, Error> {
        let now = self.claim_time();
        let mut state = slot.state.lock();
        let gone = || Error::unavailable(Part::Server, "the queue was closed");
        let removal = decide(&mut state.queues.get_mut(at).ok_or_else(gone)?.engine, now)?;
        self.submit_removal(slot, &mut state, at, id, removal)
    }

    /// Sends a removal on its way, if the engine has begun it.
    pub(super) fn submit_removal(
        &self,
        slot: &Arc<Slot>,
        state: &mut SlotState,
        at: &QueueRef,
        id: MessageId,
        removal: Removal,
    ) -> Result<DeleteStart, Error> {
        match removal {
            Removal::Begun => {
                self.submit(slot, state, at, Change::Remove(vec![id])).map(DeleteStart::Removal)
            }
            Removal::AskPool(asked) => Ok(DeleteStart::Asked(asked)),
        }
    }

    /// The state in which the pool has a message, if it has it.
    pub(super) async fn message_state(
        &self,
        slot: &Slot,
        at: &QueueRef,
        id: MessageId,
    ) -> Result<Option<State>, Error> {
        let gone = || Error::unavailable(Part::Server, "the queue was closed");
        let (queue, store) = {
            let state = slot.state.lock();
            let queue = state.queues.get(at).ok_or_else(gone)?;
            (queue.id, self.store_of(queue)?)
        };
        let found = store.get(queue, &[id]).await?;
        Ok(found.into_iter().next().map(|message| message.header.state))
    }
}

/// How far a delete came.
pub(super) enum DeleteStart {
    /// The removal is on its way.
    Removal(WriteOutcome),
    /// What the pool has must be known first.
    Asked(PoolLookup),
}

/// What holds for the messages of a queue that do not say.
struct MessageDefaults {
    ttl: u32,
    delay: Delay,
}

impl MessageDefaults {
    fn of(attributes: &Attributes, limits: &Limits) -> Self {
        let ttl = attributes.message_ttl.map_or(limits.message_ttl.default_value(), MessageTtl::seconds);
        let delay = attributes.message_delay.unwrap_or(limits.message_delay.default_value());
        Self { ttl, delay: Delay::Seconds(delay) }
    }
}

/// The header of a message that is posted now to a queue with these defaults.
fn header(
    new: &NewMessage,
    defaults: &MessageDefaults,
    client: Option<Uuid>,
    now: Timestamp,
    id: MessageId,
) -> Header {
    let ready = new.delay.unwrap_or(defaults.delay).ready(now);
    let state = if ready > now { State::Scheduled } else { State::Ready };
    let size = u32::try_from(new.body.len()).expect("bodies are within the bound of a request");
    let life = match new.is_retained {
        true => Life::Retained { since: now },
        false => Life::lasting(new.ttl.map_or(defaults.ttl, MessageTtl::seconds), ready),
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
    }
}
