//! The registry: which replicas are up, each with a node that ends with its session.
//!
//! A replica that joins, and one that relies on being alone, sets `/meta/system` at the version
//! that it saw before it looked. So of two who look at the same time one has to look again (P9).

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{Catalogue, Schema, System, failed, from_json, layout, to_json};
use angarium_coordination::{Mode, Op, Refusal, TreeError, numbered};
use angarium_core::error::{Error, Part};

/// How often to look again when another replica changes a record at the same time.
const TRIES: usize = 8;

/// A running replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Component {
    /// Which one: a process started again on the same data is the same replica.
    pub instance: Uuid,
    /// Where others reach it.
    pub address: String,
    /// Of its program.
    pub version: String,
    /// The newest form of records that it knows, see [`Schema`].
    pub schema: u32,
    /// What it does.
    pub state: ComponentState,
    /// Its share of the slots.
    pub weight: u32,
    /// When it registered: milliseconds since the Unix epoch.
    pub started: u64,
    /// What it does not reach. None of programs that do not say so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreached: Option<UnreachedParts>,
    /// Pools in which queues lie that it has served since its start, by name, in order. None of programs that do not say
    /// so, and when they are too many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_pools: Option<Vec<String>>,
}

/// What a replica states again and again while it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReachReport {
    /// See [`Component::unreached`].
    pub unreached: UnreachedParts,
    /// See [`Component::used_pools`].
    pub used_pools: Option<Vec<String>>,
}

impl Default for ReachReport {
    fn default() -> Self {
        Self { unreached: UnreachedParts::default(), used_pools: Some(Vec::new()) }
    }
}

/// What a replica has not reached for a session timeout. Empty when it reaches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnreachedParts {
    /// Pools, by name, in order.
    #[serde(default)]
    pub pools: Vec<String>,
    /// Other replicas, in order.
    #[serde(default)]
    pub peers: Vec<Uuid>,
}

/// What a replica does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ComponentState {
    /// It opens its stores, and takes no slots yet.
    Starting,
    /// It serves.
    #[serde(alias = "up")]
    Running,
    /// It hands its slots over and takes none.
    Draining,
}

impl ComponentState {
    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Draining => "draining",
        }
    }
}

/// The registry as it was at one look.
#[derive(Clone, Debug)]
pub struct Registry {
    /// Each replica, with the name of its node.
    components: Vec<(String, Component)>,
    system: System,
    /// Of the system's node.
    version: u32,
}

impl Registry {
    /// Every replica.
    pub fn all(&self) -> impl Iterator<Item = &Component> + Clone {
        self.components.iter().map(|(_, component)| component)
    }

    /// Replicas other than this one.
    pub fn others(&self, me: Uuid) -> impl Iterator<Item = &Component> {
        self.all().filter(move |other| other.instance != me)
    }

    /// The newest form of record that may be there.
    pub fn schema(&self) -> Schema {
        Schema(self.system.schema)
    }

    pub(super) fn system(&self) -> &System {
        &self.system
    }

    /// Makes a commit fail when a replica joined, or added a pool, since the look.
    pub(super) fn unchanged(&self) -> Op {
        self.replace(&self.system)
    }

    /// As [`Registry::unchanged`], and the installation is `system` from then on.
    pub(super) fn replace(&self, system: &System) -> Op {
        Op::Set { path: layout::SYSTEM.into(), data: to_json(system), version: Some(self.version) }
    }
}

impl Catalogue {
    /// Looks who is registered.
    pub async fn registry(&self) -> Result<Registry, Error> {
        // First, so that every replica is seen who joined before its version.
        let node = self.node(layout::SYSTEM).await?;
        let node = node.ok_or_else(|| Error::unavailable(Part::Coordination, "the tree is empty"))?;
        let names = self.tree.children(layout::REPLICAS).await.map_err(failed)?;
        let paths: Vec<String> = names.iter().map(|name| layout::replica(name)).collect();
        let nodes = self.tree.get_many(&paths).await.map_err(failed)?;
        let mut components = Vec::with_capacity(names.len());
        for (name, node) in names.into_iter().zip(nodes) {
            // One that went between the two reads is not there.
            if let Some(node) = node {
                components.push((name, from_json(&node)?));
            }
        }
        Ok(Registry { components, system: from_json(&node)?, version: node.version })
    }

    /// Registers a replica under the name of its host, in place of processes before it. Returns the name of its node;
    /// none when the registry has changed since it was seen: then the caller looks again.
    pub async fn component_join(
        &self,
        seen: &Registry,
        host: &str,
        me: &Component,
    ) -> Result<Option<String>, Error> {
        let predecessors = seen.components.iter().filter(|(_, component)| component.instance == me.instance);
        let mut ops = vec![seen.unchanged()];
        ops.extend(predecessors.map(|(name, _)| Op::Delete { path: layout::replica(name) }));
        let path = layout::replica_of(host);
        ops.push(Op::Create { path: path.clone(), data: to_json(me), mode: Mode::Numbered });
        match self.tree.commit(&[], &ops).await {
            Ok(committed) => {
                let number = committed.last().copied().flatten().and_then(|stat| stat.number);
                let unknown = || failed(TreeError::Unknown("a numbered node has no number".into()));
                number.map(|number| Some(numbered(&path, number))).ok_or_else(unknown)
            }
            Err(TreeError::Refused {
                why: Refusal::BadVersion | Refusal::NoNode | Refusal::NodeExists,
                ..
            }) => Ok(None),
            Err(error) => Err(failed(error)),
        }
    }

    /// Tells a replica to hand its slots over, by what is said of it. False when it is not registered.
    pub async fn component_drain(&self, seen: &Registry, instance: Uuid) -> Result<bool, Error> {
        let found = seen.components.iter().find(|(_, component)| component.instance == instance);
        let Some((name, component)) = found else { return Ok(false) };
        let told = Component { state: ComponentState::Draining, ..component.clone() };
        self.component_update(&layout::replica(name), &told).await
    }

    /// Replaces what a replica states of its reach, and nothing else of its record: others write their part of that.
    /// False when the node is gone with its session.
    pub async fn component_report(&self, node: &str, report: &ReachReport) -> Result<bool, Error> {
        for _ in 0..TRIES {
            let Some(found) = self.node(node).await? else { return Ok(false) };
            let ReachReport { unreached, used_pools } = report.clone();
            let me = Component { unreached: Some(unreached), used_pools, ..from_json(&found)? };
            let set = Op::Set { path: node.to_owned(), data: to_json(&me), version: Some(found.version) };
            match self.tree.commit(&[], &[set]).await {
                Ok(_) => return Ok(true),
                Err(TreeError::Refused { why: Refusal::BadVersion, .. }) => {}
                Err(TreeError::Refused { why: Refusal::NoNode, .. }) => return Ok(false),
                Err(error) => return Err(failed(error)),
            }
        }
        Err(Error::unavailable(Part::Coordination, "the record of this replica changes all the time"))
    }

    /// Replaces what a replica states of itself at the node that its joining gave. False when that is gone with its
    /// session.
    pub async fn component_update(&self, node: &str, me: &Component) -> Result<bool, Error> {
        let set = Op::Set { path: node.to_owned(), data: to_json(me), version: None };
        match self.tree.commit(&[], &[set]).await {
            Ok(_) => Ok(true),
            Err(TreeError::Refused { why: Refusal::NoNode, .. }) => Ok(false),
            Err(error) => Err(failed(error)),
        }
    }
}
