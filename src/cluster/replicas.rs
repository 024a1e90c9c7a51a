//! Joining the registry, and the rule that storage on one replica's disk is for one replica alone.

use uuid::Uuid;

use crate::catalogue::{Catalogue, Component, ComponentState, Registry};
use crate::domain::names::PoolName;
use crate::domain::pool::Pool;
use crate::domain::time::Timestamp;
use crate::error::{Error, Part};

/// How often to look again when the registry changes at the same time.
const TRIES: usize = 8;
/// The form of the records that this program writes.
const SCHEMA: u32 = 1;

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

    fn component(&self, now: Timestamp) -> Component {
        Component {
            instance: self.instance,
            address: self.address.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            schema: SCHEMA,
            state: ComponentState::Up,
            weight: self.weight,
            started: now.as_millis(),
        }
    }
}

/// Registers this replica, in place of processes of its own before it. Refused while another replica is registered:
/// this version serves all slots from one, and an embedded pool is on the disk of one.
pub async fn join(catalogue: &Catalogue, me: &Replica, now: Timestamp) -> Result<(), Error> {
    for _ in 0..TRIES {
        let seen = catalogue.registry().await?;
        if let Some(other) = seen.others(me.instance).next() {
            return Err(refusal(catalogue, other).await?);
        }
        if catalogue.component_join(&seen, &me.host, &me.component(now)).await? {
            return Ok(());
        }
    }
    Err(changing())
}

/// Records a pool that lies on this replica's disk, if no other replica is up: none could reach it.
pub async fn add_local_pool(
    catalogue: &Catalogue,
    me: &Replica,
    name: &PoolName,
    pool: &Pool,
) -> Result<(), Error> {
    for _ in 0..TRIES {
        let seen: Registry = catalogue.registry().await?;
        if let Some(other) = seen.others(me.instance).next() {
            let why =
                format!("pool {name} would be on the disk of one replica, and {} is up too", told(other));
            return Err(Error::NotAlone(why));
        }
        if catalogue.pool_create_alone(&seen, name, pool).await? {
            return Ok(());
        }
        if catalogue.pools().await?.iter().any(|entry| entry.name == *name) {
            return Ok(());
        }
    }
    Err(changing())
}

async fn refusal(catalogue: &Catalogue, other: &Component) -> Result<Error, Error> {
    let pools = catalogue.pools().await?;
    let why = match pools.iter().find(|entry| entry.pool.is_local()) {
        Some(entry) => format!(
            "{} is up, and pool {} ({}) is on the disk of one replica: a second one cannot serve its queues",
            told(other),
            entry.name,
            entry.pool.uri
        ),
        None => format!("{} is up, and this version serves all queues from one replica", told(other)),
    };
    Ok(Error::NotAlone(why))
}

fn told(other: &Component) -> String {
    format!("replica {} at {}", other.instance, other.address)
}

fn changing() -> Error {
    Error::unavailable(Part::Coordination, "the registry of replicas changes all the time")
}
