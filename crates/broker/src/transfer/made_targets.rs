//! The metadata of a target queue that a transfer creates.

use angarium_core::error::Error;
use angarium_core::message::{Header, Retention};
use angarium_core::queue::Metadata;

use crate::open_queues::create::QuotaCheck;

/// Returns the retention, in seconds, of a target that is created for these messages: that of the source, so that no
/// message expires earlier than it would have there. None when no message lives by the retention of its queue.
pub(crate) fn retention_of(headers: &[Header], source: Retention) -> Option<u32> {
    let is_retained = headers.iter().any(|header| header.life.retained_since().is_some());
    is_retained.then_some(source.seconds())
}

/// Returns whether these messages were all forwarded or moved, and none is a dead letter. A queue that is created for
/// them needs room in the quota of its project.
pub(crate) fn needs_quota(headers: &[Header]) -> bool {
    let arrives = |header: &Header| header.extras.as_ref().is_some_and(|extras| extras.arrival.is_some());
    headers.iter().all(arrives)
}

/// Returns whether a target that is created for these messages keeps the order of groups whatever its name: for dead
/// letters it is as their source, so that they keep their order. The name alone decides the kind of any other target.
pub(crate) fn is_ordered_by_source(headers: &[Header], is_source_ordered: bool) -> bool {
    is_source_ordered && !needs_quota(headers)
}

/// A target queue that a transfer creates if it does not exist.
pub(crate) struct MadeTarget {
    /// Whether the queue keeps the order of groups whatever its name.
    pub(crate) is_ordered: bool,
    /// Its retention in seconds, if it has one of its own.
    pub(crate) retention: Option<u32>,
    /// Whether it needs room in the quota of its project.
    pub(crate) needs_quota: bool,
}

impl MadeTarget {
    pub(crate) const fn check(&self) -> QuotaCheck {
        if self.needs_quota { QuotaCheck::Project } else { QuotaCheck::Exempt }
    }

    pub(crate) fn metadata(&self) -> Result<Metadata, Error> {
        let metadata = if self.is_ordered { Metadata::fifo() } else { Metadata::empty() };
        self.retention.into_iter().try_fold(metadata, Metadata::with_message_ttl)
    }
}
