//! Changes of the pool of a queue while clients use it (P6).

pub(crate) mod begin;
pub(crate) mod copies;
pub(crate) mod copy_phase;

use std::sync::Arc;

use crate::open_queues::OpenQueues;
use crate::pools::Pools;
use crate::replica::LocalReplica;
use crate::slots::Slots;
use crate::stores::table::PoolTable;

#[derive(Clone)]
pub(crate) struct Migrations(pub(crate) Arc<MigrationsParts>);

pub(crate) struct MigrationsParts {
    pub(crate) replica: Arc<LocalReplica>,
    pub(crate) stores: Arc<PoolTable>,
    pub(crate) slots: Slots,
    pub(crate) pools: Pools,
    pub(crate) open_queues: OpenQueues,
}

impl Migrations {
    pub(crate) fn new(parts: MigrationsParts) -> Self {
        Self(Arc::new(parts))
    }
}
