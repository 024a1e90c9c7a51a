//! Records of holds of pools and projects. Every replica keeps them in memory.
//!
//! Each change sets the node above all of them in the same commit: its version tells a reader whether the records that it
//! read are those of one moment, and every replica watches it.

use super::holds::HoldRecord;
use super::{Catalogue, PoolEntry, failed, from_json, layout, to_json};
use angarium_coordination::{Fence, Node, Op, Refusal, TreeError};
use angarium_core::error::{Error, Part};
use angarium_core::hold::{Hold, HoldTarget};
use angarium_core::ids::Slot;
use angarium_core::limits;
use angarium_core::names::{PoolName, ProjectId};
use angarium_core::time::Timestamp;

/// Max attempts when other callers change holds at the same time.
const TRIES: usize = 16;

/// A record of a hold.
#[derive(Debug)]
pub struct SharedHold {
    /// The held resource.
    pub target: HoldTarget,
    /// Version of the record.
    pub version: u32,
    /// Time of its last change.
    pub time: Timestamp,
    /// The hold; an error when the record cannot be read.
    pub hold: Result<Hold, Error>,
}

impl SharedHold {
    fn of(target: HoldTarget, node: &Node) -> Self {
        let hold = from_json(node).map(HoldRecord::into_hold);
        Self { target, version: node.version, time: node.time, hold }
    }
}

impl Catalogue {
    /// Returns the holds of pools and projects, as they were at one moment. One read when there was never one.
    pub async fn shared_holds(&self) -> Result<Vec<SharedHold>, Error> {
        for _ in 0..TRIES {
            let Some(before) = self.node(layout::HOLDS).await? else { return Ok(Vec::new()) };
            let holds = self.read_shared_holds().await?;
            let after = self.node(layout::HOLDS).await?;
            if after.is_some_and(|after| after.version == before.version) {
                return Ok(holds);
            }
        }
        Err(changed_each_time())
    }

    async fn read_shared_holds(&self) -> Result<Vec<SharedHold>, Error> {
        let mut targets: Vec<HoldTarget> = Vec::new();
        for element in self.tree.children(layout::POOL_HOLDS).await.map_err(failed)? {
            // No request can name another element, so it holds nothing.
            let pool = layout::unescape(&element).and_then(|name| PoolName::new(&name).ok());
            targets.extend(pool.map(HoldTarget::Pool));
        }
        for element in self.tree.children(layout::PROJECT_HOLDS).await.map_err(failed)? {
            let project = layout::unescape(&element).and_then(|project| ProjectId::new(&project).ok());
            targets.extend(project.map(HoldTarget::Project));
        }
        let mut holds = Vec::with_capacity(targets.len());
        for chunk in targets.chunks(limits::TREE_READS_AT_ONCE) {
            let paths: Vec<String> = chunk.iter().map(layout::shared_hold).collect();
            let nodes = self.tree.get_many(&paths).await.map_err(failed)?;
            let found = chunk.iter().zip(nodes).filter_map(|(target, node)| Some((target, node?)));
            holds.extend(found.map(|(target, node)| SharedHold::of(target.clone(), &node)));
        }
        Ok(holds)
    }

    /// Returns the hold of a pool or of a project, if it has one.
    pub async fn shared_hold(&self, target: &HoldTarget) -> Result<Option<SharedHold>, Error> {
        let node = self.node(&layout::shared_hold(target)).await?;
        Ok(node.map(|node| SharedHold::of(target.clone(), &node)))
    }

    /// Writes the hold of a pool or of a project, in place of an earlier one. Relies on the record of the pool `held`, if
    /// it is one. Returns false when that has changed since it was read: then the caller reads it again.
    ///
    /// # Errors
    ///
    /// [`Error::TooMany`] when there are as many as there may be.
    pub async fn shared_hold_write(
        &self,
        target: &HoldTarget,
        hold: &Hold,
        held: Option<&PoolEntry>,
    ) -> Result<bool, Error> {
        if self.node(layout::HOLDS).await?.is_none() {
            let directories = [layout::HOLDS, layout::POOL_HOLDS, layout::PROJECT_HOLDS];
            self.create_missing(&directories.map(str::to_owned)).await?;
        }
        let fences: Vec<Fence> = held.map(PoolEntry::fence).into_iter().collect();
        let (path, data) = (layout::shared_hold(target), to_json(&HoldRecord::from(hold)));
        for _ in 0..TRIES {
            let written = match self.node(&path).await? {
                Some(_) => Op::Set { path: path.clone(), data: data.clone(), version: None },
                None => Op::create(path.clone(), data.clone()),
            };
            match self.tree.commit(&fences, &[changed(), written]).await {
                Ok(_) => return Ok(true),
                Err(TreeError::Fenced(_)) => return Ok(false),
                Err(TreeError::Refused { op: 1, why: Refusal::NoNode | Refusal::NodeExists }) => {}
                Err(TreeError::Refused { op: 1, why: Refusal::Full }) => {
                    let what = "held pools or held projects";
                    return Err(Error::TooMany { what, bound: limits::TREE_CHILDREN });
                }
                Err(error) => return Err(failed(error)),
            }
        }
        Err(changed_each_time())
    }

    /// Deletes the hold of a pool or of a project. Returns false when there is none.
    pub async fn shared_hold_delete(&self, target: &HoldTarget) -> Result<bool, Error> {
        self.delete_shared_hold(target, &[]).await
    }

    /// Deletes the hold whose record has this version, unless it has changed since.
    pub async fn shared_hold_remove(&self, target: &HoldTarget, version: u32) -> Result<bool, Error> {
        let fence = Fence { path: layout::shared_hold(target), version };
        self.delete_shared_hold(target, &[fence]).await
    }

    async fn delete_shared_hold(&self, target: &HoldTarget, fences: &[Fence]) -> Result<bool, Error> {
        let deleted = Op::Delete { path: layout::shared_hold(target) };
        match self.tree.commit(fences, &[changed(), deleted]).await {
            Ok(_) => Ok(true),
            Err(TreeError::Fenced(_) | TreeError::Refused { why: Refusal::NoNode, .. }) => Ok(false),
            Err(error) => Err(failed(error)),
        }
    }

    /// Returns the operations that delete the hold of a pool together with the pool; none when it has none.
    pub(super) async fn hold_removal(&self, pool: &PoolName) -> Result<Vec<Op>, Error> {
        let path = layout::shared_hold(&HoldTarget::Pool(pool.clone()));
        let found = self.node(&path).await?;
        Ok(found.map(|_| vec![changed(), Op::Delete { path }]).unwrap_or_default())
    }

    /// Returns the version of the node of each slot, in order: the fence of its owner's commits. A replica that takes a
    /// slot after this read has a greater one.
    pub async fn slot_versions(&self) -> Result<Vec<u32>, Error> {
        let paths: Vec<String> = Slot::all().map(layout::slot).collect();
        let mut versions = Vec::with_capacity(paths.len());
        for chunk in paths.chunks(limits::TREE_READS_AT_ONCE) {
            for (path, node) in chunk.iter().zip(self.tree.get_many(chunk).await.map_err(failed)?) {
                let missing = || Error::unavailable(Part::Coordination, format!("{path} does not exist"));
                versions.push(node.ok_or_else(missing)?.version);
            }
        }
        Ok(versions)
    }
}

/// Returns the operation that tells every replica of a change.
fn changed() -> Op {
    Op::Set { path: layout::HOLDS.to_owned(), data: "{}".into(), version: None }
}

fn changed_each_time() -> Error {
    Error::unavailable(Part::Coordination, "the holds of pools and projects change all the time")
}
