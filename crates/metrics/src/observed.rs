//! Metrics of states: queue depths, and the health of the parts. They are collected when a page is requested, and set
//! here.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::queues::{QueueLabels, Queues};
use crate::holds::{HoldGauges, ObservedHolds};
use angarium_core::names::{ProjectId, QueueRef};
use angarium_core::quota::{Holdings, Quota};

/// The collected state of the service.
#[derive(Clone, Debug, Default)]
pub struct ServiceState {
    /// Whether the service accepts writes.
    pub is_ready: bool,
    /// State of the session with the tree.
    pub session: SessionState,
    /// Slots that this replica serves.
    pub slots: usize,
    /// Slots of this replica whose queues are all counted.
    pub counted_slots: usize,
    /// Queues in the slots of this replica, as far as their names were read.
    pub queues_here: u64,
    /// Queues among them whose messages are included in the counts.
    pub counted_queues: u64,
    /// Claims with a record in the tree.
    pub claims: usize,
    /// Claims that wait for messages.
    pub waiting_claims: usize,
    /// Suspended subscriptions.
    pub suspended_subscriptions: usize,
    /// Holds in force.
    pub holds: ObservedHolds,
    /// Queues with their own metrics.
    pub queues: Vec<ObservedQueue>,
    /// Totals of all other queues.
    pub unnamed: Option<QueueFigures>,
    /// Number of queues that were read for this page.
    pub looked_at: usize,
    /// All pools.
    pub pools: Vec<ObservedPool>,
    /// Projects with a quota.
    pub quotas: Vec<ObservedQuota>,
    /// Tree calls that met damaged data.
    pub damaged_tree_reads: u64,
}

/// A project with a quota.
#[derive(Clone, Debug)]
pub struct ObservedQuota {
    /// The project.
    pub project: ProjectId,
    /// Its quota in the whole installation.
    pub quota: Quota,
    /// Its holdings in the slots of this replica.
    pub used: Holdings,
}

impl ServiceState {
    /// Adds the counts of a queue without its own metrics.
    pub fn add_unnamed(&mut self, figures: Option<QueueFigures>) {
        if let Some(figures) = figures {
            self.unnamed.get_or_insert_default().add(figures);
        }
    }
}

/// State of the session with the tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SessionState {
    /// The session is connected.
    Connected,
    /// No server responds; the session may continue.
    #[default]
    Suspended,
    /// The session has ended.
    Lost,
}

impl SessionState {
    /// All variants.
    pub(super) const ALL: [Self; 3] = [Self::Connected, Self::Suspended, Self::Lost];

    /// Returns the value of the label `state`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Connected => "connected",
            Self::Suspended => "suspended",
            Self::Lost => "lost",
        }
    }
}

#[derive(Clone, Debug)]
pub struct ObservedQueue {
    /// The queue.
    pub at: QueueRef,
    /// Its counts.
    pub figures: QueueFigures,
}

/// Counts of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueFigures {
    /// Claimable messages.
    pub ready: u64,
    /// Messages under claims.
    pub claimed: u64,
    /// Delayed messages.
    pub delayed: u64,
    /// Messages in transfer to another queue, or whose transfer failed.
    pub in_transfer: u64,
    /// Messages that are done or failed.
    pub kept: u64,
    /// Bytes of the bodies of all these messages.
    pub bytes: u64,
    /// Seconds since the post of the oldest message that is ready or claimed.
    pub oldest_age: Option<u64>,
}

impl QueueFigures {
    fn add(&mut self, other: Self) {
        self.ready += other.ready;
        self.claimed += other.claimed;
        self.delayed += other.delayed;
        self.in_transfer += other.in_transfer;
        self.kept += other.kept;
        self.bytes += other.bytes;
        self.oldest_age = self.oldest_age.max(other.oldest_age);
    }
}

#[derive(Clone, Debug)]
pub struct ObservedPool {
    pub name: String,
    /// Whether the last check reached the pool.
    pub is_up: bool,
    /// Whether the pool accepts new messages now.
    pub is_writable: bool,
    /// Duration of a small read.
    pub latency: Option<Duration>,
    /// Free and total bytes of its storage, if known.
    pub space: Option<(u64, u64)>,
    /// Messages in all its queues and bytes of their bodies, at the last check.
    pub held: Option<(u64, u64)>,
    /// Calls that met damaged data.
    pub damaged_reads: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabels {
    project: String,
    queue: String,
    state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PoolLabels {
    pool: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SessionLabels {
    state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PartLabels {
    part: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct QuotaLabels {
    project: String,
    resource: &'static str,
}

type PoolGauge<N = i64, A = std::sync::atomic::AtomicI64> = Family<PoolLabels, Gauge<N, A>>;

/// The gauges of states.
pub(super) struct States {
    messages: Family<StateLabels, Gauge>,
    bytes: Family<QueueLabels, Gauge>,
    oldest: Family<QueueLabels, Gauge>,
    queues: Gauge,
    counted_queues: Gauge,
    counted_slots: Gauge,
    claims: Gauge,
    quota_used: Family<QuotaLabels, Gauge>,
    quota_limit: Family<QuotaLabels, Gauge>,
    pool_up: PoolGauge,
    pool_writable: PoolGauge,
    pool_latency: PoolGauge<f64, AtomicU64>,
    pool_free: PoolGauge,
    pool_size: PoolGauge,
    pool_messages: PoolGauge,
    pool_used: PoolGauge,
    session: Family<SessionLabels, Gauge>,
    slots: Gauge,
    waiting_claims: Gauge,
    suspended_subscriptions: Gauge,
    holds: HoldGauges,
    looked_at: Gauge,
    ready: Gauge,
    damaged_reads: Family<PartLabels, Gauge>,
}

impl States {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let states = Self {
            messages: Family::default(),
            bytes: Family::default(),
            oldest: Family::default(),
            queues: Gauge::default(),
            counted_queues: Gauge::default(),
            counted_slots: Gauge::default(),
            claims: Gauge::default(),
            quota_used: Family::default(),
            quota_limit: Family::default(),
            pool_up: Family::default(),
            pool_writable: Family::default(),
            pool_latency: Family::default(),
            pool_free: Family::default(),
            pool_size: Family::default(),
            pool_messages: Family::default(),
            pool_used: Family::default(),
            session: Family::default(),
            slots: Gauge::default(),
            waiting_claims: Gauge::default(),
            suspended_subscriptions: Gauge::default(),
            holds: HoldGauges::register(registry),
            looked_at: Gauge::default(),
            ready: Gauge::default(),
            damaged_reads: Family::default(),
        };
        states.register_queues(registry);
        states.register_counts(registry);
        states.register_pools(registry);
        states.register_parts(registry);
        states
    }

    fn register_queues(&self, registry: &mut Registry) {
        registry.register(
            "angarium_messages",
            "Messages in the queues of this replica that are counted, by state",
            self.messages.clone(),
        );
        registry.register(
            "angarium_message_bytes",
            "Bytes of the bodies of those messages",
            self.bytes.clone(),
        );
        registry.register(
            "angarium_oldest_message_age_seconds",
            "Seconds since the oldest message that is ready or claimed was posted",
            self.oldest.clone(),
        );
        registry.register(
            "angarium_waiting_claims",
            "Claims that wait for messages",
            self.waiting_claims.clone(),
        );
        registry.register(
            "angarium_suspended_subscriptions",
            "Subscriptions of this replica that get no copies because they are full",
            self.suspended_subscriptions.clone(),
        );
        registry.register(
            "angarium_page_queues",
            "Queues that were looked at for this page",
            self.looked_at.clone(),
        );
    }

    fn register_counts(&self, registry: &mut Registry) {
        registry.register(
            "angarium_queues",
            "Queues in the slots of this replica, as far as their names were read since it took them",
            self.queues.clone(),
        );
        registry.register(
            "angarium_queues_counted",
            "Queues of those whose messages are in the figures",
            self.counted_queues.clone(),
        );
        registry.register(
            "angarium_slots_counted",
            "Slots of this replica whose queues are all counted; as many as it serves when the counting is done",
            self.counted_slots.clone(),
        );
        registry.register(
            "angarium_claims",
            "Live claims of the queues of this replica",
            self.claims.clone(),
        );
        registry.register(
            "angarium_quota_used",
            "Queues, messages or bytes that a project with a quota holds in the slots of this replica",
            self.quota_used.clone(),
        );
        registry.register(
            "angarium_quota_limit",
            "Queues, messages or bytes that a project may hold in the whole installation",
            self.quota_limit.clone(),
        );
    }

    fn register_pools(&self, registry: &mut Registry) {
        registry.register(
            "angarium_pool_up",
            "Whether a pool was reached when it was last asked",
            self.pool_up.clone(),
        );
        registry.register(
            "angarium_pool_writable",
            "Whether a pool accepts new messages",
            self.pool_writable.clone(),
        );
        registry.register(
            "angarium_pool_latency_seconds",
            "Seconds that a small read of a pool took",
            self.pool_latency.clone(),
        );
        registry.register(
            "angarium_pool_free_bytes",
            "Free bytes of the storage of a pool",
            self.pool_free.clone(),
        );
        registry.register(
            "angarium_pool_size_bytes",
            "Total bytes of the storage of a pool",
            self.pool_size.clone(),
        );
        registry.register(
            "angarium_pool_messages",
            "Messages in all queues of a pool, whichever replica serves them; asked once a minute",
            self.pool_messages.clone(),
        );
        registry.register(
            "angarium_pool_used_bytes",
            "Bytes of the bodies of those messages",
            self.pool_used.clone(),
        );
    }

    fn register_parts(&self, registry: &mut Registry) {
        registry.register(
            "angarium_coordination_session",
            "The state of the session with the tree: 1 for the one it is in",
            self.session.clone(),
        );
        registry.register(
            "angarium_slots_owned",
            "Slots that this replica serves, of 256",
            self.slots.clone(),
        );
        registry.register(
            "angarium_damaged_reads",
            "Reads since the start that met damaged data in the store of a part: coordination, or a pool",
            self.damaged_reads.clone(),
        );
        registry.register(
            "angarium_ready",
            "Whether writes would be accepted, as /readyz reports",
            self.ready.clone(),
        );
    }

    pub(super) fn set(&self, observed: &ServiceState, names: &Queues) {
        self.set_queues(observed, names);
        self.set_pools(&observed.pools);
        self.set_quotas(&observed.quotas);
        self.set_damage(observed);
        self.queues.set(count(observed.queues_here));
        self.counted_queues.set(count(observed.counted_queues));
        self.counted_slots.set(count(observed.counted_slots));
        self.claims.set(count(observed.claims));
        for state in SessionState::ALL {
            let labels = SessionLabels { state: state.as_str() };
            self.session.get_or_create(&labels).set(i64::from(observed.session == state));
        }
        self.slots.set(count(observed.slots));
        self.waiting_claims.set(count(observed.waiting_claims));
        self.suspended_subscriptions.set(count(observed.suspended_subscriptions));
        self.holds.show(&observed.holds);
        self.ready.set(i64::from(observed.is_ready));
    }

    fn set_queues(&self, observed: &ServiceState, names: &Queues) {
        // Removes the metrics of deleted queues.
        self.messages.clear();
        self.bytes.clear();
        self.oldest.clear();
        self.looked_at.set(count(observed.looked_at));
        let mut others = observed.unnamed;
        for queue in &observed.queues {
            match names.labels(&queue.at) {
                Some(labels) => self.set_queue(labels, queue.figures),
                None => others.get_or_insert_default().add(queue.figures),
            }
        }
        if let Some(figures) = others {
            self.set_queue(QueueLabels::other(), figures);
        }
    }

    fn set_queue(&self, labels: QueueLabels, figures: QueueFigures) {
        let QueueFigures { ready, claimed, delayed, in_transfer, kept, bytes, oldest_age } = figures;
        for (state, number) in [
            ("ready", ready),
            ("claimed", claimed),
            ("delayed", delayed),
            ("in_transfer", in_transfer),
            ("kept", kept),
        ] {
            self.messages.get_or_create(&labels.in_state(state)).set(count(number));
        }
        self.bytes.get_or_create(&labels).set(count(bytes));
        self.oldest.get_or_create(&labels).set(count(oldest_age.unwrap_or_default()));
    }

    fn set_quotas(&self, quotas: &[ObservedQuota]) {
        self.quota_used.clear();
        self.quota_limit.clear();
        for ObservedQuota { project, quota, used } in quotas {
            let resources = [
                ("queues", quota.queues, used.queues),
                ("messages", quota.messages, used.amount.messages),
                ("bytes", quota.bytes, used.amount.bytes),
            ];
            for (resource, limit, used) in resources {
                let Some(limit) = limit else { continue };
                let labels = QuotaLabels { project: project.as_str().to_owned(), resource };
                self.quota_used.get_or_create(&labels).set(count(used));
                self.quota_limit.get_or_create(&labels).set(count(limit));
            }
        }
    }

    fn set_pools(&self, pools: &[ObservedPool]) {
        for family in [
            &self.pool_up,
            &self.pool_writable,
            &self.pool_free,
            &self.pool_size,
            &self.pool_messages,
            &self.pool_used,
        ] {
            family.clear();
        }
        self.pool_latency.clear();
        for pool in pools {
            let labels = PoolLabels { pool: pool.name.clone() };
            self.pool_up.get_or_create(&labels).set(i64::from(pool.is_up));
            self.pool_writable.get_or_create(&labels).set(i64::from(pool.is_writable));
            if let Some(latency) = pool.latency {
                self.pool_latency.get_or_create(&labels).set(latency.as_secs_f64());
            }
            if let Some((free, size)) = pool.space {
                self.pool_free.get_or_create(&labels).set(count(free));
                self.pool_size.get_or_create(&labels).set(count(size));
            }
            if let Some((messages, bytes)) = pool.held {
                self.pool_messages.get_or_create(&labels).set(count(messages));
                self.pool_used.get_or_create(&labels).set(count(bytes));
            }
        }
    }
}

impl States {
    fn set_damage(&self, observed: &ServiceState) {
        self.damaged_reads.clear();
        let set = |part: &str, reads: u64| {
            self.damaged_reads.get_or_create(&PartLabels { part: part.to_owned() }).set(count(reads));
        };
        set("coordination", observed.damaged_tree_reads);
        for pool in &observed.pools {
            set(&format!("pool {}", pool.name), pool.damaged_reads);
        }
    }
}

impl QueueLabels {
    fn in_state(&self, state: &'static str) -> StateLabels {
        let (project, queue) = self.parts();
        StateLabels { project: project.to_owned(), queue: queue.to_owned(), state }
    }
}

fn count<T: TryInto<i64>>(number: T) -> i64 {
    number.try_into().unwrap_or(i64::MAX)
}
