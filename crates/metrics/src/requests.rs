//! Requests: the duration of each operation, the statuses of its responses, and refusals.

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// Buckets in seconds: from a response out of memory to the longest wait for a message.
const DURATIONS: [f64; 15] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0];

/// Classes of statuses, by their first digit.
const CODES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OperationLabels {
    operation: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AnswerLabels {
    operation: String,
    code: &'static str,
}

/// A refusal of a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Refusal {
    /// Status of the response.
    pub status: u16,
    /// Code of the error.
    pub reason: String,
}

/// The meter of an operation. Clones share it.
#[derive(Clone, Debug)]
pub struct OperationMeter(Arc<Operation>);

#[derive(Debug)]
struct Operation {
    duration: Histogram,
    answers: [Counter; 5],
}

impl OperationMeter {
    /// Records a response with its status and duration.
    pub fn note(&self, status: u16, took: Duration) {
        self.0.duration.observe(took.as_secs_f64());
        let kind = usize::from(status / 100).clamp(1, CODES.len()) - 1;
        self.0.answers[kind].inc();
    }
}

pub(super) struct Requests {
    durations: Family<OperationLabels, Histogram, fn() -> Histogram>,
    answers: Family<AnswerLabels, Counter>,
    refusals: Family<Refusal, Counter>,
}

impl Requests {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let new: fn() -> Histogram = || Histogram::new(DURATIONS);
        let durations = Family::new_with_constructor(new);
        let (answers, refusals) = (Family::default(), Family::default());
        registry.register(
            "angarium_request_duration_seconds",
            "Seconds from the header of a request to its answer, waits for messages included",
            durations.clone(),
        );
        registry.register("angarium_requests", "Requests answered", Family::clone(&answers));
        registry.register(
            "angarium_refusals",
            "Requests answered 429 or 5xx: too many, unavailable, no room, unknown outcome",
            Family::clone(&refusals),
        );
        Self { durations, answers, refusals }
    }

    pub(super) fn operation(&self, id: &str) -> OperationMeter {
        let operation = id.to_owned();
        let duration = self.durations.get_or_create_owned(&OperationLabels { operation: operation.clone() });
        let answer =
            |code| self.answers.get_or_create_owned(&AnswerLabels { operation: operation.clone(), code });
        OperationMeter(Arc::new(Operation { duration, answers: CODES.map(answer) }))
    }

    pub(super) fn refuse(&self, refusal: &Refusal) {
        self.refusals.get_or_create(refusal).inc();
    }
}
