//! The open pools, kept in step with their records: read, opened, exchanged, removed.

use std::sync::Arc;

use tokio::sync::MutexGuard;
use tokio::time::timeout;

use angarium_catalogue::PoolEntry;
use angarium_core::error::{Error, Part};
use angarium_core::names::PoolName;

use crate::limits;
use crate::pools::Pools;
use crate::stores::open_pool::OpenPool;

impl Pools {
    /// Waits until no other caller changes pools or flavors, and takes the lock of these changes.
    ///
    /// # Errors
    ///
    /// A change has not ended after [`limits::POOL_TURN`]: its disk may hang.
    pub(crate) async fn pool_lock(&self) -> Result<MutexGuard<'_, ()>, Error> {
        let turn = timeout(limits::POOL_TURN, self.0.stores.changing.lock()).await;
        turn.map_err(|_| Error::unavailable(Part::Server, "a change of pools or flavors has not ended yet"))
    }

    /// Reads the records of all pools again, after a change by another caller.
    pub(crate) async fn reload_pools(&self) -> Result<(), Error> {
        let _turn = self.pool_lock().await?;
        self.0.replica.catalogue.catch_up().await?;
        self.read_pools().await
    }

    /// As `reload_pools`, for a caller that holds the lock of changes.
    pub(crate) async fn read_pools(&self) -> Result<(), Error> {
        let table = &self.0.stores;
        let entries = self.0.replica.catalogue.pools().await?;
        for gone in table.all() {
            if !entries.iter().any(|entry| entry.name == gone.entry.name) {
                self.forget_pool(&gone.entry.name).await;
            }
        }
        for entry in entries {
            self.learn_pool(entry).await;
        }
        Ok(())
    }

    /// Takes over the record of a pool, and opens its storage if that is not open.
    pub(crate) async fn learn_pool(&self, entry: PoolEntry) {
        let table = &self.0.stores;
        match table.get(&entry.name) {
            Some(known) if known.is_of(&entry.pool) && known.store.is_ok() => table.update(entry),
            _ => {
                let opened = table.open_entry(entry).await;
                self.exchange_pool(opened);
            }
        }
    }

    /// Returns the open pool that a record names. It reads the records again when the pool is not known here: another
    /// caller has added it.
    pub(crate) async fn pool_of_record(&self, name: &PoolName) -> Result<Arc<OpenPool>, Error> {
        self.pool_of_deleted(name).await?;
        self.0.stores.pool(name)
    }

    /// Whether a pool is being removed with the messages in it.
    pub(crate) fn is_lost(&self, name: &PoolName) -> bool {
        self.0.stores.is_lost(name)
    }

    /// Returns the open pool that the record of a deleted queue names; none when the pool was removed with its data.
    pub(crate) async fn pool_of_deleted(&self, name: &PoolName) -> Result<Option<Arc<OpenPool>>, Error> {
        if self.0.stores.get(name).is_none() {
            self.reload_pools().await?;
        }
        Ok(self.0.stores.get(name))
    }

    /// Puts an open pool in the place of the former one. Slot writers to the same storage continue with the new handle.
    /// Slot writers to another storage of that name are dropped; no queue can need them.
    pub(crate) fn exchange_pool(&self, pool: OpenPool) {
        let (name, before) = (pool.entry.name.clone(), self.0.stores.get(&pool.entry.name));
        let is_same = before.as_ref().is_some_and(|before| before.entry.pool.id == pool.entry.pool.id);
        let store = pool.store();
        self.0.stores.insert(pool);
        for slot in self.0.slots.owned() {
            if !is_same {
                slot.drop_writer(&name);
            } else if let Ok(store) = &store {
                slot.switch_store(&name, store);
            }
        }
        if let Some(before) = before.filter(|before| before.store.is_ok()) {
            self.0.stores.close(&before.entry.pool.uri);
        }
    }

    /// Removes a deleted pool. No queue is in it.
    pub(crate) async fn forget_pool(&self, name: &PoolName) {
        for slot in self.0.slots.owned() {
            slot.drop_writer(name);
        }
        self.0.stores.remove(name).await;
    }

    /// Tries to open pools that could not be opened.
    pub(crate) async fn reopen_pools(&self) {
        if self.0.stores.all().iter().all(|pool| pool.store.is_ok()) {
            return;
        }
        if let Err(error) = self.reload_pools().await {
            self.0.replica.task_failed("read pool records", "catalogue", &error);
        }
    }
}
