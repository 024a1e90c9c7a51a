//! Owns the tests' side of HTTP: one blocking client, and the calls of the API that tests make most.
//! It never repeats a request, never follows a redirect and never turns a status into an error: an `Err`
//! means that no whole answer came, so that it is unknown what the server did.

use std::time::Duration;

use http::{HeaderMap, Method, Request, StatusCode};
use serde_json::{Value, json};

/// Far above any wait of the server: a test that runs into it has found something.
const MAX_WAIT: Duration = Duration::from_secs(120);
const WELL_FORMED: &str = "tests send well-formed paths and headers";

/// A client with its own connections. Clones share them.
#[derive(Clone)]
pub struct Client {
    agent: ureq::Agent,
    base: String,
    headers: Vec<(String, String)>,
}

/// A whole answer, whatever its status.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

/// The connection broke, or the patience ended, before a whole answer came.
#[derive(Debug)]
pub struct NoAnswer(pub String);

pub type Reply = Result<Answer, NoAnswer>;

/// A message as claims, lists and reads show it.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    pub id: String,
    pub body: Value,
}

/// A claim as its answer shows it.
#[derive(Clone, Debug)]
pub struct Claim {
    pub id: String,
    pub messages: Vec<Message>,
}

impl Client {
    /// `base` is `http://ADDRESS`, without a final slash.
    pub fn new(base: &str) -> Self {
        Self::with_timeout(base, MAX_WAIT)
    }

    /// A client that gives an answer up after `max_wait`.
    pub fn with_timeout(base: &str, max_wait: Duration) -> Self {
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(max_wait))
            .max_redirects(0)
            .proxy(None)
            .build();
        Self { agent: config.into(), base: base.to_owned(), headers: Vec::new() }
    }

    /// The same client, sending this header with each request.
    pub fn with_header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub fn get(&self, path: &str) -> Reply {
        self.send(Method::GET, path, &[], None)
    }

    pub fn post(&self, path: &str, body: &Value) -> Reply {
        self.send(Method::POST, path, &[], Some(body))
    }

    pub fn put(&self, path: &str, body: Option<&Value>) -> Reply {
        self.send(Method::PUT, path, &[], body)
    }

    pub fn patch(&self, path: &str, body: &Value) -> Reply {
        self.send(Method::PATCH, path, &[], Some(body))
    }

    pub fn delete(&self, path: &str) -> Reply {
        self.send(Method::DELETE, path, &[], None)
    }

    /// Sends one request: the client's headers, then these, then `Content-Type` when there is a body.
    pub fn send(&self, method: Method, path: &str, headers: &[(&str, &str)], body: Option<&Value>) -> Reply {
        let mut request = Request::builder().method(method.clone()).uri(format!("{}{path}", self.base));
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body = body.map(|json| json.to_string().into_bytes());
        self.run(request, &method, body)
    }

    /// Sends bytes as they are, said to be JSON.
    pub fn send_text(&self, method: Method, path: &str, text: &[u8]) -> Reply {
        let request = Request::builder().method(method.clone()).uri(format!("{}{path}", self.base));
        self.run(request, &method, Some(text.to_vec()))
    }

    /// Sends the client's headers and bytes as they are, said to be of a media type.
    pub fn send_as(&self, method: Method, path: &str, media_type: &str, text: &[u8]) -> Reply {
        let request = Request::builder().method(method.clone()).uri(format!("{}{path}", self.base));
        let request = self.headers.iter().fold(request, |request, (name, value)| request.header(name, value));
        self.run(request.header("content-type", media_type), &method, Some(text.to_vec()))
    }

    fn run(&self, request: http::request::Builder, method: &Method, body: Option<Vec<u8>>) -> Reply {
        let sent = match body {
            // Without a body these go out chunked; an empty one states `Content-Length: 0`, as curl does.
            None if [Method::PUT, Method::POST, Method::PATCH].contains(method) => {
                self.agent.run(request.body(Vec::new()).expect(WELL_FORMED))
            }
            None => self.agent.run(request.body(()).expect(WELL_FORMED)),
            Some(body) => {
                let is_said =
                    request.headers_ref().is_some_and(|headers| headers.contains_key("content-type"));
                let json = "application/json";
                let request = if is_said { request } else { request.header("content-type", json) };
                self.agent.run(request.body(body).expect(WELL_FORMED))
            }
        };
        let (parts, mut body) = sent.map_err(|e| NoAnswer(e.to_string()))?.into_parts();
        let body = body.read_to_vec().map_err(|e| NoAnswer(e.to_string()))?;
        Ok(Answer { status: parts.status, headers: parts.headers, body })
    }
}

/// The calls of the API, by their verbs. The paths are Zaqar's v2.
impl Client {
    pub fn create_queue(&self, queue: &str) -> Reply {
        self.put(&format!("/v2/queues/{queue}"), None)
    }

    pub fn post_messages(&self, queue: &str, bodies: &[Value]) -> Reply {
        let messages: Vec<_> = bodies.iter().map(|body| json!({"body": body, "ttl": 3600})).collect();
        self.post(&format!("/v2/queues/{queue}/messages"), &json!({"messages": messages}))
    }

    /// Posts messages that can be claimed after so many seconds.
    pub fn post_delayed(&self, queue: &str, bodies: &[Value], delay: u64) -> Reply {
        let message = |body| json!({"body": body, "ttl": 3600, "delay": delay});
        let messages: Vec<_> = bodies.iter().map(message).collect();
        self.post(&format!("/v2/queues/{queue}/messages"), &json!({"messages": messages}))
    }

    pub fn purge(&self, queue: &str) -> Reply {
        self.post(&format!("/v2/queues/{queue}/purge"), &json!({"resource_types": ["messages"]}))
    }

    pub fn get_message(&self, queue: &str, id: &str) -> Reply {
        self.get(&format!("/v2/queues/{queue}/messages/{id}"))
    }

    pub fn claim(&self, queue: &str, limit: usize, ttl: u64) -> Reply {
        let path = format!("/v2/queues/{queue}/claims?limit={limit}");
        self.post(&path, &json!({"ttl": ttl, "grace": 60}))
    }

    pub fn release_claim(&self, queue: &str, claim: &str) -> Reply {
        self.delete(&format!("/v2/queues/{queue}/claims/{claim}"))
    }

    /// Gives a claim back; its messages can be claimed again after so many seconds.
    pub fn put_off_claim(&self, queue: &str, claim: &str, delay: u64) -> Reply {
        self.delete(&format!("/v2/queues/{queue}/claims/{claim}?delay={delay}"))
    }

    pub fn delete_message(&self, queue: &str, id: &str, claim: Option<&str>) -> Reply {
        let suffix = claim.map(|claim| format!("?claim_id={claim}")).unwrap_or_default();
        self.delete(&format!("/v2/queues/{queue}/messages/{id}{suffix}"))
    }

    /// Settles a message as done, with one forward.
    pub fn settle_forwarding(&self, queue: &str, claim: &str, id: &str, target: &str, body: &Value) -> Reply {
        let forward = json!([{"queue": target, "body": body}]);
        let entry = json!({"id": id, "done": {}, "forward": forward});
        self.post(&format!("/v2/queues/{queue}/claims/{claim}/settle"), &json!({"messages": [entry]}))
    }

    /// Deletes messages of one claim, all or none.
    pub fn delete_messages(&self, queue: &str, ids: &[&str], claim: &str) -> Reply {
        self.delete(&format!("/v2/queues/{queue}/messages?ids={}&claim_ids={claim}", ids.join(",")))
    }

    pub fn stats(&self, queue: &str) -> Reply {
        self.get(&format!("/v2/queues/{queue}/stats"))
    }
}

impl Answer {
    /// The body as JSON. Panics with the body's text when it is none.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|e| panic!("{} is not JSON ({e}): {}", self.status, self.text()))
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The ids that a post was answered with, in the order of its messages.
    pub fn posted_ids(&self) -> Vec<String> {
        self.json()["ids"].as_array().into_iter().flatten().map(text_of).collect()
    }

    /// The claim that was granted; `None` when there was nothing to claim.
    pub fn granted(&self) -> Option<Claim> {
        if self.status == StatusCode::NO_CONTENT {
            return None;
        }
        let json = self.json();
        let messages = json["messages"].as_array().into_iter().flatten().map(Message::from_json).collect();
        Some(Claim { id: text_of(&json["id"]), messages })
    }

    pub fn message(&self) -> Message {
        Message::from_json(&self.json())
    }
}

impl Message {
    fn from_json(json: &Value) -> Self {
        Self { id: text_of(&json["id"]), body: json["body"].clone() }
    }
}

fn text_of(json: &Value) -> String {
    json.as_str().unwrap_or_default().to_owned()
}
