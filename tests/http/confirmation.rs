//! Confirmations of webhooks over HTTP: a sink on this machine is asked, and answers with the headers that it got.

use std::thread;
use std::time::Duration;

use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::Service;
use super::failures::tokens;
use super::subscriptions::total;
use super::webhooks::{SECRET, hook, is_signed, post, sending};
use crate::support::client::{Answer, Client};
use crate::support::server::ServerBuilder;
use crate::support::sink::{Sink, WebhookRequest};
use angarium_testbed::held::wait_until;

const UNAVAILABLE: &str = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n";

/// A service whose webhooks need a confirmation.
fn asking(data: &std::path::Path, who: &str) -> ServerBuilder {
    sending(data).arg(format!("--webhook-confirmation={who}"))
}

fn start(who: &str) -> Service {
    let data = tempfile::tempdir().unwrap();
    let server = asking(data.path(), who).start();
    Service { client: server.client(), server, data }
}

/// Waits for so many requests. Returns the last one of these.
fn asked(sink: &Sink, count: usize) -> WebhookRequest {
    wait_until("the request for a confirmation", || sink.count() >= count);
    sink.received.lock()[count - 1].clone()
}

/// The headers for the answer to a request, as a subscriber of Zaqar makes them.
fn headers(asked: &Value) -> Vec<(&str, &str)> {
    ["URL-Signature", "URL-Expires", "URL-Methods", "URL-Paths", "X-Project-ID"]
        .map(|name| (name, asked[name].as_str().unwrap()))
        .to_vec()
}

fn answer(client: &Client, asked: &Value, confirmed: bool) -> Answer {
    let path = asked["URL-Paths"].as_str().unwrap();
    client.send(Method::PUT, path, &headers(asked), Some(&json!({"confirmed": confirmed}))).unwrap()
}

#[test]
fn subscriber_confirms_and_gets_messages() {
    let data = tempfile::tempdir().unwrap();
    let server =
        asking(data.path(), "subscriber").arg("--webhook-confirmation-url=https://q.example/").start();
    let client = &server.client();
    let sink = Sink::start(&[]);
    let path = hook(client, &sink, json!({"options": {"post_headers": {"X-Team": "billing"}}}));
    let request = asked(&sink, 1);
    let json = request.json();
    assert_eq!(json["Message_Type"], "SubscriptionConfirmation");
    assert_eq!(json["Message"], "You have chosen to subscribe to the queue: q");
    assert_eq!(json["WSGISubscribeURL"], format!("https://q.example{path}/confirm"));
    assert_eq!((&json["SubscribeBody"], &json["queue_name"]), (&json!({"confirmed": true}), &json!("q")));
    assert_eq!(request.header("x-team"), "billing");
    assert!(is_signed(&request, SECRET), "{request:?}");
    assert_eq!(client.get(&path).unwrap().json()["confirmed"], false);
    post(client, json!(1));
    assert_eq!(total(client, &path), 0);
    assert_eq!(answer(client, &json, true).status, StatusCode::NO_CONTENT);
    assert_eq!(client.get(&path).unwrap().json()["confirmed"], true);
    post(client, json!(2));
    assert_eq!(asked(&sink, 2).json()["body"], 2);
    // It unsubscribes by the same headers, and is told so.
    assert_eq!(answer(client, &json, false).status, StatusCode::NO_CONTENT);
    let told = asked(&sink, 3).json();
    assert_eq!(told["Message_Type"], "UnsubscribeConfirmation");
    post(client, json!(3));
    let says = client.get("/v2/queues/q/explain").unwrap().json()["says"].as_str().unwrap().to_owned();
    assert!(says.contains("is not confirmed and gets no copies"), "{says}");
    assert_eq!(answer(client, &told, true).status, StatusCode::NO_CONTENT);
    post(client, json!(4));
    assert_eq!(asked(&sink, 4).json()["body"], 4);
    let listed = client.get("/v2/queues/q/subscriptions").unwrap().json();
    assert_eq!(listed["subscriptions"][0]["confirmed"], true);
}

#[test]
fn signature_takes_the_place_of_a_token_here_alone() {
    let data = tempfile::tempdir().unwrap();
    let server = asking(&data.path().join("data"), "subscriber").arg("--tokens").arg(tokens(&data)).start();
    let (stranger, member) = (server.client(), server.client().with_header("authorization", "Bearer member"));
    let sink = Sink::start(&[]);
    let path = hook(&member, &sink, json!({}));
    let json = asked(&sink, 1).json();
    assert_eq!(json["X-Project-ID"], "member");
    let (confirm, body) = (format!("{path}/confirm"), json!({"confirmed": true}));
    // A member must not confirm in place of the subscriber.
    assert_eq!(member.put(&confirm, Some(&body)).unwrap().status, StatusCode::FORBIDDEN);
    assert_eq!(stranger.put(&confirm, Some(&body)).unwrap().status, StatusCode::UNAUTHORIZED);
    for (name, value) in [
        ("URL-Signature", "00"),
        ("URL-Signature", &"0".repeat(64)),
        ("URL-Expires", "9999-12-30T22:00:00"),
        ("URL-Methods", "GET,PUT"),
        ("URL-Paths", "/v2/queues"),
        ("X-Project-ID", "other"),
    ] {
        let mut forged = json.clone();
        forged[name] = value.into();
        let sent = stranger.send(Method::PUT, &confirm, &headers(&forged), Some(&body)).unwrap();
        assert_eq!(sent.status, StatusCode::NOT_FOUND, "{name}: {}", sent.text());
    }
    // A wrong signature counts also beside a token.
    let forged = [("URL-Signature", "00")];
    let sent = member.send(Method::PUT, &confirm, &forged, Some(&json!({"confirmed": false}))).unwrap();
    assert_eq!(sent.status, StatusCode::NOT_FOUND);
    for (method, other) in [
        (Method::GET, path.as_str()),
        (Method::DELETE, path.as_str()),
        (Method::PUT, "/v2/queues/confirm"),
        (Method::GET, "/v2/queues"),
        (Method::GET, confirm.as_str()),
    ] {
        let sent = stranger.send(method.clone(), other, &headers(&json), None).unwrap();
        assert_eq!(sent.status, StatusCode::UNAUTHORIZED, "{method} {other}");
    }
    assert_eq!(member.get(&path).unwrap().json()["confirmed"], false);
    assert_eq!(answer(&stranger, &json, true).status, StatusCode::NO_CONTENT);
    assert_eq!(member.get(&path).unwrap().json()["confirmed"], true);
    assert_eq!(member.delete(&path).unwrap().status, StatusCode::NO_CONTENT);
    assert_eq!(answer(&stranger, &json, true).status, StatusCode::NOT_FOUND);
}

#[test]
fn member_confirms_as_in_zaqar() {
    let service = start("project");
    let client = service.server.client().with_header("x-roles", "member");
    let sink = Sink::start(&[]);
    let path = hook(&client, &sink, json!({}));
    let id = path.rsplit('/').next().unwrap();
    // A repeated subscriber is asked again.
    let again = client.post("/v2/queues/q/subscriptions", &json!({"subscriber": sink.url()})).unwrap();
    assert_eq!(again.status, StatusCode::CREATED);
    assert_eq!(again.json(), json!({"subscription_id": id, "confirmed": false}));
    wait_until("another request", || sink.count() >= 1);
    let confirm = |confirmed: Value| {
        client.put(&format!("{path}/confirm"), Some(&json!({ "confirmed": confirmed }))).unwrap().status
    };
    assert_eq!(confirm(json!("yes")), StatusCode::BAD_REQUEST);
    assert_eq!(confirm(json!(true)), StatusCode::NO_CONTENT);
    let taken = client.post("/v2/queues/q/subscriptions", &json!({"subscriber": sink.url()})).unwrap();
    assert_eq!(taken.status, StatusCode::CONFLICT);
    assert_eq!(confirm(json!(false)), StatusCode::NO_CONTENT);
    assert_eq!(client.get(&path).unwrap().json()["confirmed"], false);
    let unknown = "/v2/queues/q/subscriptions/01234567-89ab-cdef-0123-456789abcdef/confirm";
    let unknown = client.put(unknown, Some(&json!({"confirmed": true}))).unwrap();
    assert_eq!(unknown.status, StatusCode::NOT_FOUND);
}

#[test]
fn subscriber_is_asked_after_kill() {
    let Service { client, server, data } = start("subscriber");
    let sink = Sink::start(&[UNAVAILABLE; 2]);
    let path = hook(&client, &sink, json!({}));
    let first = asked(&sink, 1);
    server.kill9();
    let server = asking(data.path(), "subscriber").start();
    let client = server.client();
    wait_until("another request", || sink.count() >= 3);
    let last = sink.received.lock().last().unwrap().clone();
    assert_eq!(last.header("webhook-id"), first.header("webhook-id"));
    assert_eq!(answer(&client, &last.json(), true).status, StatusCode::NO_CONTENT);
    post(&client, json!(1));
    wait_until("the delivery", || total(&client, &path) == 0);
    assert_eq!(sink.received.lock().last().unwrap().json()["body"], 1);
    server.kill9();
    let server = asking(data.path(), "subscriber").start();
    assert_eq!(server.client().get(&path).unwrap().json()["confirmed"], true);
}

#[test]
fn forbidden_address_is_not_asked() {
    let Service { client, server, data } = start("subscriber");
    let sink = Sink::start(&[UNAVAILABLE]);
    let path = hook(&client, &sink, json!({}));
    asked(&sink, 1);
    server.kill9();
    // On a busy machine it was asked again before.
    let before = sink.count();
    let server = ServerBuilder::new(data.path()).start();
    let client = server.client();
    let failing = || client.get(&path).unwrap().json()["failing"]["reason"].as_str().map(str::to_owned);
    wait_until("the refusal", || failing().is_some());
    thread::sleep(Duration::from_secs(1));
    assert_eq!(sink.count(), before, "{:?}", failing());
}
