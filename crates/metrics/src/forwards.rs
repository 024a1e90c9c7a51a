//! Requests that are passed on to other replicas: what becomes of them, and how long their answers take.

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// Seconds: from an answer out of memory to the longest wait for a message.
const DURATIONS: [f64; 12] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 25.0];

/// What became of a request that was passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForwardResult {
    /// Its answer is there, whatever it states.
    Answered,
    /// The other replica does not serve its queue and did nothing.
    Moved,
    /// It was certainly not sent.
    NotSent,
    /// It is unknown whether it was carried out.
    Unknown,
}

/// The names of the outcomes, in their order.
const OUTCOMES: [&str; 4] = ["answered", "moved", "not_sent", "unknown"];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    outcome: &'static str,
}

/// What is noted of requests that are passed on. Clones share it.
#[derive(Clone, Debug)]
pub struct ForwardMeter(Arc<Forwards>);

#[derive(Debug)]
struct Forwards {
    outcomes: [Counter; 4],
    duration: Histogram,
}

impl ForwardMeter {
    /// Notes what became of a request, and how long that took.
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
