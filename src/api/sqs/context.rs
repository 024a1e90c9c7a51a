//! What an operation is carried out with: the request, how queues are named, what the product does.

use std::time::Duration;

use super::account::RegionalQueues;
use super::decode::Dialect;
use super::pauses::Pauses;
use super::resolution::ResolvedRequest;
use angarium_broker::Broker;
use angarium_core::limits;
use angarium_core::names::QueueRef;
use angarium_core::trace::TraceContext;

/// What a request is carried out with.
pub struct Context<'a> {
    /// What the product does.
    pub broker: &'a Broker,
    /// The form of the answer.
    pub dialect: Dialect,
    /// Who asks for what, with which queues.
    pub request: &'a ResolvedRequest,
    /// How queues are named.
    pub places: &'a RegionalQueues,
    /// What the URLs of queues begin with.
    pub base: &'a str,
    /// The trace of the request.
    pub trace: Option<TraceContext>,
    /// The trace of AWS X-Ray that the request is in, as its header states.
    pub aws_trace: Option<String>,
    /// How long it has waited already, at other replicas or for its slot.
    pub waited: Duration,
    /// What a request may ask for.
    pub most: ContextLimits,
    /// What SQS refuses to do again at once.
    pub pauses: Pauses,
}

/// Bounds that an operator may set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContextLimits {
    /// Messages of a receive, and entries of a batch.
    pub batch: usize,
    /// Messages of a queue under claims.
    pub in_flight: usize,
}

impl ContextLimits {
    /// Parameters of a request of the query protocol: those of its whole batch.
    pub fn parameters(&self) -> usize {
        limits::SQS_PARAMETERS + self.batch * limits::SQS_ENTRY_PARAMETERS
    }
}

impl Default for ContextLimits {
    fn default() -> Self {
        Self { batch: limits::SQS_BATCH, in_flight: limits::SQS_IN_FLIGHT }
    }
}

impl Context<'_> {
    /// The URL of a queue.
    pub fn url(&self, queue: &QueueRef) -> String {
        self.places.url(self.base, queue)
    }
}
