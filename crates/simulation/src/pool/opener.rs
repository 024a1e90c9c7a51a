//! The opener of simulated pools, for one process.

use std::sync::Arc;

use angarium_storage::PoolStore;
use angarium_storage::open::{Opener, PoolOpenError};

use super::{SimulatedPool, Storages};

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
}

impl Opener for SimulatedOpener {
    fn open(&self, uri: &str) -> Result<Arc<dyn PoolStore>, PoolOpenError> {
        let unknown = || PoolOpenError::Scheme(uri.to_owned());
        let storage = self.storages.of_uri(uri).ok_or_else(unknown)?;
        Ok(Arc::new(SimulatedPool::new(storage, self.storages.world().clone(), &self.process)))
    }

    fn close(&self, _: &str) {}

    fn never_blocks(&self) -> bool {
        true
    }
}
