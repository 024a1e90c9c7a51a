//! What a failure of PostgreSQL means for any process that asked: nothing was done for certain, or the outcome is not
//! known.

use tokio_postgres::Error;
use tokio_postgres::error::{Severity, SqlState};

use crate::StoreError;

/// Why a statement did not answer with rows.
#[derive(Debug)]
pub(super) enum Failure {
    /// It was undone, or never begun.
    Refused(String),
    /// There is no room for it, and it was undone.
    Full(String),
    /// It may have been carried out.
    Lost(String),
}

impl Failure {
    /// Of a statement that was sent. It commits by itself, so an error before its end has undone it; one that ends the
    /// session may come after.
    pub(super) fn of_sent(error: &Error) -> Self {
        let Some(answer) = error.as_db_error() else { return Self::Lost(describe(error)) };
        match answer.parsed_severity() {
            Some(Severity::Error) if *answer.code() == SqlState::DISK_FULL => Self::Full(describe(error)),
            Some(Severity::Error) => Self::Refused(describe(error)),
            _ => Self::Lost(describe(error)),
        }
    }

    /// Of something that wrote.
    pub(super) fn of_write(self) -> StoreError {
        match self {
            Self::Refused(why) | Self::Full(why) => StoreError::NotSent(why),
            Self::Lost(why) => StoreError::Unknown(why),
        }
    }

    /// Of something that writes nothing.
    pub(super) fn of_read(self) -> StoreError {
        match self {
            Self::Refused(why) | Self::Full(why) | Self::Lost(why) => StoreError::NotSent(why),
        }
    }
}

/// Whether the session continues as before. After anything else another connection is made, which is checked again: it
/// may have led to a server that is no longer the right one.
pub(super) fn leaves_session(error: &Error) -> bool {
    let harmless = [
        SqlState::QUERY_CANCELED,
        SqlState::LOCK_NOT_AVAILABLE,
        SqlState::DISK_FULL,
        SqlState::T_R_DEADLOCK_DETECTED,
        SqlState::UNIQUE_VIOLATION,
    ];
    error.code().is_some_and(|code| harmless.contains(code))
}

/// What the server states, without the details: those repeat values.
pub(super) fn describe(error: &Error) -> String {
    use std::error::Error as _;
    match (error.as_db_error(), error.source()) {
        (Some(answer), _) => format!("PostgreSQL: {} ({})", answer.message(), answer.code().code()),
        (None, Some(source)) => format!("PostgreSQL: {error}: {source}"),
        (None, None) => format!("PostgreSQL: {error}"),
    }
}
