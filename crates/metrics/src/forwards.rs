//! Forwarded requests: their outcomes, and the time until the outcome.

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// Buckets in seconds: from a response out of memory to the longest wait for a message.
const DURATIONS: [f64; 12] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 25.0];

/// Outcome of a forwarded request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForwardResult {
    /// The other replica responded, with any status.
    Answered,
    /// The other replica does not own the slot and did nothing.
    Moved,
    /// The request was certainly not sent.
    NotSent,
    /// The outcome is unknown.
    Unknown,
}

/// Label values, in the order of the variants.
const OUTCOMES: [&str; 4] = ["answered", "moved", "not_sent", "unknown"];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    outcome: &'static str,
}

/// The meter of forwarded requests. Clones share it.
#[derive(Clone, Debug)]
pub struct ForwardMeter(Arc<Forwards>);

#[derive(Debug)]
struct Forwards {
    outcomes: [Counter; 4],
    duration: Histogram,
}

impl ForwardMeter {
    /// Records the outcome of a request, and the time until it was known.
    pub fn note(&self, outcome: ForwardResult, took: Duration) {
        self.0.outcomes[outcome as usize].inc();
        self.0.duration.observe(took.as_secs_f64());
    }
}

pub(super) fn register(registry: &mut Registry) -> ForwardMeter {
    let (outcomes, duration) = (Family::<Labels, Counter>::default(), Histogram::new(DURATIONS));
    registry.register(
        "angarium_forwards",
        "Requests passed on to the replicas that serve their queues, by what became of them there",
        outcomes.clone(),
    );
    registry.register(
        "angarium_forward_duration_seconds",
        "Seconds until that was known, waits for messages included",
        duration.clone(),
    );
    let outcomes = OUTCOMES.map(|outcome| outcomes.get_or_create_owned(&Labels { outcome }));
    ForwardMeter(Arc::new(Forwards { outcomes, duration }))
}
