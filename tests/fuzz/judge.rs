//! The whole of the service but its sockets, and what every answer of it must be. The coverage-guided target uses this file
//! too, so it names nothing of the other tests.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use angarium::api::{self, Authentication, Front, RequestLimits, SqsSettings};
use angarium_broker::{Broker, FirstPool, PoolSettings};
use angarium_catalogue::Catalogue;
use angarium_clock::Clock;
use angarium_cluster::replicas::Replica;
use angarium_coordination::embedded::EmbeddedTree;
use angarium_core::limits::Limits;
use angarium_core::names::PoolName;
use angarium_core::pool::PoolUri;
use angarium_engine::placement::Algorithm;
use angarium_journal::Journal;
use angarium_storage::PoolStore;
use angarium_storage::embedded::EmbeddedPool;
use angarium_storage::open::{Opener, PoolOpenError};
use axum::body::{Body, to_bytes};
use http::response::Parts;
use http::{HeaderName, HeaderValue, Method, Request, StatusCode, Uri};
use serde_json::Value;
use tower::ServiceExt;
use uuid::Uuid;

/// Far above what any request takes.
const MAX_WAIT: Duration = Duration::from_secs(60);
/// Refusals that are of the whole request: there is no field to name.
const OF_THE_WHOLE: &[&str] = &[
    "the request body",
    "the body",
    "there is text after",
    "it must be a JSON object",
    "it must be a list",
    "the field '",
    "queue metadata",
    "pop and ids",
    "either ids or pop",
    "one of uri",
    "the name of a parameter",
];

/// A service without sockets, on a directory that is removed with it.
pub struct Service {
    runtime: tokio::runtime::Runtime,
    app: Front,
    _data: tempfile::TempDir,
}

/// Every pool that is added has the same storage, so that only the first is taken.
struct OneStore(Arc<dyn PoolStore>);

impl Opener for OneStore {
    fn open(&self, uri: &str) -> Result<Arc<dyn PoolStore>, PoolOpenError> {
        if uri.starts_with("embedded:") {
            Ok(Arc::clone(&self.0))
        } else {
            Err(PoolOpenError::Path(uri.to_owned()))
        }
    }

    fn close(&self, _: &str) {}
}

impl Service {
    pub fn start() -> Self {
        Self::start_with(Clock::system(), SqsSettings::default())
    }

    /// A service that lives by this clock, with an endpoint of SQS that was set up like this.
    pub fn start_with(clock: Clock, sqs: SqsSettings) -> Self {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime can be started");
        let data = tempfile::tempdir().expect("there is room for a temporary directory");
        let app = runtime.block_on(app(data.path().join("journal"), clock, sqs));
        Self { runtime, app, _data: data }
    }

    /// Sends a request as it is written, and judges the answer. None when it is no request at all: HTTP itself refuses it.
    pub fn check(&self, input: &[u8]) -> Option<u16> {
        let request = read(input)?;
        let shown = String::from_utf8_lossy(input).into_owned();
        let app = self.app.clone();
        let asked = async move {
            let answer = app.oneshot(request).await.unwrap_or_else(|never| match never {});
            let (head, body) = answer.into_parts();
            (head, to_bytes(body, usize::MAX).await)
        };
        let asked = async { tokio::time::timeout(MAX_WAIT, asked).await };
        let answered = catch_unwind(AssertUnwindSafe(|| self.runtime.block_on(asked)));
        let Ok(Ok((head, Ok(body)))) = answered else { panic!("no answer to:\n{shown}") };
        let said = String::from_utf8_lossy(&body);
        // A flavor whose pools take nothing is no fault; nor is that a service whose waits were ended is not ready.
        let is_true = said.contains("\"no_pool\"") || said.contains("the server is unavailable");
        assert!(head.status.as_u16() < 500 || is_true, "{}: {said}\nto:\n{shown}", head.status);
        if head.headers.contains_key("x-amzn-requestid") {
            let is_refused = head.status.is_client_error();
            judge_sqs(&head, &said, is_refused).unwrap_or_else(|why| panic!("{why}: {said}\nto:\n{shown}"));
        } else if head.status.is_client_error()
            && head.status != StatusCode::NOT_ACCEPTABLE
            && !body.is_empty()
        {
            let body: Value =
                serde_json::from_slice(&body).unwrap_or_else(|_| panic!("{said}\nto:\n{shown}"));
            judge(&body).unwrap_or_else(|why| panic!("{why}: {said}\nto:\n{shown}"));
        }
        Some(head.status.as_u16())
    }

    /// Creates a topic, and subscribes to it. Returns the id of the subscription.
    pub fn subscribe_to_topic(&self, topic: &str) -> String {
        let put = format!("PUT /v2/topics/{topic}\n\n{{}}");
        let status = self.check(put.as_bytes());
        assert_eq!(status, Some(201), "{topic} is not created");
        self.subscribe_at(&format!("/v2/topics/{topic}"))
    }

    /// Subscribes to a queue. Returns the id of the subscription.
    pub fn subscribe(&self, queue: &str) -> String {
        self.subscribe_at(&format!("/v2/queues/{queue}"))
    }

    fn subscribe_at(&self, source: &str) -> String {
        let post = format!("POST {source}/subscriptions\n\n{{\"subscriber\":\"pull:\"}}");
        let request = read(post.as_bytes()).expect("it is a request");
        let body = self.runtime.block_on(async {
            let answer = self.app.clone().oneshot(request).await.unwrap_or_else(|never| match never {});
            to_bytes(answer.into_body(), usize::MAX).await.expect("it has a body")
        });
        let body: Value = serde_json::from_slice(&body).expect("it is JSON");
        body["subscription_id"].as_str().unwrap_or_else(|| panic!("no subscription: {body}")).to_owned()
    }

    /// Whether a message still leaves all the way.
    pub fn check_alive(&self) {
        let post = b"POST /v2/queues/alive/messages\n\n{\"messages\":[{\"body\":1}]}";
        assert_eq!(self.check(post), Some(201));
        assert_eq!(self.check(b"POST /v2/queues/alive/claims\n\n"), Some(201));
    }
}

async fn app(journal: PathBuf, clock: Clock, sqs: SqsSettings) -> Front {
    let journal = Journal::open(&journal, &clock).expect("the journal can be made");
    let tree = EmbeddedTree::open(journal.clone()).await.expect("the tree can be made");
    let (name, uri) = ("default", "embedded:journal");
    let first =
        PoolName::new(name).and_then(|name| Ok(FirstPool { name, uri: PoolUri::new(uri)?, weight: 100 }));
    let opener = Arc::new(OneStore(Arc::new(EmbeddedPool::new(journal))));
    let settings = PoolSettings { first: first.ok(), opener, placement: Algorithm::default() };
    let replica = Replica::new(Uuid::from_u128(1), "host", "127.0.0.1:1");
    let catalogue = Catalogue::new(Arc::new(tree));
    let broker = Broker::start(catalogue, &settings, replica, clock.clone(), Limits::ZAQAR).await;
    let broker = broker.expect("the broker can be started");
    // A claim that waits would hold up all others.
    broker.stop_waiters();
    let limits = RequestLimits {
        requests: 64,
        long_polls: 64,
        per_address: 64,
        project_rate: None,
        body_bytes: 256 << 20,
    };
    api::front(broker, Authentication::Off(Arc::default()), limits, clock, None, sqs)
}

/// A request in the form of HTTP/1.1: a line with method and target, headers, an empty line, the body.
fn read(input: &[u8]) -> Option<Request<Body>> {
    let mut rest = input;
    let mut line = || {
        let end = rest.iter().position(|byte| *byte == b'\n');
        let line = &rest[..end.unwrap_or(rest.len())];
        rest = end.map_or(&[], |end| &rest[end + 1..]);
        line.strip_suffix(b"\r").unwrap_or(line)
    };
    let first = line();
    let space = first.iter().position(|byte| *byte == b' ')?;
    let (method, target) =
        (Method::from_bytes(&first[..space]).ok()?, Uri::try_from(&first[space + 1..]).ok()?);
    let mut request = Request::builder().method(method).uri(target);
    loop {
        let header = line();
        if header.is_empty() {
            break;
        }
        let colon = header.iter().position(|byte| *byte == b':')?;
        let value = HeaderValue::from_bytes(header[colon + 1..].trim_ascii()).ok()?;
        request = request.header(HeaderName::from_bytes(&header[..colon]).ok()?, value);
    }
    request.body(Body::from(rest.to_vec())).ok()
}

/// Whether an answer of SQS can be read by its clients.
fn judge_sqs(head: &Parts, said: &str, is_refused: bool) -> Result<(), &'static str> {
    let media_type = head.headers.get("content-type").and_then(|value| value.to_str().ok());
    let foreign = ["serde", "panicked", "Error("];
    if is_refused && foreign.iter().any(|word| said.contains(word)) {
        return Err("it speaks of our inside");
    }
    match media_type {
        Some("text/xml") => {
            let root = if is_refused { "<ErrorResponse " } else { "Response xmlns=" };
            let is_read = said.contains(root) && said.ends_with("Response>");
            is_read.then_some(()).ok_or("it is no answer in XML")
        }
        Some("application/x-amz-json-1.0") => {
            let body: Value = serde_json::from_str(said).map_err(|_| "it is no JSON")?;
            let is_whole = body["__type"].is_string() && body["message"].is_string();
            let has_code = head.headers.contains_key("x-amzn-query-error");
            (!is_refused || (is_whole && has_code)).then_some(()).ok_or("an error lacks its code")
        }
        Some("application/json") => {
            serde_json::from_str::<Value>(said).map(drop).map_err(|_| "it is no JSON")
        }
        _ => Err("it is in none of its forms"),
    }
}

/// Whether an error is one of ours, and states what is wrong where.
fn judge(body: &Value) -> Result<(), &'static str> {
    let text = |key: &str| body[key].as_str().filter(|text| !text.is_empty()).ok_or("a key is missing");
    let (_, code, _) = (text("title")?, text("code")?, text("request_id")?);
    if body["nothing_written"] != true {
        return Err("a request that is wrong may have written something");
    }
    let description = text("description")?;
    let is_of_the_whole = OF_THE_WHOLE.iter().any(|phrase| description.starts_with(phrase));
    let names_a_field =
        description.split_once(": ").is_some_and(|(field, why)| !field.is_empty() && !why.is_empty());
    if code == "invalid" && !is_of_the_whole && !names_a_field {
        return Err("it names no field");
    }
    // What the libraries say is no caller's language.
    let foreign = ["serde", "panicked", "Error(", "invalid type", "Utf8", "expected one of"];
    if foreign.iter().any(|word| description.contains(word)) {
        Err("it speaks of our inside")
    } else {
        Ok(())
    }
}
