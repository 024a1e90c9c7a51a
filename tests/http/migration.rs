//! Migration of a queue over HTTP: who may, what is refused, and what is told of one that is under way.

use std::time::Duration;

use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::service;
use crate::support::client::Client;
use crate::support::server::Server;
use angarium_testbed::held::wait_until;

const PATH: &str = "/v2/queues/q/migrate";

fn add(client: &Client, pool: &str) {
    let body = json!({"uri": format!("embedded:{pool}"), "weight": 0});
    assert_eq!(client.put(&format!("/v2/pools/{pool}"), Some(&body)).unwrap().status, StatusCode::CREATED);
}

fn post(client: &Client, count: u32) {
    let bodies: Vec<Value> = (0..count).map(|number| json!(number)).collect();
    assert_eq!(client.post_messages("q", &bodies).unwrap().status, StatusCode::CREATED);
}

#[test]
fn a_queue_is_moved_watched_and_brought_back() {
    let service = service();
    let client = &service.client;
    add(client, "other");
    post(client, 1_000);
    // It has not ended when it is canceled, however busy the machine is.
    let begun = client.post(PATH, &json!({"pool": "other", "rate": 40})).unwrap();
    assert_eq!(begun.status, StatusCode::ACCEPTED, "{}", begun.text());
    let view = begun.json();
    assert_eq!(
        (&view["from"], &view["to"], &view["state"], &view["rate"]),
        (&json!("default"), &json!("other"), &json!("copying"), &json!(40))
    );
    let copied = || client.get(PATH).unwrap().json()["copied"].as_u64().unwrap();
    wait_until("some messages go over", || copied() > 0);
    assert_eq!(client.stats("q").unwrap().json()["messages"]["total"], json!(1_000));
    let canceled = client.delete(PATH).unwrap();
    assert_eq!((canceled.status, &canceled.json()["to"]), (StatusCode::ACCEPTED, &json!("default")));
    assert_eq!(canceled.json()["state"], json!("canceled"));
    wait_until("it is back", || client.get(PATH).unwrap().status == StatusCode::NOT_FOUND);
    assert_eq!(client.delete(PATH).unwrap().status, StatusCode::NOT_FOUND, "nothing is under way");
    assert_eq!(client.delete("/v2/pools/other").unwrap().status, StatusCode::NO_CONTENT, "it is empty");
    assert_eq!(client.stats("q").unwrap().json()["messages"]["total"], json!(1_000));
}

#[test]
fn killed_service_continues_migration() {
    let service = service();
    add(&service.client, "other");
    post(&service.client, 1_000);
    let slow = json!({"pool": "other", "rate": 500});
    assert_eq!(service.client.post(PATH, &slow).unwrap().status, StatusCode::ACCEPTED);
    std::thread::sleep(Duration::from_millis(600));
    let service = service.again(Server::kill9);
    let client = &service.client;
    wait_until("it arrives", || client.get(PATH).unwrap().status == StatusCode::NOT_FOUND);
    let usage = client.get("/v2/pools/other").unwrap().json()["usage"].clone();
    assert_eq!(usage["messages"], json!(1_000));
    let first = client.claim("q", 5, 60).unwrap().granted().unwrap();
    let bodies: Vec<Value> = first.messages.iter().map(|message| message.body.clone()).collect();
    assert_eq!(bodies, [json!(0), json!(1), json!(2), json!(3), json!(4)]);
}

#[test]
fn invalid_migration_is_named() {
    let service = service();
    let client = &service.client;
    let refused = |body: &Value| {
        let answer = client.post(PATH, body).unwrap();
        (answer.status.as_u16(), answer.json()["description"].as_str().unwrap_or_default().to_owned())
    };
    assert_eq!(refused(&json!({"pool": "default"})).0, 404, "there is no such queue");
    post(client, 1);
    for (body, status, part) in [
        (json!({}), 400, "pool"),
        (json!({"pool": "nowhere"}), 400, "nowhere"),
        (json!({"pool": "a b"}), 400, "pool"),
        (json!({"pool": "default"}), 409, "default"),
        (json!({"pool": "default", "rate": 0}), 400, "rate"),
        (json!({"pool": "default", "rate": null}), 400, "rate"),
        (json!({"pool": "default", "speed": 1}), 400, "speed"),
    ] {
        let (answered, said) = refused(&body);
        assert_eq!(answered, status, "{body}: {said}");
        assert!(said.contains(part), "{body}: {said}");
    }
}

#[test]
fn only_administrators_move_queues() {
    let service = service();
    post(&service.client, 1);
    let body = json!({"pool": "default"});
    for (method, body) in [(Method::POST, Some(&body)), (Method::GET, None), (Method::DELETE, None)] {
        let refused = service.client.send(method.clone(), PATH, &[("X-Roles", "member")], body).unwrap();
        assert_eq!(refused.status, StatusCode::FORBIDDEN, "{method}");
    }
}
