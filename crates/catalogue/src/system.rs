//! The record of the installation, and the creation of its nodes.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{Catalogue, Schema, failed, from_json, layout, to_json};
use angarium_coordination::{Op, Refusal, TreeError};
use angarium_core::error::{Error, Part};
use angarium_core::ids::Slot;
use angarium_core::limits;

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

impl Catalogue {
    /// Returns the installation. Creates it with the id `fresh` when the tree is empty. Fails when this program does
    /// not know the format of its records.
    pub async fn system(&self, fresh: Uuid) -> Result<System, Error> {
        if let Some(system) = self.recorded_system().await? {
            // Older trees have no registry.
            self.create_missing(&[layout::COMPONENTS.to_owned(), layout::REPLICAS.to_owned()]).await?;
            return Ok(system);
        }
        if self.node(layout::IMPORT).await?.is_some() {
            return Err(Error::unavailable(
                Part::Coordination,
                "an import of the tree was cut short: repeat it",
            ));
        }
        let slots = u32::try_from(limits::SLOTS).expect("there are 256 slots");
        let system = System { id: fresh, generation: 1, schema: Schema::FIRST.0, slots };
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
        let op = Op::create(layout::SYSTEM, to_json(&system));
        match self.tree.commit(&[], &[op]).await {
            Ok(_) => Ok(system),
            // Another replica started at the same time and created the installation first.
            Err(TreeError::Refused { why: Refusal::NodeExists, .. }) => {
                let gone =
                    || Error::unavailable(Part::Coordination, "the record of the installation is gone");
                self.recorded_system().await?.ok_or_else(gone)
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

    /// Returns the secret that replicas authenticate with. Creates it as `fresh` when there is none.
    pub async fn peer_secret(&self, fresh: &str) -> Result<String, Error> {
        let create = Op::create(layout::PEER_SECRET, fresh.to_owned());
        match self.tree.commit(&[], &[create]).await {
            Ok(_) => return Ok(fresh.to_owned()),
            Err(TreeError::Refused { why: Refusal::NodeExists, .. }) => {}
            Err(error) => return Err(failed(error)),
        }
        let node = self.node(layout::PEER_SECRET).await?;
        let text = node.and_then(|node| String::from_utf8(node.data.into()).ok());
        text.ok_or_else(|| Error::unavailable(Part::Coordination, "the secret of the replicas is no text"))
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
