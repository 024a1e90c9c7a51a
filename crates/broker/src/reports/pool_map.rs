//! The map of pools: their shares by weight, their usage, and the queues under migration.

use crate::reports::Reports;
use std::collections::BTreeMap;

use crate::balance::survey::Survey;
use crate::reports::overview::PartReport;
use angarium_catalogue::{BalanceRecord, PoolQueues};
use angarium_core::error::Error;
use angarium_core::names::PoolName;
use angarium_core::pool::Pool;
use angarium_storage::Usage;

/// All pools.
#[derive(Clone, Debug)]
pub struct PoolMap {
    /// The pools, by name.
    pub pools: Vec<MappedPool>,
    /// Number of queues under migration, by the pool that they leave and the pool that they move to. The queues of
    /// subscriptions count with their sources.
    pub moves: BTreeMap<(PoolName, PoolName), u64>,
    /// Whether every queue was read.
    pub is_whole: bool,
    /// The last round of automatic balance; none when there was none.
    pub balance: Option<BalanceRecord>,
}

/// A pool on the map.
#[derive(Clone, Debug)]
pub struct MappedPool {
    /// Name of the pool.
    pub name: PoolName,
    /// Its record.
    pub pool: Pool,
    /// Number of queues whose new messages it takes.
    pub queues: PoolQueues,
    /// Its usage.
    pub usage: PartReport<Usage>,
}

impl Reports {
    /// Returns the map of pools. It costs a read for each queue.
    pub async fn pool_map(&self) -> Result<PoolMap, Error> {
        self.0.pools.reload_pools().await?;
        let balance = self.0.balance.last_balance();
        let (survey, usages, balance) = tokio::join!(self.0.balance.survey(), self.fetch_usages(), balance);
        let balance = balance?;
        let Survey { queues, is_whole } = survey?;
        let (mut counts, mut moves) = (BTreeMap::<PoolName, PoolQueues>::new(), BTreeMap::new());
        for queue in queues {
            let to = queue.placement.pool;
            let count = counts.entry(to.clone()).or_default();
            count.all += 1;
            let is_source = queue.at.name.subscription().is_none();
            count.of_subscriptions += u64::from(!is_source);
            if let Some(from) = queue.placement.older.filter(|_| is_source) {
                *moves.entry((from, to)).or_default() += 1;
            }
        }
        let mut usages: BTreeMap<PoolName, PartReport<Usage>> = usages.into_iter().collect();
        let mut pools: Vec<MappedPool> = Vec::with_capacity(usages.len());
        for open in self.0.stores.all() {
            let (name, pool) = (open.entry.name.clone(), open.entry.pool.clone());
            // A pool that was just added has not been asked.
            let Some(usage) = usages.remove(&name) else { continue };
            let queues = counts.get(&name).copied().unwrap_or_default();
            pools.push(MappedPool { name, pool, queues, usage });
        }
        pools.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(PoolMap { pools, moves, is_whole, balance })
    }
}
