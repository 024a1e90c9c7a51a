//! The log of stored queue attributes that have no effect.

use angarium_core::maps::HashSet;
use angarium_core::names::QueueRef;
use angarium_core::queue::Metadata;
use parking_lot::Mutex;
use tracing::warn;

use crate::limits;

/// Queues whose ignored attributes were logged. The lock is held for one look-up, by an opening.
#[derive(Default)]
pub(crate) struct IgnoredAttributes {
    logged: Mutex<HashSet<QueueRef>>,
}

impl IgnoredAttributes {
    /// Logs the ignored attributes of a queue, once per queue, for at most [`limits::IGNORED_LOGGED`] queues.
    pub(crate) fn log(&self, at: &QueueRef, metadata: &Metadata) {
        if metadata.ignored().is_empty() {
            return;
        }
        let mut logged = self.logged.lock();
        if logged.len() >= limits::IGNORED_LOGGED || !logged.insert(at.clone()) {
            return;
        }
        drop(logged);
        for ignored in metadata.ignored() {
            let (key, error) = (ignored.key, ignored.why.as_str());
            warn!(project = %at.project, queue = %at.name, key, error, "stored attribute ignored");
        }
    }
}
