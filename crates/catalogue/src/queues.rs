//! Records of queues: id, placement and metadata in one node, so that they are always consistent.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::subscriptions::SubscriptionRecord;
use super::{Catalogue, FlavorEntry, OwnedSlot, PoolEntry, failed, from_json, layout, to_json};
use angarium_coordination::{Op, Refusal, TreeError};
use angarium_core::error::{Error, Part};
use angarium_core::ids::QueueId;
use angarium_core::names::{PoolName, QueueRef};
use angarium_core::queue::Metadata;
use angarium_core::time::Timestamp;

/// The stored record of a queue.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct QueueRecord {
    /// Id of this incarnation of the queue.
    pub id: QueueId,
    /// The pools of the queue: one name; or, during a migration, both names and [`MIGRATES`]. Of the queue of a subscription
    /// they are those of its source, once the record is read.
    pub placement: Vec<String>,
    /// Metadata, a JSON object.
    pub metadata: Box<RawValue>,
    /// Creation time in milliseconds since the Unix epoch.
    pub created: u64,
    /// Time of the last change of the metadata, likewise; absent when there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modified: Option<u64>,
    /// State of the migration, while there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub migration: Option<MigrationRecord>,
    /// The last migration that ended; absent when there was none. Programs that do not know it drop it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub migrated: Option<EndedMigration>,
    /// Whether it has, or had, subscriptions. Their records are read with its own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_subscriptions: bool,
    /// The subscription whose queue it is; absent for other queues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subscription: Option<SubscriptionRecord>,
}

/// The migration of a queue that ended last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedMigration {
    /// Its end, in milliseconds since the Unix epoch.
    pub ended: u64,
    /// The name of the pool that the queue left.
    pub from: String,
}

/// The stored state of the migration of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MigrationRecord {
    /// Start of the migration, or its last reversal, in milliseconds since the Unix epoch.
    pub started: u64,
    /// Max messages copied per second; absent without a bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<u32>,
    /// Whether the migration was canceled and the queue returns to its old pool.
    #[serde(default)]
    pub is_canceled: bool,
}

/// Third element of the placement of a migrating queue. It is no valid pool name, so a program that knows no
/// migrations, and takes the last element for the pool, refuses the queue (503) instead of serving a half of it.
const MIGRATES: &str = "";

/// The pools of a queue.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Placement {
    /// The pool that receives new messages.
    pub pool: PoolName,
    /// The pool that the queue leaves, during a migration.
    pub older: Option<PoolName>,
}

impl Placement {
    pub fn one(pool: PoolName) -> Self {
        Self { pool, older: None }
    }

    /// Returns the pools, the older one first.
    pub fn pools(&self) -> impl Iterator<Item = &PoolName> {
        self.older.iter().chain([&self.pool])
    }

    /// Returns whether a pool may hold data of the queue.
    pub fn contains(&self, pool: &PoolName) -> bool {
        self.pools().any(|name| name == pool)
    }

    /// Returns the stored form.
    fn stored(&self) -> Vec<String> {
        stored_placement(self.pools().map(ToString::to_string).collect())
    }
}

/// The placement in the record of a queue, or in that of a deleted queue.
#[derive(Deserialize)]
pub(super) struct StoredPlacement {
    /// Absent in the record of a deleted queue.
    #[serde(default)]
    pub(super) id: Option<QueueId>,
    pub(super) placement: Vec<String>,
    /// Present in the record of the queue of a subscription, whose placement is that of its source.
    #[serde(default)]
    pub(super) subscription: Option<StoredSource>,
}

/// The source in the record of a subscription's queue.
#[derive(Deserialize)]
pub(super) struct StoredSource {
    pub(super) source: QueueId,
}

/// The stored form of the placement of a queue in these pools, the older one first.
pub(super) fn stored_placement(mut pools: Vec<String>) -> Vec<String> {
    if pools.len() > 1 {
        pools.push(MIGRATES.to_owned());
    }
    pools
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
            migrated: None,
            has_subscriptions: false,
            subscription: None,
        }
    }

    /// Returns the pools of the queue.
    pub fn placement(&self) -> Result<Placement, Error> {
        let damaged = || Error::unavailable(Part::Coordination, "the placement of a queue is damaged");
        let pool = |name: &String| PoolName::new(name).map_err(|_| damaged());
        match &self.placement[..] {
            [only] => Ok(Placement::one(pool(only)?)),
            [older, newer, migrates] if migrates == MIGRATES => {
                Ok(Placement { pool: pool(newer)?, older: Some(pool(older)?) })
            }
            _ => Err(damaged()),
        }
    }

    /// Sets the placement and the migration.
    pub fn place(&mut self, placement: &Placement, migration: Option<MigrationRecord>) {
        self.placement = placement.stored();
        self.migration = migration;
    }
}

impl Catalogue {
    /// Returns the record of a queue, if it exists.
    pub async fn queue(&self, slot: &OwnedSlot, queue: &QueueRef) -> Result<Option<QueueRecord>, Error> {
        let node = self.node(&layout::queue(slot.slot, queue)).await?;
        let Some(node) = node else { return Ok(None) };
        let mut record = from_json(&node)?;
        self.follow_source(queue, &mut record).await?;
        Ok(Some(record))
    }

    /// Creates a queue in one commit that checks the slot's owner, and that the records of its pool and of the flavor
    /// that chose the pool have not changed since they were read.
    ///
    /// Returns false when one of them has changed, or the queue exists: then the caller reads them again.
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
        // Such a program takes the last element for the pool of the queue.
        assert!(PoolName::new(both.stored().last().unwrap()).is_err());
    }
}
