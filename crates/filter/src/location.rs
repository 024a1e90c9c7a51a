//! The position of a part within a policy, as errors name it: `filter.detail.state[0].numeric[1]`.

use std::fmt;

use angarium_core::error::{Error, InvalidPart};

use crate::json::Json;

/// A position. The text is only made for an error.
#[derive(Clone, Copy)]
pub struct Location<'a> {
    above: Option<&'a Location<'a>>,
    step: Step<'a>,
}

#[derive(Clone, Copy)]
enum Step<'a> {
    Key(&'a str),
    Index(usize),
}

/// Max characters of a key in an error.
const KEY_CHARACTERS: usize = 64;

impl<'a> Location<'a> {
    /// The policy itself, with the client's name for it.
    pub fn root(field: &'a str) -> Self {
        Self { above: None, step: Step::Key(field) }
    }

    pub fn key(&'a self, key: &'a str) -> Self {
        Self { above: Some(self), step: Step::Key(key) }
    }

    pub fn index(&'a self, index: usize) -> Self {
        Self { above: Some(self), step: Step::Index(index) }
    }

    /// The error for a part of another form.
    pub fn invalid(&self, why: impl Into<String>) -> Error {
        Error::invalid(InvalidPart::Body, self.to_string(), why)
    }

    /// The error for a part beyond a bound.
    pub fn exceeds(&self, why: impl Into<String>) -> Error {
        Error::invalid(InvalidPart::Limit, self.to_string(), why)
    }

    /// The error for a value of another kind than `expected`.
    pub fn mismatch(&self, expected: &str, value: &Json) -> Error {
        let kind = match value {
            Json::Null => "null",
            Json::Bool(_) => "a boolean",
            Json::Number(_) => "a number",
            Json::Text(_) => "a string",
            Json::Array(_) => "an array",
            Json::Object(_) => "an object",
        };
        self.invalid(format!("{kind} instead of {expected}"))
    }
}

impl fmt::Display for Location<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(above) = self.above {
            above.fmt(f)?;
        }
        match self.step {
            Step::Index(index) => write!(f, "[{index}]"),
            Step::Key(key) => {
                let dot = if self.above.is_some() { "." } else { "" };
                let end = key.char_indices().nth(KEY_CHARACTERS).map(|(end, _)| end);
                match end {
                    Some(end) => write!(f, "{dot}{}…", &key[..end]),
                    None => write!(f, "{dot}{key}"),
                }
            }
        }
    }
}
