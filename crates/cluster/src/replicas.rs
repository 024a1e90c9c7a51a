//! Joining the registry, and the rule that storage on one replica's disk is for one replica alone.

use uuid::Uuid;

use angarium_catalogue::{Catalogue, Component, ComponentState, Registry, Schema, UnreachedParts};
use angarium_core::error::{Error, Part};
use angarium_core::names::PoolName;
use angarium_core::time::Timestamp;

/// How often to look again when the registry changes at the same time.
const TRIES: usize = 8;

/// This replica, as the others know it.
#[derive(Clone, Debug)]
pub struct Replica {
    /// Kept in its data directory: the next process there has the same.
    pub instance: Uuid,
    /// The name of its host.
    pub host: String,
    /// Where others reach it.
    pub address: String,
    /// Its share of the slots.
    pub weight: u32,
}

impl Replica {
    /// A replica of weight 1.
    pub fn new(instance: Uuid, host: impl Into<String>, address: impl Into<String>) -> Self {
        Self { instance, host: host.into(), address: address.into(), weight: 1 }
    }

    /// What it states of itself.
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

/// Registers a replica of this host, in place of processes of its own before it, and returns the name of its node. Refused
/// while another replica is registered and a pool is on the disk of one: the other could not serve its queues. Refused too when
/// the records have a form by now that this program does not know.
pub async fn join(catalogue: &Catalogue, host: &str, me: &Component) -> Result<String, Error> {
    for _ in 0..TRIES {
        let seen = catalogue.registry().await?;
        seen.schema().check_known()?;
        if let Some(other) = seen.others(me.instance).next() {
            check_shared(catalogue, other).await?;
        }
        if let Some(node) = catalogue.component_join(&seen, host, me).await? {
            return Ok(node);
        }
    }
    Err(changing())
}

/// Whether a pool may be on this replica's disk: not while another replica is up, for none could reach it. It holds for
/// a commit that finds the registry as it was seen (P9).
pub fn check_alone(seen: &Registry, me: &Replica, pool: &PoolName) -> Result<(), Error> {
    match seen.others(me.instance).next() {
        Some(other) => {
            let why =
                format!("pool {pool} would be on the disk of one replica, and {} is up too", told(other));
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
        told(other),
        entry.name,
        entry.pool.uri.as_str()
    );
    Err(Error::NotAlone(why))
}

fn told(other: &Component) -> String {
    format!("replica {} at {}", other.instance, other.address)
}

fn changing() -> Error {
    Error::unavailable(Part::Coordination, "the registry of replicas changes all the time")
}
