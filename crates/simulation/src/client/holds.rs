//! Holds and releases of queues, groups, pools and the project; and replicas that are stopped or end beside a hold.

use std::time::Duration;

use angarium_core::time::Timestamp;
use serde_json::Value;

use super::{Client, certainty, pool_name, queue_name};
use crate::cluster::Cluster;
use crate::history::{Certainty, HeldResource, HoldTerms, Span};
use crate::process::Process;
use crate::requests::{ApiRequest, Outcome};

/// The longest time for which a replica is stopped.
const MAX_STOP: Duration = Duration::from_secs(40);

impl Client {
    /// Holds a resource: its messages cannot be claimed, and its posts are stored or not.
    pub async fn hold(&self, resource: &HeldResource, terms: HoldTerms) -> Certainty {
        let began = self.world().elapsed();
        self.history.lock().begin_hold(resource, terms, began);
        let until = terms.ttl.and_then(|ttl| self.date_in(ttl));
        let held = certainty(&self.send(&ApiRequest::hold(&path_of(resource), terms.posts, until)).await);
        let span = Span { began, ended: self.world().elapsed() };
        self.history.lock().end_hold(resource, terms, span, held);
        held
    }

    /// Returns the date some seconds from now, by the clock of the service; none if no replica runs.
    fn date_in(&self, seconds: u64) -> Option<String> {
        let now = self.cluster.latest_time()?;
        Some(Timestamp::from_millis(now.as_millis() + seconds * 1_000).calendar())
    }

    /// Releases a resource that may be held. Returns whether it is released, or does not exist.
    pub async fn release_hold(&self, resource: &HeldResource) -> bool {
        let began = self.world().elapsed();
        self.history.lock().begin_hold_release(resource, began);
        let outcome = self.send(&ApiRequest::release_hold(&path_of(resource))).await;
        let span = Span { began, ended: self.world().elapsed() };
        self.history.lock().end_hold_release(resource, span, certainty(&outcome));
        matches!(outcome, Outcome::Done(_) | Outcome::Missing)
    }
}

/// A replica that is stopped, for [`MAX_STOP`] at most.
pub struct StoppedReplica {
    /// Its number.
    pub number: usize,
    process: Process,
}

impl StoppedReplica {
    /// Lets its tasks run again.
    pub fn resume(&self) {
        self.process.resume();
    }
}

impl Client {
    /// Stops some replica beside others. Returns none when there is no other, or none runs.
    pub fn stop_replica(&self) -> Option<StoppedReplica> {
        if self.cluster.size() < 2 {
            return None;
        }
        let number = self.pick_replica();
        let process = self.cluster.pause(number, MAX_STOP)?;
        Some(StoppedReplica { number, process })
    }

    /// Stops the replica that serves a queue, beside others. Returns none when there is no other, or it is not known.
    pub fn stop_owner(&self, queue: &str) -> Option<StoppedReplica> {
        if self.cluster.size() < 2 {
            return None;
        }
        let number = self.owner_of(queue)?;
        let process = self.cluster.pause(number, MAX_STOP)?;
        Some(StoppedReplica { number, process })
    }

    /// Returns the replica that the tree has as the owner of a queue's slot.
    pub fn owner_of(&self, queue: &str) -> Option<usize> {
        let nodes = self.cluster.nodes();
        let slot = nodes.keys().find_map(|path| {
            let parts: Vec<&str> = path.split('/').collect();
            match parts[..] {
                ["", "queues", slot, _, name] if name == queue => Some(slot.to_owned()),
                _ => None,
            }
        })?;
        let owner: Value = serde_json::from_slice(nodes.get(&format!("/meta/slots/{slot}/owner"))?).ok()?;
        Cluster::number_of(owner["address"].as_str()?)
    }

    /// Ends all replicas at once. The next process of each starts within two seconds.
    pub fn end_replicas(&self) {
        for number in 0..self.cluster.size() {
            self.cluster.crash(number, Duration::from_millis(self.world().below(2_000)));
        }
    }
}

/// Returns the path of a resource.
pub fn path_of(resource: &HeldResource) -> String {
    match resource {
        HeldResource::Queue(queue) => format!("/queues/{}", queue_name(*queue)),
        HeldResource::Group(queue, group) => format!("/queues/{}/groups/{group}", queue_name(*queue)),
        HeldResource::Pool(pool) => format!("/pools/{}", pool_name(*pool)),
        HeldResource::Project => "/projects/000000000000".into(),
    }
}
