//! The installation as a whole, for administrators. Every replica and every pool is asked at the same time. A part that
//! does not answer is named, with its last answer and the age of that. Reports change nothing.

use crate::reports::Reports;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};
use uuid::Uuid;

use crate::limits;
use crate::pools::health::reason;
use crate::stores::table::OpenPool;
use angarium_catalogue::Component;
use angarium_cluster::peer_client::{REPORT, ReportRequest, ReportResponse};
use angarium_core::error::Error;
use angarium_core::maps::HashMap;
use angarium_core::names::PoolName;
use angarium_storage::Usage;

/// The answer of one part of the installation.
#[derive(Clone, Debug)]
pub struct PartReport<T> {
    /// The last answer, and its age.
    pub last: Option<(T, Duration)>,
    /// Why the part did not answer this time, if it did not.
    pub silence: Option<String>,
}

/// A replica and its report.
#[derive(Clone, Debug)]
pub struct ReplicaReport {
    /// Its registration.
    pub component: Component,
    /// Its report of the slots that it serves and of its health.
    pub said: PartReport<ReportResponse>,
}

/// Statistics of the whole installation.
#[derive(Clone, Debug)]
pub struct StatsReport {
    /// Number of queues of all projects.
    pub queues: PartReport<u64>,
    /// The usage of each pool, by name.
    pub pools: Vec<(PoolName, PartReport<Usage>)>,
    /// Every registered replica, by address. Their reports are from memory.
    pub replicas: PartReport<Vec<ReplicaReport>>,
}

/// The last answers of the parts of the installation.
#[derive(Debug, Default)]
pub(crate) struct ReportCache {
    queues: LastReport<(), u64>,
    pools: LastReport<PoolName, Usage>,
    components: LastReport<(), Vec<Component>>,
    reports: LastReport<Uuid, ReportResponse>,
}

#[derive(Debug)]
struct LastReport<K, T>(Mutex<HashMap<K, (Instant, T)>>);

impl<K, T> Default for LastReport<K, T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash, T: Clone> LastReport<K, T> {
    /// Stores an answer, or returns the last one with the reason of the failure.
    pub(crate) fn note(&self, key: K, answer: Result<T, String>) -> PartReport<T> {
        let mut last = self.0.lock();
        let silence = match answer {
            Ok(answer) => {
                last.insert(key, (Instant::now(), answer.clone()));
                return PartReport { last: Some((answer, Duration::ZERO)), silence: None };
            }
            Err(why) => Some(why),
        };
        PartReport { last: last.get(&key).map(|(at, answer)| (answer.clone(), at.elapsed())), silence }
    }

    /// Returns the last answer, unless it is older than `most`.
    pub(crate) fn fresh(&self, key: &K, most: Duration) -> Option<PartReport<T>> {
        let last = self.0.lock();
        let (at, answer) = last.get(key)?;
        let age = at.elapsed();
        (age <= most).then(|| PartReport { last: Some((answer.clone(), age)), silence: None })
    }

    /// Returns the last answers that are not older than `most`.
    fn all_fresh(&self, most: Duration) -> HashMap<K, T>
    where
        K: Clone,
    {
        let last = self.0.lock();
        let fresh = last.iter().filter(|(_, (at, _))| at.elapsed() <= most);
        fresh.map(|(key, (_, answer))| (key.clone(), answer.clone())).collect()
    }

    /// Forgets the answers of parts that do not exist any more.
    pub(crate) fn keep_only(&self, is_there: impl Fn(&K) -> bool) {
        self.0.lock().retain(|key, _| is_there(key));
    }
}

impl ReportCache {
    /// Returns the last usages that pools reported, unless they are older than `most`.
    pub(crate) fn usages(&self, most: Duration) -> HashMap<PoolName, Usage> {
        self.pools.all_fresh(most)
    }
}

impl Reports {
    /// Returns the report of this replica. All of it is in memory.
    pub fn local_report(&self) -> ReportResponse {
        let mut report = ReportResponse {
            not_ready: self.0.health.check_ready().err().map(|error| reason(&error)),
            session: self.0.replica.session_state().as_str().to_owned(),
            ..ReportResponse::default()
        };
        let pools = self.0.stores.all();
        let silent = pools.iter().filter(|pool| pool.is_silent());
        report.silent_pools = silent.map(|pool| pool.entry.name.to_string()).collect();
        for slot in self.0.slots.owned() {
            let gauge = slot.slot_gauge();
            report.slots += 1;
            report.waiting_claims += gauge.waiting_claims as u64;
            report.open_queues += gauge.open_queues;
            report.claimed_messages += gauge.claimed_messages;
        }
        report
    }

    /// Returns every registered replica, by address, with its report. Takes at most twice [`limits::HEALTH_DEADLINE`].
    pub(crate) async fn fetch_reports(&self) -> PartReport<Vec<ReplicaReport>> {
        let memory = &self.0.memory;
        let registry =
            within(async { self.0.replica.catalogue.registry().await.map_err(|error| reason(&error)) }).await;
        let registered = registry.map(|registry| {
            let mut components: Vec<Component> = registry.all().cloned().collect();
            components.sort_by(|a, b| a.address.cmp(&b.address));
            components
        });
        let PartReport { last, silence } = memory.components.note((), registered);
        let Some((components, age)) = last else { return PartReport { last: None, silence } };
        memory.reports.keep_only(|instance| components.iter().any(|one| one.instance == *instance));
        let reports = components.into_iter().map(|component| async move {
            let answer = within(self.fetch_report(&component)).await;
            ReplicaReport { said: memory.reports.note(component.instance, answer), component }
        });
        PartReport { last: Some((join_all(reports).await, age)), silence }
    }

    async fn fetch_report(&self, component: &Component) -> Result<ReportResponse, String> {
        if component.instance == self.0.replica.owner.instance {
            return Ok(self.local_report());
        }
        let told = |error: Error| reason(&error);
        let peer_client = self.0.slots.peer_client().map_err(told)?;
        peer_client.ask(&component.address, REPORT, &ReportRequest {}).await.map_err(told)
    }

    /// Returns the statistics of the whole installation. Takes at most twice [`limits::HEALTH_DEADLINE`].
    pub async fn stats_of_all(&self) -> StatsReport {
        let (queues, pools, replicas) =
            tokio::join!(self.count_all_queues(), self.fetch_usages(), self.fetch_reports());
        StatsReport { queues, pools, replicas }
    }

    /// Returns the number of all queues, at most [`limits::QUEUE_COUNT_AGE`] old: counting reads a node for each
    /// project in each slot.
    async fn count_all_queues(&self) -> PartReport<u64> {
        let memory = &self.0.memory.queues;
        if let Some(fresh) = memory.fresh(&(), limits::QUEUE_COUNT_AGE) {
            return fresh;
        }
        let counted =
            async { self.0.replica.catalogue.queues_of_all().await.map_err(|error| reason(&error)) };
        memory.note((), within(counted).await)
    }

    pub(crate) async fn fetch_usages(&self) -> Vec<(PoolName, PartReport<Usage>)> {
        let memory = &self.0.memory.pools;
        let pools = self.0.stores.all();
        memory.keep_only(|name| pools.iter().any(|pool| pool.entry.name == *name));
        let usages = pools.into_iter().map(|pool| async move {
            let usage = within(usage(&pool)).await;
            (pool.entry.name.clone(), memory.note(pool.entry.name.clone(), usage))
        });
        join_all(usages).await
    }
}

pub(crate) async fn usage(pool: &Arc<OpenPool>) -> Result<Usage, String> {
    let store = pool.store().map_err(|error| reason(&error))?;
    store.usage().await.map_err(|error| error.to_string())
}

pub(crate) async fn within<T>(answer: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    let late = |_| Err(format!("no answer within {} s", limits::HEALTH_DEADLINE.as_secs()));
    timeout(limits::HEALTH_DEADLINE, answer).await.unwrap_or_else(late)
}
