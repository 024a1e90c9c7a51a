//! The attempts of a request that came before the present one, and how they change the meaning of a refusal.

use std::convert::Infallible;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};

use crate::api::error::ApiError;
use angarium_core::error::{Error, Part};

/// The earlier attempts of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EarlierAttempts {
    /// Whether one of them has no answer, and may have been carried out. A later refusal does not undo that one, so no
    /// answer may then state that nothing was written (P13).
    pub are_in_doubt: bool,
}

impl EarlierAttempts {
    /// Returns an error of the last attempt as it is for the whole request.
    pub fn judge_error(self, error: Error) -> Error {
        let unknown = if self.are_in_doubt { after_unknown_attempt(&error) } else { None };
        unknown.unwrap_or(error)
    }

    /// As [`EarlierAttempts::judge_error`], for an error of several entries.
    pub fn judge_shared(self, error: Arc<Error>) -> Arc<Error> {
        let unknown = if self.are_in_doubt { after_unknown_attempt(&error) } else { None };
        unknown.map_or(error, Arc::new)
    }

    /// Returns the answer of the last attempt as it is for the whole request. An answer of another replica is that
    /// already.
    pub fn judge(self, response: Response) -> Response {
        let error = response.extensions().get::<ApiError>().filter(|_| self.are_in_doubt);
        match error.and_then(|ApiError(error)| after_unknown_attempt(error)) {
            Some(unknown) => ApiError::from(unknown).into_response(),
            None => response,
        }
    }
}

/// Returns the unknown outcome in place of a refusal; none if the error is the same for each attempt. Only an invalid
/// request is certain to have been refused each time.
fn after_unknown_attempt(error: &Error) -> Option<Error> {
    if matches!(error, Error::Invalid { .. }) || !error.nothing_written() {
        return None;
    }
    let why = format!("an earlier attempt has no answer, and the last one is refused: {}", error.detail());
    Some(Error::unknown(Part::Server, why))
}

impl<S: Send + Sync> FromRequestParts<S> for EarlierAttempts {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(parts.extensions.get().copied().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use axum::http::StatusCode;

    use super::*;
    use angarium_core::error::InvalidPart;

    fn judged(earlier: EarlierAttempts, error: Error) -> (StatusCode, bool) {
        let response = earlier.judge(ApiError::from(error).into_response());
        let ApiError(error) = response.extensions().get().expect("it is an error");
        (response.status(), error.nothing_written())
    }

    #[test]
    fn refusal_after_unknown_attempt_states_no_certainty() {
        let (none, doubt) = (EarlierAttempts::default(), EarlierAttempts { are_in_doubt: true });
        let refused = || Error::unavailable(Part::Storage, "refused");
        assert_eq!(judged(none, refused()), (StatusCode::SERVICE_UNAVAILABLE, true));
        assert_eq!(judged(doubt, refused()), (StatusCode::SERVICE_UNAVAILABLE, false));
        assert_eq!(judged(doubt, Error::Full), (StatusCode::SERVICE_UNAVAILABLE, false));
        assert!(!doubt.judge_error(Error::Full).nothing_written());
        assert!(none.judge_error(Error::Full).nothing_written());
        let invalid = || Error::invalid(InvalidPart::Limit, "ttl", "too long");
        assert_eq!(judged(doubt, invalid()), (StatusCode::BAD_REQUEST, true));
    }

    #[test]
    fn success_stays() {
        let response = EarlierAttempts { are_in_doubt: true }.judge(StatusCode::NO_CONTENT.into_response());
        assert_eq!(response.status(), StatusCode::NO_CONTENT);
    }
}
