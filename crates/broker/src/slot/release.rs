//! Parameters and results of the steps of a release.

use angarium_core::ids::ClaimId;
use angarium_core::names::QueueRef;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::writer::pending::WriteOutcome;

/// Why a claim ends, for the counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReleaseCause {
    /// The holder released it.
    Released,
    /// It expired.
    Lapsed,
    /// It never reached its holder.
    NeverHeld,
}

/// A claim whose release has begun.
pub(crate) struct BegunRelease {
    pub(crate) claim: ClaimKey,
    /// The write of its messages' headers; none when it has no message.
    pub(crate) headers: Option<WriteOutcome>,
    /// Until the record of the claim is deleted, the slot is not handed over and the queue not deleted.
    pub(crate) in_use: TaskTrackerToken,
}

/// A claim, with the name of its queue.
#[derive(Clone)]
pub(crate) struct ClaimKey {
    pub(crate) queue: QueueRef,
    pub(crate) claim: ClaimId,
}
