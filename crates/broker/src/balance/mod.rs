//! The balance of queues between pools: surveys, plans, drains of pools.

pub(crate) mod automatic;
pub(crate) mod drain;
pub(crate) mod loads;
pub(crate) mod plan;
pub(crate) mod removal;
pub(crate) mod survey;

use std::sync::Arc;

use crate::ledger::quota_ledger::Ledger;
use crate::migration::Migrations;
use crate::open_queues::OpenQueues;
use crate::pools::Pools;
use crate::replica::LocalReplica;
use crate::slots::Slots;
use crate::stores::table::PoolTable;
use crate::transfer::MessageTransfers;

#[derive(Clone)]
pub(crate) struct Balance(pub(crate) Arc<BalanceParts>);

pub(crate) struct BalanceParts {
    pub(crate) replica: Arc<LocalReplica>,
    pub(crate) stores: Arc<PoolTable>,
    pub(crate) slots: Slots,
    pub(crate) pools: Pools,
    pub(crate) open_queues: OpenQueues,
    pub(crate) migrations: Migrations,
    pub(crate) transfers: MessageTransfers,
    pub(crate) ledger: Arc<Ledger>,
}

impl Balance {
    pub(crate) fn new(parts: BalanceParts) -> Self {
        Self(Arc::new(parts))
    }
}
