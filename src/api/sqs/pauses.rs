//! Minimum pauses as in SQS: between two purges of a queue, and between the deletion of a queue and its creation, one
//! minute each. They are off unless the settings turn them on.

use super::fault::{Fault, Kind};
use angarium_broker::{Act, Broker};
use angarium_core::names::QueueRef;

/// Whether the pauses are enforced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pauses {
    /// No operation has to wait.
    Off,
    /// The pauses of SQS are enforced.
    Kept,
}

impl Pauses {
    /// Begins a purge; fails if another one began recently.
    pub async fn begin_purge(self, broker: &Broker, queue: &QueueRef) -> Result<(), Fault> {
        if self == Self::Off || broker.act_begin(queue, Act::Purge).await? {
            return Ok(());
        }
        let why = format!("Only one PurgeQueue operation on {} is allowed every 60 seconds.", queue.name);
        Err(Fault::new(Kind::PurgeQueueInProgress, why))
    }

    /// Records the deletion of a queue. It is never refused, because the queue may have been recreated through REST.
    pub async fn begin_deletion(self, broker: &Broker, queue: &QueueRef) -> Result<(), Fault> {
        if self == Self::Kept {
            broker.act_begin(queue, Act::Deletion).await?;
        }
        Ok(())
    }

    /// Refuses to create a queue that was deleted recently. If the queue exists, it is not refused: its deletion may
    /// have failed, or it was recreated through REST.
    pub async fn check_creation(self, broker: &Broker, queue: &QueueRef) -> Result<(), Fault> {
        if self == Self::Kept
            && broker.is_recent(queue, Act::Deletion).await?
            && broker.queue_metadata(queue).await?.is_none()
        {
            let why = "You must wait 60 seconds after deleting a queue before you can create another with the same name.";
            return Err(Fault::new(Kind::QueueDeletedRecently, why));
        }
        Ok(())
    }
}
