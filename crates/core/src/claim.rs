//! The terms of a claim, and how they extend the life of a message.

use std::time::Duration;

use crate::error::Error;
use crate::group::AttemptId;
use crate::ids::{ClaimId, ClientId};
use crate::limits::{self, Limits};
use crate::message::{Header, Life, seconds_within};
use crate::outcome::Holder;
use crate::page::PopCount;
use crate::time::Timestamp;

/// How long a claim lasts, and the min time that its messages live after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClaimTerms {
    ttl: u32,
    grace: u32,
}

impl ClaimTerms {
    /// Checks seconds of ttl and grace; an absent one has its default (Zaqar: 300 and 60).
    pub fn new(ttl: Option<i64>, grace: Option<i64>, limits: &Limits) -> Result<Self, Error> {
        let of = |span: limits::Span, requested: Option<i64>, field| {
            span.seconds(requested.unwrap_or(span.default_value().into()), field)
        };
        Ok(Self { ttl: of(limits.claim_ttl, ttl, "ttl")?, grace: of(limits.claim_grace, grace, "grace")? })
    }

    /// Like [`ClaimTerms::new`], for one message of a claim; a ttl of 0 seconds releases the message.
    pub fn of_message(ttl: Option<i64>, grace: Option<i64>, limits: &Limits) -> Result<Self, Error> {
        match ttl {
            Some(0) => Ok(Self { ttl: 0, ..Self::new(None, grace, limits)? }),
            ttl => Self::new(ttl, grace, limits),
        }
    }

    /// Terms that were checked before they were stored.
    pub const fn stored(ttl: u32, grace: u32) -> Self {
        Self { ttl, grace }
    }

    /// Seconds that the claim lasts.
    pub const fn ttl(self) -> u32 {
        self.ttl
    }

    /// Min seconds that a claimed message lives after its claim.
    pub const fn grace(self) -> u32 {
        self.grace
    }

    /// Extends the life of a message that would expire before the claim: its ttl becomes ttl + grace, and it expires
    /// grace seconds after the claim. A message that outlives the claim keeps its life (Zaqar's rule, observed in a
    /// running Zaqar). A message that lives by queue keeps its life too, and may expire under a claim (SQS).
    pub fn extend(self, header: &mut Header, claim_ends: Timestamp) {
        if let Life::Own { expires, .. } = header.life
            && expires < claim_ends
        {
            let ttl = self.ttl.saturating_add(self.grace);
            header.life = Life::Own { ttl, expires: claim_ends.plus_seconds(self.grace) };
        }
    }
}

/// The maker of a claim. Later requests are recognised by it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claimer {
    /// The `Client-ID` of the request, if it had one.
    pub client: Option<ClientId>,
    /// The client's id for the receive, if the client may repeat it.
    pub attempt: Option<AttemptId>,
    /// The name that the holder gives itself.
    pub by: Option<Holder>,
}

/// Claims that the caller of a bulk deletion holds: it may delete messages under them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Holdings<'a> {
    /// The claims that the request names.
    pub claims: &'a [ClaimId],
    /// The `Client-ID` of the request: the caller holds each claim that was made with it.
    pub client: Option<ClientId>,
}

impl<'a> Holdings<'a> {
    /// Holdings of these claims, for any caller.
    pub const fn of_claims(claims: &'a [ClaimId]) -> Self {
        Self { claims, client: None }
    }

    /// Whether the caller holds `claim`: the request names the claim, or `maker`, the `Client-ID` of the claim's maker,
    /// is the caller's own.
    pub fn has(&self, claim: ClaimId, maker: Option<ClientId>) -> bool {
        self.claims.contains(&claim) || (maker.is_some() && maker == self.client)
    }
}

/// Max number of messages of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClaimLimit(usize);

impl ClaimLimit {
    /// Checks a number of messages; an absent one has its default (Zaqar: 10).
    pub fn new(requested: Option<i64>, limits: &Limits) -> Result<Self, Error> {
        let span = limits.claim_messages;
        span.count(requested.unwrap_or(span.default_value().into()), "limit").map(Self)
    }

    /// A limit of the service itself, which is at least one.
    pub fn of(messages: usize) -> Self {
        Self(messages.max(1))
    }

    /// The number of messages.
    pub const fn get(self) -> usize {
        self.0
    }
}

/// A pop takes as many messages as a claim with this limit.
impl From<PopCount> for ClaimLimit {
    fn from(count: PopCount) -> Self {
        Self(count.get())
    }
}

/// How long a claim waits for messages when there are none: 0 to 20 seconds, default 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClaimWait(u32);

impl ClaimWait {
    /// A wait of the service itself.
    pub const fn of(seconds: u32) -> Self {
        Self(seconds)
    }

    /// Checks a number of seconds; an absent one is 0.
    pub fn new(requested: Option<i64>) -> Result<Self, Error> {
        Self::named(requested.unwrap_or(0), "wait")
    }

    /// Checks a number of seconds; `field` is the client's name for it.
    pub fn named(requested: i64, field: impl Into<String>) -> Result<Self, Error> {
        seconds_within(requested, limits::CLAIM_WAIT, field).map(Self)
    }

    /// Seconds of the wait.
    pub const fn seconds(self) -> u32 {
        self.0
    }

    /// Returns the rest of the wait after `over`, in whole seconds. The second that has begun is still in the rest.
    pub fn less(self, over: Duration) -> Self {
        let over = u32::try_from(over.as_secs()).unwrap_or(u32::MAX);
        Self(self.0.saturating_sub(over))
    }

    /// The wait as a duration.
    pub const fn duration(self) -> Duration {
        Duration::from_secs(self.0 as u64)
    }
}

/// How long an SQS receive hides its messages: 0 to 43,200 seconds, default 30.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Visibility(u32);

impl Visibility {
    /// Checks a number of seconds; `field` is the client's name for it.
    pub fn new(requested: i64, field: impl Into<String>) -> Result<Self, Error> {
        seconds_within(requested, limits::VISIBILITY, field).map(Self)
    }

    /// Seconds of the visibility timeout.
    pub const fn seconds(self) -> u32 {
        self.0
    }

    /// The terms of a claim with this ttl and no grace: SQS has no grace, so a claim never makes a message live longer
    /// than the claim.
    pub const fn terms(self) -> ClaimTerms {
        ClaimTerms::stored(self.0, 0)
    }
}

impl Default for Visibility {
    fn default() -> Self {
        Self(limits::VISIBILITY_DEFAULT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::MessageId;
    use crate::message::State;

    fn header(expires: u64) -> Header {
        Header {
            id: MessageId::ZERO,
            created: Timestamp::default(),
            ready: Timestamp::default(),
            life: Life::Own { ttl: 60, expires: Timestamp::from_millis(expires) },
            attempts: 0,
            client: None,
            size: 0,
            state: State::Ready,
            group: None,
            first_claimed: None,
            extras: None,
        }
    }

    #[test]
    fn grace_lengthens_only_life_ending_before_claim() {
        let terms = ClaimTerms::new(Some(100), Some(60), &Limits::ZAQAR).unwrap();
        let ends = Timestamp::from_millis(100_000);
        let (mut short, mut long) = (header(99_999), header(100_000));
        terms.extend(&mut short, ends);
        terms.extend(&mut long, ends);
        assert_eq!(short.life, Life::Own { ttl: 160, expires: Timestamp::from_millis(160_000) });
        assert_eq!(long.life, Life::Own { ttl: 60, expires: Timestamp::from_millis(100_000) });
    }

    #[test]
    fn retained_message_is_not_lengthened_by_its_claim() {
        let life = Life::Retained { since: Timestamp::default() };
        let mut retained = Header { life, ..header(0) };
        ClaimTerms::stored(100, 60).extend(&mut retained, Timestamp::from_millis(100_000));
        assert_eq!(retained.life, life);
    }

    #[test]
    fn bounds_are_zaqars() {
        let terms = |ttl, grace| ClaimTerms::new(Some(ttl), Some(grace), &Limits::ZAQAR);
        assert!(terms(60, 43_200).is_ok());
        for (ttl, grace) in [(59, 60), (43_201, 60), (60, 59), (60, 43_201), (-1, 60), (i64::MAX, 60)] {
            assert!(terms(ttl, grace).is_err());
        }
        let limit = |requested| ClaimLimit::new(requested, &Limits::ZAQAR);
        assert_eq!(limit(None).unwrap().get(), 10);
        assert!(limit(Some(0)).is_err() && limit(Some(21)).is_err());
    }
}
