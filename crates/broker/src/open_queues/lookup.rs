//! Open queues whose existence a caller requires.

use angarium_catalogue::{Placement, QueueEntry};
use angarium_core::attributes::Attributes;
use angarium_core::error::{Error, Resource};
use angarium_core::ids::QueueId;
use angarium_core::names::QueueRef;

use crate::open_queues::OpenQueues;
use crate::slot::slot_queue::SlotQueue;

/// A queue that exists and is open.
pub(crate) struct ExistingQueue {
    pub(crate) id: QueueId,
    pub(crate) attributes: Attributes,
}

/// The record of an open queue, and the pools that the record names.
pub(crate) struct PlacedQueue {
    pub(crate) entry: QueueEntry,
    pub(crate) placement: Placement,
}

impl OpenQueues {
    /// Opens a queue that must exist.
    pub(crate) async fn opened(&self, at: &QueueRef) -> Result<ExistingQueue, Error> {
        let queue = self.0.slots.queue(at).await?;
        let Some(queue) = self.open(&queue).await? else {
            return self.0.slots.check_ours(queue.slot()).and(Err(no_queue(at)));
        };
        let attributes = queue.attributes().ok_or_else(|| queue.closed())?;
        Ok(ExistingQueue { id: queue.id(), attributes })
    }

    /// Opens a queue, and returns its record and its pools. The caller holds the gate of the queue.
    pub(crate) async fn placed(&self, queue: &SlotQueue) -> Result<PlacedQueue, Error> {
        let missing = || no_queue(queue.at());
        self.open_gated(queue).await?.ok_or_else(missing)?;
        let entry = queue.entry().await?.ok_or_else(missing)?;
        let placement = entry.record.placement()?;
        Ok(PlacedQueue { entry, placement })
    }
}

pub(crate) fn no_queue(at: &QueueRef) -> Error {
    let resource = if at.name.is_topic() { Resource::Topic } else { Resource::Queue };
    Error::NotFound { resource, name: at.name.to_string() }
}
