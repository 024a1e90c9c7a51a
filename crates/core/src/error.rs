//! The one error of the core. It names the situation, never the library it came from nor an HTTP status.
//!
//! Each situation answers three questions: its stable code word, whether the same request may succeed when
//! it is sent again, and whether it is certain that nothing was written. Text for the client is in `Display`;
//! the cause of a failed part is its `source`, which is logged where the error stops and never leaves the
//! process.

use std::fmt;

use thiserror::Error as ThisError;

use crate::ids::Slot;
use crate::names::PoolName;
pub use crate::resource::Resource;

type Cause = Box<dyn std::error::Error + Send + Sync>;

macro_rules! codes {
    ($($name:ident $word:literal $meaning:literal)*) => {
        /// What a program tells errors apart by. Each has a word that is part of the API, so it never changes.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum ErrorCode {
            $(#[doc = $meaning] $name),*
        }

        impl ErrorCode {
            /// All of them: no error is sent with another one.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// Its word.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $word),*
                }
            }

            /// Its meaning, as one sentence.
            pub const fn meaning(self) -> &'static str {
                match self {
                    $(Self::$name => $meaning),*
                }
            }
        }
    };
}

codes! {
    Invalid "invalid" "The request is wrong; the description names the field."
    NotFound "not_found" "The thing that the request names does not exist."
    Claimed "claimed" "The message is claimed, and the request does not name its claim."
    NotClaimed "not_claimed" "The message is not claimed, and the request names a claim."
    ClaimEnded "claim_ended" "The claim of the message has ended."
    BadReceipt "bad_receipt" "The receipt handle is not one of this queue."
    Unauthenticated "unauthenticated" "The request has no token, or an unknown one."
    ForeignProject "foreign_project" "The request names a project that is not that of its token."
    Unscoped "unscoped" "The token is not for one project."
    RegionalProject "regional_project" "The project belongs to an account of SQS, and its name has a region."
    ForeignOrigin "foreign_origin" "A web page of another site sent the request."
    ForeignHost "foreign_host" "The request names a host that the service does not answer for."
    ForeignSite "foreign_site" "A web page of another site sent the request, as the browser reports."
    UnsafeGet "unsafe_get" "A web page may not change anything by GET."
    NotAlone "not_alone" "Another replica runs."
    InUse "in_use" "The thing that would be changed or deleted is in use."
    Conflict "conflict" "The state of the thing does not allow the request."
    NotAuthorized "not_authorized" "The caller lacks the role."
    NoPool "no_pool" "No pool takes the queue."
    NotDurable "not_durable" "The pool cannot be as durable now as the queue asks for."
    Full "full" "There is no room for new messages."
    TooMany "too_many" "A bound is reached that other requests will free again."
    TooFast "too_fast" "The project makes requests faster than it may."
    OverQuota "over_quota" "The project would hold more than it may."
    Overloaded "overloaded" "The service has as many requests in progress as it takes."
    BodiesFull "bodies_full" "There is no room for the body of the request."
    Late "late" "The request did not arrive in time."
    Moved "moved" "Another replica serves the queue by now."
    Unavailable "unavailable" "A part of the service cannot be used now; nothing was written."
    Damaged "damaged" "The stored data is damaged; nothing was written."
    UnknownOutcome "unknown_outcome" "A part of the service failed: the request may have been carried out."
    NoRoute "no_route" "There is no such path."
    MethodNotAllowed "method_not_allowed" "The path does not have the method."
}

/// Where in a request something is wrong.
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
    /// The storage pools, whichever.
    Storage,
    /// One storage pool. Queues in others go on.
    Pool(PoolName),
    /// Keystone, which knows the tokens of callers.
    Keystone,
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
            Self::Server => f.write_str("the server"),
        }
    }
}

/// What went wrong.
#[derive(Debug, ThisError)]
pub enum Error {
    /// The request itself cannot be served, no matter which caller sends it.
    #[error("{}", invalid_text(field, why))]
    Invalid {
        /// Where in the request.
        place: InvalidPart,
        /// The field, as the client calls it; empty for the whole.
        field: String,
        /// What is wrong with it.
        why: String,
    },
    /// The named thing does not exist.
    #[error("{resource} {name} does not exist")]
    NotFound {
        /// The kind of the named thing.
        resource: Resource,
        /// Its name or id.
        name: String,
    },
    /// A message that is under a live claim was to be deleted by a caller without that claim.
    #[error("message {0} is claimed and cannot be deleted without a valid claim ID")]
    Claimed(crate::ids::MessageId),
    /// A claim was named for a message that is under no claim.
    #[error("message {0} is not currently claimed")]
    NotClaimed(crate::ids::MessageId),
    /// The named claim does not exist, or has ended.
    #[error("claim {0} does not exist or has expired")]
    ClaimEnded(String),
    /// A handle was not made here, or for another queue.
    #[error("the receipt handle is not one of this queue")]
    BadReceipt,
    /// It is unknown who asks.
    #[error("{0}")]
    Unauthenticated(&'static str),
    /// The caller asks for a project that is not its own.
    #[error("the token is for another project than X-Project-Id names")]
    ForeignProject,
    /// The token of the caller is for no project, or for more than one.
    #[error("the token is not for a project: ask Keystone for one that is scoped to a project")]
    Unscoped,
    /// The project may be that of a key of SQS in another region.
    #[error(
        "a project with an @ is not served: keys of SQS may sign for any region, and ACCOUNT@REGION is theirs; \
         it is served once --sqs-regions names no region but the service's own"
    )]
    RegionalProject,
    /// A page of some other site made a browser send this.
    #[error("the request comes from a page of {0}, which is not this service")]
    ForeignOrigin(String),
    /// The request proves nothing about its sender, and names a host that is none of this service's.
    #[error(
        "the host name {0} is not known as one of this service: if it is, name it with --allowed-host {0} \
         (ANGARIUM_ALLOWED_HOST)"
    )]
    ForeignHost(String),
    /// A browser states that a page of another site made it send this. With what it states in `Sec-Fetch-Site`.
    #[error(
        "a page of another site sends this (Sec-Fetch-Site: {0}): send it from a program or a page of this service"
    )]
    ForeignSite(String),
    /// A request that any page can make a browser send would change something. With its operation.
    #[error("{0} by GET needs credentials, which no page can add: send an Authorization header, or use POST")]
    UnsafeGet(&'static str),
    /// Only one replica may be up for this, and there is another one. States which, and why.
    #[error("{0}")]
    NotAlone(String),
    /// What is to be deleted or replaced is used.
    #[error("{resource} {name} is in use: {by}")]
    InUse {
        /// The kind of the used thing.
        resource: Resource,
        /// The one that the request names.
        name: String,
        /// What uses it.
        by: &'static str,
        /// Whether that has ended soon, whatever any caller does.
        is_passing: bool,
    },
    /// The change does not fit what is there.
    #[error("{0}")]
    Conflict(String),
    /// The caller may not do this, no matter which caller's data it is.
    #[error("this needs the role {0}")]
    NotAuthorized(&'static str),
    /// No pool takes new queues.
    #[error("no storage pool takes new queues")]
    NoPool,
    /// The queue asks for more than its pool reaches now (P11). It may reach it again.
    #[error("storage pool {0} cannot be as durable now as the queue asks for")]
    NotDurable(PoolName),
    /// There is no room for new messages. Everything else continues, and deleting makes room.
    #[error("the storage pool has no room for new messages")]
    Full,
    /// A bound that other requests will free again is reached.
    #[error("{what}: at most {bound}")]
    TooMany {
        /// What there are too many of.
        what: &'static str,
        /// So many are allowed.
        bound: usize,
    },
    /// The queue has as many messages under claims as a receive allows. Deleting or releasing makes room.
    #[error("messages in flight: at most {bound}")]
    TooManyInFlight {
        /// Most messages in flight.
        bound: usize,
    },
    /// A project makes requests faster than it may.
    #[error("the project makes more than {per_second} requests a second")]
    TooFast {
        /// How many it may make.
        per_second: u32,
    },
    /// A project would hold more than it may.
    #[error("the project may hold {bound} {what}; it holds {used}, and this adds {asked}")]
    OverQuota {
        /// Of what it would be too much.
        what: &'static str,
        /// The most that it may hold.
        bound: u64,
        /// What it holds.
        used: u64,
        /// What the request adds.
        asked: u64,
    },
    /// The service has as much in progress as it takes on.
    #[error("the service is busy, please try again in a few seconds")]
    Overloaded,
    /// As many bytes of request bodies are in memory as there may be, of all or of this project.
    #[error("there is no room for the request body at the moment, please try again in a few seconds")]
    BodiesFull,
    /// The request did not arrive in time.
    #[error("the request did not arrive in time")]
    Late,
    /// Another replica serves the slot. A caller that knows it asks it.
    #[error("the queue moves to another replica, please try again in a few seconds")]
    Moved(Slot),
    /// A part cannot be used now. It is certain that nothing was written.
    #[error("{part} is unavailable, please try again in a few seconds")]
    Unavailable {
        /// The part that failed.
        part: Part,
        /// Why, for the log.
        #[source]
        cause: Option<Cause>,
    },
    /// What a part stores of this is damaged. Nothing was written.
    #[error(
        "what {part} stores for this request is damaged: it fails again when it is repeated; the operator finds the \
         damage with angarium doctor --data"
    )]
    Damaged {
        /// The part that failed.
        part: Part,
        /// Where, for the log.
        #[source]
        cause: Option<Cause>,
    },
    /// A part failed in the middle: the request may have been carried out or not.
    #[error("{part} failed while the request was carried out: it may have been done or not")]
    Unknown {
        /// The part that failed.
        part: Part,
        /// Why, for the log.
        #[source]
        cause: Option<Cause>,
    },
}

fn invalid_text(field: &str, why: &str) -> String {
    if field.is_empty() { why.to_owned() } else { format!("{field}: {why}") }
}

impl Error {
    /// Something is wrong with the request.
    pub fn invalid(place: InvalidPart, field: impl Into<String>, why: impl Into<String>) -> Self {
        Self::Invalid { place, field: field.into(), why: why.into() }
    }

    /// A part cannot be used, and nothing was written.
    pub fn unavailable(part: Part, cause: impl Into<Cause>) -> Self {
        Self::Unavailable { part, cause: Some(cause.into()) }
    }

    /// What a part stores is damaged, and nothing was written.
    pub fn damaged(part: Part, cause: impl Into<Cause>) -> Self {
        Self::Damaged { part, cause: Some(cause.into()) }
    }

    /// A part failed, and it is unknown how far it got.
    pub fn unknown(part: Part, cause: impl Into<Cause>) -> Self {
        Self::Unknown { part, cause: Some(cause.into()) }
    }

    /// The same failure after something else was written.
    pub fn into_unknown(self) -> Self {
        match self {
            Self::Unavailable { part, cause } | Self::Damaged { part, cause } => {
                Self::Unknown { part, cause }
            }
            other if other.nothing_written() && other.may_retry() => Self::unknown(Part::Server, other),
            other => other,
        }
    }

    /// Whether `error`, or anything it stems from, means that a request did not arrive in time.
    pub fn is_late(error: &(dyn std::error::Error + 'static)) -> bool {
        matches!(Self::within(error), Some(Self::Late))
    }

    /// Whether `error`, or anything it stems from, states that there is no room for the body of a request.
    pub fn is_bodies_full(error: &(dyn std::error::Error + 'static)) -> bool {
        matches!(Self::within(error), Some(Self::BodiesFull))
    }

    /// The first of ours that `error` is or stems from.
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

    /// The word of its code: part of the API, so it never changes.
    pub fn code(&self) -> &'static str {
        self.error_code().as_str()
    }

    /// Its code.
    pub fn error_code(&self) -> ErrorCode {
        match self {
            Self::Invalid { .. } => ErrorCode::Invalid,
            Self::NotFound { .. } => ErrorCode::NotFound,
            Self::Claimed(_) => ErrorCode::Claimed,
            Self::NotClaimed(_) => ErrorCode::NotClaimed,
            Self::ClaimEnded(_) => ErrorCode::ClaimEnded,
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
            Self::Full => ErrorCode::Full,
            Self::TooMany { .. } | Self::TooManyInFlight { .. } => ErrorCode::TooMany,
            Self::TooFast { .. } => ErrorCode::TooFast,
            Self::OverQuota { .. } => ErrorCode::OverQuota,
            Self::Overloaded => ErrorCode::Overloaded,
            Self::BodiesFull => ErrorCode::BodiesFull,
            Self::Late => ErrorCode::Late,
            Self::Moved(_) => ErrorCode::Moved,
            Self::Unavailable { .. } => ErrorCode::Unavailable,
            Self::Damaged { .. } => ErrorCode::Damaged,
            Self::Unknown { .. } => ErrorCode::UnknownOutcome,
        }
    }

    /// Whether the same request may succeed when it is sent again. After an unknown outcome that is for the
    /// client to weigh: it may then be carried out twice.
    pub fn may_retry(&self) -> bool {
        match self {
            Self::Invalid { .. }
            | Self::NotFound { .. }
            | Self::Claimed(_)
            | Self::NotClaimed(_)
            | Self::ClaimEnded(_)
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
            // What is more than all of the quota never fits.
            Self::OverQuota { bound, asked, .. } => asked <= bound,
            Self::NoPool
            | Self::NotDurable(_)
            | Self::Full
            | Self::TooMany { .. }
            | Self::TooManyInFlight { .. }
            | Self::TooFast { .. }
            | Self::Overloaded
            | Self::BodiesFull
            | Self::Late
            | Self::Moved(_)
            | Self::Unavailable { .. }
            | Self::Unknown { .. } => true,
        }
    }

    /// The error with its causes, for a log: its text leaves them out, because it is written for clients.
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

    /// Whether stored data is damaged. The part that met it has logged where.
    pub fn is_damaged(&self) -> bool {
        matches!(self, Self::Damaged { .. })
    }

    /// Whether it is certain that nothing was written.
    pub fn nothing_written(&self) -> bool {
        !matches!(self, Self::Unknown { .. })
    }
}
