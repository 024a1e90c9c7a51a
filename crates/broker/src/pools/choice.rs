//! The choice of a pool for a new queue.

use std::sync::Arc;

use angarium_catalogue::FlavorEntry;
use angarium_core::attributes::{self, Attributes};
use angarium_core::error::{Error, InvalidPart};
use angarium_core::names::{FlavorName, PoolName, QueueRef};
use angarium_core::queue::Metadata;
use angarium_engine::placement::Candidate;

use crate::pools::Pools;
use crate::stores::table::OpenPool;

impl Pools {
    /// Returns the flavor that the metadata of a queue names.
    pub(crate) async fn flavor_of(&self, metadata: &Metadata) -> Result<Option<FlavorEntry>, Error> {
        let Some(name) = &metadata.attributes().flavor else { return Ok(None) };
        let unknown = || {
            let why = format!("flavor {name} does not exist");
            Error::invalid(InvalidPart::Limit, attributes::FLAVOR, why)
        };
        if let Some(known) = self.0.replica.catalogue.flavor(name).await? {
            return Ok(Some(known));
        }
        // Another replica may have just created it.
        self.0.replica.catalogue.catch_up().await?;
        self.0.replica.catalogue.flavor(name).await?.map(Some).ok_or_else(unknown)
    }

    /// As `place`. When there is no pool it reads the records again.
    pub(crate) async fn place_again(
        &self,
        at: &QueueRef,
        flavor: Option<&FlavorName>,
        attributes: &Attributes,
    ) -> Result<Arc<OpenPool>, Error> {
        match self.place(at, flavor, attributes) {
            // Another caller may have added a pool.
            Err(Error::NoPool) => {
                self.reload_pools().await?;
                self.place(at, flavor, attributes)
            }
            placed => placed,
        }
    }

    /// Whether a hold of this pool is in force, as this replica knows it.
    pub(crate) fn is_held(&self, pool: &PoolName) -> bool {
        self.0.slots.shared_holds().has_pool(pool, self.0.replica.clock.now())
    }

    /// Chooses the pool of a new queue among the pools of its flavor or, without a flavor, among the pools that have
    /// none. Pools that accept no writes now are left out, and so are pools that are less durable than the queue
    /// requires. A pool without room for messages is chosen only when there is no other, and so is a held pool.
    pub(crate) fn place(
        &self,
        at: &QueueRef,
        flavor: Option<&FlavorName>,
        attributes: &Attributes,
    ) -> Result<Arc<OpenPool>, Error> {
        let mut pools = self.0.stores.all();
        pools.retain(|pool| pool.entry.pool.takes(flavor));
        if pools.is_empty() {
            return Err(Error::NoPool);
        }
        let writable = |pool: &Arc<OpenPool>| {
            pool.store().and_then(|store| store.check_open().map_err(|error| store.failed(error)))
        };
        let refusal = pools.iter().find_map(|pool| writable(pool).err());
        pools.retain(|pool| writable(pool).is_ok());
        let is_writable = !pools.is_empty();
        pools.retain(|pool| pool.store().is_ok_and(|store| attributes.allow(store.reach())));
        // A pool that does not answer may be durable enough.
        if is_writable && pools.is_empty() && refusal.is_none() {
            let why = "no pool that takes the queue is as durable";
            return Err(Error::invalid(InvalidPart::Limit, attributes::DURABILITY, why));
        }
        if pools.iter().any(|pool| pool.is_writable()) {
            pools.retain(|pool| pool.is_writable());
        }
        let is_free = |pool: &Arc<OpenPool>| !self.is_held(&pool.entry.name);
        if pools.iter().any(is_free) {
            pools.retain(is_free);
        }
        let candidates: Vec<Candidate<'_>> = pools.iter().map(|pool| pool.candidate()).collect();
        let key = [at.project.as_str().as_bytes(), &[0], at.name.as_str().as_bytes()].concat();
        let choice = self.0.stores.placement.choose(&candidates, &key, &mut self.0.replica.random.clone());
        choice.map(|choice| Arc::clone(&pools[choice])).ok_or_else(|| refusal.unwrap_or(Error::NoPool))
    }
}
