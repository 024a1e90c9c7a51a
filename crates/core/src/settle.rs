//! Requests of a holder about the messages of its claim: each message is done, moved, failed or put off, in one step that
//! may forward new messages to other queues.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::delay::Delay;
use crate::envelope::Envelope;
use crate::group::GroupName;
use crate::ids::MessageId;
use crate::message::{Header, MessageTtl, State};
use crate::names::QueueName;
use crate::outcome::{Keep, Meta, Outcome, Reason, Tags};

/// The settle of one message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettleEntry {
    /// The message.
    pub id: MessageId,
    /// What becomes of it.
    pub verdict: Verdict,
    /// New messages that follow from it; none beside [`Verdict::Defer`].
    pub forwards: Vec<Forward>,
    /// Replaces the values of holders that are kept with it.
    pub meta: Option<Meta>,
}

/// What becomes of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is done: it is removed, or kept with its result.
    Done {
        /// The result, for a message that is kept.
        result: Option<Outcome>,
    },
    /// It is transferred to another queue of the project, or made available again in its own.
    Move {
        /// The queue.
        target: QueueName,
        /// Seconds until it may be claimed there; absent: the default of that queue.
        delay: Option<u32>,
    },
    /// It failed.
    Fail {
        /// Why.
        reason: Option<Reason>,
        /// Whether and when it is tried again.
        retry: Retry,
    },
    /// It returns later, and the claim does not count as an attempt.
    Defer {
        /// When.
        delay: Delay,
    },
}

/// Whether and when a failed message is tried again, while it has attempts left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// After the backoff of its queue; without one at once.
    Backoff,
    /// After this many seconds.
    After(u32),
    /// Never: it has failed for good.
    Never,
}

/// A new message that a settle forwards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forward {
    /// The queue, in the same project.
    pub target: QueueName,
    /// JSON text, behind its envelope if there is one.
    pub body: Bytes,
    /// Seconds until it may be claimed; absent: the default of the target.
    pub delay: Option<u32>,
    /// How long it lives; absent: the default of the target.
    pub ttl: Option<MessageTtl>,
    /// The group that it belongs to; absent: in a FIFO queue the default one.
    pub group: Option<GroupName>,
    /// Its tags.
    pub tags: Tags,
    /// How long it is kept after it was settled; absent: the default of the target.
    pub keep: Option<Keep>,
}

impl Forward {
    /// Bytes that count against the bound of the target: the body, without the trace in its envelope.
    pub fn bytes(&self) -> usize {
        let (envelope, body) = Envelope::split(self.body.clone());
        body.len() + envelope.attributes.size()
    }
}

/// The outcome of the settle of one message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settled {
    /// The state of the message now.
    pub state: MessageState,
    /// The ids of the forwarded messages, in order.
    pub ids: Vec<MessageId>,
}

/// The state of a message as clients see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MessageState {
    /// It can be claimed.
    Ready,
    /// It can be claimed later.
    Delayed,
    /// A claim holds it.
    Claimed,
    /// In transfer to another queue.
    InTransfer,
    /// Done; it is kept, or was removed.
    Done,
    /// Failed for good, and kept.
    Failed,
    /// A hold of its group has put it aside.
    Held,
}

impl MessageState {
    /// All states.
    pub const ALL: [Self; 7] =
        [Self::Ready, Self::Delayed, Self::Claimed, Self::InTransfer, Self::Done, Self::Failed, Self::Held];

    /// Returns the state with this word of the API.
    pub fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == word)
    }

    /// The state of a message that no claim holds, by its stored header.
    pub fn unclaimed(stored: &Header) -> Self {
        match stored.state {
            State::Ready => Self::Ready,
            State::Scheduled if stored.held().is_some() => Self::Held,
            State::Scheduled => Self::Delayed,
            State::Prepared(_) | State::Moving(_) | State::NoTarget => Self::InTransfer,
            State::Done => Self::Done,
            State::Failed => Self::Failed,
        }
    }

    /// The word of the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Delayed => "delayed",
            Self::Claimed => "claimed",
            Self::InTransfer => "in_transfer",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Held => "held",
        }
    }

    /// Whether the message has an outcome.
    pub const fn is_final(self) -> bool {
        match self {
            Self::Done | Self::Failed => true,
            Self::Ready | Self::Delayed | Self::Claimed | Self::InTransfer | Self::Held => false,
        }
    }
}

/// When a message becomes available that is made so again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requeue {
    /// At once, or at this time.
    At(Delay),
    /// When it is made available once more.
    Never,
}
