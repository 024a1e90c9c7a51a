//! Quotas that are set for a named project, for the pages of metrics.

use std::cmp::Reverse;

use angarium_core::names::ProjectId;
use angarium_metrics::ObservedQuota;

use crate::limits;
use crate::quotas::QuotaCounts;

impl QuotaCounts {
    /// Counts the projects with a quota by name, until the service stops.
    pub(crate) async fn count_quotas(&self) {
        loop {
            let named = self.0.ledger.quotas.borrow().bounded(limits::METERED_QUOTAS);
            for account in named {
                if self.0.replica.stop.is_cancelled() {
                    return;
                }
                // A slow count continues by itself.
                let _ = self.counted_quota(&account).await;
            }
            if !self.0.replica.sleep_tick(limits::USAGE_TICK).await {
                return;
            }
        }
    }

    /// Returns the holdings, in the slots of this replica, of counted projects with a quota: the ones that use most of
    /// their quota.
    pub(crate) fn observed_quotas(&self) -> Vec<ObservedQuota> {
        let quotas = self.0.ledger.quotas.borrow().clone();
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

pub(crate) fn name(project: &ProjectId) -> String {
    project.as_str().to_owned()
}
