//! Joining the registry, and the rule that storage on the disk of a replica allows no other replica.

use uuid::Uuid;

use crate::random::Random;
use crate::tasks::Tasks;
use angarium_catalogue::{Catalogue, Component, ComponentState, Registry, Schema, UnreachedParts};
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
    /// Weight of its share of the slots.
    pub weight: u32,
    /// The source of its random values.
    pub random: Random,
    /// Its tasks.
    pub tasks: Tasks,
}

impl Replica {
    /// Creates a replica of weight 1, with the random values of the system and tasks that run as soon as they can.
    pub fn new(instance: Uuid, host: impl Into<String>, address: impl Into<String>) -> Self {
        Self {
            instance,
            host: host.into(),
            address: address.into(),
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
        }
    }
}

/// Registers a replica of this host, in place of its own earlier processes, and returns the name of its node. Refused
/// while another replica is registered and a pool is on the disk of one replica: the other could not serve its queues.
/// Refused too when this program does not know the format of the records in force.
pub async fn join(catalogue: &Catalogue, host: &str, me: &Component) -> Result<String, Error> {
    for _ in 0..TRIES {
        let registry = catalogue.registry().await?;
        registry.schema().check_known()?;
        if let Some(other) = registry.others(me.instance).next() {
            check_shared(catalogue, other).await?;
        }
        if let Some(node) = catalogue.component_join(&registry, host, me).await? {
            return Ok(node);
        }
    }
    Err(changing())
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
