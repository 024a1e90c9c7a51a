//! Open queues that a caller needs to exist.

use std::sync::Arc;

use angarium_catalogue::{Placement, QueueEntry};
use angarium_core::attributes::Attributes;
use angarium_core::error::{Error, Resource};
use angarium_core::ids::QueueId;
use angarium_core::names::QueueRef;

use crate::open_queues::OpenQueues;
use crate::slot::state::Slot;

impl OpenQueues {
    /// A queue that must exist: its id, and what its attributes say.
    pub(crate) async fn opened(&self, at: &QueueRef) -> Result<(QueueId, Attributes), Error> {
        let slot = self.0.slots.slot(at).await?;
        let Some(queue) = self.open(&slot, at).await? else {
            let missing = Error::NotFound { resource: Resource::Queue, name: at.name.to_string() };
            return self.0.slots.check_ours(&slot).and(Err(missing));
        };
        let attributes = queue.attributes().ok_or_else(|| queue.closed())?;
        Ok((queue.id(), attributes))
    }

    /// The record of a queue, which is opened, and where it is. The caller holds the gate.
    pub(crate) async fn placed(
        &self,
        slot: &Arc<Slot>,
        at: &QueueRef,
    ) -> Result<(QueueEntry, Placement), Error> {
        if self.open_gated(slot, at).await?.is_none() {
            return Err(no_queue(at));
        }
        let entry =
            self.0.replica.catalogue.queue_entry(&slot.owned, at).await?.ok_or_else(|| no_queue(at))?;
        let placement = entry.record.placement()?;
        Ok((entry, placement))
    }
}

pub(crate) fn no_queue(at: &QueueRef) -> Error {
    Error::NotFound { resource: Resource::Queue, name: at.name.to_string() }
}
