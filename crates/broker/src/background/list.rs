//! The list of background tasks. The work of each is a verb of its component.

use parking_lot::Mutex;

use crate::background::Background;
use crate::slots::assignment::FollowedCluster;

impl Background {
    /// Starts every background task of the service.
    pub(crate) fn start_background_tasks(&self, following: FollowedCluster) {
        self.start_tasks_of_messages();
        self.start_tasks_of_queues();
        self.start_tasks_of_pools();
        self.start_tasks_of_slots(following);
    }

    fn start_tasks_of_messages(&self) {
        let (replica, parts) = (&self.0.replica, &self.0);
        replica.start_background_task("ends of claims", &parts.claims, |claims| async move {
            claims.expire_claims().await
        });
        replica.start_background_task("records of claims", &parts.claims, |claims| async move {
            claims.clear_spent_claims().await
        });
        replica.start_background_task("sweeps", &parts.sweeps, |sweeps| async move {
            sweeps.sweep_messages().await
        });
        replica.start_background_task("schedules", &parts.sweeps, |sweeps| async move {
            sweeps.wake_scheduled().await
        });
        replica.start_background_task("counting", &parts.counting, |counting| async move {
            counting.count_queues().await
        });
        replica.start_background_task("windows", &parts.sweeps, |sweeps| async move {
            sweeps.bound_ready_caches().await
        });
        replica.start_background_task("idle queues", &parts.sweeps, |sweeps| async move {
            sweeps.close_idle_queues().await
        });
    }

    fn start_tasks_of_queues(&self) {
        let (replica, parts) = (&self.0.replica, &self.0);
        replica.start_background_task(
            "ended subscriptions",
            &parts.subscriptions,
            |subscriptions| async move { subscriptions.delete_ended().await },
        );
        replica.start_background_task("fills", &parts.subscriptions, |subscriptions| async move {
            subscriptions.fill_queues().await
        });
        replica.start_background_task("webhooks", &parts.webhooks, |webhooks| async move {
            webhooks.deliver().await
        });
        replica.start_background_task("deleted queues", &parts.queues, |queues| async move {
            queues.clean_dropped().await
        });
        replica.start_background_task(
            "holds",
            &parts.queues,
            |queues| async move { queues.end_holds().await },
        );
        replica.start_background_task("holds of pools", &parts.holds, |holds| async move {
            holds.follow_holds().await
        });
        replica.start_background_task(
            "quotas",
            &parts.quotas,
            |quotas| async move { quotas.recount().await },
        );
        replica.start_background_task("moves", &parts.redrive, |redrive| async move {
            redrive.resume_transfers().await
        });
        replica.start_background_task("use of quotas", &parts.quotas, |quotas| async move {
            quotas.count_quotas().await
        });
    }

    fn start_tasks_of_pools(&self) {
        let (replica, parts) = (&self.0.replica, &self.0);
        replica.start_background_task("health of pools", &parts.pools, |pools| async move {
            pools.watch_pools().await
        });
        replica.start_background_task(
            "totals",
            &parts.pools,
            |pools| async move { pools.recount_pools().await },
        );
        replica.start_background_task("records of pools", &parts.pools, |pools| async move {
            pools.follow_pools().await
        });
        replica.start_background_task("usage of pools", &parts.reports, |reports| async move {
            reports.watch_usage().await
        });
        replica.start_background_task("drains", &parts.balance, |balance| async move {
            balance.drain_pools().await
        });
    }

    fn start_tasks_of_slots(&self, following: FollowedCluster) {
        let (replica, parts) = (&self.0.replica, &self.0);
        replica.start_background_task(
            "slots",
            &parts.slots,
            |slots| async move { slots.watch_slots().await },
        );
        replica.start_background_task(
            "session",
            &parts.slots,
            |slots| async move { slots.watch_session().await },
        );
        replica.start_background_task("shared secret", &parts.slots, |slots| async move {
            slots.remove_peer_secret().await
        });
        replica.start_background_task("time", self, |background: Self| async move {
            background.keep_time().await
        });
        replica.start_background_task(
            "reach",
            &parts.health,
            |health| async move { health.watch_reach().await },
        );
        let following = Mutex::new(Some(following));
        replica.start_background_task("cluster", &parts.slots, move |slots| {
            // After a panic the task reads everything again.
            let following = following.lock().take().unwrap_or_else(FollowedCluster::new);
            async move { slots.follow_cluster(following).await }
        });
    }
}
