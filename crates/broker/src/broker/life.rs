//! The service as a whole: its life, its replicas, its health and its reports.

use std::collections::BTreeSet;

use uuid::Uuid;

use angarium_core::error::Error;
use angarium_core::limits::Limits;
use angarium_core::names::ProjectId;
use angarium_metrics::Meter;

use crate::broker::Broker;
use crate::reports::health::HealthReport;
use crate::reports::overview::StatsReport;
use crate::reports::pool_map::PoolMap;
use crate::slots::components::ClusterView;

impl Broker {
    /// Waits until no claim may wait here any more.
    pub async fn await_no_waiters(&self) {
        self.0.replica.await_no_waiters().await
    }

    /// What clients may ask for. A caller that makes a value of input checks it by these.
    pub fn limits(&self) -> &Limits {
        self.0.replica.limits()
    }

    /// From here on no claim waits for messages: those that do are told that there is nothing.
    pub fn stop_waiters(&self) {
        self.0.replica.stop_waiters()
    }

    /// Whether only a restart can help: the embedded tree closes itself after a failed write.
    pub fn check_alive(&self) -> Result<(), Error> {
        self.0.replica.check_alive()
    }

    /// What it counts and measures.
    pub fn meter(&self) -> &Meter {
        self.0.replica.meter()
    }

    /// Brings to its end what no caller waits for any more; the shutdown does.
    pub fn drain_background(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.0.replica.drain_background(task)
    }

    /// Hands every slot over to the other replicas, if some run, and takes none from now on. Returns when none is
    /// left, or after [`limits::DRAIN`], and clients have gone elsewhere. Requests go on until then: they are the others' to
    /// serve.
    pub async fn drain(&self) {
        self.0.slots.drain().await
    }

    /// Whether this replica is about to stop, and clients should go elsewhere.
    pub fn is_leaving(&self) -> bool {
        self.0.slots.is_leaving()
    }

    /// Tells a replica to hand all its slots over to the others and to take none from now on. It continues serving by
    /// passing requests on, until it is stopped.
    pub async fn component_drain(&self, instance: Uuid) -> Result<(), Error> {
        self.0.slots.component_drain(instance).await
    }

    /// Every replica with its slots, as the tree states: none of them needs to answer for it.
    pub async fn components(&self) -> Result<ClusterView, Error> {
        self.0.slots.components().await
    }

    /// Whether this replica has a session in which it is registered.
    pub fn has_session(&self) -> bool {
        self.0.slots.has_session()
    }

    /// Projects `ACCOUNT@REGION` that have, or had, queues, at most `most` of them; at the cost of reading the directories of
    /// all slots.
    pub async fn stored_regional_projects(&self, most: usize) -> Result<BTreeSet<ProjectId>, Error> {
        self.0.quotas.stored_regional_projects(most).await
    }

    /// One round of it. Returns how many queues were closed, and how many are open.
    pub fn close_idle_round(&self) -> (usize, usize) {
        self.0.sweeps.close_idle_round()
    }

    /// As [`Broker::check_ready`]; then what an operator should know of a service that serves.
    pub fn readiness(&self) -> Result<Vec<String>, Error> {
        self.0.health.readiness()
    }

    /// Whether clients should ask this replica: some pool accepts writes, the replica is a member in the session there
    /// is or no other is known to do better (see [`reach`]), and no caller has told it to stop. Probes ask this again
    /// and again, so it is logged when the answer changes, and not where it is given.
    pub fn check_ready(&self) -> Result<(), Error> {
        self.0.health.check_ready()
    }

    /// The page of all metrics.
    pub async fn metrics_page(&self) -> String {
        self.0.reports.metrics_page().await
    }

    /// What the whole installation holds. Takes at most twice [`limits::HEALTH_DEADLINE`].
    pub async fn stats_of_all(&self) -> StatsReport {
        self.0.reports.stats_of_all().await
    }

    /// Asks the tree, all pools and all replicas at the same time. Takes at most twice [`limits::HEALTH_DEADLINE`]; writes
    /// nothing.
    pub async fn health(&self) -> HealthReport {
        self.0.reports.health().await
    }

    /// Looks where everything is. It costs a read for each queue.
    pub async fn pool_map(&self) -> Result<PoolMap, Error> {
        self.0.reports.pool_map().await
    }
}
