//! Limits that an operator may set: the range that a client may ask for, and the default.
//!
//! They are Zaqar's `[transport]` options. The constants of [`super`] have the defaults, and the bounds that no setting
//! exceeds. A record that was stored under other limits stays as it is.

use super as limits;
use crate::error::{Error, InvalidPart};

/// A range of whole numbers that a client may ask for, with a default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    min: u32,
    default: u32,
    max: u32,
}

impl Span {
    /// Returns the range from `min` to `max`; none when the bounds are in the wrong order or the default is outside.
    pub const fn new(min: u32, default: u32, max: u32) -> Option<Self> {
        if min <= default && default <= max { Some(Self { min, default, max }) } else { None }
    }

    const fn within((min, max): (u32, u32), default: u32) -> Self {
        assert!(min <= default && default <= max, "the constants of limits.rs are in order");
        Self { min, default, max }
    }

    /// A range that begins at one: elements of a page or of a batch.
    const fn up_to(max: usize, default: usize) -> Self {
        Self::within((1, max as u32), default as u32)
    }

    /// The value that applies when the request names none.
    pub const fn default_value(self) -> u32 {
        self.default
    }

    /// The max value.
    pub const fn most(self) -> usize {
        self.max as usize
    }

    /// Checks a number of seconds; `field` is the client's name for it.
    pub fn seconds(self, number: i64, field: impl Into<String>) -> Result<u32, Error> {
        self.checked(number).ok_or_else(|| self.refusal(number, " seconds", field))
    }

    /// Checks a number of elements; `field` is the client's name for it.
    pub fn count(self, number: i64, field: impl Into<String>) -> Result<usize, Error> {
        let count = self.checked(number).map(|count| count as usize);
        count.ok_or_else(|| self.refusal(number, "", field))
    }

    fn checked(self, number: i64) -> Option<u32> {
        u32::try_from(number).ok().filter(|number| (self.min..=self.max).contains(number))
    }

    fn refusal(self, number: i64, unit: &str, field: impl Into<String>) -> Error {
        let why = format!("{number} is not between {} and {}{unit}", self.min, self.max);
        Error::invalid(InvalidPart::Limit, field, why)
    }
}

/// The ranges and bounds of all values that clients may ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Queues on a page.
    pub queues_page: Span,
    /// Messages on a page. The max is also the max number of ids in one request.
    pub messages_page: Span,
    /// Pools on a page.
    pub pools_page: Span,
    /// Flavors on a page.
    pub flavors_page: Span,
    /// Messages of a claim. The max is also that of a pop.
    pub claim_messages: Span,
    /// Max bytes of the metadata of a queue, and of a request that sets or changes it.
    pub metadata_bytes: usize,
    /// Max bytes of a message with its SQS attributes: the upper bound for the bounds of queues.
    pub message_bytes: usize,
    /// Seconds that a message lives.
    pub message_ttl: Span,
    /// Seconds until a message can be claimed.
    pub message_delay: Span,
    /// Seconds of a claim.
    pub claim_ttl: Span,
    /// Seconds that a message outlives its claim.
    pub claim_grace: Span,
}

impl Limits {
    /// The limits of Zaqar, which its clients expect. Only the bytes of a message are those of SQS.
    pub const ZAQAR: Self = Self {
        queues_page: Span::up_to(limits::PAGE, limits::PAGE_DEFAULT),
        messages_page: Span::up_to(limits::PAGE, limits::PAGE_DEFAULT),
        pools_page: Span::up_to(limits::PAGE, limits::PAGE_DEFAULT),
        flavors_page: Span::up_to(limits::PAGE, limits::PAGE_DEFAULT),
        claim_messages: Span::up_to(limits::CLAIM_MESSAGES, limits::CLAIM_MESSAGES_DEFAULT),
        metadata_bytes: limits::METADATA_BYTES,
        message_bytes: limits::SQS_MESSAGE_BYTES,
        message_ttl: Span::within(limits::MESSAGE_TTL, limits::MESSAGE_TTL_DEFAULT),
        message_delay: Span::within(limits::MESSAGE_DELAY, limits::MESSAGE_DELAY_DEFAULT),
        claim_ttl: Span::within(limits::CLAIM_TTL, limits::CLAIM_TTL_DEFAULT),
        claim_grace: Span::within(limits::CLAIM_GRACE, limits::CLAIM_GRACE_DEFAULT),
    };

    /// The widest limits that any setting allows, so the bounds of a stored record.
    pub const WIDEST: Self = Self {
        queues_page: Span::up_to(limits::PAGE_MAX, limits::PAGE_DEFAULT),
        messages_page: Span::up_to(limits::PAGE_MAX, limits::PAGE_DEFAULT),
        pools_page: Span::up_to(limits::PAGE_MAX, limits::PAGE_DEFAULT),
        flavors_page: Span::up_to(limits::PAGE_MAX, limits::PAGE_DEFAULT),
        claim_messages: Span::up_to(limits::CLAIM_MESSAGES_MAX, limits::CLAIM_MESSAGES_DEFAULT),
        metadata_bytes: limits::METADATA_BYTES_MAX,
        message_bytes: limits::MESSAGE_BYTES_MAX,
        message_ttl: Span::within((1, limits::SECONDS_MAX), limits::MESSAGE_TTL_DEFAULT),
        message_delay: Span::within((0, limits::SECONDS_MAX), limits::MESSAGE_DELAY_DEFAULT),
        claim_ttl: Span::within((1, limits::SECONDS_MAX), limits::CLAIM_TTL_DEFAULT),
        claim_grace: Span::within((0, limits::SECONDS_MAX), limits::CLAIM_GRACE_DEFAULT),
    };
}

impl Limits {
    /// Max bytes of a message for a queue that is created through REST without a bound.
    pub fn rest_message_bytes(&self) -> usize {
        limits::REST_MESSAGE_BYTES.min(self.message_bytes)
    }

    /// Max bytes of a message for a queue that is created through SQS without a bound.
    pub fn sqs_message_bytes(&self) -> usize {
        limits::SQS_MESSAGE_BYTES.min(self.message_bytes)
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self::ZAQAR
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_takes_its_edges_and_nothing_beyond() {
        let span = Span::new(60, 300, 600).unwrap();
        assert_eq!((span.seconds(60, "ttl").unwrap(), span.count(600, "limit").unwrap()), (60, 600));
        for outside in [59, 601, -1, i64::MIN, i64::MAX] {
            let error = span.seconds(outside, "ttl").unwrap_err().to_string();
            assert_eq!(error, format!("ttl: {outside} is not between 60 and 600 seconds"));
            assert!(span.count(outside, "limit").is_err());
        }
    }

    #[test]
    fn a_span_has_its_default_inside() {
        for (min, default, max) in [(2, 1, 3), (1, 4, 3), (3, 2, 1)] {
            assert_eq!(Span::new(min, default, max), None);
        }
        assert!(Span::new(1, 1, 1).is_some());
    }
}
