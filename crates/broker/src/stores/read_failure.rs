//! Why the waiting messages of a queue could not be read, for every caller who claims them.

use angarium_core::error::{Error, Part};

/// Why the last page of a queue could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ReadFailure {
    /// The next try may succeed.
    Passing,
    /// What this part stores is damaged.
    Damaged(Part),
}

impl ReadFailure {
    pub(crate) fn of(error: &Error) -> Self {
        match error {
            Error::Damaged { part, .. } => Self::Damaged(part.clone()),
            _ => Self::Passing,
        }
    }

    /// What it means to a request.
    pub(crate) fn error(&self) -> Error {
        let why = "waiting messages could not be read";
        match self {
            Self::Passing => Error::unavailable(Part::Storage, why),
            Self::Damaged(part) => Error::damaged(part.clone(), why),
        }
    }
}
