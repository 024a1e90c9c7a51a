//! The pools that a later process has taken: see [`crate::stores::tenants`].

use tracing::error;

use angarium_catalogue::PoolEntry;
use angarium_core::error::Error;

use crate::pools::Pools;
use crate::stores::open_pool::{OpenPool, StorageFault};

impl Pools {
    /// Looks whether this process still holds the pools outside of this machine, and closes the others.
    pub(crate) async fn look_up_tenants(&self) {
        if let Err(error) = self.close_taken_pools().await {
            self.0.replica.task_failed("look up tenants of pools", "pools", &error);
        }
    }

    async fn close_taken_pools(&self) -> Result<(), Error> {
        for pool in self.0.stores.all() {
            let Ok(store) = &pool.store else { continue };
            if let Err(fault) = self.0.stores.tenants.occupy(&pool.entry, &**store).await {
                let _turn = self.pool_lock().await?;
                self.close_taken(pool.entry.clone(), fault);
            }
        }
        Ok(())
    }

    /// Stops the use of a pool, until this process is started again.
    fn close_taken(&self, entry: PoolEntry, fault: StorageFault) {
        let name = entry.name.clone();
        if !self.0.stores.get(&name).is_some_and(|known| known.is_of(&entry.pool)) {
            return;
        }
        error!(pool = %name, reason = fault.why, "pool used by copy of this installation");
        self.exchange_pool(OpenPool::new(entry, Err(fault)));
        // Their writers have the storage still.
        for slot in self.0.slots.owned().filter(|slot| slot.pools().contains(&name)) {
            self.0.slots.begin_recovery(&slot, "a copy of this installation uses its pool");
        }
    }
}
