//! Meaning of the client's errors: refused, certainly not done, or unknown.

use zookeeper_client::Error as ZkError;

use super::{Refusal, TreeError};

/// Meaning of an error for the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The server refused the request because of the state of the tree.
    Refused(Refusal),
    /// The server refused the request for another reason. It was not done, and an immediate retry does not help.
    NotDone,
    /// The request may have been done, or may still be done: the connection was lost, and the answer with it.
    Unknown,
}

/// Classifies an error. This client reports a lost connection in several ways (`ConnectionLoss`, `Custom`, an answer
/// that does not parse), and future versions may add more. So every error that is not a known refusal means an unknown
/// outcome.
pub(super) fn verdict(error: &ZkError) -> Verdict {
    match error {
        // The parent is ephemeral: this product never writes below such a node.
        ZkError::NoNode | ZkError::NoChildrenForEphemerals => Verdict::Refused(Refusal::NoNode),
        ZkError::NodeExists => Verdict::Refused(Refusal::NodeExists),
        ZkError::BadVersion => Verdict::Refused(Refusal::BadVersion),
        ZkError::NotEmpty => Verdict::Refused(Refusal::NotEmpty),
        ZkError::BadArguments(_)
        | ZkError::NoAuth
        | ZkError::InvalidAcl
        | ZkError::NotReadOnly
        | ZkError::QuotaExceeded
        | ZkError::Throttled
        | ZkError::MarshallingError
        | ZkError::Unimplemented => Verdict::NotDone,
        _ => Verdict::Unknown,
    }
}

/// Returns the error for a caller whose request was not done, for a reason other than the state of the tree.
pub(super) fn not_sent(cause: &ZkError) -> TreeError {
    TreeError::NotSent(cause.to_string())
}
