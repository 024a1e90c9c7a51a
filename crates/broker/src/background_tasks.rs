//! Work that no caller asks for, among it clearing away the records of claims whose messages were all deleted. Others
//! have files of their own, as [`super::expiry`], [`super::sweeps`], [`super::schedule`] and [`super::quotas`].

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::Broker;
use super::assignment::FollowedCluster;
use super::slot::Slot;
use angarium_core::error::Error;
use angarium_core::ids::ClaimId;
use angarium_core::limits;

impl Broker {
    pub(super) fn start_background_tasks(&self, following: FollowedCluster) {
        self.start_background_task("ends of claims", |broker| async move { broker.expire_claims().await });
        self.start_background_task(
            "records of claims",
            |broker| async move { broker.clear_spent_claims().await },
        );
        self.start_background_task("sweeps", |broker| async move { broker.sweep_messages().await });
        self.start_background_task("schedules", |broker| async move { broker.wake_scheduled().await });
        self.start_background_task("slots", |broker| async move { broker.watch_slots().await });
        let following = Mutex::new(Some(following));
        self.start_background_task("cluster", move |broker| {
            // After a panic everything is looked at again.
            let following = following.lock().take().unwrap_or_else(FollowedCluster::new);
            async move { broker.follow_cluster(following).await }
        });
        self.start_background_task("session", |broker| async move { broker.watch_session().await });
        self.start_background_task("time", |broker| async move { broker.keep_time().await });
        self.start_background_task("deleted queues", |broker| async move { broker.clean_dropped().await });
        self.start_background_task("health of pools", |broker| async move { broker.watch_pools().await });
        self.start_background_task("quotas", |broker| async move { broker.recount().await });
        self.start_background_task("totals", |broker| async move { broker.recount_pools().await });
        self.start_background_task("records of pools", |broker| async move { broker.follow_pools().await });
        self.start_background_task("moves", |broker| async move { broker.resume_transfers().await });
        self.start_background_task("counting", |broker| async move { broker.count_queues().await });
        self.start_background_task("usage of pools", |broker| async move { broker.watch_usage().await });
        self.start_background_task("use of quotas", |broker| async move { broker.count_quotas().await });
        self.start_background_task("windows", |broker| async move { broker.bound_ready_caches().await });
        self.start_background_task("idle queues", |broker| async move { broker.close_idle_queues().await });
        self.start_background_task("drains", |broker| async move { broker.drain_pools().await });
        self.start_background_task("reach", |broker| async move { broker.watch_reach().await });
    }

    /// Sleeps for a turn. False when the service stops.
    pub(super) async fn sleep_tick(&self, tick: Duration) -> bool {
        tokio::select! {
            () = self.0.stop.cancelled() => false,
            () = tokio::time::sleep(tick) => true,
        }
    }

    async fn clear_spent_claims(&self) {
        let mut goes_on = true;
        while goes_on {
            goes_on = self.sleep_tick(limits::CLAIM_SHRINK_TICK).await;
            for slot in self.0.slot_table.owned() {
                if let Err(error) = self.clear_spent(&slot).await {
                    self.task_failed(
                        "clear claim records",
                        format_args!("slot {}", slot.owned.slot.0),
                        &error,
                    );
                }
            }
        }
    }

    async fn clear_spent(&self, slot: &Arc<Slot>) -> Result<(), Error> {
        let spent: Vec<ClaimId> = std::mem::take(&mut slot.state.lock().spent);
        if spent.is_empty() {
            return Ok(());
        }
        let outcome = self.0.catalogue.claims_delete(&slot.owned, &spent).await;
        let mut state = slot.state.lock();
        match outcome {
            Ok(()) => state.live_claims = state.live_claims.saturating_sub(spent.len()),
            // A record that is gone already does no harm at the next turn.
            Err(_) => state.spent.extend(spent),
        }
        outcome
    }
}
