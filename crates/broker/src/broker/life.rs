//! The service as a whole: life cycle, replicas, health, reports.

use std::collections::BTreeSet;

use uuid::Uuid;

use angarium_catalogue::ReceiptKeyRotation;
use angarium_core::error::Error;
use angarium_core::limits::Limits;
use angarium_core::names::ProjectId;
use angarium_metrics::Meter;

use crate::broker::Broker;
use crate::replica::successor::SuccessorProcess;
use crate::reports::health::HealthReport;
use crate::reports::overview::StatsReport;
use crate::reports::pool_map::PoolMap;
use crate::slots::components::ClusterView;

impl Broker {
    /// Waits until no claim waits for messages here and no new one may.
    pub async fn await_no_waiters(&self) {
        self.0.replica.await_no_waiters().await
    }

    /// Returns the limits of requests. A caller that builds an input value checks it against them.
    pub fn limits(&self) -> &Limits {
        self.0.replica.limits()
    }

    /// Ends the wait of all waiting claims: they get an empty answer. From here on no claim waits for messages.
    pub fn stop_waiters(&self) {
        self.0.replica.stop_waiters()
    }

    /// Fails when only a restart can help: the embedded tree closes itself after a failed write.
    pub fn check_alive(&self) -> Result<(), Error> {
        self.0.replica.check_alive()
    }

    /// Returns the meter of this replica.
    pub fn meter(&self) -> &Meter {
        self.0.replica.meter()
    }

    /// Runs to its end a task for which no caller waits any more. The shutdown waits for it.
    pub fn drain_background(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.0.replica.drain_background(task)
    }

    /// Hands every slot over to the other replicas, if some run, and takes none from now on. Returns when no slot is
    /// left, or after [`limits::DRAIN`], and when clients have left. Until then the replica forwards requests to the
    /// new owners.
    pub async fn drain(&self) {
        self.0.slots.drain().await
    }

    /// Waits until another process with the identity of this replica has started, and returns it. Then this one does
    /// nothing more in the background, and should be stopped. Of two such processes only the earlier one meets this.
    pub async fn successor(&self) -> SuccessorProcess {
        self.0.replica.await_successor().await
    }

    /// Whether this replica is about to stop and clients should use another one.
    pub fn is_leaving(&self) -> bool {
        self.0.slots.is_leaving()
    }

    /// Tells a replica to hand all its slots over to the others and to take none from now on. It continues to forward
    /// requests until it is stopped.
    pub async fn component_drain(&self, instance: Uuid) -> Result<(), Error> {
        self.0.slots.component_drain(instance).await
    }

    /// Has another key of receipts follow the present one on all replicas.
    pub async fn receipt_key_rotate(&self) -> Result<ReceiptKeyRotation, Error> {
        self.0.replica.rotate_receipt_key().await
    }

    /// Returns every replica with its slots, from the tree: no replica needs to answer.
    pub async fn components(&self) -> Result<ClusterView, Error> {
        self.0.slots.components().await
    }

    /// The id of this replica.
    pub fn instance(&self) -> Uuid {
        self.0.replica.owner.instance
    }

    /// Whether this replica has a session in which it is registered.
    pub fn has_session(&self) -> bool {
        self.0.slots.has_session()
    }

    /// Returns at most `most` projects `ACCOUNT@REGION` that have, or had, queues. It reads the directories of all
    /// slots.
    pub async fn stored_regional_projects(&self, most: usize) -> Result<BTreeSet<ProjectId>, Error> {
        self.0.quotas.stored_regional_projects(most).await
    }

    /// Runs one round of the task that closes idle queues. Returns how many queues were closed, and how many are open.
    pub fn close_idle_round(&self) -> (usize, usize) {
        self.0.sweeps.close_idle_round()
    }

    /// As [`Broker::check_ready`]. Returns warnings for the operator of a replica that is ready.
    pub fn readiness(&self) -> Result<Vec<String>, Error> {
        self.0.health.readiness()
    }

    /// Whether clients should use this replica: some pool accepts writes, the replica is registered in its session or
    /// no other replica is known to have one (see [`reach`]), and it was not told to stop. Probes call this often, so
    /// only a change of the answer is logged.
    pub fn check_ready(&self) -> Result<(), Error> {
        self.0.health.check_ready()
    }

    /// Returns the page of all metrics.
    pub async fn metrics_page(&self) -> String {
        self.0.reports.metrics_page().await
    }

    /// Returns the statistics of the whole installation. Takes at most twice [`limits::HEALTH_DEADLINE`].
    pub async fn stats_of_all(&self) -> StatsReport {
        self.0.reports.stats_of_all().await
    }

    /// Checks the tree, all pools and all replicas at the same time. Takes at most twice [`limits::HEALTH_DEADLINE`]
    /// and writes nothing.
    pub async fn health(&self) -> HealthReport {
        self.0.reports.health().await
    }

    /// Returns the queues of each pool. It costs a read for each queue.
    pub async fn pool_map(&self) -> Result<PoolMap, Error> {
        self.0.reports.pool_map().await
    }
}
