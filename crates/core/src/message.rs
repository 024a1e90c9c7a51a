//! Messages: a body that the service does not interpret, and a header with its state and life.

use std::sync::Arc;

use bytes::Bytes;
use uuid::Uuid;

use crate::delay::Delay;
use crate::envelope::Envelope;
use crate::error::{Error, InvalidPart};
use crate::group::{DedupId, GroupName};
use crate::hold::HoldId;
use crate::ids::{MessageId, QueueId};
use crate::limits::Limits;
use crate::names::QueueRef;
use crate::outcome::{Event, Extras, Keep, Tags};
use crate::time::Timestamp;

/// Seconds that a message lives (Zaqar: 60 to 1,209,600, which are 14 days).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageTtl(u32);

impl MessageTtl {
    /// Checks a number of seconds; `field` is the client's name for it.
    pub fn new(seconds: i64, field: impl Into<String>, limits: &Limits) -> Result<Self, Error> {
        limits.message_ttl.seconds(seconds, field).map(Self)
    }

    /// A ttl that was checked before it was stored, or by another replica.
    pub const fn stored(seconds: u32) -> Self {
        Self(seconds)
    }

    /// The number of seconds.
    pub const fn seconds(self) -> u32 {
        self.0
    }
}

/// Checks a number of seconds against its min and max; `field` is the client's name for it.
pub(super) fn seconds_within(
    seconds: i64,
    bounds: (u32, u32),
    field: impl Into<String>,
) -> Result<u32, Error> {
    match u32::try_from(seconds) {
        Ok(within) if (bounds.0..=bounds.1).contains(&within) => Ok(within),
        _ => {
            let why = format!("{seconds} is not between {} and {} seconds", bounds.0, bounds.1);
            Err(Error::invalid(InvalidPart::Limit, field, why))
        }
    }
}

/// A message that a producer wants to post: checked, and without an id yet.
#[derive(Clone, Debug, Default)]
pub struct NewMessage {
    /// JSON text, byte for byte as the producer sent it, behind the envelope if there is one.
    pub body: Bytes,
    /// How long it lives; absent: the default of the queue.
    pub ttl: Option<MessageTtl>,
    /// When it may first be claimed; absent: the default of the queue.
    pub delay: Option<Delay>,
    /// Whether it lives by the retention of its queue, including later changes of the retention (SQS). Then `ttl` has
    /// no effect.
    pub is_retained: bool,
    /// The group that it belongs to.
    pub group: Option<GroupName>,
    /// The deduplication id.
    pub dedup: Option<DedupId>,
    /// How long it is kept after it was settled; absent: the default of the queue.
    pub keep: Option<Keep>,
    /// Its tags.
    pub tags: Tags,
}

impl NewMessage {
    /// Returns the message with this envelope.
    pub fn in_envelope(self, envelope: &Envelope) -> Self {
        Self { body: envelope.before(self.body), ..self }
    }

    /// Whether its header needs a form that only programs which know outcomes can read.
    pub fn has_extras(&self) -> bool {
        self.keep.is_some() || !self.tags.is_empty()
    }

    /// Bytes that count against the bound of the queue: the body and the SQS attributes.
    pub fn bytes(&self) -> usize {
        let (envelope, body) = Envelope::split(self.body.clone());
        body.len() + envelope.attributes.size()
    }
}

/// All data of a message but its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The id, which is also the position in the queue.
    pub id: MessageId,
    /// When it was posted.
    pub created: Timestamp,
    /// When it may first be claimed: the creation time if it has no delay. A release with a delay changes it.
    pub ready: Timestamp,
    /// How long it lives.
    pub life: Life,
    /// How often it has been claimed.
    pub attempts: u32,
    /// The `Client-ID` of the producer: a listing leaves out the messages of the client that asks for it.
    pub client: Option<Uuid>,
    /// Bytes of the body, envelope included.
    pub size: u32,
    /// The state, as far as the pool knows it.
    pub state: State,
    /// The group that it was posted in.
    pub group: Option<GroupName>,
    /// When it was claimed for the first time.
    pub first_claimed: Option<Timestamp>,
    /// Fields that few messages have; none when it has none of them.
    pub extras: Option<Box<Extras>>,
}

/// How long a message lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// Its own ttl, given at the post.
    Own {
        /// Seconds, counted from the time when it should become ready; a claim may have raised them.
        ttl: u32,
        /// When it expires, unless a claim holds it.
        expires: Timestamp,
    },
    /// By queue: as long as its queue keeps messages, whether a claim holds it or not.
    Retained {
        /// The base time, from which the retention counts: the first send, or the transfer for a dead letter in a FIFO
        /// queue.
        since: Timestamp,
    },
}

impl Life {
    /// A life of `ttl` seconds that begins at `from`.
    pub const fn lasting(ttl: u32, from: Timestamp) -> Self {
        Self::Own { ttl, expires: from.plus_seconds(ttl) }
    }

    /// Returns the same kind of life for a message that is sent again at this instant.
    pub const fn begun_again(self, now: Timestamp) -> Self {
        match self {
            Self::Own { ttl, .. } => Self::lasting(ttl, now),
            Self::Retained { .. } => Self::Retained { since: now },
        }
    }

    /// The base time, if the message lives by queue.
    pub const fn retained_since(self) -> Option<Timestamp> {
        match self {
            Self::Own { .. } => None,
            Self::Retained { since } => Some(since),
        }
    }
}

/// How long a queue keeps the messages that live by queue, in seconds. It is a property of the queue, read each time
/// when a message is judged, so a change applies to stored messages too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Retention(u32);

impl Retention {
    /// Longer than any message is kept: the value until the retention is known.
    pub const LONGEST: Self = Self(u32::MAX);

    /// A retention of this many seconds.
    pub const fn new(seconds: u32) -> Self {
        Self(seconds)
    }

    /// The number of seconds.
    pub const fn seconds(self) -> u32 {
        self.0
    }

    /// The last base time whose messages have expired at `now`; none when no message can have expired.
    pub fn cutoff(self, now: Timestamp) -> Option<Timestamp> {
        let millis = now.as_millis().checked_sub(u64::from(self.0) * 1_000)?;
        Some(Timestamp::from_millis(millis))
    }
}

/// The state of a message as far as its pool knows it. Claims are not among the states: a claimed message is ready
/// here, and its claim is in the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// It may be claimed.
    Ready,
    /// It becomes ready at its time.
    Scheduled,
    /// It was appended by a transfer from this queue, and is hidden until the transfer has ended (P5).
    Prepared(Arc<Peer>),
    /// It is in transfer to this queue, and cannot be claimed or deleted any more (P5).
    Moving(Arc<Peer>),
    /// Its transfer has no target: an earlier version stored it. It stays, and cannot be claimed.
    NoTarget,
    /// It is done, and kept with its result. Its ready time is when it was settled.
    Done,
    /// It failed for good, and is kept with the reason. Its ready time is when it was settled.
    Failed,
}

impl State {
    /// Whether the message has an outcome and is kept.
    pub const fn is_kept(&self) -> bool {
        match self {
            Self::Done | Self::Failed => true,
            Self::Ready | Self::Scheduled | Self::Prepared(_) | Self::Moving(_) | Self::NoTarget => false,
        }
    }

    /// Whether a transfer has the message, so that no client can claim or delete it.
    pub const fn is_in_transfer(&self) -> bool {
        match self {
            Self::Prepared(_) | Self::Moving(_) => true,
            Self::Ready | Self::Scheduled | Self::NoTarget | Self::Done | Self::Failed => false,
        }
    }
}

/// The other queue of a transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The address of the queue.
    pub at: QueueRef,
    /// The incarnation of the queue, if known.
    pub queue: Option<QueueId>,
}

impl Header {
    /// When it expires, in a queue with this retention.
    pub const fn expires(&self, retention: Retention) -> Timestamp {
        match self.life {
            Life::Own { expires, .. } => expires,
            Life::Retained { since } => since.plus_seconds(retention.seconds()),
        }
    }

    /// Seconds of its whole life, in a queue with this retention.
    pub const fn ttl(&self, retention: Retention) -> u32 {
        match self.life {
            Life::Own { ttl, .. } => ttl,
            Life::Retained { .. } => retention.seconds(),
        }
    }

    /// The number of its last claim, which only grows: claims and receipts name it. `attempts` may begin again.
    pub fn grant(&self) -> u32 {
        self.extras.as_ref().map_or(0, |extras| extras.forgotten).saturating_add(self.attempts)
    }

    /// Sets the number of claims so that the last one has this number.
    pub fn set_grant(&mut self, grant: u32) {
        let forgotten = self.extras.as_ref().map_or(0, |extras| extras.forgotten);
        self.attempts = grant.saturating_sub(forgotten);
    }

    /// Lets the number of claims begin again. Numbers of later claims are greater than those before.
    pub fn restart_attempts(&mut self) {
        if self.attempts > 0 {
            self.extras_mut().forgotten = self.grant();
            self.attempts = 0;
        }
        self.first_claimed = None;
    }

    /// Bytes of its extras.
    pub fn extras_bytes(&self) -> usize {
        self.extras.as_ref().map_or(0, |extras| extras.bytes())
    }

    /// The extras, to be changed.
    pub fn extras_mut(&mut self) -> &mut Extras {
        self.extras.get_or_insert_default()
    }

    /// How long it is kept after it was settled, if it was posted with a time.
    pub fn keep(&self) -> Option<Keep> {
        self.extras.as_ref().and_then(|extras| extras.keep)
    }

    /// Adds an event to its history.
    pub fn note(&mut self, event: Event) {
        self.extras_mut().note(event);
    }

    /// Returns the header of a ready message that a hold of its group puts aside. It keeps its life.
    pub fn withhold(self, hold: HoldId) -> Self {
        let mut header = Self { ready: Timestamp::NEVER, state: State::Scheduled, ..self };
        header.extras_mut().held = Some(hold);
        header
    }

    /// The hold that has put it aside, while it is aside.
    pub fn held(&self) -> Option<HoldId> {
        self.extras.as_ref().and_then(|extras| extras.held).filter(|_| self.state == State::Scheduled)
    }

    /// Returns the header of a message that is aside and becomes ready.
    pub fn released(self, now: Timestamp) -> Self {
        let mut header = Self { ready: now, state: State::Ready, ..self };
        header.forget_hold();
        header
    }

    /// Removes the mark of a hold.
    pub fn forget_hold(&mut self) {
        let Some(extras) = &mut self.extras else { return };
        extras.held = None;
        if extras.is_empty() {
            self.extras = None;
        }
    }

    /// Whether it has expired, in a queue with this retention. A message is expired from its instant of expiry on,
    /// inclusive.
    pub fn is_expired(&self, now: Timestamp, retention: Retention) -> bool {
        self.expires(retention) <= now
    }
}

/// A message with its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// What is known of it.
    pub header: Header,
    /// JSON text, byte for byte as the producer sent it, behind the envelope if there is one.
    pub body: Bytes,
}
