//! The opener of simulated pools, for one process.

use std::sync::Arc;

use angarium_storage::PoolStore;
use angarium_storage::open::{Opener, PoolOpenError};

use super::{SimulatedPool, Storage, Storages};
use crate::faults::Fault;

/// Opens simulated storages for one process.
pub struct SimulatedOpener {
    storages: Storages,
    process: String,
}

impl SimulatedOpener {
    /// Creates the opener of a process.
    pub fn new(storages: Storages, process: String) -> Self {
        Self { storages, process }
    }

    fn storage(&self, uri: &str) -> Result<Storage, PoolOpenError> {
        self.storages.of_uri(uri).ok_or_else(|| PoolOpenError::Scheme(uri.to_owned()))
    }

    fn pool(&self, storage: Storage) -> Arc<dyn PoolStore> {
        Arc::new(SimulatedPool::new(storage, self.storages.world().clone(), &self.process))
    }
}

impl Opener for SimulatedOpener {
    fn open(&self, uri: &str) -> Result<Arc<dyn PoolStore>, PoolOpenError> {
        Ok(self.pool(self.storage(uri)?))
    }

    fn open_registered(&self, uri: &str) -> Result<Arc<dyn PoolStore>, PoolOpenError> {
        let storage = self.storage(uri)?;
        let is_foreign = self.storages.world().happens(Fault::PoolForeign);
        Ok(self.pool(if is_foreign { self.storages.foreign(&storage) } else { storage }))
    }

    fn close(&self, _: &str) {}

    fn never_blocks(&self) -> bool {
        true
    }
}
