//! The targets of the transfers out of a queue, for an explanation of what does not arrive.

use angarium_core::names::QueueRef;

use crate::slot::queue_handle::QueueHandle;

/// A queue that messages of another one are in transfer to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransferTarget {
    /// The queue.
    pub at: QueueRef,
    /// Why the last transfer to it has failed; none while the first one is in progress.
    pub why: Option<String>,
}

impl QueueHandle {
    /// Records the targets that messages of the queue could not leave for yet.
    pub(crate) fn note_transfer_targets(&self, targets: Vec<TransferTarget>) {
        self.lock_queue(|queue| queue.targets = targets);
    }
}
