//! What the steps of a release are told, and told of.

use angarium_core::ids::ClaimId;
use angarium_core::names::QueueRef;

use crate::writer::pending::WriteOutcome;

/// Why a claim ends, for the counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReleaseCause {
    /// Its holder gave it up.
    Released,
    /// Its time had ended.
    Lapsed,
    /// It never came to its holder.
    NeverHeld,
}

/// A claim whose release has begun.
pub(crate) struct BegunRelease {
    pub(crate) claim: ClaimKey,
    /// The write of the headers of its messages; none when it has none.
    pub(crate) headers: Option<WriteOutcome>,
}

/// A claim, with the name of its queue.
#[derive(Clone)]
pub(crate) struct ClaimKey {
    pub(crate) queue: QueueRef,
    pub(crate) claim: ClaimId,
}
