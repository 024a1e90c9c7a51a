//! Records of deleted queues, and of former incarnations of queues, whose messages and claims are not removed yet (P4).

use serde::{Deserialize, Serialize};

use super::{Catalogue, OwnedSlot, PoolEntry, QueueEntry, QueueRecord, failed, from_json, layout, to_json};
use angarium_coordination::{Node, Op, Refusal, TreeError};
use angarium_core::error::{Error, Part};
use angarium_core::ids::QueueId;
use angarium_core::mutation::{Mutation, is_on};
use angarium_core::names::{PoolName, QueueRef, address};

/// The stored record of a deleted queue.
#[derive(Serialize, Deserialize)]
pub(super) struct DroppedRecord {
    /// The pools that held it.
    pub(super) placement: Vec<String>,
    /// Its name, if it may have had subscriptions: they are deleted with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    source: Option<StoredAddress>,
}

/// A queue in a record.
#[derive(Serialize, Deserialize)]
struct StoredAddress {
    #[serde(flatten, with = "address")]
    at: QueueRef,
}

impl DroppedRecord {
    fn of(queue: &QueueRef, record: &QueueRecord) -> Result<Self, Error> {
        Ok(Self {
            placement: record.placement()?.pools().map(ToString::to_string).collect(),
            source: record.has_subscriptions.then(|| StoredAddress { at: queue.clone() }),
        })
    }
}

/// Returns the error of a commit whose second operation creates a [`DroppedRecord`].
fn removal_failed(error: TreeError) -> Error {
    match error {
        // The directory has the bound of every directory. Its queues are being removed.
        TreeError::Refused { op: 1, why: Refusal::Full } => Error::TooMany {
            what: "deleted queues waiting for removal in one slot",
            bound: angarium_core::limits::TREE_CHILDREN,
        },
        error => failed(error),
    }
}

/// A deleted queue that may still have data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DroppedQueue {
    /// The deleted incarnation.
    pub id: QueueId,
    /// The pools that held it.
    pub placement: Vec<PoolName>,
    /// Its name, if its subscriptions are to be deleted with it.
    pub source: Option<QueueRef>,
}

/// The records of holds that a queue has.
#[derive(Clone, Copy, Debug, Default)]
pub struct HeldRecords {
    /// Whether it is held.
    pub queue: bool,
    /// Whether some of its groups are.
    pub groups: bool,
}

impl Catalogue {
    /// Deletes the record of a queue and creates a record of the pending removal, in one commit. A queue that is
    /// already deleted is no error. The holds of a queue and of its groups are deleted with it: a queue that is created
    /// under the same name later is not held. After the last queue of a project in the slot, the project's directory is removed
    /// too, if possible: clients choose the ids of their projects, and the number of projects per slot is bounded.
    pub async fn queue_delete(
        &self,
        slot: &OwnedSlot,
        queue: &QueueRef,
        record: &QueueRecord,
        held: HeldRecords,
    ) -> Result<(), Error> {
        let mut ops = vec![Op::Delete { path: layout::queue(slot.slot, queue) }];
        if !is_on(Mutation::DeleteWithoutNote) {
            ops.push(Op::create(
                layout::dropped(slot.slot, record.id),
                to_json(&DroppedRecord::of(queue, record)?),
            ));
        }
        if held.queue {
            ops.push(Op::Delete { path: layout::hold(slot.slot, queue) });
        }
        if held.groups {
            ops.push(Op::Delete { path: layout::group_holds(slot.slot, queue) });
        }
        match self.commit_as_owner(slot, &[], &ops).await {
            Ok(_) | Err(TreeError::Refused { op: 0, why: Refusal::NoNode }) => {
                self.remove_if_empty(slot, queue).await;
                Ok(())
            }
            Err(error) => Err(removal_failed(error)),
        }
    }

    /// Replaces the record of a queue by that of a new incarnation, which is empty in another pool, and creates a record
    /// of the pending removal of the former one, in one commit. Relies on the records of the new and of the former pool.
    /// Returns false when one of these or the record of the queue has changed since it was read: then the caller reads
    /// them again.
    pub async fn queue_restart(
        &self,
        slot: &OwnedSlot,
        queue: &QueueRef,
        former: &QueueEntry,
        record: &QueueRecord,
        pools: [&PoolEntry; 2],
    ) -> Result<bool, Error> {
        let ops = [
            former.replace_by(layout::queue(slot.slot, queue), record),
            Op::create(
                layout::dropped(slot.slot, former.record.id),
                to_json(&DroppedRecord::of(queue, &former.record)?),
            ),
        ];
        match self.commit_as_owner(slot, &pools.map(PoolEntry::fence), &ops).await {
            Ok(_) => Ok(true),
            Err(
                TreeError::Fenced(1..)
                | TreeError::Refused { op: 0, why: Refusal::BadVersion | Refusal::NoNode },
            ) => Ok(false),
            Err(error) => Err(removal_failed(error)),
        }
    }

    /// Removes the directory of a project that has no queues in a slot. A failure leaves an empty directory, which only
    /// counts towards the bound. The next creation of a queue there creates the directory again.
    async fn remove_if_empty(&self, slot: &OwnedSlot, queue: &QueueRef) {
        let path = layout::project(slot.slot, &queue.project);
        let is_empty = |node: Node| node.children == 0;
        if self.node(&path).await.is_ok_and(|node| node.is_some_and(is_empty)) {
            let _ = self.commit_as_owner(slot, &[], &[Op::Delete { path }]).await;
        }
    }

    /// Returns the deleted queues of a slot that are not removed yet.
    pub async fn dropped(&self, slot: &OwnedSlot) -> Result<Vec<DroppedQueue>, Error> {
        let mut found = Vec::new();
        for element in self.tree.children(&layout::slot_dropped(slot.slot)).await.map_err(failed)? {
            let damaged = |error| Error::unavailable(Part::Coordination, error);
            let id: QueueId = element.parse().map_err(|error: uuid::Error| damaged(error.to_string()))?;
            let Some(node) = self.node(&layout::dropped(slot.slot, id)).await? else { continue };
            let dropped: DroppedRecord = from_json(&node)?;
            let names = dropped.placement.iter().map(|name| PoolName::new(name));
            let placement = names.collect::<Result<_, _>>().map_err(|error| damaged(error.to_string()))?;
            found.push(DroppedQueue { id, placement, source: dropped.source.map(|source| source.at) });
        }
        Ok(found)
    }

    /// Deletes the record of a deleted queue, once nothing of the queue is left.
    pub async fn dropped_delete(&self, slot: &OwnedSlot, id: QueueId) -> Result<(), Error> {
        let op = Op::Delete { path: layout::dropped(slot.slot, id) };
        match self.commit_as_owner(slot, &[], &[op]).await {
            Ok(_) | Err(TreeError::Refused { why: Refusal::NoNode, .. }) => Ok(()),
            Err(error) => Err(failed(error)),
        }
    }
}
