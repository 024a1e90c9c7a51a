//! Records of queues: id, placement and metadata in one node, so that they cannot disagree.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{Catalogue, FlavorEntry, OwnedSlot, PoolEntry, failed, from_json, layout, to_json};
use angarium_coordination::{Op, Refusal, TreeError};
use angarium_core::error::{Error, Part};
use angarium_core::ids::QueueId;
use angarium_core::names::{PoolName, QueueRef};
use angarium_core::queue::Metadata;
use angarium_core::time::Timestamp;

/// A queue as it is stored.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct QueueRecord {
    /// This incarnation of the queue.
    pub id: QueueId,
    /// The pools it is in: one; or, while it moves from one to another, both and [`MOVES`].
    pub placement: Vec<String>,
    /// A JSON object.
    pub metadata: Box<RawValue>,
    /// Milliseconds since the Unix epoch.
    pub created: u64,
    /// When its metadata was last changed, likewise; absent when it never was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modified: Option<u64>,
    /// What is known of its migration, while it moves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub migration: Option<MigrationRecord>,
}

/// The migration of a queue as it is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MigrationRecord {
    /// Milliseconds since the Unix epoch at which it began, or was turned round.
    pub started: u64,
    /// Messages a second that are copied at most; without a bound when it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<u32>,
    /// Whether it was canceled, and returns to where it came from.
    #[serde(default)]
    pub is_canceled: bool,
}

/// The third element of the placement of a queue that moves. It names no pool, so that a program which knows no
/// migration and would look into the last pool only refuses the queue (503) instead of serving a half of it.
const MOVES: &str = "";

/// The pools that a queue is in.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Placement {
    /// The one that takes what is new.
    pub pool: PoolName,
    /// The one that it leaves, while it moves.
    pub older: Option<PoolName>,
}

impl Placement {
    pub fn one(pool: PoolName) -> Self {
        Self { pool, older: None }
    }

    /// Both pools, the older one first, or the only one.
    pub fn pools(&self) -> impl Iterator<Item = &PoolName> {
        self.older.iter().chain([&self.pool])
    }

    /// Whether something of the queue may lie in a pool.
    pub fn contains(&self, pool: &PoolName) -> bool {
        self.pools().any(|name| name == pool)
    }

    /// As it is recorded.
    fn stored(&self) -> Vec<String> {
        match &self.older {
            None => vec![self.pool.to_string()],
            Some(older) => vec![older.to_string(), self.pool.to_string(), MOVES.to_owned()],
        }
    }
}

/// Where a queue is: the part of its record, or of what is left of it, that reports it.
#[derive(Deserialize)]
pub(super) struct StoredPlacement {
    pub(super) placement: Vec<String>,
}

impl QueueRecord {
    pub fn new(id: QueueId, pool: &PoolName, metadata: &Metadata, created: Timestamp) -> Self {
        Self {
            id,
            placement: vec![pool.as_str().to_owned()],
            metadata: metadata.as_raw().to_owned(),
            created: created.as_millis(),
            modified: None,
            migration: None,
        }
    }

    /// The pools that it is in.
    pub fn placement(&self) -> Result<Placement, Error> {
        let damaged = || Error::unavailable(Part::Coordination, "the placement of a queue is damaged");
        let pool = |name: &String| PoolName::new(name).map_err(|_| damaged());
        match &self.placement[..] {
            [only] => Ok(Placement::one(pool(only)?)),
            [older, newer, moves] if moves == MOVES => {
                Ok(Placement { pool: pool(newer)?, older: Some(pool(older)?) })
            }
            _ => Err(damaged()),
        }
    }

    /// Puts it into other pools.
    pub fn place(&mut self, placement: &Placement, migration: Option<MigrationRecord>) {
        self.placement = placement.stored();
        self.migration = migration;
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
                bound: angarium_core::limits::TREE_CHILDREN,
            }),
            Err(error) => Err(failed(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(placement: &str) -> QueueRecord {
        let id = "00000000-0000-4000-8000-000000000000";
        let text = format!(r#"{{"id": "{id}", "placement": {placement}, "metadata": {{}}, "created": 1}}"#);
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn record_names_pool_and_destination() {
        let pool = |name| PoolName::new(name).unwrap();
        assert_eq!(record(r#"["a"]"#).placement().unwrap(), Placement::one(pool("a")));
        let both = Placement { pool: pool("b"), older: Some(pool("a")) };
        assert_eq!(record(r#"["a", "b", ""]"#).placement().unwrap(), both);
        for damaged in ["[]", r#"[""]"#, r#"["a", "b"]"#, r#"["a", "b", "c"]"#] {
            assert!(record(damaged).placement().is_err(), "{damaged}");
        }
        let mut moved = record(r#"["a"]"#);
        let migration = MigrationRecord { started: 7, rate: Some(100), is_canceled: false };
        moved.place(&both, Some(migration));
        let read: QueueRecord = serde_json::from_slice(&to_json(&moved)).unwrap();
        assert_eq!((read.placement().unwrap(), read.migration), (both, Some(migration)));
    }

    #[test]
    fn old_program_finds_no_pool_in_migrating_queue() {
        let both = Placement { pool: PoolName::new("b").unwrap(), older: PoolName::new("a").ok() };
        // It takes the last element for the pool of the queue.
        assert!(PoolName::new(both.stored().last().unwrap()).is_err());
    }
}
