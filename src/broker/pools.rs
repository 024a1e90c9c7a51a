//! Pools: opening them at the start, and the storage behind a name.

use std::collections::HashMap;
use std::sync::Arc;

use tracing::error;
use uuid::Uuid;

use super::Broker;
use crate::catalogue::{Catalogue, PoolEntry, System};
use crate::domain::names::PoolName;
use crate::domain::pool::Pool;
use crate::error::{Error, Part};
use crate::storage::{PoolStore, Stamp, StoreError};

/// The pool of a fresh installation.
#[derive(Clone, Debug)]
pub struct FirstPool {
    /// Its name.
    pub name: PoolName,
    /// Where its storage is.
    pub uri: String,
    /// Its share of new queues, once there are other pools.
    pub weight: u32,
}

/// A pool of the catalogue.
pub(super) struct OpenPool {
    pub(super) entry: PoolEntry,
    /// Its storage, or why that cannot be used.
    store: Result<Arc<dyn PoolStore>, String>,
}

impl OpenPool {
    /// The storage of the pool. A pool that is unavailable stops only its own queues.
    pub(super) fn store(&self) -> Result<Arc<dyn PoolStore>, Error> {
        let unavailable = |why: &String| {
            Error::unavailable(Part::Storage, format!("pool {} is unavailable: {why}", self.entry.name))
        };
        self.store.as_ref().map(Arc::clone).map_err(unavailable)
    }
}

/// Opens every pool of the catalogue; a fresh installation gets `first`.
pub(super) async fn open_all(
    catalogue: &Catalogue,
    system: &System,
    first: &FirstPool,
    mut open: impl FnMut(&str) -> Result<Arc<dyn PoolStore>, Error>,
) -> Result<HashMap<PoolName, OpenPool>, Error> {
    if catalogue.pools().await?.is_empty() {
        let store = open(&first.uri)?;
        let id = register(&*store, system).await.map_err(|error| Error::unavailable(Part::Storage, error))?;
        let pool = Pool::new(id, &first.uri, first.weight);
        catalogue.pool_create(&first.name, &pool).await?;
    }
    let mut pools = HashMap::new();
    for entry in catalogue.pools().await? {
        let store = match open(&entry.pool.uri) {
            Ok(store) => check_stamp(store, system, entry.pool.id).await,
            Err(error) => Err(error.to_string()),
        };
        if let Err(why) = &store {
            error!(pool = %entry.name, why, "the pool is unavailable");
        }
        pools.insert(entry.name.clone(), OpenPool { entry, store });
    }
    Ok(pools)
}

/// Whether some pool can be used.
pub(super) fn check_any(pools: &HashMap<PoolName, OpenPool>) -> Result<(), Error> {
    let mut failure = Ok(());
    for pool in pools.values() {
        match pool.store() {
            Ok(_) => return Ok(()),
            Err(error) => failure = Err(error),
        }
    }
    failure
}

/// Stamps the storage of a new pool before the pool is recorded. A stamp of this installation that is there
/// already is that of a start which was cut short in between, and is taken over.
async fn register(store: &dyn PoolStore, system: &System) -> Result<Uuid, StoreError> {
    let id = match store.stamp().await? {
        Some(stamp) if stamp.system == system.id => stamp.pool,
        _ => Uuid::new_v4(),
    };
    store.register(Stamp { system: system.id, pool: id }).await?;
    Ok(id)
}

/// The storage, if it is that of the pool. Opening never stamps: an empty disk under a pool's name is an empty
/// disk, not the pool.
async fn check_stamp(
    store: Arc<dyn PoolStore>,
    system: &System,
    id: Uuid,
) -> Result<Arc<dyn PoolStore>, String> {
    match store.stamp().await {
        Ok(Some(stamp)) if stamp == (Stamp { system: system.id, pool: id }) => Ok(store),
        Ok(Some(stamp)) => Err(StoreError::Stamped(stamp).to_string()),
        Ok(None) => Err("its storage was never registered: it is empty, or another one".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

impl Broker {
    /// The open pool of a name.
    pub(super) fn pool(&self, name: &PoolName) -> Result<&OpenPool, Error> {
        let pool = self.0.pools.get(name);
        pool.ok_or_else(|| Error::unavailable(Part::Storage, format!("pool {name} is not open")))
    }
}
