//! Common parts of the arguments of operations: numbers that may be written as text, and required parameters.

use std::fmt;
use std::ops::RangeInclusive;

use serde::de::Visitor;
use serde::{Deserialize, Deserializer};

use super::fault::Fault;
use angarium_core::error::Error;
use angarium_core::limits;

/// A whole number. The query protocol and some JSON clients write numbers as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WholeNumber(pub i64);

impl<'de> Deserialize<'de> for WholeNumber {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NumberForm;

        impl Visitor<'_> for NumberForm {
            type Value = WholeNumber;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number")
            }

            fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<WholeNumber, E> {
                Ok(WholeNumber(number))
            }

            fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<WholeNumber, E> {
                i64::try_from(number).map(WholeNumber).map_err(|_| E::custom("a whole number is expected"))
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<WholeNumber, E> {
                text.trim().parse().map(WholeNumber).map_err(|_| E::custom("a whole number is expected"))
            }
        }

        // Not an untagged enum, because that would keep a copy of any value in the place of the number.
        deserializer.deserialize_any(NumberForm)
    }
}

/// Returns a required parameter; it must be present and not empty.
pub fn required(name: &str, value: Option<String>) -> Result<String, Fault> {
    value.filter(|value| !value.is_empty()).ok_or_else(|| Fault::missing(name))
}

/// Checks a short identifier with `of`. The error states the characters and the length that such identifiers may have.
pub fn token<T>(name: &str, text: &str, of: impl Fn(&str) -> Result<T, Error>) -> Result<T, Fault> {
    let why = format!(
        "{name} can only include alphanumeric and punctuation characters. 1 to {} in length",
        limits::TOKEN_CHARS
    );
    of(text).map_err(|_| Fault::parameter(name, text, &why))
}

/// Returns an optional number, checked against its bounds.
pub fn within(
    name: &str,
    value: Option<WholeNumber>,
    bounds: RangeInclusive<i64>,
) -> Result<Option<i64>, Fault> {
    let (least, most) = (bounds.start(), bounds.end());
    match value {
        Some(WholeNumber(number)) if !bounds.contains(&number) => {
            let why = match name {
                "DelaySeconds" => format!("DelaySeconds must be >= {least} and <= {most}"),
                "WaitTimeSeconds" => format!("Must be >= {least} and <= {most}, if provided"),
                _ => format!("Must be between {least} and {most}, if provided"),
            };
            Err(Fault::parameter(name, number, &why))
        }
        value => Ok(value.map(|WholeNumber(number)| number)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_number_is_a_number_or_its_text() {
        let read =
            |text: &str| serde_json::from_str::<WholeNumber>(text).ok().map(|WholeNumber(number)| number);
        for (text, number) in [("7", 7), ("-7", -7), ("\" 7 \"", 7)] {
            assert_eq!(read(text), Some(number), "{text}");
        }
        for wrong in ["1.5", "\"x\"", "true", "null", "{}", "18446744073709551615"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
        // The value is refused at its first byte: the rest is neither parsed nor kept.
        let error = serde_json::from_str::<WholeNumber>("[0,0,what").unwrap_err().to_string();
        assert!(error.contains("expected a whole number"), "{error}");
    }
}
