//! Health of the tree, the pools and the replicas.

use crate::pools::health::PoolHealth;
use crate::pools::health::reason;
use crate::reports::Reports;
use crate::reports::overview::PartReport;
use crate::reports::overview::ReplicaReport;
use angarium_core::names::PoolName;
use angarium_metrics::SessionState;
use angarium_storage::Usage;

impl Reports {
    /// Checks the tree, all pools and all replicas at the same time. Takes at most twice [`limits::HEALTH_DEADLINE`]
    /// and writes nothing.
    pub async fn health(&self) -> HealthReport {
        let (pools, usages, replicas) =
            tokio::join!(self.0.pools.ask_pools(), self.fetch_usages(), self.fetch_reports());
        HealthReport {
            is_catalogue_reachable: replicas.silence.is_none(),
            session: self.0.replica.session_state(),
            not_ready: self.0.health.check_ready().err().map(|error| reason(&error)),
            pools,
            usages,
            replicas,
        }
    }
}

/// Health of the whole installation.
#[derive(Clone, Debug)]
pub struct HealthReport {
    /// Whether queues and pools can be looked up.
    pub is_catalogue_reachable: bool,
    /// The session with the tree.
    pub session: SessionState,
    /// Why the service is not ready, if it is not. For operators only: it may have details that clients must not see.
    pub not_ready: Option<String>,
    /// Each pool, by name.
    pub pools: Vec<PoolHealth>,
    /// The usage of each pool, by name.
    pub usages: Vec<(PoolName, PartReport<Usage>)>,
    /// Every replica, by address.
    pub replicas: PartReport<Vec<ReplicaReport>>,
}
