//! Webhooks over HTTP: a sink on this machine gets the messages of a queue.

use std::net::TcpListener;
use std::path::Path;
use std::thread;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::StatusCode;
use serde_json::{Value, json};
use sha2::Sha256;

use super::subscriptions::total;
use super::{Service, service};
use crate::support::client::Client;
use crate::support::pauses::max_hand_over;
use crate::support::server::ServerBuilder;
use crate::support::sink::{Sink, WebhookRequest};
use angarium_testbed::held::wait_until;

pub(super) const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const NEXT_SECRET: &str = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

/// The settings of a service that may send to this machine.
pub(super) fn sending(data: &Path) -> ServerBuilder {
    ServerBuilder::new(data).arg("--webhook-allow=127.0.0.0/8").arg("--webhook-timeout=2s")
}

pub(super) fn start() -> Service {
    let data = tempfile::tempdir().unwrap();
    let server = sending(data.path()).start();
    Service { client: server.client(), server, data }
}

pub(super) fn hook(client: &Client, sink: &Sink, more: Value) -> String {
    let mut body = json!({"subscriber": sink.url(), "secrets": [SECRET]});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let created = client.post("/v2/queues/q/subscriptions", &body).unwrap();
    assert_eq!(created.status, StatusCode::CREATED, "{}", created.text());
    let id = created.json()["subscription_id"].as_str().unwrap().to_owned();
    format!("/v2/queues/q/subscriptions/{id}")
}

pub(super) fn post(client: &Client, body: Value) {
    let posted =
        client.post("/v2/queues/q/messages", &json!({"messages": [{"body": body, "ttl": 600}]})).unwrap();
    assert_eq!(posted.status, StatusCode::CREATED, "{}", posted.text());
}

/// Whether a request has the signature of Standard Webhooks by this secret.
pub(super) fn is_signed(received: &WebhookRequest, secret: &str) -> bool {
    let mut mac = Hmac::<Sha256>::new_from_slice(&STANDARD.decode(&secret[6..]).unwrap()).unwrap();
    mac.update(
        format!("{}.{}.", received.header("webhook-id"), received.header("webhook-timestamp")).as_bytes(),
    );
    mac.update(&received.body);
    let signature = format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()));
    received.header("webhook-signature").split(' ').any(|one| one == signature)
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
    assert!(is_signed(&received, SECRET) && !is_signed(&received, NEXT_SECRET), "{received:?}");
    wait_until("the end of the copy", || total(client, &path) == 0);
    assert_eq!(total(client, "/v2/queues/q"), 1);
    let shown = client.get(&path).unwrap();
    assert!(
        !shown.text().contains(&SECRET[6..]) && shown.json().get("failing").is_none(),
        "{}",
        shown.text()
    );
}

/// A receiver has the former secret until it is given the next one: at each moment a signature fits.
#[test]
fn webhook_secret_is_replaced_without_a_pause() {
    const EACH: usize = 40;
    let service = start();
    let client = &service.client;
    let sink = Sink::start(&[]);
    let path = hook(client, &sink, json!({"options": {"max_in_flight": 1}}));
    let replace = |secrets: Value| {
        let replaced = client.patch(&path, &json!({"secrets": secrets})).unwrap();
        assert_eq!(replaced.status, StatusCode::NO_CONTENT, "{}", replaced.text());
    };
    let deliver = |count: usize| {
        (0..EACH).for_each(|number| post(client, json!(number)));
        wait_until("the deliveries", || sink.count() >= count);
    };
    deliver(EACH);
    // A delivery may be on its way: it is signed under the former secret, and under both from then on.
    (0..EACH).for_each(|number| post(client, json!(number)));
    replace(json!([NEXT_SECRET, SECRET]));
    deliver(3 * EACH);
    assert!(sink.received.lock().iter().all(|received| is_signed(received, SECRET)));
    assert!(sink.received.lock()[2 * EACH..].iter().all(|received| is_signed(received, NEXT_SECRET)));
    (0..EACH).for_each(|number| post(client, json!(number)));
    replace(json!([NEXT_SECRET]));
    deliver(5 * EACH);
    let received = sink.received.lock();
    assert!(received[2 * EACH..].iter().all(|received| is_signed(received, NEXT_SECRET)));
    assert!(received[4 * EACH..].iter().all(|received| !is_signed(received, SECRET)));
    let pause = received.windows(2).map(|pair| pair[1].at - pair[0].at).max().unwrap();
    eprintln!("rotation of the secret of a webhook: {pause:.2?} at most between two deliveries");
    assert!(pause <= max_hand_over(), "{pause:?}");
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
        let of_subscription = format!("result=\"{result}\"}} {count}");
        let mut lines =
            metrics.lines().filter(|line| line.starts_with("angarium_subscription_requests_total{"));
        assert!(
            lines.any(|line| line.contains("queue=\"q/") && line.ends_with(&of_subscription)),
            "{metrics}"
        );
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
    // The pauses last seven seconds together: it is looked at meanwhile.
    let sink = Sink::start(&[unavailable; 7]);
    let path = hook(client, &sink, json!({"options": {"_backoff": {"first": 0}, "max_in_flight": 1}}));
    for number in 0..4 {
        post(client, json!(number));
    }
    let failing = || client.get(&path).unwrap().json()["failing"].clone();
    wait_until("the pause", || failing()["failures"].as_u64().is_some_and(|failures| failures >= 5));
    assert!(
        failing()["reason"].as_str().is_some_and(|reason| reason.contains("500") && reason.contains("sorry"))
    );
    let id = path.rsplit('/').next().unwrap();
    let own = client.get(&format!("{path}/explain")).unwrap().json();
    let of_source = client.get("/v2/queues/q/explain").unwrap().json();
    for (explained, webhook) in [
        (&own, "the webhook has failed".to_owned()),
        (&of_source, format!("the webhook of subscription {id} has failed")),
    ] {
        let [failing] = &explained["failing_webhooks"].as_array().unwrap()[..] else { panic!("{explained}") };
        assert_eq!(failing["subscription"], json!(id), "{failing}");
        assert!(failing["failing"]["failures"].as_u64().is_some_and(|failures| failures >= 5), "{failing}");
        assert!(failing["failing"]["since"].is_string(), "{failing}");
        let says = explained["says"].as_str().unwrap();
        assert!(says.contains(&webhook) && says.contains("sorry"), "{says}");
    }
    wait_until("the rest", || total(client, &path) == 0);
    assert_eq!(failing(), Value::Null);
    let own = client.get(&format!("{path}/explain")).unwrap().json();
    assert_eq!(own.get("failing_webhooks"), None, "{own}");
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
    wait_until("the others", || sink.count() >= 2);
}
