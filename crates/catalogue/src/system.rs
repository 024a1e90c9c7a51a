//! What the installation is, and the nodes it is on.

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
    /// Which one: no other has this id.
    pub id: Uuid,
    /// Greater each time its tree is put into another; the greater part of every epoch.
    pub generation: u32,
    /// The newest form of its records, see [`Schema`].
    pub schema: u32,
    /// Its number of slots.
    pub slots: u32,
}

impl Catalogue {
    /// The installation; made with the id `fresh` when the tree is empty. Refused when its records are of a form that this
    /// program does not know.
    pub async fn system(&self, fresh: Uuid) -> Result<System, Error> {
        if let Some(system) = self.recorded_system().await? {
            // Trees that were made before there was a registry.
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
        // Last, so that a system that is there is on all its nodes.
        let op = Op::create(layout::SYSTEM, to_json(&system));
        match self.tree.commit(&[], &[op]).await {
            Ok(_) => Ok(system),
            // Another replica starts at the same time: there is one installation, and it was first.
            Err(TreeError::Refused { why: Refusal::NodeExists, .. }) => {
                let gone =
                    || Error::unavailable(Part::Coordination, "the record of the installation is gone");
                self.recorded_system().await?.ok_or_else(gone)
            }
            Err(error) => Err(failed(error)),
        }
    }

    /// The installation, if it is recorded.
    async fn recorded_system(&self) -> Result<Option<System>, Error> {
        let Some(node) = self.node(layout::SYSTEM).await? else { return Ok(None) };
        let system: System = from_json(&node)?;
        Schema(system.schema).check_known().map(|()| Some(system))
    }

    /// What replicas show each other to be believed; `fresh` when there is none yet.
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

    /// Makes nodes that may be there already from a start that was cut short.
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
