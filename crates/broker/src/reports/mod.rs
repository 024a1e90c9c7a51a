//! Reports of the service: pages of metrics, statistics, health, the map of pools.

pub(crate) mod deepest;
pub(crate) mod health;
pub(crate) mod overview;
pub(crate) mod page;
pub(crate) mod pool_map;
pub(crate) mod usages;

use crate::reports::overview::ReportCache;
use crate::reports::page::Observation;
use std::sync::Arc;

use crate::balance::Balance;
use crate::health::Health;
use crate::pools::Pools;
use crate::quotas::QuotaCounts;
use crate::replica::LocalReplica;
use crate::slots::Slots;
use crate::stores::table::PoolTable;

#[derive(Clone)]
pub(crate) struct Reports(pub(crate) Arc<ReportsParts>);

pub(crate) struct ReportsParts {
    pub(crate) replica: Arc<LocalReplica>,
    pub(crate) stores: Arc<PoolTable>,
    pub(crate) slots: Slots,
    pub(crate) pools: Pools,
    pub(crate) quotas: QuotaCounts,
    pub(crate) balance: Balance,
    pub(crate) health: Health,
    pub(crate) watch: Observation,
    pub(crate) memory: ReportCache,
}

impl Reports {
    pub(crate) fn new(parts: ReportsParts) -> Self {
        Self(Arc::new(parts))
    }
}
