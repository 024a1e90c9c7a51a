//! Webhooks over HTTP: a sink on this machine gets the messages of a queue.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::StatusCode;
use parking_lot::Mutex;
use serde_json::{Value, json};
use sha2::Sha256;

use super::subscriptions::total;
use super::{Service, service};
use crate::support::client::Client;
use crate::support::server::ServerBuilder;
use angarium_testbed::held::wait_until;

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// A request that the sink got.
#[derive(Clone, Debug)]
struct WebhookRequest {
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl WebhookRequest {
    fn header(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(found, _)| found == name);
        found.map(|(_, value)| value.as_str()).unwrap_or_default()
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

/// A server that answers with the next of its answers, and with 204 when none is left.
#[derive(Clone)]
struct Sink {
    address: SocketAddr,
    received: Arc<Mutex<Vec<WebhookRequest>>>,
    answers: Arc<Mutex<VecDeque<&'static str>>>,
}

impl Sink {
    fn start(answers: &[&'static str]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let answers = Arc::new(Mutex::new(answers.iter().copied().collect()));
        let sink = Self { address, received: Arc::default(), answers };
        let serving = sink.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let serving = serving.clone();
                thread::spawn(move || serving.serve(&stream));
            }
        });
        sink
    }

    fn serve(&self, stream: &TcpStream) {
        let mut reader = BufReader::new(stream);
        while let Some(received) = read(&mut reader) {
            self.received.lock().push(received);
            let answer = self.answers.lock().pop_front().unwrap_or("HTTP/1.1 204 No Content\r\n\r\n");
            let mut stream = stream;
            if answer.is_empty() || stream.write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    }

    fn url(&self) -> String {
        format!("http://{}/hook?a=1", self.address)
    }

    fn count(&self) -> usize {
        self.received.lock().len()
    }
}

fn read(reader: &mut BufReader<&TcpStream>) -> Option<WebhookRequest> {
    let mut headers = Vec::new();
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|bytes| *bytes > 0)?;
    headers.push(("request".to_owned(), line.trim().to_owned()));
    loop {
        line.clear();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim().split_once(": ") else { break };
        headers.push((name.to_ascii_lowercase(), value.to_owned()));
    }
    let length = headers.iter().find(|(name, _)| name == "content-length")?.1.parse().ok()?;
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(WebhookRequest { headers, body })
}

/// The settings of a service that may send to this machine.
fn sending(data: &Path) -> ServerBuilder {
    ServerBuilder::new(data).arg("--webhook-allow=127.0.0.0/8").arg("--webhook-timeout=2s")
}

fn start() -> Service {
    let data = tempfile::tempdir().unwrap();
    let server = sending(data.path()).start();
    Service { client: server.client(), server, data }
}

fn hook(client: &Client, sink: &Sink, more: Value) -> String {
    let mut body = json!({"subscriber": sink.url(), "secrets": [SECRET]});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let created = client.post("/v2/queues/q/subscriptions", &body).unwrap();
    assert_eq!(created.status, StatusCode::CREATED, "{}", created.text());
    let id = created.json()["subscription_id"].as_str().unwrap().to_owned();
    format!("/v2/queues/q/subscriptions/{id}")
}

fn post(client: &Client, body: Value) {
    let posted =
        client.post("/v2/queues/q/messages", &json!({"messages": [{"body": body, "ttl": 600}]})).unwrap();
    assert_eq!(posted.status, StatusCode::CREATED, "{}", posted.text());
}

#[test]
fn webhook_gets_signed_notification() {
    let service = start();
    let client = &service.client;
    let sink = Sink::start(&[]);
    let path = hook(client, &sink, json!({"options": {"post_headers": {"X-Team": "billing"}}}));
    post(client, json!({"order": 7}));
    wait_until("the delivery", || sink.count() == 1);
    let received = sink.received.lock()[0].clone();
    assert_eq!(received.header("request"), "POST /hook?a=1 HTTP/1.1");
    assert_eq!((received.header("content-type"), received.header("x-team")), ("application/json", "billing"));
    let json = received.json();
    assert_eq!((&json["body"], &json["queue_name"]), (&json!({"order": 7}), &json!("q")));
    assert_eq!(json["message_id"], received.header("webhook-id"));
    let mut mac = Hmac::<Sha256>::new_from_slice(&STANDARD.decode(&SECRET[6..]).unwrap()).unwrap();
    mac.update(
        format!("{}.{}.", received.header("webhook-id"), received.header("webhook-timestamp")).as_bytes(),
    );
    mac.update(&received.body);
    let signature = format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()));
    assert_eq!(received.header("webhook-signature"), signature);
    wait_until("the end of the copy", || total(client, &path) == 0);
    assert_eq!(total(client, "/v2/queues/q"), 1);
    let shown = client.get(&path).unwrap();
    assert!(
        !shown.text().contains(&SECRET[6..]) && shown.json().get("failing").is_none(),
        "{}",
        shown.text()
    );
}

#[test]
fn failed_delivery_is_repeated_and_refused_one_is_kept() {
    let service = start();
    let client = &service.client;
    let unavailable = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 6\r\n\r\nclosed";
    let refused = "HTTP/1.1 422 Unprocessable\r\nContent-Length: 9\r\n\r\nno amount";
    let redirect = "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n";
    // No answer at all: the kept connection ends, and the request is sent again on another.
    let sink = Sink::start(&[unavailable, "", refused]);
    let path = hook(client, &sink, json!({"options": {"_backoff": {"first": 0}, "max_in_flight": 1}}));
    post(client, json!(1));
    wait_until("the deliveries", || sink.count() == 3);
    let ids: Vec<String> =
        sink.received.lock().iter().map(|received| received.header("webhook-id").to_owned()).collect();
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    let failed = || client.get(&format!("{path}/peek?state=failed")).unwrap().json();
    wait_until("the failure", || failed()["messages"].as_array().is_some_and(|messages| messages.len() == 1));
    assert!(failed().to_string().contains("422"), "{}", failed());
    sink.answers.lock().push_back(redirect);
    post(client, json!(2));
    wait_until("the redirect", || sink.count() == 4);
    wait_until("both", || failed()["messages"].as_array().is_some_and(|messages| messages.len() == 2));
    let metrics = client.get("/metrics").unwrap().text();
    for (result, count) in [("unavailable", 1), ("refused", 2)] {
        let line = format!("angarium_webhook_requests_total{{result=\"{result}\"}} {count}");
        assert!(metrics.contains(&line), "{line} is missing: {metrics}");
    }
}

#[test]
fn webhook_of_private_address_is_refused() {
    let service = service();
    let client = &service.client;
    for url in [
        "http://127.0.0.1:80/",
        "http://[::1]/",
        "http://10.0.0.1/",
        "http://169.254.169.254/latest/meta-data",
        "http://[::ffff:127.0.0.1]/",
        "http://0.0.0.0/",
        "http://a@b.example/",
        "https://",
        "http://a b/",
    ] {
        let refused = client.post("/v2/queues/q/subscriptions", &json!({"subscriber": url})).unwrap();
        assert_eq!(
            (refused.status, &refused.json()["code"]),
            (StatusCode::BAD_REQUEST, &json!("invalid")),
            "{url}"
        );
    }
    let created =
        client.post("/v2/queues/q/subscriptions", &json!({"subscriber": "https://hooks.example/"})).unwrap();
    assert_eq!(created.status, StatusCode::CREATED);
    assert!(created.json()["secret"].as_str().is_some_and(|secret| secret.starts_with("whsec_")));
}

#[test]
fn service_without_webhooks_refuses_and_sends_nothing() {
    let Service { client, server, data } = start();
    let sink = Sink::start(&[]);
    let path = hook(&client, &sink, json!({}));
    drop(server);
    let server = sending(data.path()).arg("--no-webhooks").start();
    let client = server.client();
    let refused = client.post("/v2/queues/other/subscriptions", &json!({"subscriber": sink.url()})).unwrap();
    assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{}", refused.text());
    assert_eq!(client.patch(&path, &json!({"ttl": 7200})).unwrap().status, StatusCode::NO_CONTENT);
    post(&client, json!(1));
    thread::sleep(Duration::from_secs(3));
    assert_eq!(sink.count(), 0);
    assert_eq!(total(&client, &path), 1);
    drop(server);
    let server = sending(data.path()).start();
    wait_until("the delivery", || sink.count() == 1);
    drop(server);
}

#[test]
fn peers_and_the_service_itself_get_no_webhooks() {
    let service = start();
    let client = &service.client;
    let url = service.server.url("/v2/queues/q/messages");
    let refused = client.post("/v2/queues/q/subscriptions", &json!({"subscriber": url})).unwrap();
    assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{}", refused.text());
}

#[test]
fn broken_webhook_is_shown_and_resumes() {
    let service = start();
    let client = &service.client;
    let unavailable = "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 5\r\n\r\nsorry";
    let sink = Sink::start(&[unavailable; 6]);
    let path = hook(client, &sink, json!({"options": {"_backoff": {"first": 0}, "max_in_flight": 1}}));
    for number in 0..4 {
        post(client, json!(number));
    }
    let failing = || client.get(&path).unwrap().json()["failing"].clone();
    wait_until("the pause", || failing()["failures"].as_u64().is_some_and(|failures| failures >= 5));
    assert!(
        failing()["reason"].as_str().is_some_and(|reason| reason.contains("500") && reason.contains("sorry"))
    );
    wait_until("the rest", || total(client, &path) == 0);
    assert_eq!(failing(), Value::Null);
}

#[test]
fn messages_of_webhook_survive_kill() {
    let Service { client, server, data } = start();
    let sink = Sink::start(&[]);
    let hanging = TcpListener::bind("127.0.0.1:0").unwrap();
    let nowhere = Sink { address: hanging.local_addr().unwrap(), ..sink.clone() };
    let path = hook(&client, &nowhere, json!({"options": {"_backoff": {"first": 0}, "max_in_flight": 1}}));
    for number in 0..3 {
        post(&client, json!(number));
    }
    // One message is being sent at the kill.
    let _connected = hanging.accept().unwrap();
    server.kill9();
    let server = sending(data.path()).start();
    let client = server.client();
    let moved = client.patch(&path, &json!({"subscriber": sink.url()})).unwrap();
    assert_eq!(moved.status, StatusCode::NO_CONTENT, "{}", moved.text());
    // The one under a claim at the kill is sent when its claim has ended, the others at once.
    wait_until("the others", || sink.count() == 2);
}
