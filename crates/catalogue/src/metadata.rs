//! Changes of the record of a queue: its metadata or its placement.

use std::iter;

use super::{Catalogue, FlavorEntry, OwnedSlot, PoolEntry, QueueRecord, failed, from_json, layout, to_json};
use angarium_coordination::{Fence, Op, Refusal, TreeError};
use angarium_core::error::Error;
use angarium_core::names::QueueRef;

/// The record of a queue and its version when it was read.
#[derive(Clone, Debug)]
pub struct QueueEntry {
    pub record: QueueRecord,
    version: u32,
}

impl QueueEntry {
    /// Returns an operation that replaces the record, and fails if it has changed since it was read.
    pub(super) fn replace_by(&self, path: String, record: &QueueRecord) -> Op {
        Op::Set { path, data: to_json(record), version: Some(self.version) }
    }
}

impl Catalogue {
    /// Reads the record of a queue in order to change it. None when there is no such queue.
    pub async fn queue_entry(&self, slot: &OwnedSlot, queue: &QueueRef) -> Result<Option<QueueEntry>, Error> {
        let Some(node) = self.node(&layout::queue(slot.slot, queue)).await? else { return Ok(None) };
        let mut record = from_json(&node)?;
        self.follow_source(queue, &mut record).await?;
        Ok(Some(QueueEntry { record, version: node.version }))
    }

    /// Replaces the record of a queue in one commit that checks the slot's owner. Returns false when the record has
    /// changed or was deleted since it was read: then the caller reads it again.
    pub async fn queue_set(
        &self,
        slot: &OwnedSlot,
        queue: &QueueRef,
        entry: &QueueEntry,
    ) -> Result<bool, Error> {
        self.queue_replace(slot, queue, entry, &[]).await
    }

    /// Replaces the record of a queue like [`Catalogue::queue_set`], when the new record moves the queue to `pool`, or
    /// relies on the `flavor` of its pool. Returns false also when the record of the pool or of the flavor has changed
    /// since it was read.
    pub async fn queue_place(
        &self,
        slot: &OwnedSlot,
        queue: &QueueRef,
        entry: &QueueEntry,
        pool: &PoolEntry,
        flavor: Option<&FlavorEntry>,
    ) -> Result<bool, Error> {
        let fences: Vec<Fence> = iter::once(pool.fence()).chain(flavor.map(FlavorEntry::fence)).collect();
        self.queue_replace(slot, queue, entry, &fences).await
    }

    async fn queue_replace(
        &self,
        slot: &OwnedSlot,
        queue: &QueueRef,
        entry: &QueueEntry,
        fences: &[Fence],
    ) -> Result<bool, Error> {
        let set = entry.replace_by(layout::queue(slot.slot, queue), &entry.record);
        match self.commit_as_owner(slot, fences, &[set]).await {
            Ok(_) => Ok(true),
            Err(
                TreeError::Fenced(1..)
                | TreeError::Refused { why: Refusal::BadVersion | Refusal::NoNode, .. },
            ) => Ok(false),
            Err(error) => Err(failed(error)),
        }
    }
}
