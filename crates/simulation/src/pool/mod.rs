//! The simulated pools: storages that all processes reach through the simulated network, and the driver for them.
//!
//! - `storage` has the data of a pool, applies the rules of writes, and obeys the controller of the simulation.
//! - `driver` is the `PoolStore` of one process: each call is a request that the faults of the world can meet.
//! - `opener` opens the storages of URIs.
//! - `plans` has the faults that a probe plans.
//! - `lines` has the texts of both in the trace.

mod driver;
mod lines;
mod opener;
mod plans;
mod storage;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use angarium_core::durability::Durability;

use crate::world::World;

pub use driver::{ANSWER_TIMEOUT, SimulatedPool};
pub use opener::SimulatedOpener;
pub use plans::{Plans, PostPlan, SlowCall};
pub use storage::{CAPACITY, PoolSnapshot, Storage};

/// The scheme of the URIs of simulated pools, with its separator.
pub const SCHEME: &str = "sim://";

/// All simulated storages. Clones share them.
#[derive(Clone)]
pub struct Storages {
    world: World,
    /// By name. Held for a read or a write of one element.
    storages: Arc<Mutex<BTreeMap<String, Storage>>>,
    /// Other storages that were found under the name of one, such as an empty disk. No judge reads them. Held for a read
    /// or a write of one element.
    foreign: Arc<Mutex<BTreeMap<String, Storage>>>,
}

impl Storages {
    /// Returns an empty set of storages.
    pub fn new(world: World) -> Self {
        Self { world, storages: Arc::default(), foreign: Arc::default() }
    }

    /// Returns the world that they are in.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// Adds an empty storage that reaches this class of writes. A name that is in use keeps its storage.
    pub fn add(&self, name: &str, class: Durability) -> Storage {
        let mut storages = self.storages.lock();
        let storage = || Storage::new(self.world.clone(), name, class);
        storages.entry(name.to_owned()).or_insert_with(storage).clone()
    }

    /// Returns the storage with a name: the text after the scheme in the URI of its pool.
    pub fn get(&self, name: &str) -> Option<Storage> {
        self.storages.lock().get(name).cloned()
    }

    /// Returns another storage for the name of one: without a stamp, and with what was written to it.
    pub(super) fn foreign(&self, storage: &Storage) -> Storage {
        let name = storage.name();
        let foreign = || Storage::new(self.world.clone(), &format!("foreign {name}"), storage.class());
        self.foreign.lock().entry(name.to_owned()).or_insert_with(foreign).clone()
    }

    /// Returns the storage of a URI such as `sim://a`.
    pub fn of_uri(&self, uri: &str) -> Option<Storage> {
        self.get(uri.strip_prefix(SCHEME)?)
    }

    /// Returns one of the storages at random; none if there is none.
    pub fn any(&self) -> Option<Storage> {
        let all = self.all();
        let bound = u64::try_from(all.len()).ok().filter(|bound| *bound > 0)?;
        all.get(usize::try_from(self.world.below(bound)).unwrap_or(0)).cloned()
    }

    /// Returns all storages in order of their names.
    pub fn all(&self) -> Vec<Storage> {
        self.storages.lock().values().cloned().collect()
    }
}
