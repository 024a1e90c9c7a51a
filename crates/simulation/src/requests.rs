//! Requests of clients as HTTP requests, and their answers as a client can tell them apart.

mod settles;
mod sqs;
mod subscriptions;

use bytes::Bytes;
use http::{Method, Request, Response};
use serde_json::{Value, json};

use crate::history::{HeldPosts, kind_of};
use crate::world::Loss;

pub use settles::{SettleEntry, Verdict};
pub use sqs::FifoReceive;
pub use subscriptions::{NewSubscription, options_of};

/// Seconds that messages live which stay for the whole run: two weeks.
pub const LONG_TTL: u64 = 1_209_600;

/// The outcome of a request, as its client knows it.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// A success, with the body; null for an empty one.
    Done(Value),
    /// The service does not have the thing that the request names.
    Missing,
    /// A refusal: nothing was written. Has the code word.
    Refused(String),
    /// The request may have been carried out, now or later.
    Unknown,
}

impl Outcome {
    /// Whether it is the success of a post of which no message is stored.
    pub fn is_discarded(&self) -> bool {
        matches!(self, Self::Done(body) if body["resources"].as_array().is_some_and(Vec::is_empty))
    }

    /// Returns the ids of the messages that a post has stored.
    pub fn ids(&self) -> Vec<String> {
        let Self::Done(body) = self else { return Vec::new() };
        let ids = body["ids"].as_array().into_iter().flatten();
        ids.filter_map(|id| id.as_str().map(str::to_owned)).collect()
    }

    /// Returns the outcome of an exchange.
    pub fn of(answer: Result<Response<Bytes>, Loss>) -> Self {
        match answer {
            Ok(response) => Self::of_response(&response),
            Err(Loss::NotSent) => Self::Refused("not sent".into()),
            Err(Loss::Unknown) => Self::Unknown,
        }
    }

    fn of_response(response: &Response<Bytes>) -> Self {
        let body = serde_json::from_slice(response.body()).unwrap_or(Value::Null);
        if response.status().is_success() {
            return Self::Done(body);
        }
        if let Some(kind) = body["__type"].as_str() {
            return Self::of_sqs_error(kind);
        }
        let code = body["code"].as_str().unwrap_or("none");
        match body["nothing_written"].as_bool() {
            Some(true) if response.status().as_u16() == 404 => Self::Missing,
            Some(true) => Self::Refused(code.to_owned()),
            Some(false) | None => Self::Unknown,
        }
    }

    /// A short text for the trace.
    pub fn text(&self) -> String {
        match self {
            Self::Done(_) => "done".into(),
            Self::Missing => "missing".into(),
            Self::Refused(code) => format!("refused: {code}"),
            Self::Unknown => "unknown".into(),
        }
    }
}

/// A request of the REST API.
#[derive(Clone, Debug)]
pub struct ApiRequest {
    method: Method,
    path: String,
    body: Option<Value>,
    /// The operation of SQS that it is; none for a request of REST.
    operation: Option<&'static str>,
    /// Seconds for which the service may wait before it answers.
    wait: u64,
}

/// One message to post.
#[derive(Clone, Debug)]
pub struct Posting {
    /// The number in its body: each message of a run has its own.
    pub number: u64,
    /// Its group.
    pub group: Option<String>,
    /// Whether it has a deduplication id, in a FIFO queue.
    pub has_dedup_id: bool,
    /// Its delay in seconds, 0 for none.
    pub delay: u64,
    /// Its life in seconds; none for two weeks.
    pub ttl: Option<u64>,
    /// Seconds that its outcome is kept.
    pub keep: u64,
}

impl ApiRequest {
    fn new(method: Method, path: String, body: Option<Value>) -> Self {
        Self { method, path: format!("/v2{path}"), body, operation: None, wait: 0 }
    }

    /// Returns the seconds for which the service may wait before it answers.
    pub fn wait(&self) -> u64 {
        self.wait
    }

    /// Whether the request names a part of a queue, or of a pool, which may be gone: a claim, a message, a subscription or
    /// a drain.
    pub fn names_part(&self) -> bool {
        let parts = ["/claims/", "/messages/", "/drain", "/subscriptions/", "/tasks"];
        self.operation.is_some() || parts.iter().any(|part| self.path.contains(part))
    }

    /// Whether the request makes messages available again: a claim may hold the message, or a task is active.
    pub fn is_requeue(&self) -> bool {
        self.path.ends_with("/requeue") || self.path.ends_with("/tasks")
    }

    /// Whether the request removes messages: it needs no room.
    pub fn removes_messages(&self) -> bool {
        self.method == Method::DELETE && self.path.contains("/messages")
    }

    /// Creates or changes a queue.
    pub fn put_queue(queue: &str, attributes: Value) -> Self {
        Self::new(Method::PUT, path_of(queue), Some(attributes))
    }

    /// Posts messages.
    pub fn post(queue: &str, postings: &[Posting]) -> Self {
        let message = |posting: &Posting| {
            let ttl = posting.ttl.unwrap_or(LONG_TTL);
            let mut message = json!({"body": body_of(posting.number), "ttl": ttl, "keep": posting.keep});
            if let Some(group) = &posting.group {
                message["group"] = json!(group);
            }
            if posting.has_dedup_id {
                message["dedup_id"] = json!(posting.number.to_string());
            }
            if posting.delay > 0 {
                message["delay"] = json!(posting.delay);
            }
            message
        };
        let messages: Vec<Value> = postings.iter().map(message).collect();
        Self::new(Method::POST, format!("{}/messages", path_of(queue)), Some(json!({"messages": messages})))
    }

    /// Claims messages for `ttl` seconds.
    pub fn claim(queue: &str, limit: u64, ttl: u64) -> Self {
        let path = format!("{}/claims?limit={limit}", path_of(queue));
        Self::new(Method::POST, path, Some(json!({"ttl": ttl, "grace": 60})))
    }

    /// Claims messages, and waits at most `wait` seconds for one.
    pub fn claim_waiting(queue: &str, limit: u64, ttl: u64, wait: u64) -> Self {
        let path = format!("{}/claims?limit={limit}&wait={wait}", path_of(queue));
        Self { wait, ..Self::new(Method::POST, path, Some(json!({"ttl": ttl, "grace": 60}))) }
    }

    /// Renews a claim for `ttl` seconds.
    pub fn renew(queue: &str, claim: &str, ttl: u64) -> Self {
        let path = format!("{}/claims/{claim}", path_of(queue));
        Self::new(Method::PATCH, path, Some(json!({"ttl": ttl, "grace": 60})))
    }

    /// Releases a claim.
    pub fn release(queue: &str, claim: &str) -> Self {
        Self::new(Method::DELETE, format!("{}/claims/{claim}", path_of(queue)), None)
    }

    /// Releases a claim. Its messages can be claimed again after `delay` seconds.
    pub fn release_later(queue: &str, claim: &str, delay: u64) -> Self {
        Self::new(Method::DELETE, format!("{}/claims/{claim}?delay={delay}", path_of(queue)), None)
    }

    /// Deletes a message, under a claim or without one.
    pub fn delete(queue: &str, id: &str, claim: Option<&str>) -> Self {
        let claim = claim.map(|claim| format!("?claim_id={claim}")).unwrap_or_default();
        Self::new(Method::DELETE, format!("{}/messages/{id}{claim}", path_of(queue)), None)
    }

    /// Removes a message whatever its state.
    pub fn recall(queue: &str, id: &str) -> Self {
        Self::new(Method::DELETE, format!("{}/messages/{id}?force=true", path_of(queue)), None)
    }

    /// Adds a pool.
    pub fn put_pool(pool: &str, uri: &str) -> Self {
        Self::new(Method::PUT, format!("/pools/{pool}"), Some(json!({"uri": uri, "weight": 1})))
    }

    /// Changes the weight of a pool.
    pub fn weigh_pool(pool: &str, weight: u64) -> Self {
        Self::new(Method::PATCH, format!("/pools/{pool}"), Some(json!({"weight": weight})))
    }

    /// Deletes a pool that has no queues.
    pub fn delete_pool(pool: &str) -> Self {
        Self::new(Method::DELETE, format!("/pools/{pool}"), None)
    }

    /// Removes a pool with the messages in it.
    pub fn remove_pool(pool: &str) -> Self {
        Self::new(Method::DELETE, format!("/pools/{pool}?force=true"), None)
    }

    /// Begins to move all queues of a pool to others.
    pub fn drain_pool(pool: &str) -> Self {
        Self::new(Method::POST, format!("/pools/{pool}/drain"), None)
    }

    /// Ends the drain of a pool. Queues that have moved stay where they are.
    pub fn end_drain(pool: &str) -> Self {
        Self::new(Method::DELETE, format!("/pools/{pool}/drain"), None)
    }

    /// Holds the resource at a path, perhaps until a date: no claim gets its messages, and its posts are stored or not.
    pub fn hold(path: &str, posts: HeldPosts, until: Option<String>) -> Self {
        let (refuses, discards) = (posts == HeldPosts::Refused, posts == HeldPosts::Discarded);
        let mut body = json!({"reason": "simulated", "post": refuses, "discard": discards});
        if let Some(until) = until {
            body["until"] = json!(until);
        }
        Self::new(Method::PUT, format!("{path}/hold"), Some(body))
    }

    /// Ends the hold of the resource at a path.
    pub fn release_hold(path: &str) -> Self {
        Self::new(Method::DELETE, format!("{path}/hold"), None)
    }

    /// Takes at most `count` messages out of a queue, the oldest first.
    pub fn pop(queue: &str, count: u64) -> Self {
        Self::new(Method::DELETE, format!("{}/messages?pop={count}", path_of(queue)), None)
    }

    /// Begins to move a queue to a pool.
    pub fn migrate(queue: &str, pool: &str) -> Self {
        Self::new(Method::POST, format!("{}/migrate", path_of(queue)), Some(json!({"pool": pool})))
    }

    /// Turns the migration of a queue round.
    pub fn cancel_migration(queue: &str) -> Self {
        Self::new(Method::DELETE, format!("{}/migrate", path_of(queue)), None)
    }

    /// Removes all messages of a queue.
    pub fn purge(queue: &str) -> Self {
        let body = json!({"resource_types": ["messages"]});
        Self::new(Method::POST, format!("{}/purge", path_of(queue)), Some(body))
    }

    /// Removes the messages of a queue that are kept with their outcome.
    pub fn purge_kept(queue: &str) -> Self {
        let body = json!({"resource_types": ["kept"]});
        Self::new(Method::POST, format!("{}/purge", path_of(queue)), Some(body))
    }

    /// Deletes a queue with its messages.
    pub fn delete_queue(queue: &str) -> Self {
        Self::new(Method::DELETE, path_of(queue), None)
    }

    /// Deletes several messages, each of which is under one of the claims or under none.
    pub fn delete_each(queue: &str, ids: &[String], claim: &str) -> Self {
        let path = format!("{}/messages/batch?ids={}&claim_ids={claim}", path_of(queue), ids.join(","));
        Self::new(Method::DELETE, path, None)
    }

    /// Counts the messages of a queue.
    pub fn stats(queue: &str) -> Self {
        Self::new(Method::GET, format!("{}/stats", path_of(queue)), None)
    }

    /// Returns the quota of the project and what it holds.
    pub fn quota() -> Self {
        Self::new(Method::GET, "/quota".into(), None)
    }

    /// Returns the request as HTTP.
    pub fn to_http(&self) -> Request<Bytes> {
        let body = self.body.as_ref().map_or_else(Bytes::new, |body| body.to_string().into());
        let request = Request::builder()
            .method(self.method.clone())
            .uri(&self.path)
            .header("host", "localhost")
            .header("client-id", "3381af92-2b9e-11e3-b191-71861300734c");
        let request = match self.operation {
            None => request.header("content-type", "application/json"),
            Some(operation) => request
                .header("content-type", "application/x-amz-json-1.0")
                .header("x-amz-target", format!("AmazonSQS.{operation}")),
        };
        request.body(body).expect("a path of names and numbers is a URI")
    }

    /// A short text for the trace.
    pub fn text(&self) -> String {
        match self.operation {
            None => format!("{} {}", self.method, self.path),
            Some(operation) => format!("{operation} {}", self.body.as_ref().map_or("", sqs::queue_of)),
        }
    }
}

/// Returns the body of a message: its number, and the kind that filters look at.
pub fn body_of(number: u64) -> Value {
    json!({"number": number, "kind": kind_of(number)})
}

/// Returns the path of a queue `NAME`, a topic `topic:NAME`, or a subscription of one of them, `…/ID`.
pub fn path_of(address: &str) -> String {
    let (kind, rest) = match address.strip_prefix("topic:") {
        Some(topic) => ("topics", topic),
        None => ("queues", address),
    };
    match rest.split_once('/') {
        Some((source, id)) => format!("/{kind}/{source}/subscriptions/{id}"),
        None => format!("/{kind}/{rest}"),
    }
}
