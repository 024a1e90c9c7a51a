//! What a message is: a body no caller looks into, and a header that states how long it lives.

use std::sync::Arc;

use bytes::Bytes;
use uuid::Uuid;

use crate::delay::Delay;
use crate::envelope::Envelope;
use crate::error::{Error, InvalidPart};
use crate::group::{DedupId, GroupName};
use crate::ids::{MessageId, QueueId};
use crate::limits::Limits;
use crate::names::QueueRef;
use crate::time::Timestamp;

/// Seconds that a message lives (Zaqar: 60 to 1,209,600, which are 14 days).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageTtl(u32);

impl MessageTtl {
    /// Checks a number of seconds; `field` is what the caller calls it.
    pub fn new(seconds: i64, field: impl Into<String>, limits: &Limits) -> Result<Self, Error> {
        limits.message_ttl.seconds(seconds, field).map(Self)
    }

    /// One that was checked before it was stored, or by another replica.
    pub const fn stored(seconds: u32) -> Self {
        Self(seconds)
    }

    /// The number of seconds.
    pub const fn seconds(self) -> u32 {
        self.0
    }
}

/// Checks a number of seconds against its least and most value.
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

/// A message that a caller wants to post: checked, and without an id yet.
#[derive(Clone, Debug, Default)]
pub struct NewMessage {
    /// JSON text, kept byte for byte; behind what the message remembers beside it, if it was given something.
    pub body: Bytes,
    /// How long it lives; the queue's default when absent.
    pub ttl: Option<MessageTtl>,
    /// When it may first be claimed; the queue's default when absent.
    pub delay: Option<Delay>,
    /// Whether it lives by the retention of its queue, whatever that becomes (SQS). Then `ttl` states nothing.
    pub is_retained: bool,
    /// The group that it belongs to.
    pub group: Option<GroupName>,
    /// What makes it the same as another one.
    pub dedup: Option<DedupId>,
}

impl NewMessage {
    /// The same, remembering this.
    pub fn in_envelope(self, envelope: &Envelope) -> Self {
        Self { body: envelope.before(self.body), ..self }
    }

    /// Bytes that the bound of a queue counts: its body and its attributes of SQS.
    pub fn bytes(&self) -> usize {
        let (envelope, body) = Envelope::split(self.body.clone());
        body.len() + envelope.attributes.size()
    }
}

/// All that is known of a message but its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Its id, which is also its place in the queue.
    pub id: MessageId,
    /// When it was posted.
    pub created: Timestamp,
    /// When it may first be claimed: as it was created when it has no delay. Putting it off moves it.
    pub ready: Timestamp,
    /// How long it lives.
    pub life: Life,
    /// How often it has been claimed.
    pub attempts: u32,
    /// The `Client-ID` of who posted it: a listing leaves out the asker's own messages.
    pub client: Option<Uuid>,
    /// Bytes of its body, what it remembers included.
    pub size: u32,
    /// Where it is in its life, as far as its pool knows.
    pub state: State,
    /// The group that it was posted in.
    pub group: Option<GroupName>,
    /// When it was claimed for the first time.
    pub first_claimed: Option<Timestamp>,
}

/// How long a message lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// As it was told when it was posted.
    Own {
        /// Seconds, counted from when it was to be ready; a claim may have raised them.
        ttl: u32,
        /// When it is gone, unless a claim holds it.
        expires: Timestamp,
    },
    /// By queue: as long as its queue keeps messages, whether a claim holds it or not.
    Retained {
        /// The base time, from which that counts: the first send; of a dead letter in order of groups the transfer.
        since: Timestamp,
    },
}

impl Life {
    /// One that ends so many seconds after an instant.
    pub const fn lasting(ttl: u32, from: Timestamp) -> Self {
        Self::Own { ttl, expires: from.plus_seconds(ttl) }
    }

    /// The same life, of a message that is sent again at this instant.
    pub const fn begun_again(self, now: Timestamp) -> Self {
        match self {
            Self::Own { ttl, .. } => Self::lasting(ttl, now),
            Self::Retained { .. } => Self::Retained { since: now },
        }
    }

    /// From when on it counts, if it is by queue.
    pub const fn retained_since(self) -> Option<Timestamp> {
        match self {
            Self::Own { .. } => None,
            Self::Retained { since } => Some(since),
        }
    }
}

/// How long a queue keeps the messages that live by it, in seconds: a property of the queue, read when a message is judged, so
/// that a change of it holds for those that wait too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Retention(u32);

impl Retention {
    /// Longer than any message is kept: what holds until it is known better.
    pub const LONGEST: Self = Self(u32::MAX);

    /// This number of seconds.
    pub const fn new(seconds: u32) -> Self {
        Self(seconds)
    }

    /// The number of seconds.
    pub const fn seconds(self) -> u32 {
        self.0
    }

    /// The last base time at which a message is gone now; none when none is.
    pub fn cutoff(self, now: Timestamp) -> Option<Timestamp> {
        let millis = now.as_millis().checked_sub(u64::from(self.0) * 1_000)?;
        Some(Timestamp::from_millis(millis))
    }
}

/// Where a message is in its life, as far as its pool knows. Claims are not among the states: a claimed message is
/// ready here, and its claim is in the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// It may be claimed.
    Ready,
    /// It becomes ready when its time arrives.
    Scheduled,
    /// It was copied in by a move from this queue, and no caller sees it before the move is done (P5).
    Prepared(Arc<Peer>),
    /// It is on its way to this queue: no caller claims or deletes it any more (P5).
    Moving(Arc<Peer>),
    /// Its move has no target. It stays, and no caller claims it.
    Failed,
}

/// The other queue of a move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// As its clients address it.
    pub at: QueueRef,
    /// Its incarnation, where that is known.
    pub queue: Option<QueueId>,
}

impl Header {
    /// When it expires in a queue with this retention.
    pub const fn expires(&self, retention: Retention) -> Timestamp {
        match self.life {
            Life::Own { expires, .. } => expires,
            Life::Retained { since } => since.plus_seconds(retention.seconds()),
        }
    }

    /// Seconds that it lives in all in a queue with this retention.
    pub const fn ttl(&self, retention: Retention) -> u32 {
        match self.life {
            Life::Own { ttl, .. } => ttl,
            Life::Retained { .. } => retention.seconds(),
        }
    }

    /// Whether it has expired in a queue with this retention. A message is alive up to the instant it expires, and not at
    /// it.
    pub fn is_expired(&self, now: Timestamp, retention: Retention) -> bool {
        self.expires(retention) <= now
    }
}

/// A message with its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// What is known of it.
    pub header: Header,
    /// JSON text, byte for byte as it came, behind what the message remembers beside it.
    pub body: Bytes,
}
