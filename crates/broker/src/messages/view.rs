//! Messages as their readers see them.

use bytes::Bytes;

use angarium_core::envelope::Envelope;
use angarium_core::group::GroupName;
use angarium_core::ids::{ClaimId, MessageId};
use angarium_core::message::{Header, Retention, State};
use angarium_core::time::Timestamp;
use angarium_core::trace::TraceContext;

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

/// What the view of a message depends on beside the message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ViewedAt {
    pub(crate) now: Timestamp,
    /// Of the queue.
    pub(crate) retention: Retention,
}

impl MessageView {
    /// A message as the holder of its claim sees it.
    pub(crate) fn claimed(header: &Header, claim: ClaimId, kept: Bytes, at: ViewedAt) -> Self {
        Self { claim: Some(claim), delay: None, ..Self::free(header, kept, at) }
    }

    /// A message that is under no claim.
    pub(crate) fn free(header: &Header, kept: Bytes, ViewedAt { now, retention }: ViewedAt) -> Self {
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
