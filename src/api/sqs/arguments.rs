//! What the arguments of operations have in common: numbers that may be written as text, and parameters that must be there.

use serde::{Deserialize, Deserializer};

use super::fault::Fault;
use crate::domain::limits;
use crate::error::Error;

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

/// Checks a short text that names something, as `T` does; it has the characters of such names.
pub fn token<T>(name: &str, text: &str, of: impl Fn(&str) -> Result<T, Error>) -> Result<T, Fault> {
    let why = format!(
        "{name} can only include alphanumeric and punctuation characters. 1 to {} in length",
        limits::TOKEN_CHARS
    );
    of(text).map_err(|_| Fault::parameter(name, text, &why))
}

/// A number within its bounds, if there is one.
pub fn within(name: &str, value: Option<Whole>, (least, most): (i64, i64)) -> Result<Option<i64>, Fault> {
    match value {
        Some(Whole(number)) if !(least..=most).contains(&number) => {
            let bounds = match name {
                "WaitTimeSeconds" => format!(">= {least} and <= {most}"),
                _ => format!("between {least} and {most}"),
            };
            Err(Fault::parameter(name, number, &format!("Must be {bounds}, if provided")))
        }
        value => Ok(value.map(|Whole(number)| number)),
    }
}
