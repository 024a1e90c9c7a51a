//! The metadata of a target that a transfer makes.

use angarium_core::error::Error;
use angarium_core::message::{Header, Retention};
use angarium_core::queue::Metadata;

/// The retention that a target has which is made for these messages of a source: theirs at the source, so that none expires
/// earlier than it would have there. None when they do not live by the queue that they are in.
pub(crate) fn retention_of(headers: &[Header], source: Retention) -> Option<u32> {
    let is_retained = headers.iter().any(|header| header.life.retained_since().is_some());
    is_retained.then_some(source.seconds())
}

/// A target that a transfer makes when there is none.
pub(crate) struct MadeTarget {
    /// Whether it keeps the order of groups.
    pub(crate) is_ordered: bool,
    /// Its retention in seconds, if it has one of its own.
    pub(crate) retention: Option<u32>,
}

impl MadeTarget {
    pub(crate) fn metadata(&self) -> Result<Metadata, Error> {
        let metadata = if self.is_ordered { Metadata::fifo() } else { Metadata::empty() };
        self.retention.into_iter().try_fold(metadata, Metadata::with_message_ttl)
    }
}
