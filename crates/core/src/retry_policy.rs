//! Zaqar's `_retry_policy`: how often and after which pauses a notification is sent again.

use serde::Deserialize;

use crate::limits;

/// The form of the pauses between the least and the greatest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Growth {
    /// The same step is added each time.
    #[default]
    Linear,
    /// The added step grows by itself each time.
    Arithmetic,
    /// The pause doubles.
    Exponential,
    /// The pause doubles, from the least one on.
    Geometric,
}

/// The pauses between the attempts: some without a pause, some with the least pause, a series up to the greatest one,
/// and some with the greatest.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct RetryPolicy {
    retries_with_no_delay: u32,
    minimum_delay_retries: u32,
    minimum_delay: u32,
    maximum_delay: u32,
    maximum_delay_retries: u32,
    retry_backoff_function: Growth,
}

/// The defaults of Zaqar.
impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            retries_with_no_delay: 3,
            minimum_delay_retries: 3,
            minimum_delay: 5,
            maximum_delay: 30,
            maximum_delay_retries: 3,
            retry_backoff_function: Growth::Linear,
        }
    }
}

/// Seconds between two pauses of a linear series, and the first step of an arithmetic one.
const STEP: u64 = 5;
/// The least distance between the least and the greatest pause, in seconds.
const DISTANCE: u32 = 10;

impl RetryPolicy {
    /// Reads a JSON object. The error is the defect.
    pub fn parse(text: &str) -> Result<Self, String> {
        let form = "must be an object with the whole numbers retries_with_no_delay, minimum_delay_retries, minimum_delay, \
                    maximum_delay and maximum_delay_retries, and retry_backoff_function (linear, arithmetic, geometric or exponential)";
        if !text.trim_start().starts_with('{') {
            return Err(form.to_owned());
        }
        let policy: Self = serde_json::from_str(text).map_err(|_| form.to_owned())?;
        let (retries, seconds) = (limits::RETRY_POLICY_RETRIES, limits::RETRY_POLICY_SECONDS);
        let counts =
            [policy.retries_with_no_delay, policy.minimum_delay_retries, policy.maximum_delay_retries];
        if counts.iter().any(|count| *count > retries) {
            return Err(format!("a number of retries is more than {retries}"));
        }
        if policy.maximum_delay > seconds {
            return Err(format!("maximum_delay is more than {seconds} seconds"));
        }
        if policy.maximum_delay < policy.minimum_delay.saturating_add(DISTANCE) {
            return Err(format!("maximum_delay is at least {DISTANCE} seconds more than minimum_delay"));
        }
        Ok(policy)
    }

    /// Returns the seconds before the next attempt, after this many failed ones; none when there is no other.
    pub fn pause(&self, attempts: u32) -> Option<u32> {
        let mut index = attempts.saturating_sub(1);
        if index < self.retries_with_no_delay {
            return Some(0);
        }
        index -= self.retries_with_no_delay;
        if index < self.minimum_delay_retries {
            return Some(self.minimum_delay);
        }
        index -= self.minimum_delay_retries;
        if let Some(pause) = self.grown(index) {
            return Some(pause);
        }
        let index = index - self.series();
        (index < self.maximum_delay_retries).then_some(self.maximum_delay)
    }

    /// The pause at a place of the series between the least and the greatest; none behind its end.
    fn grown(&self, index: u32) -> Option<u32> {
        let (index, least) = (u64::from(index), u64::from(self.minimum_delay));
        let doubled = |first: u64| 1_u64.checked_shl(u32::try_from(index).ok()?)?.checked_mul(first);
        let pause = match self.retry_backoff_function {
            Growth::Linear => Some(least + STEP * (index + 1)),
            Growth::Arithmetic => Some(least + STEP * (index + 1) * (index + 2) / 2),
            Growth::Geometric => doubled(2 * least.max(1)),
            Growth::Exponential => doubled(2).map(|grown| least + grown),
        };
        pause.and_then(|pause| u32::try_from(pause).ok()).filter(|pause| *pause < self.maximum_delay)
    }

    /// The length of the series.
    fn series(&self) -> u32 {
        let beyond = (0..=limits::RETRY_POLICY_SECONDS).find(|index| self.grown(*index).is_none());
        beyond.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pauses(text: &str) -> Vec<u32> {
        let policy = RetryPolicy::parse(text).unwrap();
        (1..).map_while(|attempts| policy.pause(attempts)).collect()
    }

    #[test]
    fn default_policy_has_the_pauses_of_zaqar() {
        assert_eq!(pauses("{}"), [0, 0, 0, 5, 5, 5, 10, 15, 20, 25, 30, 30, 30]);
    }

    #[test]
    fn series_grows_by_its_function() {
        let of = |function: &str| {
            pauses(&format!(
                r#"{{"retries_with_no_delay": 0, "minimum_delay_retries": 0, "maximum_delay_retries": 1,
                "minimum_delay": 5, "maximum_delay": 60, "retry_backoff_function": "{function}"}}"#
            ))
        };
        assert_eq!(of("linear"), [10, 15, 20, 25, 30, 35, 40, 45, 50, 55, 60]);
        assert_eq!(of("arithmetic"), [10, 20, 35, 55, 60]);
        assert_eq!(of("geometric"), [10, 20, 40, 60]);
        assert_eq!(of("exponential"), [7, 9, 13, 21, 37, 60]);
    }

    #[test]
    fn policy_without_retries_ends_at_once() {
        let text = r#"{"retries_with_no_delay": 0, "minimum_delay_retries": 0, "maximum_delay_retries": 0,
            "minimum_delay": 0, "maximum_delay": 10, "retry_backoff_function": "exponential"}"#;
        assert_eq!(pauses(text), [2, 4, 8]);
    }

    #[test]
    fn wrong_policy_is_refused() {
        for wrong in [
            "[]",
            "7",
            r#"{"minimum_delay": -1}"#,
            r#"{"minimum_delay": 25}"#,
            r#"{"retries_with_no_delay": 1001}"#,
            r#"{"maximum_delay": 86401}"#,
            r#"{"retry_backoff_function": "cubic"}"#,
        ] {
            assert!(RetryPolicy::parse(wrong).is_err(), "{wrong}");
        }
    }
}
