//! What the errors of the client mean: refused, certainly not done, or unknown.

use zookeeper_client::Error as ZkError;

use super::{Refusal, TreeError};

/// What an error states about the request that it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The server looked at it and refused it for what is in the tree.
    Refused(Refusal),
    /// The server refused it for another reason. It was not done, and asking again does not help at once.
    NotDone,
    /// It may have been done, or be done still: the connection went, and with it the answer.
    Unknown,
}

/// Sorts an error. Connection loss has several faces in this client (`ConnectionLoss`, `Custom`, an answer that
/// does not parse), and new ones may come: whatever is not known to be a refusal leaves the outcome unknown.
pub(super) fn verdict(error: &ZkError) -> Verdict {
    match error {
        // The parent is ephemeral: no node that this product writes below.
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

/// What a caller is told when nothing was done for another reason than what is in the tree.
pub(super) fn not_sent(cause: &ZkError) -> TreeError {
    TreeError::NotSent(cause.to_string())
}
