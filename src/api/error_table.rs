//! The table of all error codes, for the documentation. Statuses and answers are those of real errors, one or more of
//! each code.

use axum::http::StatusCode;

use super::error::ApiError;
use super::sqs;
use angarium_core::error::{Error, ErrorCode, InvalidPart, Part, Resource};
use angarium_core::ids::{MessageId, QueueId, Slot, SubscriptionId};
use angarium_core::names::PoolName;
use angarium_core::quota::Amount;

/// One code, and its answers.
pub struct ErrorRow {
    /// The text of the code in the body of an error.
    pub code: &'static str,
    /// Statuses of REST, ascending.
    pub statuses: Vec<u16>,
    /// Codes of SQS for the same situations.
    pub sqs_codes: Vec<String>,
    /// `yes`, `no` or `depends`.
    pub may_retry: &'static str,
    /// Whether it is certain that nothing was written.
    pub nothing_written: bool,
    /// Its meaning, as one sentence.
    pub meaning: &'static str,
}

/// Returns the rows of all codes, in order.
pub fn rows() -> Vec<ErrorRow> {
    ErrorCode::ALL.iter().map(|code| row(*code)).collect()
}

fn row(code: ErrorCode) -> ErrorRow {
    let examples = examples(code);
    let mut statuses = match code {
        ErrorCode::NoRoute => vec![StatusCode::NOT_FOUND.as_u16()],
        ErrorCode::MethodNotAllowed => vec![StatusCode::METHOD_NOT_ALLOWED.as_u16()],
        _ => Vec::new(),
    };
    let retries = examples.iter().filter(|error| error.may_retry()).count();
    let may_retry = match retries {
        0 => "no",
        some if some == examples.len() => "yes",
        _ => "depends",
    };
    let nothing_written = examples.iter().all(Error::nothing_written);
    let mut sqs_codes = Vec::new();
    for error in examples {
        assert_eq!(error.error_code(), code, "it is an example of it");
        let answer = ApiError::from(error);
        statuses.push(answer.status().as_u16());
        sqs_codes.push(sqs::code_of(answer.0));
    }
    statuses.sort_unstable();
    statuses.dedup();
    sqs_codes.sort_unstable();
    sqs_codes.dedup();
    ErrorRow { code: code.as_str(), statuses, sqs_codes, may_retry, nothing_written, meaning: code.meaning() }
}

/// Returns errors of a code, at least one for each different answer. A wrong path or method is no error of the core.
fn examples(code: ErrorCode) -> Vec<Error> {
    let pool = || PoolName::new("default").expect("it is a name");
    let quota = |asked| Error::OverQuota { what: "messages", bound: 2, used: 2, asked };
    let in_use = |is_passing| Error::InUse {
        resource: Resource::Pool,
        name: String::new(),
        by: "".into(),
        is_passing,
    };
    let subscription_full = |may_fit| Error::SubscriptionFull {
        id: SubscriptionId(QueueId::from_bytes([0; 16])),
        held: Amount::default(),
        most: Amount::default(),
        may_fit,
    };
    match code {
        ErrorCode::Invalid => {
            [InvalidPart::Body, InvalidPart::Accept, InvalidPart::MediaType, InvalidPart::HeaderSize]
                .map(|place| Error::invalid(place, "", ""))
                .into()
        }
        ErrorCode::NotFound => [Resource::Queue, Resource::Message]
            .map(|resource| Error::NotFound { resource, name: String::new() })
            .into(),
        ErrorCode::Claimed => vec![Error::Claimed(MessageId::ZERO)],
        ErrorCode::NotClaimed => vec![Error::NotClaimed(MessageId::ZERO)],
        ErrorCode::ClaimEnded => vec![Error::ClaimEnded(String::new())],
        ErrorCode::Gone => vec![Error::Gone(MessageId::ZERO)],
        ErrorCode::BadReceipt => vec![Error::BadReceipt],
        ErrorCode::Unauthenticated => vec![Error::Unauthenticated("")],
        ErrorCode::ForeignProject => vec![Error::ForeignProject],
        ErrorCode::Unscoped => vec![Error::Unscoped],
        ErrorCode::RegionalProject => vec![Error::RegionalProject],
        ErrorCode::ForeignOrigin => vec![Error::ForeignOrigin(String::new())],
        ErrorCode::ForeignHost => vec![Error::ForeignHost(String::new())],
        ErrorCode::ForeignSite => vec![Error::ForeignSite(String::new())],
        ErrorCode::UnsafeGet => vec![Error::UnsafeGet("")],
        ErrorCode::NotAlone => vec![Error::NotAlone(String::new())],
        ErrorCode::InUse => [false, true].map(in_use).into(),
        ErrorCode::Conflict => vec![Error::Conflict(String::new())],
        ErrorCode::NotAuthorized => vec![Error::NotAuthorized("")],
        ErrorCode::NoPool => vec![Error::NoPool],
        ErrorCode::NotDurable => vec![Error::NotDurable(pool())],
        ErrorCode::Held => {
            vec![Error::Held { reason: String::new(), retry_after: 1, is_discarded: false }]
        }
        ErrorCode::SubscriptionFull => [true, false].map(subscription_full).into(),
        ErrorCode::Full => vec![Error::Full],
        ErrorCode::TooMany => {
            vec![Error::TooManyInFlight { bound: 1 }, Error::TooMany { what: "claims", bound: 1 }]
        }
        ErrorCode::TooFast => vec![Error::TooFast { per_second: 1 }],
        ErrorCode::OverQuota => [1, 3].map(quota).into(),
        ErrorCode::Overloaded => vec![Error::Overloaded],
        ErrorCode::BodiesFull => vec![Error::BodiesFull],
        ErrorCode::Busy => vec![Error::Busy("")],
        ErrorCode::Late => vec![Error::Late],
        ErrorCode::Moved => vec![Error::Moved(Slot(0))],
        ErrorCode::Unavailable => vec![Error::Unavailable { part: Part::Storage, cause: None }],
        ErrorCode::Damaged => vec![Error::Damaged { part: Part::Storage, cause: None }],
        ErrorCode::UnknownOutcome => {
            let unconfirmed =
                Error::Unconfirmed { why: "1 slot has not confirmed it".to_owned(), cause: None };
            vec![Error::Unknown { part: Part::Storage, cause: None }, unconfirmed]
        }
        ErrorCode::NoRoute | ErrorCode::MethodNotAllowed => Vec::new(),
    }
}
