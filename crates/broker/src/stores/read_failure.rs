//! The reason why the messages of a queue could not be read, for every caller that claims them.

use angarium_core::error::{Error, Part};

/// Why the last page of a queue could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ReadFailure {
    /// The next attempt may succeed.
    Passing,
    /// The stored data of this part is damaged.
    Damaged(Part),
}

impl ReadFailure {
    pub(crate) fn of(error: &Error) -> Self {
        match error {
            Error::Damaged { part, .. } => Self::Damaged(part.clone()),
            _ => Self::Passing,
        }
    }

    /// Returns the error of a request.
    pub(crate) fn error(&self) -> Error {
        let why = "waiting messages could not be read";
        match self {
            Self::Passing => Error::unavailable(Part::Storage, why),
            Self::Damaged(part) => Error::damaged(part.clone(), why),
        }
    }
}
