//! Gates of the transfers into and out of a queue, whichever replica serves its slot (P5).

use tokio::sync::OwnedMutexGuard;
use tokio::time::timeout;

use angarium_core::error::Error;
use angarium_core::names::QueueRef;

use crate::limits;
use crate::slots::Slots;

impl Slots {
    /// Holds the transfers into a queue, from the first write there to the last.
    ///
    /// # Errors
    ///
    /// Busy when another task has held them for [`limits::CLOSE_DEADLINE`].
    pub(crate) async fn hold_transfers(&self, target: &QueueRef) -> Result<OwnedMutexGuard<()>, Error> {
        let held = timeout(limits::CLOSE_DEADLINE, self.0.table.moves.hold(target)).await;
        held.map_err(|_| {
            Error::Busy("messages are in transfer into the queue, please try again in a few seconds")
        })
    }

    /// Holds the removals of transferred messages from a queue, so that a replaced owner of their target removes
    /// nothing after its successor got an answer.
    pub(crate) async fn hold_outgoing(&self, source: &QueueRef) -> OwnedMutexGuard<()> {
        self.0.table.removals.hold(source).await
    }
}
