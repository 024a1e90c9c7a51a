//! The terms of a claim and what they do to a message's life.

use std::time::Duration;

use crate::domain::limits;
use crate::domain::message::{Header, seconds_within};
use crate::domain::time::Timestamp;
use crate::error::{Error, Place};

/// How long a claim lasts and how much life it leaves to its messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClaimTerms {
    ttl: u32,
    grace: u32,
}

impl ClaimTerms {
    /// Checks seconds of ttl and grace; what is absent has Zaqar's default (300 and 60).
    pub fn new(ttl: Option<i64>, grace: Option<i64>) -> Result<Self, Error> {
        let ttl = ttl.unwrap_or(limits::CLAIM_TTL_DEFAULT.into());
        let grace = grace.unwrap_or(limits::CLAIM_GRACE_DEFAULT.into());
        Ok(Self {
            ttl: seconds_within(ttl, limits::CLAIM_TTL, "ttl")?,
            grace: seconds_within(grace, limits::CLAIM_GRACE, "grace")?,
        })
    }

    /// Terms that were checked before they were stored.
    pub const fn stored(ttl: u32, grace: u32) -> Self {
        Self { ttl, grace }
    }

    /// Seconds of the claim.
    pub const fn ttl(self) -> u32 {
        self.ttl
    }

    /// Seconds that a claimed message outlives its claim at least.
    pub const fn grace(self) -> u32 {
        self.grace
    }

    /// Lengthens the life of a message that would end before the claim does: its ttl becomes ttl + grace, its
    /// end the claim's end + grace. One that outlives the claim keeps its own (Zaqar's rule, seen live).
    pub fn extend(self, header: &mut Header, claim_ends: Timestamp) {
        if header.expires < claim_ends {
            header.ttl = self.ttl.saturating_add(self.grace);
            header.expires = claim_ends.plus_seconds(self.grace);
        }
    }
}

/// How many messages a claim may take: 1 to 20, 10 when nobody says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClaimLimit(usize);

impl ClaimLimit {
    /// Checks a number of messages.
    pub fn new(asked: Option<i64>) -> Result<Self, Error> {
        let Some(asked) = asked else { return Ok(Self(limits::CLAIM_MESSAGES_DEFAULT)) };
        match usize::try_from(asked) {
            Ok(count) if (1..=limits::CLAIM_MESSAGES).contains(&count) => Ok(Self(count)),
            _ => {
                let why = format!("{asked} is not between 1 and {}", limits::CLAIM_MESSAGES);
                Err(Error::invalid(Place::Limit, "limit", why))
            }
        }
    }

    /// The number of messages.
    pub const fn get(self) -> usize {
        self.0
    }
}

/// How long a claim waits for messages when there are none: 0 to 20 seconds, not at all when nobody says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClaimWait(u32);

impl ClaimWait {
    /// Checks a number of seconds.
    pub fn new(asked: Option<i64>) -> Result<Self, Error> {
        seconds_within(asked.unwrap_or(0), limits::CLAIM_WAIT, "wait").map(Self)
    }

    /// How long.
    pub const fn duration(self) -> Duration {
        Duration::from_secs(self.0 as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::MessageId;
    use crate::domain::message::State;

    fn header(expires: u64) -> Header {
        Header {
            id: MessageId::ZERO,
            created: Timestamp::default(),
            ready: Timestamp::default(),
            ttl: 60,
            expires: Timestamp::from_millis(expires),
            attempts: 0,
            client: None,
            size: 0,
            state: State::Ready,
        }
    }

    #[test]
    fn grace_lengthens_only_a_life_that_ends_before_the_claim() {
        let terms = ClaimTerms::new(Some(100), Some(60)).unwrap();
        let ends = Timestamp::from_millis(100_000);
        let (mut short, mut long) = (header(99_999), header(100_000));
        terms.extend(&mut short, ends);
        terms.extend(&mut long, ends);
        assert_eq!((short.ttl, short.expires), (160, Timestamp::from_millis(160_000)));
        assert_eq!((long.ttl, long.expires), (60, Timestamp::from_millis(100_000)));
    }

    #[test]
    fn bounds_are_zaqars() {
        assert!(ClaimTerms::new(Some(60), Some(43_200)).is_ok());
        for (ttl, grace) in [(59, 60), (43_201, 60), (60, 59), (60, 43_201), (-1, 60), (i64::MAX, 60)] {
            assert!(ClaimTerms::new(Some(ttl), Some(grace)).is_err());
        }
        assert_eq!(ClaimLimit::new(None).unwrap().get(), 10);
        assert!(ClaimLimit::new(Some(0)).is_err() && ClaimLimit::new(Some(21)).is_err());
    }
}
