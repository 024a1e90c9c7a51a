//! What was done to queues of a slot lately, and must not be done again at once: one node for each slot where there was any.

use serde::{Deserialize, Serialize};

use super::{Catalogue, OwnedSlot, failed, from_json, layout, to_json};
use angarium_coordination::{Op, Refusal, TreeError};
use angarium_core::error::Error;
use angarium_core::names::{QueueRef, address};

/// What is done to a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Act {
    /// All its messages are removed.
    Purge,
    /// It is deleted itself.
    Deletion,
}

/// An act on a queue, by its name: whether the queue is there still does not matter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActRecord {
    #[serde(flatten, with = "address")]
    pub at: QueueRef,
    /// What was done to it.
    pub act: Act,
    /// When that began, in milliseconds since 1970.
    pub since: u64,
}

impl Catalogue {
    /// What is noted of the queues of a slot, the oldest first.
    pub async fn noted_acts(&self, slot: &OwnedSlot) -> Result<Vec<ActRecord>, Error> {
        let node = self.node(&layout::pauses(slot.slot)).await?;
        Ok(node.as_ref().map(from_json).transpose()?.unwrap_or_default())
    }

    /// Notes these acts in place of those before. The task that reads and writes them keeps others of the same
    /// process away.
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
