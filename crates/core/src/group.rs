//! Short texts that clients choose: the group of a message, its deduplication id, the attempt id of a receive.
//!
//! Each has 1 to 128 printable ASCII characters without blanks, as in SQS.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::error::{Error, InvalidPart};
use crate::limits;

/// The group of a message. Messages are delivered in order within their group.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct GroupName(Arc<str>);

/// A deduplication id: two posts with the same id within five minutes are one message.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DedupId(Arc<str>);

/// An attempt id: two receives with the same id within five minutes are one receive.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AttemptId(Arc<str>);

macro_rules! token {
    ($($name:ident),*) => {$(
        impl $name {
            /// Checks the text; `field` is the client's name for it.
            pub fn new(text: &str, field: impl Into<String>) -> Result<Self, Error> {
                token(text, field).map(Self)
            }

            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &*self.0)
            }
        }
    )*};
}

token!(GroupName, DedupId, AttemptId);

impl Default for GroupName {
    /// The group of messages that name none, in a FIFO queue.
    fn default() -> Self {
        Self("default".into())
    }
}

impl From<GroupName> for String {
    fn from(group: GroupName) -> Self {
        group.to_string()
    }
}

impl TryFrom<String> for GroupName {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        Self::new(&text, "group")
    }
}

fn token(text: &str, field: impl Into<String>) -> Result<Arc<str>, Error> {
    let fits = (1..=limits::TOKEN_CHARS).contains(&text.len());
    if fits && text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Ok(text.into());
    }
    let why = format!("it has 1 to {} ASCII letters, digits or punctuation characters", limits::TOKEN_CHARS);
    Err(Error::invalid(InvalidPart::Limit, field, why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_letters_digits_and_punctuation() {
        for good in ["a", "!", "~", "user:1/2", &"x".repeat(128)] {
            assert!(GroupName::new(good, "group").is_ok(), "{good}");
        }
        for bad in ["", "a b", " ", "\u{7f}", "a\0", "ä", &"x".repeat(129)] {
            let refused = DedupId::new(bad, "dedup_id").unwrap_err();
            assert!(refused.to_string().starts_with("dedup_id"), "{bad:?}: {refused}");
        }
    }
}
