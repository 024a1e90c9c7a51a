//! Refusals of requests before they are served. The protocol of the request renders the answer.

use angarium_core::error::Error;
use angarium_metrics::AuthenticationFailure;
use axum::response::Response;

/// A refusal of the admission pipeline.
#[derive(Debug)]
pub struct AdmissionRefusal {
    /// The answer to the client.
    pub cause: RefusalCause,
    /// The failed authentication, if the caller is unknown. It is counted and logged.
    pub failure: Option<AuthenticationFailure>,
}

/// The cause of a refusal, as the client is told.
#[derive(Debug)]
pub enum RefusalCause {
    /// A situation that each protocol has its own answer for.
    Error(Error),
    /// The answer to a situation that exists only in one protocol. Its renderer writes it.
    Answer(Box<Response>),
}

impl AdmissionRefusal {
    /// Creates the refusal of an unauthenticated caller.
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
