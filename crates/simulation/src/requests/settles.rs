//! Settles of messages of a claim, and reads of their outcomes.

use http::Method;
use serde_json::{Value, json};

use super::{ApiRequest, LONG_TTL, Posting, body_of, path_of};

/// What becomes of a settled message.
#[derive(Clone, Debug)]
pub enum Verdict {
    /// It is done. A message that is kept has its number as the result.
    Done,
    /// It is tried again after this many seconds.
    Retry(u64),
    /// It is never tried again.
    Fail,
    /// It returns after this many seconds.
    Defer(u64),
    /// It moves to the queue with this name.
    Move(String),
}

/// An entry of a settle.
#[derive(Clone, Debug)]
pub struct SettleEntry {
    /// The id of the message.
    pub id: String,
    /// Its number.
    pub number: u64,
    /// Whether its outcome is kept.
    pub is_kept: bool,
    /// What becomes of it.
    pub verdict: Verdict,
    /// New messages, each with the name of its queue.
    pub forwards: Vec<(String, Posting)>,
}

impl SettleEntry {
    fn body(&self) -> Value {
        let mut body = json!({"id": self.id});
        match &self.verdict {
            Verdict::Done if self.is_kept => body["done"] = json!({"result": self.number}),
            Verdict::Done => body["done"] = json!({}),
            Verdict::Retry(seconds) => body["fail"] = json!({"reason": "try again", "retry_in": seconds}),
            Verdict::Fail => body["fail"] = json!({"reason": "never again", "retry": false}),
            Verdict::Defer(seconds) => body["defer"] = json!({"delay": seconds}),
            Verdict::Move(queue) => body["move"] = json!({"queue": queue, "delay": 0}),
        }
        if !self.forwards.is_empty() {
            body["forward"] = self.forwards.iter().map(|(queue, posting)| forward(queue, posting)).collect();
        }
        body
    }
}

fn forward(queue: &str, posting: &Posting) -> Value {
    let mut body = json!({
        "queue": queue,
        "body": body_of(posting.number),
        "ttl": LONG_TTL,
        "delay": posting.delay,
        "keep": posting.keep,
    });
    if let Some(group) = &posting.group {
        body["group"] = json!(group);
    }
    body
}

impl ApiRequest {
    /// Settles messages of a claim.
    pub fn settle<'a>(queue: &str, claim: &str, entries: impl Iterator<Item = &'a SettleEntry>) -> Self {
        let messages: Vec<Value> = entries.map(SettleEntry::body).collect();
        let path = format!("{}/claims/{claim}/settle", path_of(queue));
        Self::new(Method::POST, path, Some(json!({"messages": messages})))
    }

    /// Makes a message available again after `delay` seconds.
    pub fn requeue(queue: &str, id: &str, delay: u64) -> Self {
        let path = format!("{}/messages/{id}/requeue", path_of(queue));
        Self::new(Method::POST, path, Some(json!({"delay": delay})))
    }

    /// Begins a task that moves dead letters to the queue from which they are.
    pub fn redrive(queue: &str) -> Self {
        let body = json!({"do": "move", "to": "origin"});
        Self::new(Method::POST, format!("{}/tasks", path_of(queue)), Some(body))
    }

    /// Lists the tasks of a queue.
    pub fn tasks(queue: &str) -> Self {
        Self::new(Method::GET, format!("{}/tasks", path_of(queue)), None)
    }

    /// Reads the state of a message, with its outcome.
    pub fn outcome(queue: &str, id: &str) -> Self {
        Self::new(Method::GET, format!("{}/messages/{id}?wait=0", path_of(queue)), None)
    }
}
