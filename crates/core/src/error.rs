//! The error type of the core. It names the situation, never the failed library or an HTTP status.
//!
//! Each situation has a stable code word, and states whether the same request may succeed when it is sent again, and
//! whether it is certain that nothing was written. `Display` is the text for the client. The cause of a failed part is
//! the `source`; it is logged where the error is handled and never leaves the process.

use std::borrow::Cow;
use std::fmt;

use thiserror::Error as ThisError;

pub use crate::error_code::ErrorCode;
use crate::ids::{Slot, SubscriptionId};
use crate::names::PoolName;
use crate::quota::Amount;
pub use crate::resource::Resource;

type Cause = Box<dyn std::error::Error + Send + Sync>;

/// The part of a request that is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvalidPart {
    /// The shape of the body.
    Body,
    /// A value beyond its bounds, wherever it is.
    Limit,
    /// A query parameter.
    Query,
    /// A header.
    Header,
    /// All headers together.
    HeaderSize,
    /// The name of a project, queue or pool.
    Name,
    /// The media type of the body.
    MediaType,
    /// The media types that the client accepts in an answer.
    Accept,
}

/// A part of the service that a request needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// The tree that holds queues and claims.
    Coordination,
    /// The storage pools, without naming one.
    Storage,
    /// One storage pool. Queues in other pools are served.
    Pool(PoolName),
    /// Keystone, which knows the tokens of callers.
    Keystone,
    /// The look-up of tokens, which Keystone refuses this service.
    TokenLookup,
    /// This process, which is about to stop.
    Server,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Coordination => f.write_str("coordination"),
            Self::Storage => f.write_str("storage"),
            Self::Pool(name) => write!(f, "storage pool {name}"),
            Self::Keystone => f.write_str("the identity service (Keystone)"),
            Self::TokenLookup => f.write_str(
                "the look-up of tokens, which the identity service (Keystone) refuses this service,",
            ),
            Self::Server => f.write_str("the server"),
        }
    }
}

/// The reason why a request failed.
#[derive(Debug, ThisError)]
pub enum Error {
    /// The request is invalid, whichever caller sends it.
    #[error("{}", invalid_text(field, why))]
    Invalid {
        /// The part of the request.
        place: InvalidPart,
        /// The client's name for the field; empty for the whole request.
        field: String,
        /// The reason why it is wrong.
        why: String,
    },
    /// The thing that the request names does not exist.
    #[error("{resource} {name} does not exist")]
    NotFound {
        /// The kind of the named thing.
        resource: Resource,
        /// Its name or id.
        name: String,
    },
    /// A caller without the claim tried to delete a message that is under a live claim.
    #[error("message {0} is claimed and cannot be deleted without a valid claim ID")]
    Claimed(crate::ids::MessageId),
    /// The request names a claim for a message that is under no claim.
    #[error("message {0} is not currently claimed")]
    NotClaimed(crate::ids::MessageId),
    /// The named claim does not exist, or has ended.
    #[error("claim {0} does not exist or has expired")]
    ClaimEnded(String),
    /// The message was removed from under the claim of its holder.
    #[error("message {0} was recalled")]
    Gone(crate::ids::MessageId),
    /// A receipt handle was made by another installation or for another queue.
    #[error("the receipt handle is not one of this queue")]
    BadReceipt,
    /// The caller is not authenticated. Has the reason.
    #[error("{0}")]
    Unauthenticated(&'static str),
    /// The caller names a project that is not its own.
    #[error("the token is for another project than X-Project-Id names")]
    ForeignProject,
    /// The token of the caller is for no project, or for more than one.
    #[error("the token is not for a project: ask Keystone for one that is scoped to a project")]
    Unscoped,
    /// The name of the project may belong to an SQS key in another region.
    #[error(
        "a project with an @ is not served: keys of SQS may sign for any region, and ACCOUNT@REGION is theirs; \
         it is served once --sqs-regions names no region but the service's own"
    )]
    RegionalProject,
    /// A page of another site made a browser send this. Has the site.
    #[error("the request comes from a page of {0}, which is not this service")]
    ForeignOrigin(String),
    /// The request has no credentials, and names a host that is not a known name of this service. Has the host.
    #[error(
        "the host name {0} is not known as one of this service: if it is, name it with --allowed-host {0} \
         (ANGARIUM_ALLOWED_HOST)"
    )]
    ForeignHost(String),
    /// A browser reports that a page of another site made it send this. Has the value of `Sec-Fetch-Site`.
    #[error(
        "a page of another site sends this (Sec-Fetch-Site: {0}): send it from a program or a page of this service"
    )]
    ForeignSite(String),
    /// The request would change something, and any page can make a browser send it. Has its operation.
    #[error("{0} by GET needs credentials, which no page can add: send an Authorization header, or use POST")]
    UnsafeGet(&'static str),
    /// The operation needs a single running replica, and another one runs. Has the text for the client, with the other
    /// replica and the reason.
    #[error("{0}")]
    NotAlone(String),
    /// The thing to be deleted or replaced is in use.
    #[error("{resource} {name} is in use: {by}")]
    InUse {
        /// The kind of the used thing.
        resource: Resource,
        /// Its name.
        name: String,
        /// What uses it.
        by: Cow<'static, str>,
        /// Whether the use ends soon by itself, so that a retry may succeed.
        is_passing: bool,
    },
    /// The state of the thing does not allow the change.
    #[error("{0}")]
    Conflict(String),
    /// The caller lacks the role for this operation, for any project's data. Has the role.
    #[error("this needs the role {0}")]
    NotAuthorized(&'static str),
    /// No pool takes new queues.
    #[error("no storage pool takes new queues")]
    NoPool,
    /// The queue demands a durability that its pool does not reach now (P11). The pool may reach it again.
    #[error("storage pool {0} cannot be as durable now as the queue asks for")]
    NotDurable(PoolName),
    /// A hold refuses or discards posts.
    #[error("posts are held: {reason}")]
    Held {
        /// The reason of the hold.
        reason: String,
        /// Seconds after which the caller may try again.
        retry_after: u32,
        /// Whether posts are dropped, where the protocol has an answer for that.
        is_discarded: bool,
    },
    /// A subscription of the queue is full, and its option `overflow` refuses posts then.
    #[error(
        "subscription {id} has {} messages with {} bytes, may have {} with {}, and refuses posts beyond: \
         remove some of its messages, or raise its bounds",
        held.messages, held.bytes, most.messages, most.bytes
    )]
    SubscriptionFull {
        /// The subscription.
        id: SubscriptionId,
        /// Its stored copies and the pending ones.
        held: Amount,
        /// The bounds of its copies.
        most: Amount,
        /// Whether the copies of the post fit into an empty subscription.
        may_fit: bool,
    },
    /// The pool has no room for new messages. All other requests continue, and deletes make room.
    #[error("the storage pool has no room for new messages")]
    Full,
    /// A bound is reached that other requests will free again.
    #[error("{what}: at most {bound}")]
    TooMany {
        /// The counted things.
        what: &'static str,
        /// The max number of them.
        bound: usize,
    },
    /// The queue has the max number of messages under claims. Deletes and releases make room.
    #[error("messages in flight: at most {bound}")]
    TooManyInFlight {
        /// Max messages in flight.
        bound: usize,
    },
    /// A project makes requests faster than it may.
    #[error("the project makes more than {per_second} requests a second")]
    TooFast {
        /// Max requests a second.
        per_second: u32,
    },
    /// The request would exceed the quota of its project.
    #[error("the project may hold {bound} {what}; it holds {used}, and this adds {asked}")]
    OverQuota {
        /// The kind of amount that exceeds its bound.
        what: &'static str,
        /// The max amount.
        bound: u64,
        /// The amount that the project holds.
        used: u64,
        /// The amount that the request adds.
        asked: u64,
    },
    /// The service has the max number of requests in progress.
    #[error("the service is busy, please try again in a few seconds")]
    Overloaded,
    /// The budget for request bodies in memory is used up, in all or for this project.
    #[error("there is no room for the request body at the moment, please try again in a few seconds")]
    BodiesFull,
    /// Something else in progress must end first, like the transfer of the message that the request names. It is certain
    /// that nothing was written.
    #[error("{0}")]
    Busy(&'static str),
    /// The request did not arrive in time.
    #[error("the request did not arrive in time")]
    Late,
    /// Another replica serves the slot. A caller that knows the replica repeats the request there.
    #[error("the queue moves to another replica, please try again in a few seconds")]
    Moved(Slot),
    /// No pool takes new messages, with why each does not, for a person who looks after them.
    #[error("no pool accepts new messages: {pools}")]
    PoolsClosed {
        /// Each pool with its reason.
        pools: String,
        /// The same without figures that change, for the log.
        #[source]
        cause: Cause,
    },
    /// A part cannot be used now. It is certain that nothing was written.
    #[error("{part} is unavailable, please try again in a few seconds")]
    Unavailable {
        /// The part that failed.
        part: Part,
        /// The cause, for the log.
        #[source]
        cause: Option<Cause>,
    },
    /// The stored data for this request is damaged. Nothing was written.
    #[error(
        "what {part} stores for this request is damaged: it fails again when it is repeated; the operator finds the \
         damage with angarium doctor --data"
    )]
    Damaged {
        /// The part that failed.
        part: Part,
        /// The damaged place, for the log.
        #[source]
        cause: Option<Cause>,
    },
    /// A hold is recorded, and replicas or pools have not confirmed yet that it is in force. The same request repeated
    /// waits for them again.
    #[error("the hold is recorded, and {why}: repeat the request")]
    Unconfirmed {
        /// What has not confirmed it, in words of the service.
        why: String,
        /// The cause, for the log.
        #[source]
        cause: Option<Cause>,
    },
    /// A part failed in the middle: the request may have been carried out or not.
    #[error("{part} failed while the request was carried out: it may have been done or not")]
    Unknown {
        /// The part that failed.
        part: Part,
        /// The cause, for the log.
        #[source]
        cause: Option<Cause>,
    },
}

fn invalid_text(field: &str, why: &str) -> String {
    if field.is_empty() { why.to_owned() } else { format!("{field}: {why}") }
}

impl Error {
    /// Returns the error for an invalid part of the request.
    pub fn invalid(place: InvalidPart, field: impl Into<String>, why: impl Into<String>) -> Self {
        Self::Invalid { place, field: field.into(), why: why.into() }
    }

    /// Returns the error for a part that cannot be used; nothing was written.
    pub fn unavailable(part: Part, cause: impl Into<Cause>) -> Self {
        Self::Unavailable { part, cause: Some(cause.into()) }
    }

    /// Returns the error for damaged data of a part; nothing was written.
    pub fn damaged(part: Part, cause: impl Into<Cause>) -> Self {
        Self::Damaged { part, cause: Some(cause.into()) }
    }

    /// Returns the error for a part that failed with an unknown outcome.
    pub fn unknown(part: Part, cause: impl Into<Cause>) -> Self {
        Self::Unknown { part, cause: Some(cause.into()) }
    }

    /// Returns the error of a read that follows a change of the request: the change was made, so a resource that is gone
    /// since is no refusal.
    pub fn after_change(self) -> Self {
        match self {
            Self::NotFound { .. } => Self::unknown(Part::Server, self),
            error => error.into_unknown(),
        }
    }

    /// Returns this failure as it is after something else of the request was written: its outcome is unknown.
    pub fn into_unknown(self) -> Self {
        match self {
            Self::Unavailable { part, cause } | Self::Damaged { part, cause } => {
                Self::Unknown { part, cause }
            }
            other if other.nothing_written() && other.may_retry() => Self::unknown(Part::Server, other),
            other => other,
        }
    }

    /// Whether `error`, or a cause of it, means that a request did not arrive in time.
    pub fn is_late(error: &(dyn std::error::Error + 'static)) -> bool {
        matches!(Self::within(error), Some(Self::Late))
    }

    /// Whether `error`, or a cause of it, means that there is no room for the body of a request.
    pub fn is_bodies_full(error: &(dyn std::error::Error + 'static)) -> bool {
        matches!(Self::within(error), Some(Self::BodiesFull))
    }

    /// The first [`Error`] among `error` and its causes.
    fn within<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a Self> {
        let mut cause = Some(error);
        while let Some(error) = cause {
            if let Some(ours) = error.downcast_ref() {
                return Some(ours);
            }
            cause = error.source();
        }
        None
    }

    /// The word of the code: part of the API, so it never changes.
    pub fn code(&self) -> &'static str {
        self.error_code().as_str()
    }

    /// The code of the error.
    pub fn error_code(&self) -> ErrorCode {
        match self {
            Self::Invalid { .. } => ErrorCode::Invalid,
            Self::NotFound { .. } => ErrorCode::NotFound,
            Self::Claimed(_) => ErrorCode::Claimed,
            Self::NotClaimed(_) => ErrorCode::NotClaimed,
            Self::ClaimEnded(_) => ErrorCode::ClaimEnded,
            Self::Gone(_) => ErrorCode::Gone,
            Self::BadReceipt => ErrorCode::BadReceipt,
            Self::Unauthenticated(_) => ErrorCode::Unauthenticated,
            Self::ForeignProject => ErrorCode::ForeignProject,
            Self::Unscoped => ErrorCode::Unscoped,
            Self::RegionalProject => ErrorCode::RegionalProject,
            Self::ForeignOrigin(_) => ErrorCode::ForeignOrigin,
            Self::ForeignHost(_) => ErrorCode::ForeignHost,
            Self::ForeignSite(_) => ErrorCode::ForeignSite,
            Self::UnsafeGet(_) => ErrorCode::UnsafeGet,
            Self::NotAlone(_) => ErrorCode::NotAlone,
            Self::InUse { .. } => ErrorCode::InUse,
            Self::Conflict(_) => ErrorCode::Conflict,
            Self::NotAuthorized(_) => ErrorCode::NotAuthorized,
            Self::NoPool => ErrorCode::NoPool,
            Self::NotDurable(_) => ErrorCode::NotDurable,
            Self::Held { .. } => ErrorCode::Held,
            Self::SubscriptionFull { .. } => ErrorCode::SubscriptionFull,
            Self::Full => ErrorCode::Full,
            Self::TooMany { .. } | Self::TooManyInFlight { .. } => ErrorCode::TooMany,
            Self::TooFast { .. } => ErrorCode::TooFast,
            Self::OverQuota { .. } => ErrorCode::OverQuota,
            Self::Overloaded => ErrorCode::Overloaded,
            Self::BodiesFull => ErrorCode::BodiesFull,
            Self::Busy(_) => ErrorCode::Busy,
            Self::Late => ErrorCode::Late,
            Self::Moved(_) => ErrorCode::Moved,
            Self::PoolsClosed { .. } | Self::Unavailable { .. } => ErrorCode::Unavailable,
            Self::Damaged { .. } => ErrorCode::Damaged,
            Self::Unknown { .. } | Self::Unconfirmed { .. } => ErrorCode::UnknownOutcome,
        }
    }

    /// Whether the same request may succeed when it is sent again. After an unknown outcome the client decides: the
    /// request may then be carried out twice.
    pub fn may_retry(&self) -> bool {
        match self {
            Self::Invalid { .. }
            | Self::NotFound { .. }
            | Self::Claimed(_)
            | Self::NotClaimed(_)
            | Self::ClaimEnded(_)
            | Self::Gone(_)
            | Self::BadReceipt
            | Self::Unauthenticated(_)
            | Self::NotAuthorized(_)
            | Self::ForeignProject
            | Self::Unscoped
            | Self::RegionalProject
            | Self::ForeignOrigin(_)
            | Self::ForeignHost(_)
            | Self::ForeignSite(_)
            | Self::UnsafeGet(_)
            | Self::NotAlone(_)
            | Self::Conflict(_)
            | Self::Damaged { .. } => false,
            Self::InUse { is_passing, .. } => *is_passing,
            // A request that alone exceeds the quota never fits.
            Self::OverQuota { bound, asked, .. } => asked <= bound,
            Self::SubscriptionFull { may_fit, .. } => *may_fit,
            Self::NoPool
            | Self::NotDurable(_)
            | Self::Held { .. }
            | Self::Full
            | Self::TooMany { .. }
            | Self::TooManyInFlight { .. }
            | Self::TooFast { .. }
            | Self::Overloaded
            | Self::BodiesFull
            | Self::Busy(_)
            | Self::Late
            | Self::Moved(_)
            | Self::PoolsClosed { .. }
            | Self::Unavailable { .. }
            | Self::Unknown { .. }
            | Self::Unconfirmed { .. } => true,
        }
    }

    /// The error with its causes, for a log. `Display` leaves the causes out, because it is written for clients.
    pub fn detail(&self) -> String {
        let mut text = match self {
            Self::Unavailable { part, .. } => format!("{part} is unavailable"),
            other => other.to_string(),
        };
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            let more = error.to_string();
            // Some errors have the text of their cause in their own.
            if !text.contains(&more) {
                text = format!("{text}: {more}");
            }
            cause = error.source();
        }
        text
    }

    /// Whether stored data is damaged. The part that found the damage has logged the place.
    pub fn is_damaged(&self) -> bool {
        matches!(self, Self::Damaged { .. })
    }

    /// Whether it is certain that nothing was written.
    pub fn nothing_written(&self) -> bool {
        !matches!(self, Self::Unknown { .. } | Self::Unconfirmed { .. })
    }
}
