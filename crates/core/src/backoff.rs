//! The pause before a failed message is tried again: it grows with each attempt, and varies so that messages which failed
//! together do not return together.

use serde::Deserialize;

/// Bounds of the parts of a backoff: seconds, factor, jitter.
const SECONDS: f64 = 43_200.0;
const FACTOR: (f64, f64) = (1.0, 10.0);
const JITTER: (f64, f64) = (0.0, 1.0);
/// Parts of one in a stored factor and jitter.
const PARTS: f64 = 1_000.0;

/// How long a failed message waits before it can be claimed again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// Seconds after the first attempt.
    first: u32,
    /// Each further attempt waits this many thousandths of the time before.
    factor: u32,
    /// Max seconds.
    max: u32,
    /// By how many thousandths the time may be longer or shorter.
    jitter: u32,
}

/// A backoff as JSON.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BackoffText {
    first: f64,
    #[serde(default = "two")]
    factor: f64,
    #[serde(default = "an_hour")]
    max: f64,
    #[serde(default)]
    jitter: f64,
}

const fn two() -> f64 {
    2.0
}

const fn an_hour() -> f64 {
    3_600.0
}

impl Backoff {
    /// The pauses between the attempts to send a message to a webhook: 1 second, doubled up to an hour, by a fifth
    /// longer or shorter.
    pub const WEBHOOK: Self = Self { first: 1, factor: 2_000, max: 3_600, jitter: 200 };

    /// Reads a JSON object with `first` (seconds), and perhaps `factor` (2 if absent), `max` (seconds, 3,600 if absent) and
    /// `jitter` (0 to 1, 0 if absent). The error is the defect.
    pub fn parse(text: &str) -> Result<Self, String> {
        let form = "must be an object of numbers: first, and perhaps factor, max, jitter";
        // Serde would read an array too.
        if !text.trim_start().starts_with('{') {
            return Err(form.to_owned());
        }
        let BackoffText { first, factor, max, jitter } =
            serde_json::from_str(text).map_err(|_| form.to_owned())?;
        let within = |name: &str, value: f64, (min, most): (f64, f64)| {
            let fits = (min..=most).contains(&value);
            if fits { Ok(value) } else { Err(format!("{name} is not between {min} and {most}")) }
        };
        let whole = |value: f64| value.round() as u32;
        Ok(Self {
            first: whole(within("first", first, (0.0, SECONDS))?),
            factor: whole(within("factor", factor, FACTOR)? * PARTS),
            max: whole(within("max", max, (0.0, SECONDS))?),
            jitter: whole(within("jitter", jitter, JITTER)? * PARTS),
        })
    }

    /// Returns the seconds to wait after this many attempts. `chance` is a random number from 0 to 1.
    pub fn seconds(self, attempts: u32, chance: f64) -> u32 {
        if self.first == 0 {
            return 0;
        }
        let growth =
            (f64::from(self.factor) / PARTS).powi(attempts.saturating_sub(1).min(1_000).cast_signed());
        let seconds = (f64::from(self.first) * growth).min(f64::from(self.max));
        let jitter = f64::from(self.jitter) / PARTS * (2.0 * chance - 1.0);
        (seconds * (1.0 + jitter)).clamp(0.0, f64::from(self.max)).round() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pause_grows_to_its_maximum() {
        let backoff = Backoff::parse(r#"{"first": 5, "factor": 2, "max": 60}"#).unwrap();
        let pauses: Vec<u32> = (1..=6).map(|attempts| backoff.seconds(attempts, 0.9)).collect();
        assert_eq!(pauses, [5, 10, 20, 40, 60, 60]);
        assert_eq!(backoff.seconds(u32::MAX, 0.5), 60);
        assert_eq!(backoff.seconds(0, 0.5), 5);
        let none = Backoff::parse(r#"{"first": 0, "factor": 10}"#).unwrap();
        assert_eq!([1, 1_000].map(|attempts| none.seconds(attempts, 0.5)), [0, 0]);
    }

    #[test]
    fn jitter_varies_the_pause_around_it() {
        let backoff = Backoff::parse(r#"{"first": 100, "jitter": 0.2}"#).unwrap();
        assert_eq!([0.0, 0.5, 1.0].map(|chance| backoff.seconds(1, chance)), [80, 100, 120]);
        assert_eq!(backoff.seconds(9, 1.0), 3_600, "never more than the maximum");
    }

    #[test]
    fn wrong_backoff_is_refused() {
        for text in [
            "{}",
            "5",
            "[5]",
            r#"{"first": -1}"#,
            r#"{"first": 43201}"#,
            r#"{"first": 1, "factor": 0.5}"#,
            r#"{"first": 1, "factor": 11}"#,
            r#"{"first": 1, "jitter": 1.1}"#,
            r#"{"first": 1, "max": 1e9}"#,
            r#"{"first": 1, "more": 1}"#,
            r#"{"first": "1"}"#,
        ] {
            assert!(Backoff::parse(text).is_err(), "{text}");
        }
    }
}
