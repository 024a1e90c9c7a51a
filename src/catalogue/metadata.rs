//! Changing the metadata in a queue's record.

use super::{Catalogue, OwnedSlot, QueueRecord, failed, from_json, layout, to_json};
use crate::coordination::{Op, Refusal, TreeError};
use crate::domain::names::QueueRef;
use crate::error::Error;

/// A record of a queue as it was read, and what says whether it has changed since.
#[derive(Clone, Debug)]
pub struct QueueEntry {
    /// The record.
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
        let path = layout::queue(slot.slot, queue);
        let set = Op::Set { path, data: to_json(&entry.record), version: Some(entry.version) };
        match self.commit_as_owner(slot, &[], &[set]).await {
            Ok(_) => Ok(true),
            Err(TreeError::Refused { why: Refusal::BadVersion | Refusal::NoNode, .. }) => Ok(false),
            Err(error) => Err(failed(error)),
        }
    }
}
