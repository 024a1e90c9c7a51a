//! Work that nobody asks for, among it clearing away the records of claims whose messages were all deleted. Others have files
//! of their own, as [`super::expiry`], [`super::sweeps`], [`super::schedule`] and [`super::quotas`].

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::Broker;
use super::assignment::Following;
use super::slot::Slot;
use crate::domain::ids::ClaimId;
use crate::domain::limits;
use crate::error::Error;

impl Broker {
    pub(super) fn start_duties(&self, following: Following) {
        self.start_duty("ends of claims", |broker| async move { broker.expire_claims().await });
        self.start_duty("records of claims", |broker| async move { broker.clear_spent_claims().await });
        self.start_duty("sweeps", |broker| async move { broker.sweep_messages().await });
        self.start_duty("schedules", |broker| async move { broker.wake_scheduled().await });
        self.start_duty("slots", |broker| async move { broker.watch_slots().await });
        let following = Mutex::new(Some(following));
        self.start_duty("cluster", move |broker| {
            // After a panic everything is looked at again.
            let following = following.lock().take().unwrap_or_else(Following::new);
            async move { broker.follow_cluster(following).await }
        });
        self.start_duty("session", |broker| async move { broker.watch_session().await });
        self.start_duty("time", |broker| async move { broker.keep_time().await });
        self.start_duty("deleted queues", |broker| async move { broker.clean_dropped().await });
        self.start_duty("health of pools", |broker| async move { broker.watch_pools().await });
        self.start_duty("quotas", |broker| async move { broker.recount().await });
        self.start_duty("totals", |broker| async move { broker.recount_pools().await });
        self.start_duty("records of pools", |broker| async move { broker.follow_pools().await });
        self.start_duty("moves", |broker| async move { broker.resume_moves().await });
        self.start_duty("counting", |broker| async move { broker.count_queues().await });
        self.start_duty("usage of pools", |broker| async move { broker.watch_usage().await });
        self.start_duty("use of quotas", |broker| async move { broker.count_quotas().await });
        self.start_duty("windows", |broker| async move { broker.bound_windows().await });
        self.start_duty("idle queues", |broker| async move { broker.rest_queues().await });
        self.start_duty("drains", |broker| async move { broker.drain_pools().await });
        self.start_duty("reach", |broker| async move { broker.watch_reach().await });
    }

    /// Sleeps for a turn. False when the service stops.
    pub(super) async fn next_turn(&self, tick: Duration) -> bool {
        tokio::select! {
            () = self.0.stop.cancelled() => false,
            () = tokio::time::sleep(tick) => true,
        }
    }

    async fn clear_spent_claims(&self) {
        let mut goes_on = true;
        while goes_on {
            goes_on = self.next_turn(limits::CLAIM_SHRINK_TICK).await;
            for slot in self.0.cells.owned() {
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
