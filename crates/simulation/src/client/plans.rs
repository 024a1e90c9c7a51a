//! Faults that a probe plans, at the pools and at replicas.

use std::time::Duration;

use super::Client;
use crate::faults::Fault;
use crate::pool::{PostPlan, SlowCall};

/// How often a probe looks for the effect of a plan.
const TICK: Duration = Duration::from_millis(1);

impl Client {
    /// Plans what becomes of the next batch with new messages, in each simulated pool.
    pub fn plan_posts(&self, plan: PostPlan) {
        self.cluster.storages().all().iter().for_each(|storage| storage.plans().plan_post(plan));
    }

    /// Lets a call of each simulated pool take longer.
    pub fn slow_pools(&self, call: SlowCall, time: Duration) {
        self.cluster.storages().all().iter().for_each(|storage| storage.plans().slow(call, time));
    }

    /// Lets each simulated pool refuse batches that remove messages, for a time.
    pub fn refuse_removals(&self, time: Duration) {
        self.cluster.storages().all().iter().for_each(|storage| storage.plans().refuse_removals(time));
    }

    /// Ends all plans.
    pub fn end_plans(&self) {
        self.cluster.storages().all().iter().for_each(|storage| storage.plans().end());
    }

    /// Lets no simulated pool have room for a time. Returns at once.
    pub fn fill_pools(&self, time: Duration) {
        for storage in self.cluster.storages().all() {
            self.world().count(Fault::PoolFull);
            storage.set_full(true);
            self.world().spawn(async move {
                tokio::time::sleep(time).await;
                storage.set_full(false);
            });
        }
    }

    /// Waits until the batch of a replica has no answer by plan. Returns none when that takes longer than `most`.
    pub async fn unanswered_replica(&self, most: Duration) -> Option<usize> {
        let end = self.world().elapsed() + most;
        while self.world().elapsed() < end {
            let sender = self.cluster.storages().all().iter().find_map(|storage| storage.plans().sender());
            if let Some(sender) = sender {
                return sender.strip_prefix("replica-")?.split('.').next()?.parse().ok();
            }
            tokio::time::sleep(TICK).await;
        }
        None
    }

    /// Stops a replica for a time.
    pub fn pause_replica(&self, number: usize, time: Duration) {
        self.cluster.pause(number, time);
    }
}
