//! Metrics of holds.

use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// The holds in force.
#[derive(Clone, Copy, Debug, Default)]
pub struct ObservedHolds {
    /// Held queues of this replica.
    pub queues: usize,
    /// Held pools, the same at every replica.
    pub pools: usize,
    /// Held projects, likewise.
    pub projects: usize,
    /// Seconds since the oldest of these holds was made; 0 without a hold.
    pub oldest_age: u64,
}

/// The gauges of holds.
pub(super) struct HoldGauges {
    queues: Gauge,
    pools: Gauge,
    projects: Gauge,
    oldest_age: Gauge,
}

impl HoldGauges {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let gauge = |name: &str, help: &str, registry: &mut Registry| {
            let gauge = Gauge::default();
            registry.register(name, help, gauge.clone());
            gauge
        };
        Self {
            queues: gauge("angarium_holds", "Queues of this replica that are held", registry),
            pools: gauge("angarium_held_pools", "Pools that are held, the same at every replica", registry),
            projects: gauge(
                "angarium_held_projects",
                "Projects that are held, the same at every replica",
                registry,
            ),
            oldest_age: gauge(
                "angarium_oldest_hold_age_seconds",
                "Seconds since the oldest hold of a queue, a pool or a project was made",
                registry,
            ),
        }
    }

    pub(super) fn show(&self, holds: &ObservedHolds) {
        let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.queues.set(count(holds.queues));
        self.pools.set(count(holds.pools));
        self.projects.set(count(holds.projects));
        self.oldest_age.set(i64::try_from(holds.oldest_age).unwrap_or(i64::MAX));
    }
}
