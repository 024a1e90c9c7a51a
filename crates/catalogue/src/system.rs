//! The record of the installation, and the creation of its nodes.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{Catalogue, ImportedTransfers, Schema, failed, from_json, layout, to_json};
use angarium_coordination::{Node, Op, Refusal, TreeError};
use angarium_core::error::{Error, Part};
use angarium_core::ids::Slot;
use angarium_core::limits;
use angarium_core::time::Timestamp;

/// The installation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct System {
    /// Unique id of the installation.
    pub id: Uuid,
    /// Grows with each import of its tree into another; the upper part of every epoch.
    pub generation: u32,
    /// The format of its records that is in force, see [`Schema`].
    pub schema: u32,
    /// Number of slots.
    pub slots: u32,
}

impl System {
    /// Depth and path of the record in the tree.
    pub const PATH: (u8, &str) = (2, layout::SYSTEM);

    /// Decodes the record.
    pub fn decode(data: &[u8]) -> Option<Self> {
        serde_json::from_slice(data).ok()
    }

    /// Reads the record of the node.
    pub(super) fn read(node: &Node) -> Result<Self, TreeError> {
        serde_json::from_slice(&node.data)
            .map_err(|error| TreeError::Damaged(format!("the node {}: {error}", layout::SYSTEM)))
    }
}

/// What tells a restored installation from the one that was backed up.
#[derive(Clone, Copy, Debug)]
pub struct NewGeneration {
    /// Min number of the generation.
    pub least: u32,
    /// The new key of receipts.
    pub receipt_key: [u8; 32],
    /// The moment up to which receipts of the installation before are valid.
    pub until: Timestamp,
    /// The transfers of its pools.
    pub transfers: ImportedTransfers,
}

impl Catalogue {
    /// Begins a new generation of a tree that was restored from a backup: the pools of other machines know later epochs
    /// of the generation before, and would fence this tree out; clients may have receipts of receives that have not
    /// happened here.
    pub async fn begin_generation(&self, new: NewGeneration) -> Result<System, Error> {
        let none = || Error::unavailable(Part::Coordination, "the tree has no record of its installation");
        let node = self.node(layout::SYSTEM).await?.ok_or_else(none)?;
        let system: System = from_json(&node)?;
        Schema(system.schema).check_known()?;
        self.check_key_at_start().await?;
        let generation = system.generation.saturating_add(1).max(new.least);
        let mut raised = System { generation, ..system };
        new.transfers.raise(&mut raised);
        self.hold_restored(new.transfers).await?;
        let set =
            Op::Set { path: layout::SYSTEM.into(), data: to_json(&raised), version: Some(node.version) };
        let key = self.receipt_key_change(new.receipt_key, new.until).await?;
        let ops: Vec<Op> = [Some(set), key].into_iter().flatten().collect();
        self.tree.commit(&[], &ops).await.map_err(failed)?;
        Ok(raised)
    }

    /// Returns the installation. Creates it with the id `fresh` when the tree is empty, with sealed secrets if a key is
    /// named. Fails when this program does not know the format of its records, or has no key to open their secrets.
    pub async fn system(&self, fresh: Uuid) -> Result<System, Error> {
        if let Some(system) = self.recorded_system().await? {
            // Older trees have no registry.
            self.create_missing(&[layout::COMPONENTS.to_owned(), layout::REPLICAS.to_owned()]).await?;
            self.check_key_at_start().await?;
            return Ok(system);
        }
        if self.node(layout::IMPORT).await?.is_some() {
            return Err(Error::unavailable(
                Part::Coordination,
                "an import of the tree was cut short: repeat it",
            ));
        }
        let slots = u32::try_from(limits::SLOTS).expect("there are 256 slots");
        let mut system = System { id: fresh, generation: 1, schema: Schema::FIRST.0, slots };
        let roots = [
            layout::META,
            layout::COMPONENTS,
            layout::REPLICAS,
            layout::POOLS,
            layout::FLAVORS,
            layout::SLOTS,
            layout::QUEUES,
            layout::RUN,
        ];
        let mut paths: Vec<String> = roots.map(str::to_owned).to_vec();
        for slot in Slot::all() {
            paths.push(layout::slot(slot));
            paths.push(layout::slot_queues(slot));
            paths.push(layout::slot_run(slot));
            paths.push(layout::slot_claims(slot));
            paths.push(layout::slot_dropped(slot));
        }
        for path in paths.chunks(limits::TREE_BATCH_OPS) {
            self.create_missing(path).await?;
        }
        // The last commit, so that an existing installation has all its nodes.
        let (ops, key) = self.founding(&mut system);
        match self.tree.commit(&[], &ops).await {
            Ok(_) => {
                if let Some(key) = key {
                    self.tree.unlock(key, true);
                }
                Ok(system)
            }
            // Another replica started at the same time and created the installation first.
            Err(TreeError::Refused { why: Refusal::NodeExists, .. }) => {
                let gone =
                    || Error::unavailable(Part::Coordination, "the record of the installation is gone");
                let system = self.recorded_system().await?.ok_or_else(gone)?;
                self.check_key_at_start().await?;
                Ok(system)
            }
            Err(error) => Err(failed(error)),
        }
    }

    /// Returns the installation, if it is recorded.
    async fn recorded_system(&self) -> Result<Option<System>, Error> {
        let Some(node) = self.node(layout::SYSTEM).await? else { return Ok(None) };
        let system: System = from_json(&node)?;
        Schema(system.schema).check_known().map(|()| Some(system))
    }

    /// Creates nodes. Nodes left by an interrupted start are no error.
    pub(super) async fn create_missing(&self, paths: &[String]) -> Result<(), Error> {
        let create = |path: &String| Op::create(path.clone(), "{}");
        let ops: Vec<Op> = paths.iter().map(create).collect();
        match self.tree.commit(&[], &ops).await {
            Ok(_) => return Ok(()),
            Err(TreeError::Refused { why: Refusal::NodeExists, .. }) => {}
            Err(error) => return Err(failed(error)),
        }
        for op in ops {
            match self.tree.commit(&[], &[op]).await {
                Ok(_) | Err(TreeError::Refused { why: Refusal::NodeExists, .. }) => {}
                Err(error) => return Err(failed(error)),
            }
        }
        Ok(())
    }
}
