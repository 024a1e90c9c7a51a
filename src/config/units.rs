//! How durations are written in settings: a whole number and its unit.

use std::time::Duration;

/// No setting means anything beyond a day.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// Reads `500ms`, `10s`, `5m` or `1h`: more than nothing, and at most a day.
pub fn duration(text: &str) -> Result<Duration, String> {
    const FORM: &str = "a duration is a whole number with its unit, as in 500ms, 10s, 5m or 1h";
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| FORM)?;
    let length = match unit {
        "ms" => Some(Duration::from_millis(number)),
        "s" => Some(Duration::from_secs(number)),
        "m" => number.checked_mul(60).map(Duration::from_secs),
        "h" => number.checked_mul(3600).map(Duration::from_secs),
        _ => return Err(FORM.to_owned()),
    };
    let length = length.filter(|length| (Duration::from_millis(1)..=LONGEST).contains(length));
    length.ok_or_else(|| "it must be between 1ms and 24h".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_unit_and_bounds() {
        for (text, millis) in [("500ms", 500), ("10s", 10_000), ("5m", 300_000), ("24h", 86_400_000)] {
            assert_eq!(duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for bad in ["", "10", "s", "1.5s", "-1s", "0s", "0ms", "25h", "10 s", "10S", "99999999999999999999s"]
        {
            assert!(duration(bad).is_err(), "{bad}");
        }
        assert!(duration(&format!("{}h", u64::MAX)).is_err());
    }
}
