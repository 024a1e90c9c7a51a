//! Records of pools.

use super::queues::{StoredPlacement, StoredSource};
use super::{Catalogue, Registry, failed, from_json, layout, to_json};
use angarium_coordination::{Fence, Op, Refusal, TreeError};
use angarium_core::error::{Error, Part};
use angarium_core::ids::{QueueId, Slot};
use angarium_core::limits;
use angarium_core::maps::{HashMap, HashSet};
use angarium_core::names::PoolName;
use angarium_core::pool::Pool;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolUsers {
    Nothing,
    /// Data of deleted queues, whose removal is in progress.
    Remains,
    /// An existing queue.
    Queues,
}

/// Number of queues in a pool, with messages or without.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolQueues {
    /// All queues: those of users and those of subscriptions.
    pub all: u64,
    /// Queues of subscriptions, which end with their subscriptions.
    pub of_subscriptions: u64,
}

/// A pool with its name and the version of its record.
#[derive(Clone, Debug)]
pub struct PoolEntry {
    pub name: PoolName,
    pub pool: Pool,
    /// Version of the record. A commit that relies on the record checks it.
    pub version: u32,
}

impl PoolEntry {
    /// Returns a fence on the version of the record.
    pub(super) fn fence(&self) -> Fence {
        Fence { path: layout::pool(&self.name), version: self.version }
    }

    /// Returns an operation that replaces the record, and fails if it has changed since it was read.
    pub(super) fn set(&self, pool: &Pool) -> Op {
        Op::Set { path: layout::pool(&self.name), data: to_json(pool), version: Some(self.version) }
    }
}

impl Catalogue {
    /// Returns the names of all pools, sorted.
    pub async fn pool_names(&self) -> Result<Vec<PoolName>, Error> {
        let elements = self.tree.children(layout::POOLS).await.map_err(failed)?;
        let name = |element: &String| {
            let name = layout::unescape(element).and_then(|name| PoolName::new(&name).ok());
            name.ok_or_else(|| Error::unavailable(Part::Coordination, format!("{element:?} is no pool")))
        };
        let mut names = elements.iter().map(name).collect::<Result<Vec<_>, _>>()?;
        names.sort_unstable();
        Ok(names)
    }

    /// Returns all pools, by name.
    pub async fn pools(&self) -> Result<Vec<PoolEntry>, Error> {
        if self.tree.keys().is_some() {
            // Without any pool the sealing would not be noticed.
            self.check_key().await?;
        }
        let mut pools = Vec::new();
        for name in self.pool_names().await? {
            // A pool that was deleted between the two reads is omitted.
            pools.extend(self.pool(&name).await?);
        }
        Ok(pools)
    }

    /// Returns a pool, if it exists.
    pub async fn pool(&self, name: &PoolName) -> Result<Option<PoolEntry>, Error> {
        let Some(node) = self.node(&layout::pool(name)).await? else { return Ok(None) };
        Ok(Some(PoolEntry { name: name.clone(), pool: from_json(&node)?, version: node.version }))
    }

    /// Creates the record of a pool. Returns none when another replica added a pool or joined since the registry was
    /// read: then the caller reads the registry again (P9).
    pub async fn pool_add(
        &self,
        registry: &Registry,
        name: &PoolName,
        pool: &Pool,
    ) -> Result<Option<PoolEntry>, Error> {
        let ops = [registry.unchanged(), Op::create(layout::pool(name), to_json(pool))];
        match self.tree.commit(&[], &ops).await {
            Ok(_) => Ok(Some(PoolEntry { name: name.clone(), pool: pool.clone(), version: 0 })),
            Err(TreeError::Refused { why: Refusal::NodeExists | Refusal::BadVersion, .. }) => Ok(None),
            Err(error) => Err(failed(error)),
        }
    }

    /// Replaces the record of a pool. Returns none when it has changed or was deleted: then the caller reads it again.
    pub async fn pool_set(&self, entry: &PoolEntry, pool: &Pool) -> Result<Option<PoolEntry>, Error> {
        match self.tree.commit(&[], &[entry.set(pool)]).await {
            Ok(_) => Ok(Some(PoolEntry { pool: pool.clone(), version: entry.version + 1, ..entry.clone() })),
            Err(TreeError::Refused { why: Refusal::NoNode | Refusal::BadVersion, .. }) => Ok(None),
            Err(error) => Err(failed(error)),
        }
    }

    /// Points a pool to another storage, which no other pool may have started to use meanwhile. Returns none when the
    /// registry or the record has changed: then the caller reads them again.
    pub async fn pool_move(
        &self,
        registry: &Registry,
        entry: &PoolEntry,
        pool: &Pool,
    ) -> Result<Option<PoolEntry>, Error> {
        let ops = [registry.unchanged(), entry.set(pool)];
        match self.tree.commit(&[], &ops).await {
            Ok(_) => Ok(Some(PoolEntry { pool: pool.clone(), version: entry.version + 1, ..entry.clone() })),
            Err(TreeError::Refused { why: Refusal::NoNode | Refusal::BadVersion, .. }) => Ok(None),
            Err(error) => Err(failed(error)),
        }
    }

    /// Deletes the record of a pool, and its hold. Returns false when it has changed or is already deleted.
    pub async fn pool_delete(&self, entry: &PoolEntry) -> Result<bool, Error> {
        let mut ops = vec![Op::Delete { path: layout::pool(&entry.name) }];
        ops.extend(self.hold_removal(&entry.name).await?);
        match self.tree.commit(&[entry.fence()], &ops).await {
            Ok(_) => Ok(true),
            Err(TreeError::Fenced(_) | TreeError::Refused { why: Refusal::NoNode, .. }) => Ok(false),
            Err(error) => Err(failed(error)),
        }
    }

    /// Returns the users of a pool in one slot.
    ///
    /// After a commit that admits no new queue to the pool, the answer is final: the reads include that commit and
    /// everything before it. A deletion moves a queue from the first directory to the second in one commit, so the
    /// order of the two reads matters. Costs one read per queue of the slot until one is found, many concurrently.
    pub async fn slot_uses_pool(&self, slot: Slot, pool: &PoolName) -> Result<PoolUsers, Error> {
        let queues = layout::slot_queues(slot);
        for project in self.tree.children(&queues).await.map_err(failed)? {
            let directory = format!("{queues}/{project}");
            if self.any_record_names(&directory, pool).await? {
                return Ok(PoolUsers::Queues);
            }
        }
        let is_cleaned = self.any_record_names(&layout::slot_dropped(slot), pool).await?;
        Ok(if is_cleaned { PoolUsers::Remains } else { PoolUsers::Nothing })
    }

    /// Returns the number of queues whose records name a pool: queues in it, and queues that move into it or out of it.
    /// Reads the records of all queues.
    pub async fn pool_queues(&self, pool: &PoolName) -> Result<PoolQueues, Error> {
        let mut count = PoolQueues::default();
        for slot in Slot::all() {
            let queues = layout::slot_queues(slot);
            for project in self.tree.children(&queues).await.map_err(failed)? {
                let PoolQueues { all, of_subscriptions } =
                    self.records_naming(&format!("{queues}/{project}"), pool, u64::MAX).await?;
                count.all += all;
                count.of_subscriptions += of_subscriptions;
            }
        }
        Ok(count)
    }

    async fn any_record_names(&self, directory: &str, pool: &PoolName) -> Result<bool, Error> {
        Ok(self.records_naming(directory, pool, 1).await?.all > 0)
    }

    /// Counts the records of a directory that name a pool, up to `enough` or a few more.
    async fn records_naming(
        &self,
        directory: &str,
        pool: &PoolName,
        enough: u64,
    ) -> Result<PoolQueues, Error> {
        let mut count = PoolQueues::default();
        // The queue of a subscription is where its source is, which its own record does not tell. After the deletion of the
        // source the note of that is in the pool.
        let mut placed_there: HashSet<QueueId> = HashSet::default();
        let mut of_sources: HashMap<QueueId, u64> = HashMap::default();
        let elements = self.tree.children(directory).await.map_err(failed)?;
        let paths: Vec<String> = elements.iter().map(|element| format!("{directory}/{element}")).collect();
        for chunk in paths.chunks(limits::TREE_READS_AT_ONCE) {
            for node in self.tree.get_many(chunk).await.map_err(failed)?.iter().flatten() {
                let StoredPlacement { id, placement, subscription } = from_json(node)?;
                if let Some(StoredSource { source }) = subscription {
                    *of_sources.entry(source).or_insert(0) += 1;
                } else if placement.iter().any(|name| name == pool.as_str()) {
                    count.all += 1;
                    placed_there.extend(id);
                }
            }
            if count.all >= enough {
                break;
            }
        }
        let there = of_sources.iter().filter(|(source, _)| placed_there.contains(source));
        count.of_subscriptions = there.map(|(_, queues)| queues).sum();
        count.all += count.of_subscriptions;
        Ok(count)
    }
}
