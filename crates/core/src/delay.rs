//! When a posted message becomes ready.

use crate::error::{Error, InvalidPart};
use crate::limits::Limits;
use crate::time::Timestamp;

/// The request of a producer about when a message may first be claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delay {
    /// This many seconds after the post.
    Seconds(u32),
    /// At this instant, or at once when it is in the past.
    Until(Timestamp),
}

impl Delay {
    /// Checks a number of seconds (Zaqar: 0 to 900); `field` is the client's name for it.
    pub fn seconds(seconds: i64, field: impl Into<String>, limits: &Limits) -> Result<Self, Error> {
        limits.message_delay.seconds(seconds, field).map(Self::Seconds)
    }

    /// Reads a date with its offset from UTC, as in RFC 3339. Any date is accepted.
    pub fn until(date: &str, field: impl Into<String>) -> Result<Self, Error> {
        let instant = Timestamp::from_calendar(date).map(Self::Until);
        let why = "it is not a date with time and offset as in RFC 3339";
        instant.ok_or_else(|| Error::invalid(InvalidPart::Limit, field, why))
    }

    /// Returns when a message that is posted `now` becomes ready.
    pub fn ready(self, now: Timestamp) -> Timestamp {
        match self {
            Self::Seconds(seconds) => now.plus_seconds(seconds),
            Self::Until(instant) => instant.max(now),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_count_from_the_post_and_dates_do_not() {
        let now = Timestamp::from_millis(1_700_000_000_000);
        let delay = |seconds| Delay::seconds(seconds, "delay", &Limits::ZAQAR).unwrap();
        assert_eq!(delay(900).ready(now), now.plus_seconds(900));
        assert_eq!(delay(0).ready(now), now);
        let date = |text| Delay::until(text, "not_before").map(|delay| delay.ready(now).as_millis());
        assert_eq!(date("2023-11-14T22:13:21Z").unwrap(), 1_700_000_001_000);
        assert_eq!(date("2023-11-15T00:13:21.5+02:00").unwrap(), 1_700_000_001_500);
        assert_eq!(date("1969-07-20T20:17:40Z").unwrap(), now.as_millis(), "what is past is now");
        assert_eq!(date("9999-12-30T00:00:00Z").unwrap(), 253_402_128_000_000);
    }

    #[test]
    fn invalid_delay_is_refused() {
        for seconds in [-1, 901, i64::MAX] {
            assert!(Delay::seconds(seconds, "delay", &Limits::ZAQAR).is_err());
        }
        for date in ["", "now", "2023-11-14", "2023-11-14T22:13:21", "2023-13-14T22:13:21Z", "12"] {
            let refused = Delay::until(date, "messages[0].not_before").unwrap_err();
            assert!(refused.to_string().starts_with("messages[0].not_before"), "{date}: {refused}");
        }
    }
}
