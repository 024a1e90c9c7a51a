//! Health of this replica: reachable pools and replicas, damage, readiness.

pub(crate) mod reach;
pub(crate) mod readiness;
pub(crate) mod ready;

use std::sync::Arc;

use crate::health::reach::Reach;
use crate::pools::Pools;
use crate::replica::LocalReplica;
use crate::slots::Slots;
use crate::stores::table::PoolTable;

#[derive(Clone)]
pub(crate) struct Health(pub(crate) Arc<HealthParts>);

pub(crate) struct HealthParts {
    pub(crate) replica: Arc<LocalReplica>,
    pub(crate) stores: Arc<PoolTable>,
    pub(crate) slots: Slots,
    pub(crate) pools: Pools,
    pub(crate) reach: Reach,
    pub(crate) unready: parking_lot::Mutex<Option<String>>,
}

impl Health {
    pub(crate) fn new(parts: HealthParts) -> Self {
        Self(Arc::new(parts))
    }
}
