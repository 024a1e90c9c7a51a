//! Messages that nobody may be told anything of, or that a claim holds, each with the reason.

use crate::domain::ids::ClaimId;
use crate::domain::message::Header;

/// Why a message is hidden.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// Chosen for a claim that is not durable yet.
    Taking,
    /// Under a claim.
    Claimed(ClaimId),
    /// Its claim ended; what that changed is not durable yet.
    Returning(ClaimId),
    /// Being removed; the claim that holds it, if one does.
    Removing(Option<ClaimId>),
    /// Scheduled or prepared in the pool, and being made ready there.
    Waking,
    /// Being set aside for its move to another queue.
    Leaving,
}

/// What the removal of a message is counted as.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Removed {
    /// Nothing: it was deleted without a claim, or purged.
    #[default]
    Uncounted,
    /// Its claim's holder has handled it, or it was popped.
    Acked,
    /// Its life was over.
    Expired,
}

/// A hidden message. One that is removed by its id alone may not be known here at all.
#[derive(Clone, Debug)]
pub(super) struct Hidden {
    pub(super) header: Option<Header>,
    pub(super) why: Why,
    /// Removals under way: two clients may delete one message at the same time.
    pub(super) removals: u32,
    /// What those are counted as. Without any it says nothing.
    pub(super) removed: Removed,
}

impl Hidden {
    pub(super) fn new(header: Header, why: Why) -> Self {
        Self { header: Some(header), why, removals: 0, removed: Removed::default() }
    }
}
