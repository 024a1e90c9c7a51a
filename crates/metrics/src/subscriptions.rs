//! Counters by subscription, as far as its queue has labels of its own. A series begins with its first count, so queues
//! without subscriptions have none.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use crate::queues::QueueLabels;

/// Values of the label `what` of omissions.
const OMISSIONS: [&str; 3] = [LEFT_OUT, CAUGHT_UP, DROPPED];
pub(super) const LEFT_OUT: &str = "left_out";
pub(super) const CAUGHT_UP: &str = "caught_up";
pub(super) const DROPPED: &str = "dropped";

/// Results of requests to webhooks.
const RESULTS: [&str; 6] = ["delivered", "refused", "unavailable", "unreachable", "timed_out", "forbidden"];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OmissionLabels {
    project: String,
    queue: String,
    what: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    project: String,
    queue: String,
    result: &'static str,
}

/// The counters of all subscriptions.
pub(super) struct SubscriptionFamilies {
    omissions: Family<OmissionLabels, Counter>,
    requests: Family<RequestLabels, Counter>,
}

fn omissions(queue: &QueueLabels, what: &'static str) -> OmissionLabels {
    let (project, queue) = queue.parts();
    OmissionLabels { project: project.to_owned(), queue: queue.to_owned(), what }
}

fn requests(queue: &QueueLabels, result: &'static str) -> RequestLabels {
    let (project, queue) = queue.parts();
    RequestLabels { project: project.to_owned(), queue: queue.to_owned(), result }
}

impl SubscriptionFamilies {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let families = Self { omissions: Family::default(), requests: Family::default() };
        registry.register(
            "angarium_subscription_omissions",
            "Messages that a subscription did not get because it was full: `left_out`, unless it `caught_up`, or `dropped` later",
            families.omissions.clone(),
        );
        registry.register(
            "angarium_subscription_requests",
            "Requests to the webhook of a subscription, by result",
            families.requests.clone(),
        );
        families
    }

    pub(super) fn omit(&self, queue: &QueueLabels, what: &'static str, messages: u64) {
        if messages > 0 {
            self.omissions.get_or_create(&omissions(queue, what)).inc_by(messages);
        }
    }

    pub(super) fn request(&self, queue: &QueueLabels, result: &'static str) {
        self.requests.get_or_create(&requests(queue, result)).inc();
    }

    /// Removes the counters of a queue.
    pub(super) fn remove(&self, queue: &QueueLabels) {
        for what in OMISSIONS {
            self.omissions.remove(&omissions(queue, what));
        }
        for result in RESULTS {
            self.requests.remove(&requests(queue, result));
        }
    }

    /// Adds the counters of a queue to those of another one, and removes them.
    pub(super) fn merge(&self, queue: &QueueLabels, into: &QueueLabels) {
        for what in OMISSIONS {
            let counted = self.omissions.get(&omissions(queue, what)).map(|counter| counter.get());
            self.omit(into, what, counted.unwrap_or_default());
        }
        for result in RESULTS {
            let counted = self.requests.get(&requests(queue, result)).map(|counter| counter.get());
            if let Some(counted) = counted {
                self.requests.get_or_create(&requests(into, result)).inc_by(counted);
            }
        }
        self.remove(queue);
    }
}
