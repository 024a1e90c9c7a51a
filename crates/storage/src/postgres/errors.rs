//! Meaning of a PostgreSQL failure for the caller: certainly not carried out, or an unknown outcome.

use tokio_postgres::Error;
use tokio_postgres::error::{Severity, SqlState};

use crate::StoreError;

/// Reason why a statement returned no rows.
#[derive(Debug)]
pub(super) enum Failure {
    /// It was rolled back, or never begun.
    Refused(String),
    /// There is no room for it, and it was rolled back.
    Full(String),
    /// It may have been carried out.
    Lost(String),
}

impl Failure {
    /// Converts the failure of a statement that was sent. The statement commits by itself, so an error before its end
    /// has rolled it back; an error that ends the session may occur after the commit.
    pub(super) fn of_sent(error: &Error) -> Self {
        let Some(answer) = error.as_db_error() else { return Self::Lost(describe(error)) };
        match answer.parsed_severity() {
            Some(Severity::Error) if *answer.code() == SqlState::DISK_FULL => Self::Full(describe(error)),
            Some(Severity::Error) => Self::Refused(describe(error)),
            _ => Self::Lost(describe(error)),
        }
    }

    /// Converts the failure of a write.
    pub(super) fn of_write(self) -> StoreError {
        match self {
            Self::Refused(why) | Self::Full(why) => StoreError::NotSent(why),
            Self::Lost(why) => StoreError::Unknown(why),
        }
    }

    /// Converts the failure of a read, or of another statement that writes nothing.
    pub(super) fn of_read(self) -> StoreError {
        match self {
            Self::Refused(why) | Self::Full(why) | Self::Lost(why) => StoreError::NotSent(why),
        }
    }
}

/// Whether the session can continue. After any other error the link makes a new connection and checks it: the old one
/// may lead to a server that is not the right one any more.
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

/// Returns the message of the server without its details, because those repeat values.
pub(super) fn describe(error: &Error) -> String {
    use std::error::Error as _;
    match (error.as_db_error(), error.source()) {
        (Some(answer), _) => format!("PostgreSQL: {} ({})", answer.message(), answer.code().code()),
        (None, Some(source)) => format!("PostgreSQL: {error}: {source}"),
        (None, None) => format!("PostgreSQL: {error}"),
    }
}
