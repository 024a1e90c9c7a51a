//! What the arguments of operations have in common: numbers that may be written as text, and parameters that must be there.

use serde::{Deserialize, Deserializer};

use super::fault::Fault;

/// A whole number. The query protocol writes all as text, and some clients of JSON do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Whole(pub i64);

impl<'de> Deserialize<'de> for Whole {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Number(i64),
            Text(String),
        }
        let wrong = || serde::de::Error::custom("a whole number is expected");
        match Written::deserialize(deserializer).map_err(|_| wrong())? {
            Written::Number(number) => Ok(Self(number)),
            Written::Text(text) => text.trim().parse().map(Self).map_err(|_| wrong()),
        }
    }
}

/// A parameter that must be there, and not be empty.
pub fn required(name: &str, value: Option<String>) -> Result<String, Fault> {
    value.filter(|value| !value.is_empty()).ok_or_else(|| Fault::missing(name))
}

/// A number within its bounds, if there is one.
pub fn within(name: &str, value: Option<Whole>, (least, most): (i64, i64)) -> Result<Option<i64>, Fault> {
    match value {
        Some(Whole(number)) if !(least..=most).contains(&number) => Err(Fault::value(format!(
            "Value {number} for parameter {name} is invalid. Reason: Must be between {least} and {most}, if provided."
        ))),
        value => Ok(value.map(|Whole(number)| number)),
    }
}
