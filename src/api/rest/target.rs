//! The target of a REST request: the queue in its path, and the facts that forwarding needs.

use std::time::Duration;

use axum::http::request::Parts;
use axum::http::{Method, Uri};

use crate::api::pipeline::admission::PlaceKind;
use crate::api::pipeline::deadline::{RequestDeadline, longest_wait};
use crate::api::pipeline::forward::RequestTarget;
use crate::api::pipeline::identity::Identity;
use angarium_core::ids::Slot;
use angarium_core::limits::{self, Limits};
use angarium_core::names::{QueueName, QueueRef};

/// Queues and topics: a topic is in the slot that a queue of its name would be in.
const SOURCES: [&str; 2] = ["/v2/queues/", "/v2/topics/"];
const SUBSCRIPTIONS: &str = "subscriptions/";
const SETTLE: &str = "/settle";

/// Returns the facts about a request of `identity` that forwarding needs.
pub fn of(head: &Parts, identity: &Identity, limits: &Limits) -> RequestTarget {
    RequestTarget {
        slot: slot(&head.uri, identity),
        is_repeatable: is_repeatable(&head.method, &head.uri),
        is_read: head.method.is_safe(),
        may_wait: may_wait(&head.method, &head.uri),
        most_bytes: most_bytes(&head.method, &head.uri, limits),
        deadline: time(&head.method, &head.uri),
    }
}

/// Returns the deadline of a request.
pub fn deadline(head: &Parts) -> RequestDeadline {
    RequestDeadline { time: time(&head.method, &head.uri), is_read: head.method.is_safe() }
}

fn time(method: &Method, uri: &Uri) -> Duration {
    let path = uri.path();
    if PlaceKind::of_query(uri.query().unwrap_or_default()) == PlaceKind::LongPoll {
        return longest_wait();
    }
    if *method == Method::POST && below_sources(uri).is_some() && path.ends_with("/purge") {
        return limits::PURGE_DEADLINE;
    }
    if [Method::PUT, Method::PATCH].contains(method) && path.starts_with("/v2/pools/") {
        return limits::POOL_DEADLINE;
    }
    limits::REQUEST_DEADLINE
}

/// Returns the part of a path that begins with the name of a queue or a topic.
fn below_sources(uri: &Uri) -> Option<&str> {
    SOURCES.iter().find_map(|start| uri.path().strip_prefix(start))
}

/// Returns the slot of the queue or topic in a path, if there is one.
fn slot(uri: &Uri, identity: &Identity) -> Option<Slot> {
    let name = below_sources(uri)?.split('/').next()?;
    // A queue name never needs an escape, so an escaped one is no name.
    let queue = QueueRef { project: identity.project.clone(), name: QueueName::new(name).ok()? };
    Some(queue.slot())
}

/// Returns the part of a path behind its queue, or behind its subscription when the request is for the queue of one.
fn below_queue(uri: &Uri) -> Option<&str> {
    let (_, rest) = below_sources(uri)?.split_once('/')?;
    let subscription = rest.strip_prefix(SUBSCRIPTIONS).and_then(|rest| rest.split_once('/'));
    Some(subscription.map_or(rest, |(_, rest)| rest))
}

/// Whether a request may be made twice with the same effect as once: it reads, it deletes something by its id, or it
/// settles messages, whose outcome is recorded.
fn is_repeatable(method: &Method, uri: &Uri) -> bool {
    match (method, below_queue(uri)) {
        (&Method::GET, _) => true,
        (&Method::DELETE, Some(rest)) => {
            ["messages/", "claims/", SUBSCRIPTIONS].iter().any(|start| rest.starts_with(start))
        }
        (&Method::POST, Some(rest)) => rest.starts_with("claims/") && rest.ends_with(SETTLE),
        _ => false,
    }
}

/// Whether a request waits for a message: a claim, or a look at the outcome of one. Others ignore the parameter.
fn may_wait(method: &Method, uri: &Uri) -> bool {
    let waits = match (method, below_queue(uri)) {
        (&Method::POST, Some(rest)) => rest == "claims",
        (&Method::GET, Some(rest)) => rest.starts_with("messages/"),
        _ => false,
    };
    waits && PlaceKind::of_query(uri.query().unwrap_or_default()) == PlaceKind::LongPoll
}

/// Returns the max bytes of the body that the handler accepts.
fn most_bytes(method: &Method, uri: &Uri, limits: &Limits) -> usize {
    let path = uri.path();
    let is_post = ["/messages", "/messages/batch", SETTLE].iter().any(|end| path.ends_with(end));
    if *method == Method::POST && is_post {
        return limits::SQS_REQUEST_BYTES;
    }
    limits.metadata_bytes.max(limits::ADMIN_BODY_BYTES).max(limits::SUBSCRIPTION_BODY_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_has_the_deadline_of_its_operation() {
        for (method, target, seconds) in [
            (Method::GET, "/v2/queues", 45),
            (Method::POST, "/v2/queues/q/messages", 45),
            (Method::DELETE, "/v2/queues/q", 45),
            (Method::POST, "/v2/queues/q/claims?wait=20", 65),
            (Method::GET, "/v2/queues/q/messages/m?wait=20", 65),
            (Method::POST, "/v2/queues/q/purge", 600),
            (Method::POST, "/v2/queues/q/subscriptions/s/purge", 600),
            (Method::POST, "/v2/queues/q/subscriptions/s/claims?wait=20", 65),
            (Method::POST, "/v2/topics/t/subscriptions/s/claims?wait=20", 65),
            (Method::POST, "/v2/topics/t/purge", 600),
            (Method::POST, "/v2/queues/q/subscriptions", 45),
            (Method::PUT, "/v2/pools/p", 300),
        ] {
            let uri = target.parse().unwrap();
            assert_eq!(time(&method, &uri), Duration::from_secs(seconds), "{method} {target}");
        }
    }

    #[test]
    fn only_claims_and_looks_at_a_message_wait() {
        for (method, target, waits) in [
            (Method::POST, "/v2/queues/q/claims?wait=20", true),
            (Method::GET, "/v2/queues/q/messages/m?wait=20", true),
            (Method::POST, "/v2/queues/q/subscriptions/s/claims?wait=20", true),
            (Method::POST, "/v2/topics/t/subscriptions/s/claims?wait=20", true),
            (Method::POST, "/v2/topics/t/messages?wait=20", false),
            (Method::GET, "/v2/queues/q/subscriptions/s/messages/m?wait=20", true),
            (Method::GET, "/v2/queues/q/subscriptions/s?wait=20", false),
            (Method::POST, "/v2/queues/q/subscriptions/claims?wait=20", false),
            (Method::POST, "/v2/queues/q/claims", false),
            (Method::POST, "/v2/queues/q/messages?wait=20", false),
            (Method::DELETE, "/v2/queues/q/messages/m?wait=20", false),
            (Method::POST, "/v2/queues/q/claims/c/settle?wait=20", false),
        ] {
            assert_eq!(may_wait(&method, &target.parse().unwrap()), waits, "{method} {target}");
        }
    }

    #[test]
    fn read_deletion_by_id_and_settle_are_repeatable() {
        for (method, target, repeatable) in [
            (Method::GET, "/v2/queues/q", true),
            (Method::DELETE, "/v2/queues/q/messages/m", true),
            (Method::DELETE, "/v2/queues/q/claims/c", true),
            (Method::DELETE, "/v2/queues/q/messages", false),
            (Method::DELETE, "/v2/queues/q", false),
            (Method::POST, "/v2/queues/q/messages", false),
            (Method::POST, "/v2/queues/q/claims/c/settle", true),
            (Method::POST, "/v2/queues/q/messages/m/requeue", false),
            (Method::DELETE, "/v2/queues/q/subscriptions/s", true),
            (Method::DELETE, "/v2/topics/t/subscriptions/s", true),
            (Method::DELETE, "/v2/topics/t", false),
            (Method::POST, "/v2/queues/q/subscriptions", false),
            (Method::PATCH, "/v2/queues/q/subscriptions/s", false),
            (Method::DELETE, "/v2/queues/q/subscriptions/s/messages/m", true),
            (Method::DELETE, "/v2/queues/q/subscriptions/s/messages?pop=1", false),
            (Method::POST, "/v2/queues/q/subscriptions/s/claims", false),
            (Method::POST, "/v2/queues/q/subscriptions/s/claims/c/settle", true),
        ] {
            assert_eq!(is_repeatable(&method, &target.parse().unwrap()), repeatable, "{method} {target}");
        }
    }

    #[test]
    fn settle_and_subscription_have_room_for_their_bodies() {
        for (method, target, bytes) in [
            (Method::POST, "/v2/queues/q/subscriptions/s/claims/c/settle", limits::SQS_REQUEST_BYTES),
            (Method::POST, "/v2/queues/q/subscriptions", limits::SUBSCRIPTION_BODY_BYTES),
        ] {
            let most = most_bytes(&method, &target.parse().unwrap(), &Limits::ZAQAR);
            assert_eq!(most, bytes, "{method} {target}");
        }
    }
}
