//! What SQS refuses to do again at once: to purge a queue twice within a minute, and to make one within a minute of its
//! deletion. It is off unless the settings turn it on.

use super::fault::{Fault, Kind};
use angarium_broker::{Act, Broker};
use angarium_core::names::QueueRef;

/// Whether such pauses are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pauses {
    /// Everything may be done at once.
    Off,
    /// As in SQS.
    Kept,
}

impl Pauses {
    /// Begins a purge, unless one was begun lately.
    pub async fn begin_purge(self, broker: &Broker, queue: &QueueRef) -> Result<(), Fault> {
        if self == Self::Off || broker.act_begin(queue, Act::Purge).await? {
            return Ok(());
        }
        let why = format!("Only one PurgeQueue operation on {} is allowed every 60 seconds.", queue.name);
        Err(Fault::new(Kind::PurgeQueueInProgress, why))
    }

    /// Begins the deletion of a queue, which is never refused: it may have been recreated through REST.
    pub async fn begin_deletion(self, broker: &Broker, queue: &QueueRef) -> Result<(), Fault> {
        if self == Self::Kept {
            broker.act_begin(queue, Act::Deletion).await?;
        }
        Ok(())
    }

    /// Refuses a queue that was deleted lately. One that is there is not refused: its deletion may have failed, or it
    /// was made again through REST.
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
