//! Instants as they are stored, and their arithmetic. Nothing here reads a clock.

use std::fmt;
use std::time::Duration;

use jiff::civil::Date;
use jiff::fmt::temporal::Pieces;

/// The day of the last instant of the calendar, [`Timestamp::NEVER`].
const LAST_DAY: Date = Date::constant(9999, 12, 30);

/// An instant of tree time: milliseconds since the Unix epoch.
///
/// Differences saturate: an instant before another is zero seconds away from it, never a negative number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The last instant of the calendar: the ready time of a message that nothing but a request makes available. It shows
    /// as `9999-12-30T22:00:00Z`.
    pub const NEVER: Self = Self(253_402_207_200_000);

    /// The instant `millis` milliseconds after the Unix epoch.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// Milliseconds since the Unix epoch.
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// The instant `seconds` later.
    pub const fn plus_seconds(self, seconds: u32) -> Self {
        Self(self.0.saturating_add(seconds as u64 * 1_000))
    }

    /// The instant `seconds` earlier.
    pub const fn minus_seconds(self, seconds: u32) -> Self {
        Self(self.0.saturating_sub(seconds as u64 * 1_000))
    }

    /// Whole seconds since `earlier`, rounded down: what Zaqar calls an age.
    pub const fn seconds_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0) / 1_000
    }

    /// Reads a date with time and offset from UTC, as in RFC 3339. A date before the epoch becomes the epoch, and one
    /// after the last instant of the calendar is [`Timestamp::NEVER`].
    pub fn from_calendar(text: &str) -> Option<Self> {
        match text.parse::<jiff::Timestamp>() {
            Ok(instant) => Some(Self(u64::try_from(instant.as_millisecond()).unwrap_or(0))),
            Err(_) => {
                let date = Pieces::parse(text).ok()?;
                let is_instant = date.time().is_some() && date.offset().is_some();
                (is_instant && date.date() >= LAST_DAY).then_some(Self::NEVER)
            }
        }
    }

    /// The calendar form of Zaqar: `YYYY-MM-DDTHH:MM:SSZ`. An instant after the end of 9999 shows as the last one of
    /// the calendar.
    pub fn calendar(self) -> String {
        let millis = i64::try_from(self.0).unwrap_or(i64::MAX);
        let instant = jiff::Timestamp::from_millisecond(millis).unwrap_or(jiff::Timestamp::MAX);
        instant.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}ms", self.0)
    }
}

/// Whole milliseconds, for logs: 64 bits, because JSON has no longer numbers.
pub fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calendar_dates_match_known_instants() {
        let cases = [
            (0, "1970-01-01T00:00:00Z"),
            (1_709_251_199, "2024-02-29T23:59:59Z"),
            (u64::MAX / 1_000, "9999-12-30T22:00:00Z"),
        ];
        for (seconds, text) in cases {
            assert_eq!(Timestamp::from_millis(seconds * 1_000).calendar(), text);
        }
    }

    #[test]
    fn never_is_the_last_calendar_date() {
        let text = Timestamp::NEVER.calendar();
        assert_eq!(text, "9999-12-30T22:00:00Z");
        for later in [&*text, "9999-12-31T23:59:59Z", "9999-12-31T00:00:00+01:00"] {
            assert_eq!(Timestamp::from_calendar(later), Some(Timestamp::NEVER), "{later}");
        }
        for wrong in ["9999-12-31", "9999-12-31T23:59:59", "9999-12-32T23:59:59Z", "10000-01-01T00:00:00Z"] {
            assert_eq!(Timestamp::from_calendar(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn ages_are_never_negative() {
        let (early, late) = (Timestamp::from_millis(1_000), Timestamp::from_millis(3_999));
        assert_eq!(late.seconds_since(early), 2);
        assert_eq!(early.seconds_since(late), 0);
    }
}
