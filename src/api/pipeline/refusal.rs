//! Why a request is refused before it is served. The protocol of the request writes the answer.

use angarium_core::error::Error;
use angarium_metrics::AuthenticationFailure;
use axum::response::Response;

/// Why a request is not let in.
#[derive(Debug)]
pub struct AdmissionRefusal {
    /// What the client is told.
    pub cause: RefusalCause,
    /// What failed, if the caller is not known. It is counted and logged.
    pub failure: Option<AuthenticationFailure>,
}

/// What a refused client is told.
#[derive(Debug)]
pub enum RefusalCause {
    /// A situation that each protocol has words for.
    Error(Error),
    /// The answer to a situation that one protocol alone has words for. Its renderer writes it.
    Answer(Box<Response>),
}

impl AdmissionRefusal {
    /// The caller is not known.
    pub fn of(failure: AuthenticationFailure, cause: impl Into<RefusalCause>) -> Self {
        Self { cause: cause.into(), failure: Some(failure) }
    }
}

impl<C: Into<RefusalCause>> From<C> for AdmissionRefusal {
    fn from(cause: C) -> Self {
        Self { cause: cause.into(), failure: None }
    }
}

impl From<Error> for RefusalCause {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}
