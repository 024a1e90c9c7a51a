//! Syntax of durations and sizes. Every source (a flag, a variable, a file) accepts the plain number and the number
//! with its unit, and the displayed form can be read again.
//!
//! | | plain number | with units |
//! |---|---|---|
//! | duration | seconds | `500ms`, `90s`, `1m30s`, `1h 30m`, `2d` |
//! | size | bytes | `512KiB`, `256MiB`, `1.5GiB` (powers of 1,024); `256MB` (powers of 1,000) |

use std::str::FromStr;
use std::time::Duration;

use bytesize::ByteSize;

/// Max duration of a wait: no setting of a wait makes sense beyond a day.
const MAX_WAIT: Duration = Duration::from_secs(24 * 3600);

/// Reads a duration: a number of seconds, or numbers with their units.
///
/// # Errors
///
/// A text that shows the syntax of a duration.
pub fn duration(text: &str) -> Result<Duration, String> {
    const FORM: &str =
        "a duration is a number of seconds, or a number with its unit, as in 500ms, 90s, 1m30s or 2h";
    if is_number(text) {
        return text.parse().map(Duration::from_secs).map_err(|_| FORM.to_owned());
    }
    humantime::parse_duration(text).map_err(|_| FORM.to_owned())
}

/// Reads a duration like [`duration`], from 1 ms to a day.
pub fn wait(text: &str) -> Result<Duration, String> {
    let wait = duration(text)?;
    let is_within = (Duration::from_millis(1)..=MAX_WAIT).contains(&wait);
    if is_within { Ok(wait) } else { Err("it must be between 1ms and 24h".to_owned()) }
}

/// Reads a duration like [`duration`], in whole seconds.
pub fn seconds(text: &str) -> Result<u64, String> {
    let duration = duration(text)?;
    if duration.subsec_nanos() == 0 {
        Ok(duration.as_secs())
    } else {
        Err("it is in whole seconds".to_owned())
    }
}

/// Returns a reader like [`seconds`], for values from `min` to `max`.
pub fn seconds_within(min: u32, max: u32) -> impl Fn(&str) -> Result<u32, String> + Clone {
    move |text| {
        let seconds = u32::try_from(seconds(text)?).ok().filter(|seconds| (min..=max).contains(seconds));
        let span = |seconds: u32| span(u64::from(seconds));
        seconds.ok_or_else(|| {
            let (shown_min, shown_max) = (span(min), span(max));
            format!("it is not between {min} and {max} seconds ({shown_min} to {shown_max})")
        })
    }
}

/// Reads a size: a number of bytes, or one with its unit.
///
/// # Errors
///
/// A text that shows the syntax of a size, also when the size exceeds 64 bits.
pub fn bytes(text: &str) -> Result<u64, String> {
    const FORM: &str =
        "a size is a number of bytes, or a number with its unit, as in 512KiB, 256MiB or 1.5GiB";
    let size = ByteSize::from_str(text).map_err(|_| FORM.to_owned())?.as_u64();
    // The library saturates at the max of its range.
    if size == u64::MAX && text != u64::MAX.to_string() { Err(FORM.to_owned()) } else { Ok(size) }
}

/// Returns a reader like [`bytes`], for values from `min` to `max`.
pub fn bytes_within(min: u32, max: u32) -> impl Fn(&str) -> Result<u32, String> + Clone {
    move |text| {
        let size = u32::try_from(bytes(text)?).ok().filter(|size| (min..=max).contains(size));
        size.ok_or_else(|| {
            let (shown_min, shown_max) = (size_of(u64::from(min)), size_of(u64::from(max)));
            format!("it is not between {min} and {max} bytes ({shown_min} to {shown_max})")
        })
    }
}

/// Formats seconds for a person: the two largest units.
pub fn span(seconds: u64) -> String {
    let two = |large: u64, small: u64, units: [&str; 2]| match small {
        0 => format!("{large}{}", units[0]),
        _ => format!("{large}{}{small}{}", units[0], units[1]),
    };
    match seconds {
        0..=59 => format!("{seconds}s"),
        60..=3_599 => two(seconds / 60, seconds % 60, ["m", "s"]),
        3_600..=86_399 => two(seconds / 3_600, seconds % 3_600 / 60, ["h", "m"]),
        _ => two(seconds / 86_400, seconds % 86_400 / 3_600, ["d", "h"]),
    }
}

/// Formats bytes for a person, to a tenth of the largest unit of 1,024.
pub fn size_of(bytes: u64) -> String {
    ByteSize::b(bytes).display().iec().to_string().replace(".0 ", " ").replace(' ', "")
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duration_has_units_or_is_in_seconds() {
        for (text, millis) in [
            ("500ms", 500),
            ("10s", 10_000),
            ("10", 10_000),
            ("5m", 300_000),
            ("1m30s", 90_000),
            ("1m 30s", 90_000),
            ("24h", 86_400_000),
            ("1d", 86_400_000),
        ] {
            assert_eq!(wait(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for bad in ["", "s", "-1s", "0s", "0", "0ms", "25h", "10S", "99999999999999999999s", "ten"] {
            assert!(wait(bad).is_err(), "{bad}");
        }
        assert!(duration(&format!("{}h", u64::MAX)).is_err());
    }

    #[test]
    fn seconds_are_whole_and_within_bounds() {
        let read = seconds_within(60, 7_200);
        assert_eq!([read("60"), read("1m30s"), read("2h")], [Ok(60), Ok(90), Ok(7_200)]);
        for bad in ["59", "1500ms", "61s500ms", "2h1s", "", "1.5"] {
            assert!(read(bad).is_err(), "{bad}");
        }
        assert_eq!(read("59").unwrap_err(), "it is not between 60 and 7200 seconds (1m to 2h)");
    }

    #[test]
    fn size_has_a_unit_or_is_in_bytes() {
        let mib = 1 << 20;
        for (text, size) in [
            ("0", 0),
            ("268435456", 256 * mib),
            ("256MiB", 256 * mib),
            ("256 MiB", 256 * mib),
            ("256mib", 256 * mib),
            ("1.5GiB", 1_536 * mib),
            ("256MB", 256_000_000),
            ("7B", 7),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(bytes(text), Ok(size), "{text}");
        }
        for bad in ["", "MiB", "-1", "1 parsec", "99999999EiB", "18446744073709551616", "1e3"] {
            assert!(bytes(bad).is_err(), "{bad}: {:?}", bytes(bad));
        }
    }

    #[test]
    fn shown_value_parses_again() {
        for exact in [0, 7, 59, 60, 90, 3_600, 5_400, 86_400, 90_000] {
            assert_eq!(seconds(&span(exact)), Ok(exact), "{}", span(exact));
        }
        for exact in [0, 7, 1_024, 1_536, 256 << 20, 3 << 30] {
            assert_eq!(bytes(&size_of(exact)), Ok(exact), "{}", size_of(exact));
        }
        assert_eq!([0, 61, 3_700, 90_000].map(span), ["0s", "1m1s", "1h1m", "1d1h"]);
    }
}
