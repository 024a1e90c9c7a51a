//! Errors in Zaqar's form: one exhaustive match maps a situation to its status and title.
//!
//! [`super::rest::RestRenderer::render`], which knows the request's id, writes the body; the responses of this module
//! carry the error to it. Causes are logged there and never sent.

use std::borrow::Cow;

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Serialize, Serializer};
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::openapi::{ContentBuilder, Ref, RefOr, ResponseBuilder};
use utoipa::{IntoResponses, PartialSchema, ToSchema};

use angarium_core::error::{Error, ErrorCode, InvalidPart};

/// Seconds after which a client may try again when a part was unavailable.
pub const RETRY_AFTER: HeaderValue = HeaderValue::from_static("2");

/// The authentication scheme for clients (RFC 6750).
pub(super) const CHALLENGE: HeaderValue = HeaderValue::from_static("Bearer realm=\"angarium\"");

/// An error in a response that is not rendered yet.
#[derive(Clone, Debug)]
pub struct ApiError(pub Arc<Error>);

impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        Self(Arc::new(error))
    }
}

impl ApiError {
    /// Returns the status and Zaqar's title of the error.
    fn status_and_title(&self) -> (StatusCode, &'static str) {
        match &*self.0 {
            Error::Invalid { place: InvalidPart::Body, .. } => {
                (StatusCode::BAD_REQUEST, "Invalid request body")
            }
            Error::Invalid { place: InvalidPart::Limit, .. } => {
                (StatusCode::BAD_REQUEST, "Invalid API request")
            }
            Error::Invalid { place: InvalidPart::Query, .. } => {
                (StatusCode::BAD_REQUEST, "Invalid parameter")
            }
            Error::Invalid { place: InvalidPart::Header, .. } => {
                (StatusCode::BAD_REQUEST, "Invalid header value")
            }
            Error::Invalid { place: InvalidPart::HeaderSize, .. } => {
                (StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "431 Request Header Fields Too Large")
            }
            Error::Invalid { place: InvalidPart::Name, .. } => {
                (StatusCode::BAD_REQUEST, "Invalid queue identification")
            }
            Error::Invalid { place: InvalidPart::MediaType, .. } => {
                (StatusCode::UNSUPPORTED_MEDIA_TYPE, "415 Unsupported Media Type")
            }
            Error::Invalid { place: InvalidPart::Accept, .. } => {
                (StatusCode::NOT_ACCEPTABLE, "406 Not Acceptable")
            }
            Error::NotFound { .. } | Error::Gone(_) => (StatusCode::NOT_FOUND, "Not found"),
            Error::Claimed(_) => (StatusCode::FORBIDDEN, "Unable to delete"),
            Error::NotClaimed(_) | Error::ClaimEnded(_) => (StatusCode::BAD_REQUEST, "Unable to delete"),
            Error::BadReceipt => (StatusCode::BAD_REQUEST, "Invalid receipt handle"),
            Error::Unauthenticated(_) => (StatusCode::UNAUTHORIZED, "Unauthorized"),
            Error::NotAuthorized(_)
            | Error::ForeignProject
            | Error::Unscoped
            | Error::RegionalProject
            | Error::ForeignOrigin(_)
            | Error::ForeignHost(_)
            | Error::ForeignSite(_)
            | Error::UnsafeGet(_) => (StatusCode::FORBIDDEN, "Not authorized"),
            Error::NotAlone(_) => (StatusCode::FORBIDDEN, "Not alone"),
            Error::InUse { .. } => (StatusCode::FORBIDDEN, "Resource in use"),
            Error::Conflict(_) => (StatusCode::CONFLICT, "Resource conflict"),
            Error::TooMany { .. } | Error::TooManyInFlight { .. } | Error::TooFast { .. } => {
                (StatusCode::TOO_MANY_REQUESTS, "Too many requests")
            }
            Error::OverQuota { .. } => (StatusCode::TOO_MANY_REQUESTS, "Over quota"),
            Error::Late => (StatusCode::REQUEST_TIMEOUT, "Request timeout"),
            Error::Full => (StatusCode::INSUFFICIENT_STORAGE, "Insufficient storage"),
            Error::Damaged { .. } => (StatusCode::INTERNAL_SERVER_ERROR, "Stored data is damaged"),
            Error::NoPool
            | Error::NotDurable(_)
            | Error::Held { .. }
            | Error::SubscriptionFull { .. }
            | Error::Overloaded
            | Error::BodiesFull
            | Error::Busy(_)
            | Error::Moved(_)
            | Error::PoolsClosed { .. }
            | Error::Unavailable { .. }
            | Error::Unknown { .. }
            | Error::Unconfirmed { .. } => {
                (StatusCode::SERVICE_UNAVAILABLE, "Service temporarily unavailable")
            }
        }
    }

    pub fn status(&self) -> StatusCode {
        self.status_and_title().0
    }

    /// Returns the body, for the request with this id.
    pub fn body(&self, request_id: &str) -> Vec<u8> {
        serde_json::to_vec(&self.error_body(request_id)).expect("text and flags are always JSON")
    }

    /// Returns the fields of the body, for the request with this id.
    pub fn error_body(&self, request_id: &str) -> ErrorBody {
        let (_, title) = self.status_and_title();
        ErrorBody {
            title: title.to_owned(),
            description: self.0.to_string(),
            code: ErrorCodeView(self.0.error_code()),
            may_retry: self.0.may_retry(),
            nothing_written: self.0.nothing_written(),
            request_id: request_id.to_owned(),
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = self.status();
        let mut response = status.into_response();
        if let Error::Held { retry_after, .. } = &*self.0 {
            response.headers_mut().insert(header::RETRY_AFTER, (*retry_after).into());
        } else if status == StatusCode::SERVICE_UNAVAILABLE || status == StatusCode::TOO_MANY_REQUESTS {
            response.headers_mut().insert(header::RETRY_AFTER, RETRY_AFTER);
        }
        if status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, CHALLENGE);
        }
        response.extensions_mut().insert(self);
        response
    }
}

/// What every error answers: Zaqar's `title` and `description`, and what a program needs to go on.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ApiError, example = json!({
    "title": "Invalid API request", "description": "limit: it is 1 to 20", "code": "invalid", "may_retry": false,
    "nothing_written": true, "request_id": "req-0b8f2a3c-6f0e-4d5a-9a53-2d1c7e4b9f60"
}))]
pub struct ErrorBody {
    /// The kind of error, in Zaqar's words.
    pub title: String,
    /// What is wrong, for a person; it names the field.
    pub description: String,
    /// The kind of error, for a program.
    pub code: ErrorCodeView,
    /// Whether the same request may succeed when it is sent again.
    pub may_retry: bool,
    /// Whether it is certain that nothing was written.
    pub nothing_written: bool,
    /// The id of the request, as in the header `X-OpenStack-Request-Id`.
    pub request_id: String,
}

/// The code of an error, as the API writes it.
#[derive(Clone, Copy, Debug)]
pub struct ErrorCodeView(ErrorCode);

impl Serialize for ErrorCodeView {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0.as_str())
    }
}

impl PartialSchema for ErrorCodeView {
    fn schema() -> RefOr<Schema> {
        let words = ErrorCode::ALL.iter().map(|code| code.as_str());
        let meanings =
            ErrorCode::ALL.iter().map(|code| format!("\n* `{}`: {}", code.as_str(), code.meaning()));
        let schema = ObjectBuilder::new().schema_type(Type::String).enum_values(Some(words)).description(
            Some(format!(
                "The kind of an error, for a program. A word never changes its meaning.\n{}",
                meanings.collect::<String>()
            )),
        );
        RefOr::T(schema.into())
    }
}

impl ToSchema for ErrorCodeView {
    fn name() -> Cow<'static, str> {
        Cow::Borrowed("ErrorCode")
    }
}

/// Returns the body of an answer without a handler: for an unknown path, or for a method that a path does not have.
/// Zaqar sends only the title there.
pub fn plain_body(status: StatusCode, code: ErrorCode, description: String, request_id: &str) -> Vec<u8> {
    let body = ErrorBody {
        title: status.to_string(),
        description,
        code: ErrorCodeView(code),
        may_retry: false,
        nothing_written: true,
        request_id: request_id.to_owned(),
    };
    serde_json::to_vec(&body).expect("text and flags are always JSON")
}

/// Answers a request for an unknown path; the frame writes its body.
pub async fn no_route() -> StatusCode {
    StatusCode::NOT_FOUND
}

/// Documents the statuses that every operation with input may return, all with the same body.
pub struct Errors;

/// Documents the one error of operations without input.
pub struct Outage;

/// Documents the additional answer of operations for administrators to every other client.
pub struct NotAdmin;

/// Documents the additional error of operations that post messages.
pub struct NoRoom;

const OUTAGE: (&str, &str) = (
    "503",
    "A part is unavailable or failed with an unknown outcome, or something in progress must end first (`busy`): \
     `nothing_written` tells whether it is certain that nothing was done.",
);

const DAMAGE: (&str, &str) = (
    "500",
    "The stored data that the request needs is damaged (`damaged`): a repetition fails too, and nothing was written.",
);

impl IntoResponses for Errors {
    fn responses() -> BTreeMap<String, RefOr<utoipa::openapi::Response>> {
        described(&[
            ("400", "The request is wrong; the description names the field."),
            ("408", "The body did not arrive in time."),
            (
                "429",
                "The project makes too many requests or holds as much as it may, or a bound is reached that \
                 others will free again.",
            ),
            DAMAGE,
            OUTAGE,
        ])
    }
}

/// Documents the answers to an unauthenticated caller, and to one without permission.
pub fn refusals() -> BTreeMap<String, RefOr<utoipa::openapi::Response>> {
    described(&[
        (
            "401",
            "Authentication is on, and the request has no token, or one that is not known or has expired. \
             `WWW-Authenticate` says where to get one.",
        ),
        (
            "403",
            "The caller has not the role, names a project that is not its own, or has a token of no project.",
        ),
        ("503", "A part is unavailable, such as the identity service that knows the token."),
    ])
}

impl IntoResponses for Outage {
    fn responses() -> BTreeMap<String, RefOr<utoipa::openapi::Response>> {
        described(&[DAMAGE, OUTAGE])
    }
}

impl IntoResponses for NotAdmin {
    fn responses() -> BTreeMap<String, RefOr<utoipa::openapi::Response>> {
        described(&[("403", "The caller is no administrator.")])
    }
}

impl IntoResponses for NoRoom {
    fn responses() -> BTreeMap<String, RefOr<utoipa::openapi::Response>> {
        described(&[(
            "507",
            "There is no room for new messages. All other requests work; deleting makes room.",
        )])
    }
}

fn described(statuses: &[(&str, &str)]) -> BTreeMap<String, RefOr<utoipa::openapi::Response>> {
    let body = || ContentBuilder::new().schema(Some(Ref::from_schema_name("ApiError"))).build();
    let response = |(status, description): &(&str, &str)| {
        let response = ResponseBuilder::new().description(*description).content("application/json", body());
        ((*status).to_owned(), RefOr::T(response.build()))
    };
    statuses.iter().map(response).collect()
}
