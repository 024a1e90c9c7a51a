//! The context of an operation: the request, the names of queues, the broker and the limits.

use std::time::Duration;

use super::account::RegionalQueues;
use super::decode::Dialect;
use super::pauses::Pauses;
use super::resolution::ResolvedRequest;
use crate::api::pipeline::forward::earlier::EarlierAttempts;
use angarium_broker::Broker;
use angarium_core::limits;
use angarium_core::names::QueueRef;
use angarium_core::trace::TraceContext;

/// The context in which an operation runs.
pub struct Context<'a> {
    /// Carries out operations on queues.
    pub broker: &'a Broker,
    /// The dialect of the answer.
    pub dialect: Dialect,
    /// The request, with its caller and its queues.
    pub request: &'a ResolvedRequest,
    /// Maps queues to URLs and ARNs.
    pub places: &'a RegionalQueues,
    /// Prefix of queue URLs.
    pub base: &'a str,
    /// The trace of the request.
    pub trace: Option<TraceContext>,
    /// The AWS X-Ray trace of the request, from its header.
    pub aws_trace: Option<String>,
    /// Time that the request has waited already, at other replicas or for its slot.
    pub waited: Duration,
    /// The attempts of the request before this one.
    pub earlier: EarlierAttempts,
    /// Limits of a request.
    pub most: ContextLimits,
    /// Minimum pauses between certain operations.
    pub pauses: Pauses,
}

/// Limits that an operator may set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContextLimits {
    /// Max messages of a receive, and entries of a batch.
    pub batch: usize,
    /// Max claimed messages of a queue.
    pub in_flight: usize,
}

impl ContextLimits {
    /// Returns the max parameters of a request of the query protocol, for a whole batch.
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
    /// Returns the URL of a queue.
    pub fn url(&self, queue: &QueueRef) -> String {
        self.places.url(self.base, queue)
    }
}
