//! Records of queues: id, placement and metadata in one node, so that they cannot disagree.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{Catalogue, FlavorEntry, OwnedSlot, PoolEntry, failed, from_json, layout, to_json};
use crate::coordination::{Op, Refusal, TreeError};
use crate::domain::ids::QueueId;
use crate::domain::names::{PoolName, QueueRef};
use crate::domain::queue::Metadata;
use crate::domain::time::Timestamp;
use crate::error::{Error, Part};

/// A queue as it is stored.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct QueueRecord {
    /// This incarnation of the queue.
    pub id: QueueId,
    /// The pools it lies in: one, or two while it moves from the first to the second.
    pub placement: Vec<String>,
    /// A JSON object.
    pub metadata: Box<RawValue>,
    /// Milliseconds since the Unix epoch.
    pub created: u64,
    /// When its metadata was last changed, likewise; absent when it never was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modified: Option<u64>,
}

/// Where a queue lies: the part of its record, or of what is left of it, that says so.
#[derive(Deserialize)]
pub(super) struct Placed {
    pub(super) placement: Vec<String>,
}

impl QueueRecord {
    /// A queue that lies in one pool.
    pub fn new(id: QueueId, pool: &PoolName, metadata: &Metadata, created: Timestamp) -> Self {
        Self {
            id,
            placement: vec![pool.as_str().to_owned()],
            metadata: metadata.as_raw().to_owned(),
            created: created.as_millis(),
            modified: None,
        }
    }

    /// The pool that takes its new messages: the last of its placement.
    pub fn pool(&self) -> Result<PoolName, Error> {
        let name = self.placement.last().map_or("", String::as_str);
        PoolName::new(name).map_err(|error| Error::unavailable(Part::Coordination, error))
    }

    /// All pools of its placement.
    pub fn pools(&self) -> Result<Vec<PoolName>, Error> {
        let names = self.placement.iter().map(|name| PoolName::new(name));
        names.collect::<Result<_, _>>().map_err(|error| Error::unavailable(Part::Coordination, error))
    }
}

impl Catalogue {
    /// The record of a queue, if there is one.
    pub async fn queue(&self, slot: &OwnedSlot, queue: &QueueRef) -> Result<Option<QueueRecord>, Error> {
        let node = self.node(&layout::queue(slot.slot, queue)).await?;
        node.as_ref().map(from_json).transpose()
    }

    /// Records a queue in one commit that checks the slot's owner and that its pool, and the flavor that chose it,
    /// are as they were read.
    ///
    /// False when one of them has changed since, or the queue exists: then the caller looks again.
    pub async fn queue_create(
        &self,
        slot: &OwnedSlot,
        queue: &QueueRef,
        record: &QueueRecord,
        pool: &PoolEntry,
        flavor: Option<&FlavorEntry>,
    ) -> Result<bool, Error> {
        let mut fences = vec![pool.fence()];
        fences.extend(flavor.map(FlavorEntry::fence));
        let node = Op::create(layout::queue(slot.slot, queue), to_json(record));
        let directory = Op::create(layout::project(slot.slot, &queue.project), "{}");
        let mut outcome = self.commit_as_owner(slot, &fences, std::slice::from_ref(&node)).await;
        if let Err(TreeError::Refused { why: Refusal::NoNode, .. }) = outcome {
            outcome = self.commit_as_owner(slot, &fences, &[directory, node]).await;
        }
        match outcome {
            Ok(_) => Ok(true),
            Err(TreeError::Fenced(1..) | TreeError::Refused { why: Refusal::NodeExists, .. }) => Ok(false),
            Err(TreeError::Refused { why: Refusal::Full, .. }) => Err(Error::TooMany {
                what: "queues of this project in one slot",
                bound: crate::domain::limits::TREE_CHILDREN,
            }),
            Err(error) => Err(failed(error)),
        }
    }
}
