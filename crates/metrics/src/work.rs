//! Work behind the requests: commits to the pools, waiting claims, connections.

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// Buckets in seconds: from the sync of a fast disk to the last attempt of a batch.
const COMMITS: [f64; 13] =
    [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0];

/// Buckets of messages per commit, up to the max of a batch.
const MESSAGES: [f64; 12] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 4096.0];

/// Buckets in seconds, up to the longest wait that a client may request.
const WAITS: [f64; 9] = [0.001, 0.01, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PoolLabels {
    pool: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TaskLabels {
    task: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabels {
    result: &'static str,
}

type Histograms = Family<PoolLabels, Histogram, fn() -> Histogram>;

/// The meter of commits to a pool: their duration and size. Clones share it.
#[derive(Clone, Debug)]
pub struct CommitMeter(Arc<Commits>);

#[derive(Debug)]
struct Commits {
    durations: Histogram,
    messages: Histogram,
}

impl CommitMeter {
    /// Records a commit that changed this number of messages, successful or not.
    pub fn note(&self, messages: usize, took: Duration) {
        self.0.durations.observe(took.as_secs_f64());
        self.0.messages.observe(f64::from(u32::try_from(messages).unwrap_or(u32::MAX)));
    }
}

/// An open connection, counted until it is dropped.
#[derive(Debug)]
pub struct OpenConnection(Gauge);

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.dec();
    }
}

pub(super) struct Work {
    durations: Histograms,
    messages: Histograms,
    pub(super) claim_wait: Histogram,
    connections: Gauge,
    pub(super) connections_refused: Counter,
    pub(super) messages_missing: Counter,
    pub(super) messages_discarded: Counter,
    pub(super) messages_left_out: Counter,
    pub(super) messages_caught_up: Counter,
    pub(super) messages_dropped: Counter,
    pub(super) slots_lost: Counter,
    task_failures: Family<TaskLabels, Counter>,
    webhooks: Family<ResultLabels, Counter>,
}

impl Work {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let commits: fn() -> Histogram = || Histogram::new(COMMITS);
        let messages: fn() -> Histogram = || Histogram::new(MESSAGES);
        let work = Self {
            durations: Family::new_with_constructor(commits),
            messages: Family::new_with_constructor(messages),
            claim_wait: Histogram::new(WAITS),
            connections: Gauge::default(),
            connections_refused: Counter::default(),
            messages_missing: Counter::default(),
            messages_discarded: Counter::default(),
            messages_left_out: Counter::default(),
            messages_caught_up: Counter::default(),
            messages_dropped: Counter::default(),
            slots_lost: Counter::default(),
            task_failures: Family::default(),
            webhooks: Family::default(),
        };
        registry.register(
            "angarium_commit_duration_seconds",
            "Seconds that a commit of one slot to a pool took until its outcome was known",
            work.durations.clone(),
        );
        registry.register(
            "angarium_messages_per_commit",
            "Messages that a commit of one slot to a pool added, changed or removed",
            work.messages.clone(),
        );
        registry.register(
            "angarium_claim_wait_seconds",
            "Seconds that claims which may wait did wait, whether they got a message or not",
            work.claim_wait.clone(),
        );
        registry.register("angarium_connections", "Connections of clients", work.connections.clone());
        registry.register(
            "angarium_connections_refused",
            "Connections refused because there were too many, in all or of their address",
            work.connections_refused.clone(),
        );
        work.register_messages(registry);
        registry.register(
            "angarium_slots_lost",
            "Slots that were lost, and reacquired or left to another replica",
            work.slots_lost.clone(),
        );
        registry.register(
            "angarium_background_failures",
            "Failures of background tasks, which go on by themselves",
            work.task_failures.clone(),
        );
        registry.register(
            "angarium_webhook_requests",
            "Requests to webhooks, by result: `delivered`, `refused`, `unavailable`, `unreachable`, `timed_out` or \
             `forbidden`",
            work.webhooks.clone(),
        );
        work
    }

    fn register_messages(&self, registry: &mut Registry) {
        registry.register(
            "angarium_messages_missing",
            "Messages that memory had and their pool did not: each was forgotten, and its slot reacquired",
            self.messages_missing.clone(),
        );
        registry.register(
            "angarium_messages_discarded",
            "Messages of posts that were answered and dropped because their queue is held with `discard`",
            self.messages_discarded.clone(),
        );
        registry.register(
            "angarium_messages_left_out",
            "Messages that were not copied for a suspended subscription when they were posted",
            self.messages_left_out.clone(),
        );
        registry.register(
            "angarium_messages_caught_up",
            "Messages left out that were copied for their subscription later, when it had room",
            self.messages_caught_up.clone(),
        );
        registry.register(
            "angarium_messages_dropped",
            "Copies that were removed because their subscription was full",
            self.messages_dropped.clone(),
        );
    }

    pub(super) fn note_webhook(&self, result: &'static str) {
        self.webhooks.get_or_create(&ResultLabels { result }).inc();
    }

    pub(super) fn fail_task(&self, task: &'static str) {
        self.task_failures.get_or_create(&TaskLabels { task }).inc();
    }

    pub(super) fn commits(&self, pool: &str) -> CommitMeter {
        let labels = PoolLabels { pool: pool.to_owned() };
        let (durations, messages) =
            (self.durations.get_or_create_owned(&labels), self.messages.get_or_create_owned(&labels));
        CommitMeter(Arc::new(Commits { durations, messages }))
    }

    pub(super) fn open_connection(&self) -> OpenConnection {
        self.connections.inc();
        OpenConnection(self.connections.clone())
    }
}
