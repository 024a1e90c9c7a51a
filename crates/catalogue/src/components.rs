//! The registry of running replicas. Each replica has a node that ends with its session.
//!
//! A replica that joins, and a replica that relies on being alone, sets `/meta/system` at the version that it read
//! before it read the registry. So of two concurrent ones, one fails and reads the registry again (P9).

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{Catalogue, Schema, System, empty_tree, failed, from_json, layout, to_json};
use angarium_coordination::{Mode, Op, Refusal, TreeError, numbered};
use angarium_core::error::{Error, Part};

/// Max attempts when other replicas change a record at the same time.
const TRIES: usize = 8;

/// A running replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Component {
    /// Id of the replica. A process restarted on the same data is the same replica.
    pub instance: Uuid,
    /// Address for requests of other replicas.
    pub address: String,
    /// Version of its program.
    pub version: String,
    /// The newest format of records that it knows, see [`Schema`].
    pub schema: u32,
    /// State of the replica.
    pub state: ComponentState,
    /// Weight of its share of the slots.
    pub weight: u32,
    /// Time of its registration in milliseconds since the Unix epoch.
    pub started: u64,
    /// Parts that it cannot reach. None for programs that do not report this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreached: Option<UnreachedParts>,
    /// Names of pools with queues that it has served since its start, sorted. None for programs that do not report
    /// this, and when there are too many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_pools: Option<Vec<String>>,
    /// Fingerprints of the certificates by which the other replicas know its process: SHA-256 in hexadecimal digits. Empty
    /// for programs that talk to others in clear text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fingerprints: Vec<String>,
    /// Ids of the keys for secrets that it has started with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secret_keys: Vec<String>,
    /// Its process. None for programs that do not report this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<ReplicaProcess>,
}

/// A process of a replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaProcess {
    /// Distinguishes it from other processes of the same replica.
    pub nonce: Uuid,
    /// Name of its host.
    pub host: String,
    /// Its id on the host.
    pub pid: u32,
}

impl Component {
    /// Whether this is the record of a later process with the identity of `me`. A restarted process is later than its
    /// predecessor; a process that registers again stays as late as it was.
    pub fn succeeds(&self, me: &Self) -> bool {
        let (Some(process), Some(mine)) = (&self.process, &me.process) else { return false };
        self.instance == me.instance
            && process.nonce != mine.nonce
            && (self.started, process.nonce) > (me.started, mine.nonce)
    }
}

/// The periodic report of a running replica.
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

/// Parts that a replica has not reached for a session timeout. Empty when it reaches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnreachedParts {
    /// Names of pools, sorted.
    #[serde(default)]
    pub pools: Vec<String>,
    /// Ids of other replicas, sorted.
    #[serde(default)]
    pub peers: Vec<Uuid>,
}

/// State of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ComponentState {
    /// It opens its stores and takes no slots yet.
    Starting,
    /// It serves requests.
    #[serde(alias = "up")]
    Running,
    /// It gives its slots up and takes none.
    Draining,
}

impl ComponentState {
    /// Returns the serialized name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Draining => "draining",
        }
    }
}

/// The registry at one moment.
#[derive(Clone, Debug)]
pub struct Registry {
    /// All replicas, each with the name of its node.
    components: Vec<(String, Component)>,
    system: System,
    /// Version of the node of the installation.
    version: u32,
}

impl Registry {
    /// Returns every replica.
    pub fn all(&self) -> impl Iterator<Item = &Component> + Clone {
        self.components.iter().map(|(_, component)| component)
    }

    /// Returns the replicas other than `me`.
    pub fn others(&self, me: Uuid) -> impl Iterator<Item = &Component> {
        self.all().filter(move |other| other.instance != me)
    }

    /// Returns the replicas with the identity of `me`: earlier processes, this one, and processes on copies of its data.
    pub fn namesakes(&self, me: Uuid) -> impl Iterator<Item = &Component> {
        self.all().filter(move |other| other.instance == me)
    }

    /// Returns a later process with the identity of `me`; none when `me` is the last one.
    pub fn successor(&self, me: &Component) -> Option<&Component> {
        self.namesakes(me.instance).find(|other| other.succeeds(me))
    }

    /// Returns the newest format of records that may exist.
    pub fn schema(&self) -> Schema {
        Schema(self.system.schema)
    }

    pub(super) fn system(&self) -> &System {
        &self.system
    }

    /// Returns an operation that fails the commit when a replica joined or a pool was added since the registry was
    /// read.
    pub(super) fn unchanged(&self) -> Op {
        self.replace(&self.system)
    }

    /// Returns the operation of [`Registry::unchanged`], which also replaces the record of the installation by
    /// `system`.
    pub(super) fn replace(&self, system: &System) -> Op {
        Op::Set { path: layout::SYSTEM.into(), data: to_json(system), version: Some(self.version) }
    }
}

impl Catalogue {
    /// Reads the registry, and notes the format in force.
    pub async fn registry(&self) -> Result<Registry, Error> {
        // Read first, so that every replica that joined before this version is in the list.
        let node = self.node(layout::SYSTEM).await?;
        let node = node.ok_or_else(empty_tree)?;
        let names = self.tree.children(layout::REPLICAS).await.map_err(failed)?;
        let paths: Vec<String> = names.iter().map(|name| layout::replica(name)).collect();
        let nodes = self.tree.get_many(&paths).await.map_err(failed)?;
        let mut components = Vec::with_capacity(names.len());
        for (name, node) in names.into_iter().zip(nodes) {
            // A replica that left between the two reads is omitted.
            if let Some(node) = node {
                components.push((name, from_json(&node)?));
            }
        }
        let registry = Registry { components, system: from_json(&node)?, version: node.version };
        self.note_in_force(registry.schema());
        Ok(registry)
    }

    /// Registers a replica under its host name, and removes the nodes of its earlier processes. Refused when the secrets in
    /// the tree are sealed and it has no key to open them. Returns the name of its node; none when the registry has
    /// changed since it was read: then the caller reads it again.
    pub async fn component_join(
        &self,
        registry: &Registry,
        host: &str,
        me: &Component,
    ) -> Result<Option<String>, Error> {
        // Behind the read of the registry: a sealing that begins later makes the commit fail.
        self.check_key().await?;
        let predecessors =
            registry.components.iter().filter(|(_, component)| component.instance == me.instance);
        let mut ops = vec![registry.unchanged()];
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

    /// Sets the state of a replica to draining, so that it gives its slots up. Returns false when it is not registered.
    pub async fn component_drain(&self, registry: &Registry, instance: Uuid) -> Result<bool, Error> {
        let found = registry.components.iter().find(|(_, component)| component.instance == instance);
        let Some((name, component)) = found else { return Ok(false) };
        let draining = Component { state: ComponentState::Draining, ..component.clone() };
        self.component_update(&layout::replica(name), &draining).await
    }

    /// Replaces the reach report in the record of a replica. Other fields stay, because other replicas write them.
    /// Returns false when the node has ended with its session.
    pub async fn component_report(&self, node: &str, report: &ReachReport) -> Result<bool, Error> {
        let changed = self.component_change(node, |mut component| {
            let ReachReport { unreached, used_pools } = report.clone();
            component.unreached = Some(unreached);
            component.used_pools = used_pools;
            component
        });
        Ok(changed.await?.is_some())
    }

    /// Writes the state of a replica into its record, except that a draining replica stays draining: an operator may
    /// have ordered that meanwhile. Returns the state that the record has; none when the node has ended with its session.
    pub async fn component_publish(
        &self,
        node: &str,
        state: ComponentState,
    ) -> Result<Option<ComponentState>, Error> {
        let changed = self.component_change(node, |mut component| {
            if component.state != ComponentState::Draining {
                component.state = state;
            }
            component
        });
        Ok(changed.await?.map(|component| component.state))
    }

    /// Writes the fingerprints of the certificates of a replica into its record. Returns false when the node has ended
    /// with its session.
    pub async fn component_certificates(&self, node: &str, fingerprints: &[String]) -> Result<bool, Error> {
        let changed = self.component_change(node, |component| Component {
            fingerprints: fingerprints.to_vec(),
            ..component
        });
        Ok(changed.await?.is_some())
    }

    /// Changes the record of a replica, under the version that was read. Returns the record; none when there is none.
    async fn component_change(
        &self,
        node: &str,
        change: impl Fn(Component) -> Component,
    ) -> Result<Option<Component>, Error> {
        for _ in 0..TRIES {
            let Some(found) = self.node(node).await? else { return Ok(None) };
            let me = change(from_json(&found)?);
            let set = Op::Set { path: node.to_owned(), data: to_json(&me), version: Some(found.version) };
            match self.tree.commit(&[], &[set]).await {
                Ok(_) => return Ok(Some(me)),
                Err(TreeError::Refused { why: Refusal::BadVersion, .. }) => {}
                Err(TreeError::Refused { why: Refusal::NoNode, .. }) => return Ok(None),
                Err(error) => return Err(failed(error)),
            }
        }
        Err(Error::unavailable(Part::Coordination, "the record of this replica changes all the time"))
    }

    /// Replaces the record of a replica at the node that [`Catalogue::component_join`] returned. Returns false when the
    /// node has ended with its session.
    async fn component_update(&self, node: &str, me: &Component) -> Result<bool, Error> {
        let set = Op::Set { path: node.to_owned(), data: to_json(me), version: None };
        match self.tree.commit(&[], &[set]).await {
            Ok(_) => Ok(true),
            Err(TreeError::Refused { why: Refusal::NoNode, .. }) => Ok(false),
            Err(error) => Err(failed(error)),
        }
    }
}
