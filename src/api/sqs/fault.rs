//! Errors of SQS: one exhaustive match maps a kind to its shape, its code in the query protocol and its status, and one
//! maps the errors of the core to a kind.

use std::fmt;
use std::sync::Arc;

use axum::http::StatusCode;

use super::decode::shown;
use angarium_core::error::{Error, Resource};
use angarium_core::limits;

/// The parameter with the handle of a receipt.
pub const HANDLE: &str = "ReceiptHandle";
/// The reason for a parameter that only the other type of queue accepts.
pub const OTHER_TYPE: &str = "The request include parameter that is not valid for this queue type";
/// The beginning of the error for a missing queue, in JSON.
const NO_QUEUE: &str = "The specified queue does not exist.";
/// The same in the query protocol. Some clients search for these words.
const NO_QUEUE_IN_QUERY: &str = "The specified queue does not exist for this wsdl version.";

/// An error of SQS, with its message.
#[derive(Clone, Debug)]
pub struct Fault {
    /// The kind of the error.
    pub kind: Kind,
    /// The message for people.
    pub message: String,
    /// The error of the core, if it is the cause.
    pub cause: Option<Arc<Error>>,
}

/// The kinds of errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    AccessDenied,
    BatchEntryIdsNotDistinct,
    BatchRequestTooLong,
    EmptyBatchRequest,
    IncompleteSignature,
    InternalFailure,
    InvalidAction,
    InvalidAttributeName,
    InvalidAttributeValue,
    InvalidBatchEntryId,
    InvalidClientTokenId,
    InvalidMessageContents,
    InvalidParameterValue,
    MissingAuthenticationToken,
    MissingParameter,
    OverLimit,
    PurgeQueueInProgress,
    QueueDeletedRecently,
    QueueDoesNotExist,
    QueueNameExists,
    ReceiptHandleIsInvalid,
    RequestThrottled,
    RequestTimeout,
    ResourceNotFound,
    Serialization,
    ServiceUnavailable,
    SignatureDoesNotMatch,
    /// As [`Kind::SignatureDoesNotMatch`], for a date too far from the current time.
    SignatureNotCurrent,
    TooManyEntriesInBatchRequest,
    UnknownOperation,
    UnsupportedOperation,
}

/// The encoding of an error kind.
#[derive(Clone, Copy, Debug)]
pub struct Form {
    namespace: &'static str,
    name: &'static str,
    prefix: &'static str,
    code: &'static str,
    pub status: StatusCode,
}

/// Returns the form of an error in the model of SQS, with its own code in the query protocol.
const fn own(name: &'static str, code: &'static str) -> Form {
    Form { namespace: "com.amazonaws.sqs#", name, prefix: "", code, status: StatusCode::BAD_REQUEST }
}

/// Returns the form of an error in the model of SQS whose code is its name behind the name of the service.
const fn named(name: &'static str) -> Form {
    Form { prefix: "AWS.SimpleQueueService.", ..own(name, name) }
}

/// Returns the form of an error that every service of AWS may send.
const fn generic(name: &'static str, code: &'static str, status: StatusCode) -> Form {
    Form { namespace: "com.amazon.coral.service#", name, prefix: "", code, status }
}

impl Kind {
    /// Returns the encoding of this kind.
    pub fn form(self) -> Form {
        const WRONG: StatusCode = StatusCode::BAD_REQUEST;
        const FORBIDDEN: StatusCode = StatusCode::FORBIDDEN;
        match self {
            Self::AccessDenied => generic("AccessDeniedException", "AccessDenied", FORBIDDEN),
            Self::BatchEntryIdsNotDistinct => named("BatchEntryIdsNotDistinct"),
            Self::BatchRequestTooLong => named("BatchRequestTooLong"),
            Self::EmptyBatchRequest => named("EmptyBatchRequest"),
            Self::IncompleteSignature => {
                generic("IncompleteSignatureException", "IncompleteSignature", WRONG)
            }
            Self::InternalFailure => {
                generic("InternalFailure", "InternalFailure", StatusCode::INTERNAL_SERVER_ERROR)
            }
            Self::InvalidAction => generic("InvalidAction", "InvalidAction", WRONG),
            Self::InvalidAttributeName => own("InvalidAttributeName", "InvalidAttributeName"),
            Self::InvalidAttributeValue => own("InvalidAttributeValue", "InvalidAttributeValue"),
            Self::InvalidBatchEntryId => named("InvalidBatchEntryId"),
            Self::InvalidClientTokenId => {
                generic("UnrecognizedClientException", "InvalidClientTokenId", FORBIDDEN)
            }
            Self::InvalidMessageContents => own("InvalidMessageContents", "InvalidMessageContents"),
            Self::InvalidParameterValue => {
                generic("InvalidParameterValueException", "InvalidParameterValue", WRONG)
            }
            Self::MissingAuthenticationToken => {
                generic("MissingAuthenticationTokenException", "MissingAuthenticationToken", FORBIDDEN)
            }
            Self::MissingParameter => generic("MissingRequiredParameterException", "MissingParameter", WRONG),
            Self::OverLimit => Form { status: FORBIDDEN, ..own("OverLimit", "OverLimit") },
            Self::PurgeQueueInProgress => Form { status: FORBIDDEN, ..named("PurgeQueueInProgress") },
            Self::QueueDeletedRecently => named("QueueDeletedRecently"),
            Self::QueueDoesNotExist => own("QueueDoesNotExist", "AWS.SimpleQueueService.NonExistentQueue"),
            Self::QueueNameExists => own("QueueNameExists", "QueueAlreadyExists"),
            Self::ReceiptHandleIsInvalid => own("ReceiptHandleIsInvalid", "ReceiptHandleIsInvalid"),
            Self::RequestThrottled => own("RequestThrottled", "RequestThrottled"),
            Self::RequestTimeout => {
                generic("RequestTimeoutException", "RequestTimeout", StatusCode::REQUEST_TIMEOUT)
            }
            Self::ResourceNotFound => Form {
                status: StatusCode::NOT_FOUND,
                ..own("ResourceNotFoundException", "ResourceNotFoundException")
            },
            Self::Serialization => generic("SerializationException", "MalformedInput", WRONG),
            Self::ServiceUnavailable => {
                generic("ServiceUnavailableException", "ServiceUnavailable", StatusCode::SERVICE_UNAVAILABLE)
            }
            Self::SignatureDoesNotMatch | Self::SignatureNotCurrent => {
                generic("InvalidSignatureException", "SignatureDoesNotMatch", FORBIDDEN)
            }
            Self::TooManyEntriesInBatchRequest => named("TooManyEntriesInBatchRequest"),
            Self::UnknownOperation => {
                generic("UnknownOperationException", "UnknownOperationException", StatusCode::NOT_FOUND)
            }
            Self::UnsupportedOperation => named("UnsupportedOperation"),
        }
    }
}

impl Form {
    /// Returns the name in JSON, with its namespace.
    pub fn shape(self) -> String {
        format!("{}{}", self.namespace, self.name)
    }

    /// Returns the code in the query protocol, which a header also sends to JSON clients.
    pub fn code(self) -> String {
        format!("{}{}", self.prefix, self.code)
    }

    /// Returns the party at fault, in the words of SQS.
    pub fn side(self) -> &'static str {
        if self.status.is_server_error() { "Receiver" } else { "Sender" }
    }
}

impl Fault {
    /// Creates an error of this kind.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: bounded(message.into()), cause: None }
    }

    /// Creates the error for a wrong parameter value.
    pub fn value(message: impl Into<String>) -> Self {
        Self::new(Kind::InvalidParameterValue, message)
    }

    /// Creates the error for a wrong parameter value, with a message that programs can parse.
    pub fn parameter(name: &str, value: impl fmt::Display, why: &str) -> Self {
        let value = value.to_string();
        Self::value(format!("Value {} for parameter {name} is invalid. Reason: {why}.", shown(&value)))
    }

    /// Converts an error of the core, and adds the value of its parameter from `values`, which are pairs of name and
    /// value.
    pub fn of_parameter(error: impl Into<Arc<Error>>, values: &[(&str, &str)]) -> Self {
        let error = error.into();
        let value_of = |name: &str| values.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
        let message = match &*error {
            Error::Invalid { field, why, .. } => {
                value_of(field).map(|value| Self::parameter(field, value, &capitalized(why)).message)
            }
            Error::BadReceipt => value_of(HANDLE).map(|handle| {
                format!("The input receipt handle {:?} is not a valid receipt handle.", shown(handle))
            }),
            _ => None,
        };
        let fault = Self::from(error);
        Self { message: message.unwrap_or(fault.message), ..fault }
    }

    /// Returns the message in the words of the query protocol.
    pub fn query_message(self) -> String {
        match self.message.strip_prefix(NO_QUEUE) {
            Some(rest) if self.kind == Kind::QueueDoesNotExist => format!("{NO_QUEUE_IN_QUERY}{rest}"),
            _ => self.message,
        }
    }

    /// Creates the error for a missing required parameter.
    pub fn missing(name: &str) -> Self {
        Self::new(Kind::MissingParameter, format!("The request must contain the parameter {name}."))
    }

    /// Creates the error for a missing queue.
    pub fn no_queue() -> Self {
        Self::new(Kind::QueueDoesNotExist, NO_QUEUE)
    }

    /// Creates the error for a queue URL with a region other than that of the signature.
    pub fn other_region(named: &str, signed: &str) -> Self {
        let why = format!("{NO_QUEUE} Its URL names {named}, and the request is signed for {signed}.");
        Self::new(Kind::QueueDoesNotExist, why)
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::from(Arc::new(error))
    }
}

impl From<Arc<Error>> for Fault {
    fn from(error: Arc<Error>) -> Self {
        let kind = match &*error {
            Error::Invalid { .. } => Kind::InvalidParameterValue,
            Error::NotFound { resource: Resource::Queue, .. } => return Self::no_queue(),
            Error::NotFound { .. } | Error::Gone(_) => Kind::ResourceNotFound,
            Error::BadReceipt => Kind::ReceiptHandleIsInvalid,
            Error::Unauthenticated(_)
            | Error::NotAuthorized(_)
            | Error::ForeignProject
            | Error::Unscoped
            | Error::RegionalProject
            | Error::ForeignOrigin(_)
            | Error::ForeignHost(_)
            | Error::ForeignSite(_)
            | Error::UnsafeGet(_) => Kind::AccessDenied,
            Error::Claimed(_)
            | Error::NotClaimed(_)
            | Error::ClaimEnded(_)
            | Error::NotAlone(_)
            | Error::InUse { .. } => Kind::UnsupportedOperation,
            Error::OverQuota { .. } | Error::TooManyInFlight { .. } => Kind::OverLimit,
            Error::TooMany { .. } | Error::TooFast { .. } | Error::Overloaded => Kind::RequestThrottled,
            Error::Late => Kind::RequestTimeout,
            Error::Conflict(_)
            | Error::BodiesFull
            | Error::Busy(_)
            | Error::Moved(_)
            | Error::NoPool
            | Error::NotDurable(_)
            | Error::Held { .. }
            | Error::SubscriptionFull { .. }
            | Error::Full
            | Error::PoolsClosed { .. }
            | Error::Unavailable { .. } => Kind::ServiceUnavailable,
            Error::Unknown { .. } | Error::Unconfirmed { .. } | Error::Damaged { .. } => {
                Kind::InternalFailure
            }
        };
        let message = match &*error {
            Error::Invalid { field, why, .. } if !field.is_empty() => unvalued(field, why),
            _ => error.to_string(),
        };
        Self { kind, message: bounded(message), cause: Some(error) }
    }
}

/// Returns a message for a parameter whose value is not available, in a form that programs can parse.
pub fn unvalued(name: &str, why: &str) -> String {
    format!("Value for parameter {} is invalid. Reason: {}.", shown(name), capitalized(why))
}

/// Returns a text with its first letter in upper case.
pub fn capitalized(text: &str) -> String {
    let mut text = text.chars();
    let first = text.next().into_iter().flat_map(char::to_uppercase);
    first.chain(text).collect()
}

/// Returns the code that clients of SQS get for an error of the core.
pub fn code_of(error: Arc<Error>) -> String {
    Fault::from(error).kind.form().code()
}

/// Truncates a message that repeats too much of a request.
fn bounded(mut message: String) -> String {
    if message.len() > limits::SQS_ERROR_BYTES {
        let mut end = limits::SQS_ERROR_BYTES;
        while !message.is_char_boundary(end) {
            end -= 1;
        }
        message.truncate(end);
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_repeats_a_bounded_part_of_a_request() {
        let long = "ä".repeat(1_000_000);
        let of_core = Error::invalid(angarium_core::error::InvalidPart::Body, "x", long.clone());
        for fault in [Fault::value(long), Fault::from(of_core)] {
            assert!(fault.message.len() <= limits::SQS_ERROR_BYTES, "{}", fault.message.len());
        }
    }

    #[test]
    fn queue_errors_have_sqs_codes() {
        let missing =
            Fault::from(Error::NotFound { resource: Resource::Queue, name: "q".into() }).kind.form();
        assert_eq!(missing.code(), "AWS.SimpleQueueService.NonExistentQueue");
        assert_eq!(missing.shape(), "com.amazonaws.sqs#QueueDoesNotExist");
        assert_eq!(
            (Kind::QueueNameExists.form().code().as_str(), missing.status.as_u16()),
            ("QueueAlreadyExists", 400)
        );
        assert_eq!(Kind::ServiceUnavailable.form().side(), "Receiver");
        assert_eq!(Kind::AccessDenied.form().side(), "Sender");
    }

    #[test]
    fn missing_resource_other_than_queue_has_its_own_code() {
        let code =
            |resource| Fault::from(Error::NotFound { resource, name: "queue".into() }).kind.form().code();
        assert_eq!(code(Resource::Queue), "AWS.SimpleQueueService.NonExistentQueue");
        for other in [Resource::Message, Resource::ClaimedMessage, Resource::Claim, Resource::Pool] {
            assert_eq!(code(other), "ResourceNotFoundException", "{other}");
        }
    }

    #[test]
    fn too_many_in_flight_is_over_limit_and_other_bounds_throttle() {
        let code = |error: Error| Fault::from(error).kind.form().code();
        assert_eq!(code(Error::TooManyInFlight { bound: 5 }), "OverLimit");
        let named_alike = Error::TooMany { what: "messages in flight", bound: 5 };
        assert_eq!(code(named_alike), "RequestThrottled");
        let text = Fault::from(Error::TooManyInFlight { bound: 5 }).message;
        assert_eq!(text, "messages in flight: at most 5");
    }

    #[test]
    fn error_of_the_core_names_parameter_and_value() {
        let told = |error, values| Fault::of_parameter(error, values).message;
        let late = || {
            Error::invalid(angarium_core::error::InvalidPart::Limit, HANDLE, "the receipt handle has expired")
        };
        assert_eq!(
            told(late(), &[("VisibilityTimeout", "5"), (HANDLE, "abc")]),
            "Value abc for parameter ReceiptHandle is invalid. Reason: The receipt handle has expired."
        );
        let unvalued =
            "Value for parameter ReceiptHandle is invalid. Reason: The receipt handle has expired.";
        assert_eq!(told(late(), &[]), unvalued);
        let bad = told(Error::BadReceipt, &[(HANDLE, "x\"y")]);
        assert_eq!(bad, r#"The input receipt handle "x\"y" is not a valid receipt handle."#);
    }
}
