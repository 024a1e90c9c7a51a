//! The quota of the project: set as an operator sets it at all replicas, and read.

use std::time::Duration;

use angarium_core::quota::{Amount, Quota};

use super::Client;
use crate::history::Span;
use crate::requests::{ApiRequest, Outcome};

impl Client {
    /// Sets the quota of the project, which holds from the next request on.
    pub fn set_quota(&self, quota: Quota) {
        let world = self.world();
        world.note(|| format!("{} sets {quota:?}", self.name));
        // Both at once: no task runs in between.
        self.history.lock().set_quota(quota, world.elapsed());
        self.cluster.set_quota(quota);
    }

    /// Checks the quota after a successful post that began at `began`.
    pub(super) fn check_quota(&self, queue: usize, numbers: impl Iterator<Item = u64>, began: Duration) {
        let world = self.world();
        let request = Span { began, ended: world.elapsed() };
        let faults = world.faults();
        let others = faults.0.iter().filter(|(fault, _)| !fault.is_of_client()).map(|(_, count)| count).sum();
        let numbers: Vec<u64> = numbers.collect();
        self.history.lock().check_quota(queue, &numbers, request, others);
    }

    /// Returns the amount that the project holds; none without an answer.
    pub async fn held_amount(&self) -> Option<Amount> {
        let Outcome::Done(body) = self.send(&ApiRequest::quota()).await else { return None };
        let used = |what: &str| body[what]["used"].as_u64();
        Some(Amount { messages: used("messages")?, bytes: used("bytes")? })
    }
}
