//! Figures that cost more than a page of metrics may: what pools hold in all, and what projects with quotas hold. They are asked
//! for in the background, and a page shows the last answers.

use std::cmp::Reverse;

use super::Broker;
use angarium_core::limits;
use angarium_core::names::ProjectId;
use angarium_metrics::{ObservedPool, ObservedQuota};

impl Broker {
    /// Asks each pool what it holds, until the service stops.
    pub(super) async fn watch_usage(&self) {
        loop {
            // Each answer is kept.
            self.fetch_usages().await;
            if !self.sleep_tick(limits::USAGE_TICK).await {
                return;
            }
        }
    }

    /// Has the projects counted that have a quota by name, until the service stops.
    pub(super) async fn count_quotas(&self) {
        loop {
            let named = self.0.quotas.borrow().bounded(limits::METERED_QUOTAS);
            for account in named {
                if self.0.stop.is_cancelled() {
                    return;
                }
                // One that takes long continues by itself.
                let _ = self.counted_quota(&account).await;
            }
            if !self.sleep_tick(limits::USAGE_TICK).await {
                return;
            }
        }
    }

    /// The pools as a page shows them.
    pub(super) fn observed_pools(&self) -> Vec<ObservedPool> {
        let usages = self.0.memory.usages(limits::USAGE_TICK * 3);
        let pools = self.0.pools.all();
        let observed = pools.iter().map(|pool| {
            let usage = usages.get(&pool.entry.name);
            ObservedPool { held: usage.map(|usage| (usage.messages, usage.bytes)), ..pool.observed() }
        });
        observed.collect()
    }

    /// What projects with a quota hold in the slots of this replica, as far as they were counted: those that use most of theirs.
    pub(super) fn observed_quotas(&self) -> Vec<ObservedQuota> {
        let quotas = self.0.quotas.borrow().clone();
        let counted = self.0.ledger.counted();
        let observed = counted.into_iter().filter_map(|project| {
            let (quota, used) = (quotas.of(&project), self.0.ledger.holdings(&project)?);
            quota.is_bounded().then_some(ObservedQuota { project, quota, used })
        });
        let mut observed: Vec<ObservedQuota> = observed.collect();
        let order = |one: &ObservedQuota| (Reverse(one.quota.permille_used(one.used)), name(&one.project));
        observed.sort_by_cached_key(order);
        observed.truncate(limits::METERED_QUOTAS);
        observed
    }
}

fn name(project: &ProjectId) -> String {
    project.as_str().to_owned()
}
