//! Views of messages for their readers.

use bytes::Bytes;

use angarium_core::envelope::Envelope;
use angarium_core::group::GroupName;
use angarium_core::ids::{ClaimId, MessageId};
use angarium_core::message::{Header, Retention, State};
use angarium_core::names::QueueName;
use angarium_core::outcome::Extras;
use angarium_core::settle::MessageState;
use angarium_core::time::Timestamp;
use angarium_core::trace::TraceContext;

/// A message as its readers see it.
#[derive(Clone, Debug)]
pub struct MessageView {
    /// Id of the message.
    pub id: MessageId,
    /// Total lifetime in seconds.
    pub ttl: u32,
    /// Seconds since the message was posted.
    pub age: u64,
    /// The body, a JSON text.
    pub body: Bytes,
    /// Further values that are stored with the body.
    pub envelope: Option<Box<Envelope>>,
    /// When its life ends, unless it is claimed or in transfer then.
    pub expires: Timestamp,
    /// When the message was posted.
    pub created: Timestamp,
    /// Number of claims so far, as far as they count.
    pub attempts: u32,
    /// The number of its last claim, which only grows.
    pub grant: u32,
    /// When the message was first claimed.
    pub first_claimed: Option<Timestamp>,
    /// Its message group.
    pub group: Option<GroupName>,
    /// The claim that holds it, if there is one.
    pub claim: Option<ClaimId>,
    /// The rest of its delay, if it has one that ends by itself: a parked message, or one that a hold has put aside, has
    /// none.
    pub delay: Option<DelayLeft>,
    /// When it may first be claimed, as far as it is ready or delayed.
    pub ready: Timestamp,
    /// Its state.
    pub state: MessageState,
    /// Fields that few messages have: tags, outcome, history.
    pub extras: Option<Box<Extras>>,
    /// When it was settled, if it is kept.
    pub settled: Option<Timestamp>,
    /// The queue that it is in transfer to, if it is in transfer.
    pub target: Option<QueueName>,
}

/// A message by its id, for a client that follows it.
#[derive(Clone, Debug)]
pub enum MessageStatus {
    /// The queue has it.
    Here(Box<MessageView>),
    /// It was moved to another queue a short time ago.
    Transferred {
        /// That queue.
        to: QueueName,
    },
}

/// The rest of a message's delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DelayLeft {
    /// Whole seconds, rounded up.
    pub seconds: u64,
    /// When the delay ends.
    pub until: Timestamp,
}

/// Parameters of a view beside the message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ViewedAt {
    pub(crate) now: Timestamp,
    /// The retention of the queue.
    pub(crate) retention: Retention,
}

impl ViewedAt {
    /// Whether readers see a message that no claim holds. `lives_longer`: a change in progress may have made its life
    /// longer than this header states.
    pub(crate) fn shows(self, header: &Header, lives_longer: bool) -> bool {
        match &header.state {
            // Its source shows it.
            State::Prepared(_) => false,
            // In transfer it does not expire.
            State::Moving(_) => true,
            State::Ready | State::Scheduled | State::NoTarget | State::Done | State::Failed => {
                lives_longer || !header.is_expired(self.now, self.retention)
            }
        }
    }
}

impl MessageView {
    /// Returns the view of a message for the holder of its claim.
    pub(crate) fn claimed(header: &Header, claim: ClaimId, kept: Bytes, at: ViewedAt) -> Self {
        let free = Self::free(header, kept, at);
        Self { claim: Some(claim), delay: None, state: MessageState::Claimed, ..free }
    }

    /// Returns the view of a message that is under no claim.
    pub(crate) fn free(header: &Header, kept: Bytes, ViewedAt { now, retention }: ViewedAt) -> Self {
        let (age, attempts) = (now.seconds_since(header.created), header.attempts);
        let (envelope, body) = Envelope::split(kept);
        let envelope = (!envelope.is_empty()).then(|| Box::new(envelope));
        let (id, ttl, created) = (header.id, header.ttl(retention), header.created);
        let (first_claimed, group) = (header.first_claimed, header.group.clone());
        let ends = header.state == State::Scheduled && header.ready != Timestamp::NEVER;
        let delay = ends.then(|| DelayLeft {
            seconds: header.ready.as_millis().saturating_sub(now.as_millis()).div_ceil(1_000),
            until: header.ready,
        });
        let target = match &header.state {
            State::Moving(peer) => Some(peer.at.name.clone()),
            State::Ready
            | State::Scheduled
            | State::Prepared(_)
            | State::NoTarget
            | State::Done
            | State::Failed => None,
        };
        Self {
            id,
            ttl,
            age,
            body,
            envelope,
            expires: header.expires(retention),
            created,
            attempts,
            grant: header.grant(),
            first_claimed,
            group,
            claim: None,
            delay,
            ready: header.ready,
            state: MessageState::unclaimed(header),
            extras: header.extras.clone(),
            settled: header.state.is_kept().then_some(header.ready),
            target,
        }
    }

    /// Returns the trace context of the post.
    pub fn trace(&self) -> Option<&TraceContext> {
        self.envelope.as_deref()?.trace.as_ref()
    }
}
