//! Changing the record of a queue: its metadata, or where it is.

use std::iter;

use super::{Catalogue, FlavorEntry, OwnedSlot, PoolEntry, QueueRecord, failed, from_json, layout, to_json};
use angarium_coordination::{Fence, Op, Refusal, TreeError};
use angarium_core::error::Error;
use angarium_core::names::QueueRef;

/// A record of a queue as it was read, and what states whether it has changed since.
#[derive(Clone, Debug)]
pub struct QueueEntry {
    pub record: QueueRecord,
    version: u32,
}

impl Catalogue {
    /// The record of a queue for a change of it, if there is one.
    pub async fn queue_entry(&self, slot: &OwnedSlot, queue: &QueueRef) -> Result<Option<QueueEntry>, Error> {
        let Some(node) = self.node(&layout::queue(slot.slot, queue)).await? else { return Ok(None) };
        Ok(Some(QueueEntry { record: from_json(&node)?, version: node.version }))
    }

    /// Replaces the record of a queue in one commit that checks the slot's owner. False when it has changed since
    /// it was read, or is gone: then the caller looks again.
    pub async fn queue_set(
        &self,
        slot: &OwnedSlot,
        queue: &QueueRef,
        entry: &QueueEntry,
    ) -> Result<bool, Error> {
        self.queue_replace(slot, queue, entry, &[]).await
    }

    /// As [`Catalogue::queue_set`], of a record that puts the queue into a pool, or relies on the flavor of the one
    /// where it is: false too when the record of the pool or of the flavor is not as it was read.
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
        let path = layout::queue(slot.slot, queue);
        let set = Op::Set { path, data: to_json(&entry.record), version: Some(entry.version) };
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
