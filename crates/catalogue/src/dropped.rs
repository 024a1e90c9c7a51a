//! Records of queues that are deleted, and whose messages and claims are still to be cleaned away (P4).

use serde::{Deserialize, Serialize};

use super::queues::StoredPlacement;
use super::{Catalogue, OwnedSlot, QueueRecord, failed, from_json, layout, to_json};
use angarium_coordination::{Node, Op, Refusal, TreeError};
use angarium_core::error::{Error, Part};
use angarium_core::ids::QueueId;
use angarium_core::names::{PoolName, QueueRef};

/// A deleted queue as it is stored.
#[derive(Serialize, Deserialize)]
struct DroppedRecord {
    /// The pools it lay in.
    placement: Vec<String>,
}

/// A deleted queue of which something may be left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DroppedQueue {
    /// The incarnation that is gone.
    pub id: QueueId,
    /// The pools it lay in.
    pub placement: Vec<PoolName>,
}

impl Catalogue {
    /// Deletes the record of a queue and notes what is to be cleaned, in one commit. A queue that is gone stays so.
    /// With the last queue of a project in the slot its directory leaves, if it can: a client chooses the regions of
    /// its projects, and the projects of a slot have a bound.
    pub async fn queue_delete(
        &self,
        slot: &OwnedSlot,
        queue: &QueueRef,
        record: &QueueRecord,
    ) -> Result<(), Error> {
        let placement = record.placement()?.pools().map(ToString::to_string).collect();
        let note = DroppedRecord { placement };
        let ops = [
            Op::Delete { path: layout::queue(slot.slot, queue) },
            Op::create(layout::dropped(slot.slot, record.id), to_json(&note)),
        ];
        match self.commit_as_owner(slot, &[], &ops).await {
            Ok(_) | Err(TreeError::Refused { op: 0, why: Refusal::NoNode }) => {
                self.remove_if_empty(slot, queue).await;
                Ok(())
            }
            // It is bounded as every directory is; what is in it is being cleaned.
            Err(TreeError::Refused { op: 1, why: Refusal::Full }) => Err(Error::TooMany {
                what: "deleted queues waiting for removal in one slot",
                bound: angarium_core::limits::TREE_CHILDREN,
            }),
            Err(error) => Err(failed(error)),
        }
    }

    /// Removes the directory of a project without queues in a slot. What fails leaves it, which costs nothing but its place; who
    /// creates a queue there makes it again.
    async fn remove_if_empty(&self, slot: &OwnedSlot, queue: &QueueRef) {
        let path = layout::project(slot.slot, &queue.project);
        let is_empty = |node: Node| node.children == 0;
        if self.node(&path).await.is_ok_and(|node| node.is_some_and(is_empty)) {
            let _ = self.commit_as_owner(slot, &[], &[Op::Delete { path }]).await;
        }
    }

    /// The queues of a slot that are deleted and not yet cleaned away.
    pub async fn dropped(&self, slot: &OwnedSlot) -> Result<Vec<DroppedQueue>, Error> {
        let mut found = Vec::new();
        for element in self.tree.children(&layout::slot_dropped(slot.slot)).await.map_err(failed)? {
            let damaged = |error| Error::unavailable(Part::Coordination, error);
            let id: QueueId = element.parse().map_err(|error: uuid::Error| damaged(error.to_string()))?;
            let Some(node) = self.node(&layout::dropped(slot.slot, id)).await? else { continue };
            let placed: StoredPlacement = from_json(&node)?;
            let names = placed.placement.iter().map(|name| PoolName::new(name));
            let placement = names.collect::<Result<_, _>>().map_err(|error| damaged(error.to_string()))?;
            found.push(DroppedQueue { id, placement });
        }
        Ok(found)
    }

    /// Removes the note of a deleted queue: nothing of it is left.
    pub async fn dropped_delete(&self, slot: &OwnedSlot, id: QueueId) -> Result<(), Error> {
        let op = Op::Delete { path: layout::dropped(slot.slot, id) };
        match self.commit_as_owner(slot, &[], &[op]).await {
            Ok(_) | Err(TreeError::Refused { why: Refusal::NoNode, .. }) => Ok(()),
            Err(error) => Err(failed(error)),
        }
    }
}
