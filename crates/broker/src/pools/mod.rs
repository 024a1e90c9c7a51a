//! The pool registry: records of pools and flavors, their opening and exchange, and the choice of a pool for a queue.

pub(crate) mod changes;
pub(crate) mod choice;
pub(crate) mod deletion;
pub(crate) mod first_pool;
pub(crate) mod flavors;
pub(crate) mod health;
pub(crate) mod recount;
pub(crate) mod registry;
pub(crate) mod search;
pub(crate) mod tenants;

use std::sync::Arc;

use crate::replica::LocalReplica;
use crate::slots::Slots;
use crate::stores::table::{OpenPool, PoolTable};

/// The pools and flavors of the installation. The open storages are in the [`PoolTable`]; this component changes
/// records and storages together, one change at a time.
#[derive(Clone)]
pub(crate) struct Pools(pub(in crate::pools) Arc<PoolsParts>);

pub(crate) struct PoolsParts {
    pub(in crate::pools) replica: Arc<LocalReplica>,
    pub(in crate::pools) stores: Arc<PoolTable>,
    pub(in crate::pools) slots: Slots,
    /// Held by a count of the queues of a pool.
    pub(in crate::pools) counting: tokio::sync::Mutex<()>,
}

impl Pools {
    pub(crate) fn new(replica: &Arc<LocalReplica>, stores: &Arc<PoolTable>, slots: &Slots) -> Self {
        let (replica, stores) = (Arc::clone(replica), Arc::clone(stores));
        Self(Arc::new(PoolsParts { replica, stores, slots: slots.clone(), counting: Default::default() }))
    }

    /// Returns all pools that are open here, by name.
    pub(crate) fn all(&self) -> Vec<Arc<OpenPool>> {
        self.0.stores.all()
    }
}
