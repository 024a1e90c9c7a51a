//! Recent acts on the queues of a slot that must not be repeated at once: one node for each slot that had any.

use serde::{Deserialize, Serialize};

use super::{Catalogue, OwnedSlot, failed, from_json, layout, to_json};
use angarium_coordination::{Op, Refusal, TreeError};
use angarium_core::error::Error;
use angarium_core::names::{QueueRef, address};

/// An act on a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Act {
    /// All its messages were purged.
    Purge,
    /// The queue was deleted.
    Deletion,
}

/// A recorded act on a queue. The queue is identified by its name, whether it still exists or not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActRecord {
    #[serde(flatten, with = "address")]
    pub at: QueueRef,
    pub act: Act,
    /// Start of the act in milliseconds since the Unix epoch.
    pub since: u64,
}

impl Catalogue {
    /// Returns the recorded acts on the queues of a slot, the oldest first.
    pub async fn noted_acts(&self, slot: &OwnedSlot) -> Result<Vec<ActRecord>, Error> {
        let node = self.node(&layout::pauses(slot.slot)).await?;
        Ok(node.as_ref().map(from_json).transpose()?.unwrap_or_default())
    }

    /// Replaces the recorded acts of a slot. The caller must serialize its reads and writes within this process.
    pub async fn noted_acts_write(&self, slot: &OwnedSlot, acts: &[ActRecord]) -> Result<(), Error> {
        let (path, data) = (layout::pauses(slot.slot), to_json(&acts));
        let set = Op::Set { path: path.clone(), data: data.clone(), version: None };
        match self.commit_as_owner(slot, &[], &[set]).await {
            Err(TreeError::Refused { why: Refusal::NoNode, .. }) => {}
            written => return written.map(drop).map_err(failed),
        }
        self.commit_as_owner(slot, &[], &[Op::create(path, data)]).await.map(drop).map_err(failed)
    }
}
