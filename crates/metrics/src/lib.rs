//! Metrics of the service, for operators.
//!
//! This crate owns the names of all metrics and the page that shows them. It makes no decisions, and nothing in the
//! service reads a metric back. On the path of a request, counting is one atomic addition to a counter that was looked
//! up before. States (queue depths, pool health) are collected when the page is requested.

mod authentication;
mod backups;
mod budgets;
mod forwards;
mod holds;
mod keystone;
pub mod limits;
mod observed;
mod plain;
mod process;
mod queues;
mod requests;
mod settings_files;
mod subscriptions;
mod tasks;
mod work;

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

pub use authentication::AuthenticationFailure;
pub use backups::{BackupMeter, RunningBackup};
pub use budgets::{BudgetFigures, ByteBudget};
pub use forwards::{ForwardMeter, ForwardResult};
pub use holds::ObservedHolds;
pub use keystone::KeystoneFigures;
pub use observed::{ObservedPool, ObservedQueue, ObservedQuota, QueueFigures, ServiceState, SessionState};
pub use plain::{PLAIN_MEDIA_TYPE, plain};
pub use queues::{QueueCounters, SettledCounters};
pub use requests::{OperationMeter, Refusal};
pub use tasks::{RunningTask, TaskMeter};
pub use work::{CommitMeter, OpenConnection};

use angarium_core::names::QueueRef;
use authentication::Failures;
use budgets::Budgets;
use keystone::Validations;
use observed::States;
use process::Process;
use queues::Queues;
use requests::Requests;
use settings_files::SettingsFiles;
use work::Work;

/// Media type of the page: the text form of OpenMetrics 1.0, which Prometheus reads.
pub const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// All metrics of a service. Clones share them.
#[derive(Clone)]
pub struct Meter(Arc<All>);

struct All {
    registry: Registry,
    queues: Queues,
    requests: Requests,
    failures: Failures,
    budgets: Budgets,
    validations: Validations,
    settings_files: SettingsFiles,
    work: Work,
    forwards: ForwardMeter,
    backups: BackupMeter,
    tasks: TaskMeter,
    /// Held while a page is made, so that one caller at a time sets and prints the states.
    states: Mutex<(States, Process)>,
}

impl fmt::Debug for Meter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Meter")
    }
}

impl Default for Meter {
    fn default() -> Self {
        let mut registry = Registry::default();
        let queues = Queues::register(&mut registry);
        let requests = Requests::register(&mut registry);
        let failures = Failures::register(&mut registry);
        let budgets = Budgets::register(&mut registry);
        let validations = Validations::register(&mut registry);
        let settings_files = SettingsFiles::register(&mut registry);
        let work = Work::register(&mut registry);
        let forwards = forwards::register(&mut registry);
        let backups = backups::register(&mut registry);
        let tasks = tasks::register(&mut registry);
        let states = States::register(&mut registry);
        let process = Process::register(&mut registry);
        // A gauge instead of an OpenMetrics `info`, which readers of Prometheus's older format do not know.
        let build = Family::<[(&str, &str); 1], Gauge>::default();
        build.get_or_create(&[("version", env!("CARGO_PKG_VERSION"))]).set(1);
        registry.register("angarium_build_info", "The program that serves", build);
        let states = Mutex::new((states, process));
        Self(Arc::new(All {
            registry,
            queues,
            requests,
            failures,
            budgets,
            validations,
            settings_files,
            work,
            forwards,
            backups,
            tasks,
            states,
        }))
    }
}

impl Meter {
    /// Sets the number of queues with metrics of their own: the first `max` used queues, and as many again for their
    /// depth. The others share the name `_other`. The default is [`limits::NAMED_QUEUES`].
    pub fn name_queues(&self, max: usize) {
        self.0.queues.set_max_named(max.min(limits::NAMED_QUEUES_MAX));
    }

    /// Returns the counters of a queue, its own or the shared ones. Gives the queue its own counters if there is room.
    pub fn queue(&self, at: &QueueRef) -> Arc<QueueCounters> {
        self.0.queues.counters(at)
    }

    /// Returns the counters of a queue; the shared ones when it has none of its own.
    pub fn known_counters(&self, at: &QueueRef) -> Arc<QueueCounters> {
        self.0.queues.known(at)
    }

    /// Gives a queue its own metrics because of its depth. Returns false when there is no room for one more.
    pub fn name_deep_queue(&self, at: &QueueRef) -> bool {
        self.0.queues.name_deep(at)
    }

    /// Returns the queues with their own metrics because of their depth, and the number of further queues that fit.
    pub fn deep_queues(&self) -> (Vec<QueueRef>, usize) {
        self.0.queues.deep()
    }

    /// Takes a queue's own metrics away, if it had them because of its depth. Its counts are added to the shared ones.
    pub fn unname_queue(&self, at: &QueueRef) {
        self.0.queues.unname(at);
    }

    /// Returns the queues with their own metrics.
    pub fn named_queues(&self) -> Vec<QueueRef> {
        self.0.queues.named()
    }

    /// Returns whether a queue has its own metrics.
    pub fn is_named(&self, at: &QueueRef) -> bool {
        self.0.queues.is_named(at)
    }

    /// Returns the shared counters.
    pub fn other_queues(&self) -> Arc<QueueCounters> {
        self.0.queues.others()
    }

    /// Removes the metrics of a deleted queue, so that another queue may have its own.
    pub fn forget_queue(&self, at: &QueueRef) {
        self.0.queues.forget(at);
    }

    /// Returns the meter of tasks over messages.
    pub fn tasks(&self) -> &TaskMeter {
        &self.0.tasks
    }

    /// Returns the meter of an API operation, by its id.
    pub fn operation(&self, id: &str) -> OperationMeter {
        self.0.requests.operation(id)
    }

    /// Counts a refused request, by status and reason.
    pub fn refuse(&self, refusal: &Refusal) {
        self.0.requests.refuse(refusal);
    }

    /// Counts a failed authentication.
    pub fn fail_authentication(&self, failure: AuthenticationFailure) {
        self.0.failures.note(failure);
    }

    /// Returns the meter of commits to a pool, by its name.
    pub fn commits(&self, pool: &str) -> CommitMeter {
        self.0.work.commits(pool)
    }

    /// Returns the meter of forwarded requests.
    pub fn forwards(&self) -> ForwardMeter {
        self.0.forwards.clone()
    }

    /// Records the wait of a claim that was allowed to wait, in seconds.
    pub fn note_claim_wait(&self, seconds: f64) {
        self.0.work.claim_wait.observe(seconds);
    }

    /// Counts a failure of a background task.
    pub fn fail_task(&self, task: &'static str) {
        self.0.work.fail_task(task);
    }

    /// Counts messages of posts that a hold has discarded.
    pub fn note_discarded(&self, messages: usize) {
        self.0.work.messages_discarded.inc_by(messages as u64);
    }

    /// Counts messages that were not copied for a suspended subscription, by its queue.
    pub fn note_left_out(&self, at: &QueueRef, messages: u64) {
        self.0.work.messages_left_out.inc_by(messages);
        self.0.queues.omit(at, subscriptions::LEFT_OUT, messages);
    }

    /// Counts messages that were copied after a suspended subscription had been left out of them, by its queue.
    pub fn note_caught_up(&self, at: &QueueRef, messages: u64) {
        self.0.work.messages_caught_up.inc_by(messages);
        self.0.queues.omit(at, subscriptions::CAUGHT_UP, messages);
    }

    /// Counts copies that were removed because their subscription was full, by its queue.
    pub fn note_dropped(&self, at: &QueueRef, messages: u64) {
        self.0.work.messages_dropped.inc_by(messages);
        self.0.queues.omit(at, subscriptions::DROPPED, messages);
    }

    /// Counts a request to the webhook of a subscription, by its queue and by the result.
    pub fn note_webhook(&self, at: &QueueRef, result: &'static str) {
        self.0.work.note_webhook(result);
        self.0.queues.request(at, result);
    }

    /// Returns the meter of backups.
    pub fn backups(&self) -> BackupMeter {
        self.0.backups.clone()
    }

    /// Counts a lost slot.
    pub fn note_lost_slot(&self) {
        self.0.work.slots_lost.inc();
    }

    /// Counts messages that were in memory but not in their pool.
    pub fn note_missing(&self, messages: u64) {
        self.0.work.messages_missing.inc_by(messages);
    }

    /// Counts a connection as open until the returned value is dropped.
    pub fn open_connection(&self) -> OpenConnection {
        self.0.work.open_connection()
    }

    /// Counts a connection that was refused because there are too many, in total or from its address.
    pub fn refuse_connection(&self) {
        self.0.work.connections_refused.inc();
    }

    /// Adds a budget to the page, read by `read`. Replaces an earlier one of the same kind.
    pub fn watch_budget(&self, budget: ByteBudget, read: impl Fn() -> BudgetFigures + Send + Sync + 'static) {
        self.0.budgets.watch(budget, Box::new(read));
    }

    /// Adds token validation to the page, read by `read`.
    pub fn watch_keystone(&self, read: impl Fn() -> KeystoneFigures + Send + Sync + 'static) {
        self.0.validations.watch(Box::new(read));
    }

    /// Records that the file of a setting was read and is in use.
    pub fn accept_settings_file(&self, setting: &'static str) {
        self.0.settings_files.accept(setting);
    }

    /// Records that the file of a setting was changed and is unusable. The previous contents stay in force.
    pub fn refuse_settings_file(&self, setting: &'static str) {
        self.0.settings_files.refuse(setting);
    }

    /// Returns the settings whose files were unusable at their last change.
    pub fn refused_settings_files(&self) -> Vec<&'static str> {
        self.0.settings_files.refused()
    }

    /// Returns the page of all metrics with samples, with the given states.
    pub fn page(&self, observed: &ServiceState) -> String {
        let states = self.0.states.lock();
        states.0.set(observed, &self.0.queues);
        states.1.set();
        self.0.budgets.set();
        self.0.validations.set();
        let mut page = String::new();
        encode(&mut page, &self.0.registry).expect("writing to a string does not fail");
        page
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use angarium_core::names::{ProjectId, QueueName};
    use angarium_core::quota::{Amount, Holdings, Quota};

    fn queue(name: &str) -> QueueRef {
        QueueRef { project: ProjectId::new("p").unwrap(), name: QueueName::new(name).unwrap() }
    }

    fn figures(ready: u64) -> QueueFigures {
        QueueFigures { ready, ..QueueFigures::default() }
    }

    fn has(page: &str, line: &str) -> bool {
        page.lines().any(|found| found == line)
    }

    #[test]
    fn queues_beyond_the_bound_share_a_name() {
        let meter = Meter::default();
        meter.name_queues(1);
        for name in ["a", "b", "c", "a"] {
            meter.queue(&queue(name)).sent.inc();
        }
        let queues = ["a", "b", "c"].map(|name| ObservedQueue { at: queue(name), figures: figures(2) });
        let page = meter.page(&ServiceState { queues: queues.to_vec(), ..ServiceState::default() });
        assert!(has(&page, r#"angarium_messages_sent_total{project="p",queue="a"} 2"#), "{page}");
        assert!(has(&page, r#"angarium_messages_sent_total{project="_other",queue="_other"} 2"#), "{page}");
        assert!(has(&page, r#"angarium_messages{project="p",queue="a",state="ready"} 2"#), "{page}");
        assert!(
            has(&page, r#"angarium_messages{project="_other",queue="_other",state="ready"} 4"#),
            "{page}"
        );
    }

    #[test]
    fn queue_without_its_name_leaves_its_counts() {
        let meter = Meter::default();
        meter.name_queues(1);
        meter.queue(&queue("a")).sent.inc();
        assert!(meter.name_deep_queue(&queue("b")));
        assert!(!meter.name_deep_queue(&queue("c")), "there is one place");
        meter.queue(&queue("b")).sent.inc_by(5);
        meter.known_counters(&queue("c")).sent.inc();
        meter.unname_queue(&queue("a"));
        assert!(meter.is_named(&queue("a")), "it was used first");
        for (at, messages) in [("b", 3), ("c", 1)] {
            meter.note_dropped(&queue(at), messages);
            meter.note_webhook(&queue(at), "delivered");
        }
        let page = meter.page(&ServiceState::default());
        assert!(has(
            &page,
            r#"angarium_subscription_omissions_total{project="p",queue="b",what="dropped"} 3"#
        ));
        meter.unname_queue(&queue("b"));
        let page = meter.page(&ServiceState::default());
        let others = r#"{project="_other",queue="_other",what="dropped"} 4"#;
        assert!(has(&page, &format!("angarium_subscription_omissions_total{others}")), "{page}");
        let others = r#"{project="_other",queue="_other",result="delivered"} 2"#;
        assert!(has(&page, &format!("angarium_subscription_requests_total{others}")), "{page}");
        assert!(!page.contains(r#"queue="b""#), "{page}");
        assert!(has(&page, r#"angarium_messages_sent_total{project="_other",queue="_other"} 6"#), "{page}");
        assert_eq!(meter.deep_queues(), (Vec::new(), 1));
    }

    #[test]
    fn families_without_samples_are_not_printed() {
        let meter = Meter::default();
        assert!(!meter.page(&ServiceState::default()).contains("angarium_pool_up"));
        let pool = ObservedPool {
            name: "p".to_owned(),
            is_up: true,
            is_writable: true,
            latency: None,
            space: None,
            held: None,
            damaged_reads: 0,
        };
        let page = meter.page(&ServiceState { pools: vec![pool], ..ServiceState::default() });
        assert!(has(&page, "# TYPE angarium_pool_up gauge"), "{page}");
        assert!(!page.contains("angarium_pool_latency_seconds"), "{page}");
        assert!(page.ends_with("# EOF\n"));
    }

    #[test]
    fn quotas_are_shown_as_far_as_they_bound() {
        let meter = Meter::default();
        let quota = Quota { messages: Some(10), ..Quota::NONE };
        let used = Holdings { queues: 3, amount: Amount { messages: 4, bytes: 50 } };
        let project = ProjectId::new("p").unwrap();
        let page = meter.page(&ServiceState {
            quotas: vec![ObservedQuota { project, quota, used }],
            ..ServiceState::default()
        });
        let lines = [
            r#"angarium_quota_used{project="p",resource="messages"} 4"#,
            r#"angarium_quota_limit{project="p",resource="messages"} 10"#,
        ];
        assert!(lines.iter().all(|line| has(&page, line)), "{page}");
        assert!(!page.contains(r#"resource="bytes""#), "{page}");
    }

    #[test]
    fn deleted_queue_frees_its_figures() {
        let meter = Meter::default();
        meter.name_queues(1);
        meter.queue(&queue("a")).sent.inc();
        meter.page(&ServiceState {
            queues: vec![ObservedQueue { at: queue("a"), figures: figures(2) }],
            ..ServiceState::default()
        });
        meter.forget_queue(&queue("a"));
        meter.queue(&queue("b")).sent.inc();
        let page = meter.page(&ServiceState::default());
        assert!(!page.contains(r#"queue="a""#), "{page}");
        assert!(has(&page, r#"angarium_messages_sent_total{project="p",queue="b"} 1"#), "{page}");
    }

    #[test]
    fn oldest_message_of_others_is_their_oldest() {
        let meter = Meter::default();
        meter.name_queues(0);
        let aged = |name, oldest_age| ObservedQueue {
            at: queue(name),
            figures: QueueFigures { oldest_age, ..figures(1) },
        };
        let queues = vec![aged("a", Some(3)), aged("b", Some(7)), aged("c", None)];
        let page = meter.page(&ServiceState { queues, ..ServiceState::default() });
        let line = r#"angarium_oldest_message_age_seconds{project="_other",queue="_other"} 7"#;
        assert!(has(&page, line), "{page}");
    }

    #[test]
    fn queue_of_subscription_has_name_of_command_line() {
        let meter = Meter::default();
        let id = "0a00000000000000000000000000000b".parse().unwrap();
        meter.queue(&queue("q").of_subscription(id)).sent.inc();
        let page = meter.page(&ServiceState::default());
        let name = "q/0a000000-0000-0000-0000-00000000000b";
        let line = format!(r#"angarium_messages_sent_total{{project="p",queue="{name}"}} 1"#);
        assert!(has(&page, &line), "{page}");
    }

    #[test]
    fn names_of_queues_cannot_break_the_page() {
        let meter = Meter::default();
        let project = ProjectId::new("a\"b\\c").unwrap();
        meter.queue(&QueueRef { project, name: QueueName::new("q").unwrap() }).sent.inc();
        let page = meter.page(&ServiceState::default());
        assert!(has(&page, r#"angarium_messages_sent_total{project="a\"b\\c",queue="q"} 1"#), "{page}");
    }
}
