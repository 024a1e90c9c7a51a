//! Joining the registry, and the rule that storage on the disk of a replica allows no other replica.

use uuid::Uuid;

use crate::identity::Fingerprint;
use crate::random::Random;
use crate::tasks::Tasks;
use crate::trust::PeerTrust;
use angarium_catalogue::{
    Catalogue, Component, ComponentState, Registry, ReplicaProcess, Schema, UnreachedParts,
};
use angarium_core::error::{Error, Part};
use angarium_core::names::PoolName;
use angarium_core::time::Timestamp;

/// Max attempts when the registry changes at the same time.
const TRIES: usize = 8;

/// This replica, as the others know it.
#[derive(Clone, Debug)]
pub struct Replica {
    /// Id kept in its data directory, so the next process there has the same id.
    pub instance: Uuid,
    /// Host name.
    pub host: String,
    /// Address for requests of other replicas.
    pub address: String,
    /// The id of its process on the host.
    pub pid: u32,
    /// Distinguishes its process from other processes of the same replica. The broker draws it at its start.
    pub nonce: Uuid,
    /// Fingerprint of the certificate of its process; none without a listener for other replicas.
    pub certificate: Option<Fingerprint>,
    /// Ids of its keys for secrets in the tree.
    pub secret_keys: Vec<String>,
    /// The certificates of the replicas, which the reader of the registry keeps up to date.
    pub trust: PeerTrust,
    /// Weight of its share of the slots.
    pub weight: u32,
    /// The source of its random values.
    pub random: Random,
    /// Its tasks.
    pub tasks: Tasks,
}

impl Replica {
    /// Creates a replica of weight 1 without the id of a process, with the random values of the system and tasks that run as soon as they can.
    pub fn new(instance: Uuid, host: impl Into<String>, address: impl Into<String>) -> Self {
        Self {
            instance,
            host: host.into(),
            address: address.into(),
            pid: 0,
            nonce: Uuid::nil(),
            certificate: None,
            secret_keys: Vec::new(),
            trust: PeerTrust::default(),
            weight: 1,
            random: Random::system(),
            tasks: Tasks::default(),
        }
    }

    /// Returns its record for the registry.
    pub fn component(&self, state: ComponentState, started: Timestamp) -> Component {
        Component {
            instance: self.instance,
            address: self.address.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            schema: Schema::KNOWN.0,
            state,
            weight: self.weight,
            started: started.as_millis(),
            unreached: Some(UnreachedParts::default()),
            used_pools: Some(Vec::new()),
            fingerprints: self.certificate.iter().map(ToString::to_string).collect(),
            secret_keys: self.secret_keys.clone(),
            process: Some(ReplicaProcess { nonce: self.nonce, host: self.host.clone(), pid: self.pid }),
        }
    }
}

/// The first registration of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    /// The name of its node.
    pub node: String,
    /// The time of its start, as registered: later than that of each process that it replaced.
    pub started: Timestamp,
}

/// Outcome of the registration of a process in a later session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reentry {
    /// It is registered; the name of its node.
    Registered(String),
    /// A later process has its identity. Nothing was written.
    Succeeded(Box<Component>),
}

/// Registers a process at its start, in place of the earlier processes of this replica. Refused while another replica is
/// registered and a pool is on the disk of one replica: the other could not serve its queues. Refused too when this
/// program does not know the format of the records in force.
pub async fn join(catalogue: &Catalogue, host: &str, me: &Component) -> Result<Registration, Error> {
    for _ in 0..TRIES {
        let registry = admissible(catalogue, me).await?;
        // Of two processes the one that starts later stays, whatever their clocks are.
        let earlier = registry.namesakes(me.instance).map(|other| other.started.saturating_add(1));
        let started = earlier.fold(me.started, u64::max);
        let me = Component { started, ..me.clone() };
        if let Some(node) = catalogue.component_join(&registry, host, &me).await? {
            return Ok(Registration { node, started: Timestamp::from_millis(started) });
        }
    }
    Err(changing())
}

/// Registers a process again, after it lost its session, unless a later process has its identity. Otherwise as
/// [`join`].
pub async fn rejoin(catalogue: &Catalogue, host: &str, me: &Component) -> Result<Reentry, Error> {
    for _ in 0..TRIES {
        let registry = admissible(catalogue, me).await?;
        if let Some(successor) = registry.successor(me) {
            return Ok(Reentry::Succeeded(Box::new(successor.clone())));
        }
        if let Some(node) = catalogue.component_join(&registry, host, me).await? {
            return Ok(Reentry::Registered(node));
        }
    }
    Err(changing())
}

/// Reads the registry, and checks that this replica may join it.
async fn admissible(catalogue: &Catalogue, me: &Component) -> Result<Registry, Error> {
    let registry = catalogue.registry().await?;
    registry.schema().check_known()?;
    if let Some(other) = registry.others(me.instance).next() {
        check_shared(catalogue, other).await?;
    }
    Ok(registry)
}

/// Checks that a pool may be on this replica's disk, which other registered replicas could not reach. The result holds
/// for a commit that finds the registry unchanged (P9).
pub fn check_alone(registry: &Registry, me: &Replica, pool: &PoolName) -> Result<(), Error> {
    match registry.others(me.instance).next() {
        Some(other) => {
            let why =
                format!("pool {pool} would be on the disk of one replica, and {} is up too", describe(other));
            Err(Error::NotAlone(why))
        }
        None => Ok(()),
    }
}

async fn check_shared(catalogue: &Catalogue, other: &Component) -> Result<(), Error> {
    let pools = catalogue.pools().await?;
    let Some(entry) = pools.iter().find(|entry| entry.pool.uri.is_embedded()) else { return Ok(()) };
    let why = format!(
        "{} is up, and pool {} ({}) is on the disk of one replica: a second one cannot serve its queues",
        describe(other),
        entry.name,
        entry.pool.uri.as_str()
    );
    Err(Error::NotAlone(why))
}

fn describe(other: &Component) -> String {
    format!("replica {} at {}", other.instance, other.address)
}

fn changing() -> Error {
    Error::unavailable(Part::Coordination, "the registry of replicas changes all the time")
}
