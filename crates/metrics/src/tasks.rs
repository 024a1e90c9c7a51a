//! Tasks over the messages of queues: how many run here, and the messages that they change.

use std::sync::Arc;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use angarium_core::move_task::TaskVerb;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    verb: &'static str,
}

/// The meter of tasks. Clones share it.
#[derive(Clone, Debug)]
pub struct TaskMeter(Arc<Tasks>);

#[derive(Debug)]
struct Tasks {
    running: Gauge,
    /// In the order of [`TaskVerb::ALL`].
    messages: [Counter; 3],
}

/// A task that runs, counted until it is dropped.
#[derive(Debug)]
pub struct RunningTask(Gauge);

impl Drop for RunningTask {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl TaskMeter {
    /// Counts a task as running.
    pub fn begin(&self) -> RunningTask {
        self.0.running.inc();
        RunningTask(self.0.running.clone())
    }

    /// Counts messages that a task has changed.
    pub fn note(&self, verb: TaskVerb, messages: u64) {
        for (of, counter) in TaskVerb::ALL.iter().zip(&self.0.messages) {
            if *of == verb {
                counter.inc_by(messages);
            }
        }
    }
}

pub(super) fn register(registry: &mut Registry) -> TaskMeter {
    let (running, messages) = (Gauge::default(), Family::<Labels, Counter>::default());
    registry.register(
        "angarium_tasks",
        "Tasks that move, requeue or delete messages and run at this replica",
        running.clone(),
    );
    registry.register(
        "angarium_task_messages",
        "Messages that such tasks have changed, by what they do",
        messages.clone(),
    );
    let messages = TaskVerb::ALL.map(|verb| messages.get_or_create_owned(&Labels { verb: verb.as_str() }));
    TaskMeter(Arc::new(Tasks { running, messages }))
}
