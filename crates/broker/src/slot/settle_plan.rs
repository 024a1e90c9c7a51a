//! The outcome of a settle: the changes of its message, its forwards and its note, as one batch has them.

use std::sync::Arc;

use bytes::Bytes;

use angarium_core::attributes::Attributes;
use angarium_core::delay::Delay;
use angarium_core::error::{Error, InvalidPart};
use angarium_core::ids::{ClaimId, MessageId};
use angarium_core::limits as core_limits;
use angarium_core::limits::Limits;
use angarium_core::message::{Header, Life, Message, NewMessage, Peer, Retention, State};
use angarium_core::mutation::{Mutation, is_on};
use angarium_core::names::{QueueName, QueueRef};
use angarium_core::outcome::{Arrival, ArrivalLife, Event, EventKind, Extras, Keep, Reason};
use angarium_core::settle::{Forward, MessageState, Retry, SettleEntry, Settled, Verdict};
use angarium_core::time::Timestamp;
use angarium_engine::HeldMessage;
use angarium_storage::Changes;

use crate::slot::post::{MessageDefaults, header as posted_header};
use crate::writer::notes::{SettleKey, settle_note};

/// The circumstances of a settle.
pub(crate) struct SettleTerms<'a> {
    /// The queue of the message.
    pub(crate) at: &'a QueueRef,
    pub(crate) attributes: &'a Attributes,
    pub(crate) retention: Retention,
    /// Whether the queue keeps the order of groups.
    pub(crate) is_ordered: bool,
    pub(crate) limits: &'a Limits,
    pub(crate) claim: ClaimId,
    pub(crate) now: Timestamp,
    /// A random number from 0 to 1.
    pub(crate) chance: f64,
}

/// A planned settle.
pub(crate) struct SettlePlan {
    pub(crate) changes: Changes,
    pub(crate) settled: Settled,
}

/// The message of a settle in its new state.
struct NextState {
    /// Its new header; none when it is removed.
    header: Option<Header>,
    state: MessageState,
}

impl SettleTerms<'_> {
    /// Plans a settle. `next_id` assigns the ids of forwarded messages.
    pub(crate) fn plan(
        &self,
        held: HeldMessage,
        entry: SettleEntry,
        next_id: &mut dyn FnMut() -> MessageId,
    ) -> Result<SettlePlan, Error> {
        let SettleEntry { id, verdict, forwards, meta } = entry;
        let mut message = HeldMessage { header: held.header.clone(), ..held };
        if meta.is_some() {
            message.header.extras_mut().meta = meta;
        }
        let NextState { header, state } = match verdict {
            Verdict::Done { result } => self.done(message, result)?,
            Verdict::Move { target, delay } => self.moved(message, target, delay)?,
            Verdict::Fail { reason, retry } => self.failed(message, reason, retry),
            Verdict::Defer { delay } => self.deferred(message, delay)?,
        };
        let appends: Vec<Message> =
            forwards.into_iter().map(|forward| self.forwarded(forward, next_id())).collect();
        let ids: Vec<MessageId> = appends.iter().map(|message| message.header.id).collect();
        let settled = Settled { state, ids };
        let key = SettleKey { claim: self.claim, message: id };
        let expires = self.now.plus_seconds(core_limits::SETTLE_SECONDS);
        let mut notes = vec![settle_note(&key, &settled, expires)];
        notes.retain(|_| !is_on(Mutation::SettleWithoutNote));
        let removes = if header.is_none() { vec![id] } else { Vec::new() };
        let updates = header.into_iter().map(without_empty_extras).collect();
        Ok(SettlePlan {
            changes: Changes { appends, updates, removes, notes, ..Changes::default() },
            settled,
        })
    }

    fn keep(&self, header: &Header) -> Keep {
        header.keep().unwrap_or(self.attributes.keep)
    }

    fn event(&self, held: &HeldMessage, what: EventKind, reason: Option<Reason>) -> Event {
        Event { at: self.now, what, by: held.by.clone(), reason, seconds: held.seconds }
    }

    /// The state of a message that returns at `ready`.
    fn returned(&self, mut header: Header, ready: Timestamp) -> NextState {
        let is_delayed = ready > self.now;
        header.ready = ready.max(self.now);
        header.state = if is_delayed { State::Scheduled } else { State::Ready };
        let state = if is_delayed { MessageState::Delayed } else { MessageState::Ready };
        NextState { header: Some(header), state }
    }

    /// The state of a message that is kept for some seconds.
    fn kept(&self, held: HeldMessage, state: State, seconds: u32) -> NextState {
        let mut header = held.header;
        let life = std::mem::replace(&mut header.life, Life::lasting(seconds, self.now));
        let extras = header.extras_mut();
        extras.life = Some(life);
        extras.by = held.by;
        let of_client = if state == State::Done { MessageState::Done } else { MessageState::Failed };
        NextState { header: Some(Header { ready: self.now, state, ..header }), state: of_client }
    }

    fn done(
        &self,
        mut held: HeldMessage,
        result: Option<angarium_core::outcome::Outcome>,
    ) -> Result<NextState, Error> {
        let keep = self.keep(&held.header);
        if keep.is_zero() {
            if result.is_some() {
                let why =
                    "the message is not kept when it is done: post it with keep, or give the queue _keep";
                return Err(Error::invalid(InvalidPart::Limit, "done.result", why));
            }
            return Ok(NextState { header: None, state: MessageState::Done });
        }
        let extras = held.header.extras_mut();
        (extras.result, extras.reason) = (result, None);
        Ok(self.kept(held, State::Done, keep.seconds()))
    }

    fn moved(&self, held: HeldMessage, target: QueueName, delay: Option<u32>) -> Result<NextState, Error> {
        let is_own = target == self.at.name;
        let known_delay = delay.map(Delay::Seconds).or(is_own.then_some(self.defaults().delay));
        // A life that the retention of a queue bounds is bounded by the target there.
        let keeps_life = is_own || matches!(held.header.life, Life::Own { .. });
        let ready = known_delay.filter(|_| keeps_life).map_or(self.now, |delay| delay.ready(self.now));
        self.check_outlives(&held.header, ready, "move.delay")?;
        let event = self.event(&held, EventKind::Moved, None);
        let mut header = held.header;
        header.note(event);
        header.restart_attempts();
        if is_own {
            let delay = delay.map_or(self.defaults().delay, Delay::Seconds);
            return Ok(self.returned(header, delay.ready(self.now)));
        }
        // It is new where it arrives.
        let extras = header.extras_mut();
        (extras.arrival, extras.hops) = (Some(Arrival { delay, ..Arrival::default() }), 0);
        Ok(self.moving(header, target))
    }

    fn failed(&self, mut held: HeldMessage, reason: Option<Reason>, retry: Retry) -> NextState {
        let attempts = held.header.attempts;
        let event = self.event(&held, EventKind::Failed, reason.clone());
        held.header.note(event);
        held.header.extras_mut().reason = reason;
        let seconds = match retry {
            Retry::Backoff => {
                self.attributes.backoff.map_or(0, |backoff| backoff.seconds(attempts, self.chance))
            }
            Retry::After(seconds) => seconds,
            Retry::Never => return self.failed_for_good(held),
        };
        let again = self.now.plus_seconds(seconds);
        let has_attempts = self.attributes.max_claim_count.is_none_or(|most| attempts < most);
        if has_attempts && self.outlives(&held.header, again) {
            return self.returned(held.header, again);
        }
        // Without an attempt left, or with a life that ends before the next one: it would expire without a trace.
        self.failed_for_good(held)
    }

    /// Whether a message still lives at this time, if no claim extends its life.
    fn outlives(&self, header: &Header, time: Timestamp) -> bool {
        header.expires(self.retention) > time
    }

    fn check_outlives(&self, header: &Header, time: Timestamp, field: &str) -> Result<(), Error> {
        if self.outlives(header, time) {
            return Ok(());
        }
        let rest = header.expires(self.retention).seconds_since(self.now);
        let why = format!("the message would expire before: it has {rest} s to live");
        Err(Error::invalid(InvalidPart::Limit, field, why))
    }

    fn failed_for_good(&self, held: HeldMessage) -> NextState {
        let target = self.attributes.dead_letter_queue.clone().filter(|target| *target != self.at.name);
        if let Some(target) = target {
            return self.moving(held.header, target);
        }
        let rest = held.header.expires(self.retention).seconds_since(self.now);
        let rest = u32::try_from(rest).unwrap_or(u32::MAX);
        let seconds = self.keep(&held.header).seconds().max(rest).max(1);
        self.kept(held, State::Failed, seconds)
    }

    fn deferred(&self, held: HeldMessage, delay: Delay) -> Result<NextState, Error> {
        self.check_outlives(&held.header, delay.ready(self.now), "defer.delay")?;
        let event = self.event(&held, EventKind::Deferred, None);
        let mut header = held.header;
        header.note(event);
        // The claim does not count as an attempt, and its number is not used again.
        if header.attempts > 0 {
            header.attempts -= 1;
            header.extras_mut().forgotten += 1;
        }
        if header.attempts == 0 {
            header.first_claimed = None;
        }
        Ok(self.returned(header, delay.ready(self.now)))
    }

    fn moving(&self, header: Header, target: QueueName) -> NextState {
        let at = QueueRef { project: self.at.project.clone(), name: target };
        let state = State::Moving(Arc::new(Peer { at, queue: None }));
        NextState { header: Some(Header { state, ..header }), state: MessageState::InTransfer }
    }

    fn defaults(&self) -> MessageDefaults {
        MessageDefaults::of(self.attributes, self.limits)
    }

    /// A forwarded message: in transfer, or posted if the target is the queue itself.
    fn forwarded(&self, forward: Forward, id: MessageId) -> Message {
        let Forward { target, body, delay, ttl, group, tags, keep } = forward;
        if target == self.at.name {
            let group = group.or_else(|| self.is_ordered.then(Default::default));
            let delay = delay.map(Delay::Seconds);
            let new = NewMessage { body, ttl, delay, group, tags, keep, ..NewMessage::default() };
            let header = posted_header(&new, &self.defaults(), None, self.now, id);
            return Message { header, body: new.body };
        }
        let life = ttl.map_or(ArrivalLife::OfTarget, |ttl| ArrivalLife::Seconds(ttl.seconds()));
        let arrival = Some(Arrival { delay, life, group });
        let extras = Extras { keep, tags, arrival, ..Extras::default() };
        let at = QueueRef { project: self.at.project.clone(), name: target };
        let header = Header {
            id,
            created: self.now,
            ready: self.now,
            // A message in transfer does not expire. Its target begins its life.
            life: Life::lasting(ttl.map_or(self.defaults().ttl, |ttl| ttl.seconds()), self.now),
            attempts: 0,
            client: None,
            size: size_of(&body),
            state: State::Moving(Arc::new(Peer { at, queue: None })),
            // Its group at the target does not block one of this queue.
            group: None,
            first_claimed: None,
            extras: Some(Box::new(extras)),
        };
        Message { header, body }
    }
}

fn size_of(body: &Bytes) -> u32 {
    u32::try_from(body.len()).expect("bodies are within the bound of a request")
}

fn without_empty_extras(mut header: Header) -> Header {
    header.extras = header.extras.filter(|extras| !extras.is_empty());
    header
}
