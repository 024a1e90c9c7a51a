//! Figures that are too expensive for a page of metrics: the usage of pools and the holdings of projects with quotas.
//! They are fetched in the background, and a page shows the last answers.

use crate::reports::Reports;

use crate::limits;
use angarium_metrics::ObservedPool;

impl Reports {
    /// Asks each pool for its usage at an interval, until the service stops.
    pub(crate) async fn watch_usage(&self) {
        loop {
            // This stores each answer.
            self.fetch_usages().await;
            if !self.0.replica.sleep_tick(limits::USAGE_TICK).await {
                return;
            }
        }
    }

    /// Returns the pools as a page shows them.
    pub(crate) fn observed_pools(&self) -> Vec<ObservedPool> {
        let usages = self.0.memory.usages(limits::USAGE_TICK * 3);
        let pools = self.0.stores.all();
        let observed = pools.iter().map(|pool| {
            let usage = usages.get(&pool.entry.name);
            ObservedPool { held: usage.map(|usage| (usage.messages, usage.bytes)), ..pool.observed() }
        });
        observed.collect()
    }
}
