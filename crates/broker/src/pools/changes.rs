//! Pools: look up, add, change. Deletion is in [`crate::pools::deletion`].

use angarium_catalogue::{PoolEntry, Registry};
use angarium_core::error::{Error, Part, Resource};
use angarium_core::hold::{Hold, HoldTarget};
use angarium_core::names::PoolName;
use angarium_core::pool::{Pool, PoolChange, PoolUri};
use angarium_storage::PoolStore;

use crate::pools::Pools;
use crate::pools::deletion::Leftovers;
use crate::stores::refusal::{cannot_open, storage_refusal};
use crate::stores::table::{CHANGE_TRIES, OpenPool};

/// A pool as its operators see it.
#[derive(Clone, Debug)]
pub struct PoolView {
    /// Name of the pool.
    pub name: PoolName,
    /// Its record.
    pub pool: Pool,
    /// Its hold in force, as this replica knows it.
    pub hold: Option<Hold>,
}

impl Pools {
    fn view(&self, PoolEntry { name, pool, .. }: PoolEntry) -> PoolView {
        let target = HoldTarget::Pool(name.clone());
        let hold = self.0.slots.shared_holds().hold(&target, self.0.replica.clock.now());
        PoolView { name, pool, hold }
    }

    /// Returns a pool as the catalogue has it, with the changes of every replica.
    pub async fn pool_get(&self, name: &PoolName) -> Result<PoolView, Error> {
        let entry = self.0.replica.catalogue.pool(name).await?;
        entry.map(|entry| self.view(entry)).ok_or_else(|| no_pool(name))
    }

    /// Returns at most `limit` pools, by name, after `marker`.
    pub async fn pools_list(&self, marker: Option<&str>, limit: usize) -> Result<Vec<PoolView>, Error> {
        let names = self.0.replica.catalogue.pool_names().await?;
        let after = names.into_iter().filter(|name| marker.is_none_or(|marker| name.as_str() > marker));
        let mut pools = Vec::new();
        for name in after.take(limit) {
            pools.extend(self.0.replica.catalogue.pool(&name).await?.map(|entry| self.view(entry)));
        }
        Ok(pools)
    }

    /// Adds a pool and opens its storage, which is then served without a restart, or changes an existing pool to
    /// `wanted`. A storage that another pool has is a conflict.
    pub async fn pool_put(&self, name: &PoolName, wanted: PoolChange) -> Result<(), Error> {
        let (pools, name) = (self.clone(), name.clone());
        let put = async move {
            let _turn = pools.pool_lock().await?;
            for _ in 0..CHANGE_TRIES {
                pools.0.replica.catalogue.catch_up().await?;
                let done = match pools.0.replica.catalogue.pool(&name).await? {
                    Some(entry) => pools.change_pool(entry, &wanted).await?.is_some(),
                    None => pools.add_pool(&name, &wanted).await?,
                };
                if done {
                    return Ok(());
                }
            }
            Err(changed_each_time())
        };
        self.0.replica.carry_out(put).await
    }

    /// Changes a pool. The URI of a used pool may change only if the new URI leads to the same storage.
    pub async fn pool_patch(&self, name: &PoolName, change: PoolChange) -> Result<PoolView, Error> {
        let (pools, name) = (self.clone(), name.clone());
        let patch = async move {
            let _turn = pools.pool_lock().await?;
            for _ in 0..CHANGE_TRIES {
                pools.0.replica.catalogue.catch_up().await?;
                let entry = pools.0.replica.catalogue.pool(&name).await?.ok_or_else(|| no_pool(&name))?;
                if let Some(entry) = pools.change_pool(entry, &change).await? {
                    return Ok(pools.view(entry));
                }
            }
            Err(changed_each_time())
        };
        self.0.replica.carry_out(patch).await
    }

    /// Returns false when another pool was added meanwhile: the caller then tries again.
    async fn add_pool(&self, name: &PoolName, wanted: &PoolChange) -> Result<bool, Error> {
        let Some(uri) = &wanted.uri else { return Err(no_pool(name)) };
        let table = &self.0.stores;
        let registry = self.0.replica.catalogue.registry().await?;
        let others = self.0.replica.catalogue.pools().await?;
        check_free(uri, name, &others)?;
        self.check_reach(&registry, name, uri)?;
        let store = table.open(uri).await.map_err(|error| cannot_open(uri, &error))?;
        let added = match table.register(uri, &*store, &others).await {
            Ok(id) => {
                let pool = wanted.apply(Pool::new(id, uri.clone(), 0));
                self.0.replica.catalogue.pool_add(&registry, name, &pool).await
            }
            Err(error) => Err(error),
        };
        match added {
            Ok(Some(entry)) => {
                self.exchange_pool(OpenPool::new(entry, Ok(store)));
                Ok(true)
            }
            // If the pool was added after all, the next read of the records opens it.
            not_added => {
                drop(store);
                table.close(uri);
                not_added.map(|_| false)
            }
        }
    }

    /// Checks that every running replica can reach a storage.
    fn check_reach(&self, registry: &Registry, name: &PoolName, uri: &PoolUri) -> Result<(), Error> {
        if uri.is_embedded() {
            self.0.slots.check_alone(registry, name)?;
        }
        Ok(())
    }

    /// Returns none when the record changed meanwhile: the caller then tries again.
    async fn change_pool(&self, entry: PoolEntry, change: &PoolChange) -> Result<Option<PoolEntry>, Error> {
        // A deletion of the pool in progress then finds the record changed, and starts again.
        let wanted = Pool { closing: false, ..change.apply(entry.pool.clone()) };
        if let Some(uri) = change.uri.as_ref().filter(|uri| **uri != entry.pool.uri) {
            return self.move_pool(entry, Pool { uri: uri.clone(), ..wanted }).await;
        }
        let changed = self.0.replica.catalogue.pool_set(&entry, &wanted).await?;
        if let Some(entry) = &changed {
            self.learn_pool(entry.clone()).await;
        }
        Ok(changed)
    }

    /// Points a pool to another URI: with the same storage, or with any storage if the pool is not used (P9).
    async fn move_pool(&self, entry: PoolEntry, wanted: Pool) -> Result<Option<PoolEntry>, Error> {
        let table = &self.0.stores;
        let registry = self.0.replica.catalogue.registry().await?;
        let others = self.0.replica.catalogue.pools().await?;
        check_free(&wanted.uri, &entry.name, &others)?;
        self.check_reach(&registry, &entry.name, &wanted.uri)?;
        let store = table.open(&wanted.uri).await.map_err(|error| cannot_open(&wanted.uri, &error))?;
        let moved = match store.stamp().await {
            Ok(stamp) if stamp == Some(table.stamp(entry.pool.id)) => {
                self.0.replica.catalogue.pool_move(&registry, &entry, &wanted).await
            }
            Ok(_) => self.move_unused(&registry, &entry, &wanted, &*store, &others).await,
            Err(error) => Err(storage_refusal(&wanted.uri, error)),
        };
        match moved {
            Ok(Some(entry)) => {
                self.exchange_pool(OpenPool::new(entry.clone(), Ok(store)));
                Ok(Some(entry))
            }
            not_moved => {
                drop(store);
                table.close(&wanted.uri);
                not_moved
            }
        }
    }

    /// Gives an unused pool another storage, which is stamped for it.
    async fn move_unused(
        &self,
        registry: &Registry,
        entry: &PoolEntry,
        wanted: &Pool,
        store: &dyn PoolStore,
        others: &[PoolEntry],
    ) -> Result<Option<PoolEntry>, Error> {
        let Some(closed) = self.close_unused(entry, Leftovers::Removed).await? else { return Ok(None) };
        let moved = match self.0.stores.register(&wanted.uri, store, others).await {
            Ok(id) => {
                let wanted = Pool { id, ..wanted.clone() };
                self.0.replica.catalogue.pool_move(registry, &closed, &wanted).await
            }
            Err(error) => Err(error),
        };
        if !matches!(moved, Ok(Some(_))) {
            self.reopen_to_queues(&closed).await?;
        }
        moved
    }
}

fn check_free(uri: &PoolUri, name: &PoolName, others: &[PoolEntry]) -> Result<(), Error> {
    match others.iter().find(|other| other.name != *name && other.pool.uri == *uri) {
        Some(other) => Err(Error::Conflict(format!("uri: pool {} has the same", other.name))),
        None => Ok(()),
    }
}

pub(crate) fn no_pool(name: &PoolName) -> Error {
    Error::NotFound { resource: Resource::Pool, name: name.to_string() }
}

pub(crate) fn changed_each_time() -> Error {
    Error::unavailable(Part::Coordination, "another request changed the pools each time")
}
