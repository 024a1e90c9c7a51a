//! Pools in PostgreSQL over HTTP: which are taken, what is shown of them, and what a request learns while their server
//! is away.

use http::StatusCode;
use serde_json::{Value, json};

use super::service;
use crate::support::client::{Answer, Client};
use angarium_testbed::held::wait_until;
use angarium_testbed::postgres::{PASSWORD, Postgres};

fn add(client: &Client, uri: &str) -> Answer {
    client.put("/v2/pools/tables", Some(&json!({"uri": uri, "weight": 100}))).unwrap()
}

/// Leaves only the pool in PostgreSQL for new queues.
fn prefer_postgres(client: &Client) {
    assert_eq!(client.patch("/v2/pools/default", &json!({"weight": 0})).unwrap().status, StatusCode::OK);
}

#[test]
fn postgres_pool_is_added_at_run_time_and_serves() {
    let service = service();
    let client = &service.client;
    assert_eq!(add(client, &Postgres::shared().fresh_uri()).status, StatusCode::CREATED);
    prefer_postgres(client);
    let posted = client.post_messages("q", &[json!(1), json!({"two": 2})]).unwrap();
    assert_eq!((posted.status, &posted.json()["durability"]), (StatusCode::CREATED, &json!("sync")));
    let claim = client.claim("q", 10, 60).unwrap().granted().unwrap();
    let bodies: Vec<Value> = claim.messages.iter().map(|message| message.body.clone()).collect();
    assert_eq!(bodies, [json!(1), json!({"two": 2})]);
    let usage = client.get("/v2/pools/tables").unwrap().json()["usage"].clone();
    assert_eq!(usage, json!({"queues": 1, "messages": 2, "bytes": 10}));
    for message in &claim.messages {
        let deleted = client.delete_message("q", &message.id, Some(&claim.id)).unwrap();
        assert_eq!(deleted.status, StatusCode::NO_CONTENT);
    }
    assert!(client.claim("q", 10, 60).unwrap().granted().is_none());
}

#[test]
fn absent_server_is_refused_and_no_pool_made() {
    let mut server = Postgres::start(&[]);
    server.kill9();
    let service = service();
    let refused = add(&service.client, &server.uri(""));
    assert_eq!(refused.status, StatusCode::BAD_REQUEST);
    assert!(refused.text().contains("PostgreSQL"), "{}", refused.text());
    assert_eq!(service.client.get("/v2/pools/tables").unwrap().status, StatusCode::NOT_FOUND);
}

#[test]
fn a_password_is_never_shown() {
    let service = service();
    let uri = Postgres::shared().fresh_uri();
    let wrong = add(&service.client, &uri.replace(PASSWORD, "wr0ng"));
    assert_eq!(wrong.status, StatusCode::BAD_REQUEST);
    assert!(
        wrong.text().contains("authentication failed") && !wrong.text().contains("wr0ng"),
        "{}",
        wrong.text()
    );
    let added = add(&service.client, &uri);
    assert_eq!((added.status, added.text().contains(PASSWORD)), (StatusCode::CREATED, false));
    for path in ["/v2/pools/tables", "/v2/pools?detailed=true", "/v2/health"] {
        let shown = service.client.get(path).unwrap().text();
        assert!(!shown.contains(PASSWORD), "{path}: {shown}");
    }
    assert!(service.client.get("/v2/pools/tables").unwrap().text().contains("postgres://angarium:***@"));
    let log = service.server.last_lines();
    assert!(!log.contains(PASSWORD) && !log.contains("wr0ng"), "{log}");
}

#[test]
fn absent_postgres_queues_answer_503_and_others_work() {
    let (mut server, service) = (Postgres::start(&[]), service());
    let client = &service.client;
    assert_eq!(client.post_messages("on-disk", &[json!(1)]).unwrap().status, StatusCode::CREATED);
    assert_eq!(add(client, &server.uri("")).status, StatusCode::CREATED);
    prefer_postgres(client);
    assert_eq!(client.post_messages("in-tables", &[json!(1)]).unwrap().status, StatusCode::CREATED);
    server.kill9();
    for _ in 0..2 {
        let refused = client.post_messages("in-tables", &[json!(2)]).unwrap();
        assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
        let description = refused.json()["description"].clone();
        assert!(description.as_str().unwrap().contains("storage pool tables"), "{description}");
    }
    assert_eq!(client.post_messages("on-disk", &[json!(2)]).unwrap().status, StatusCode::CREATED);
    let shown = client.get("/v2/pools/tables").unwrap().json();
    assert_eq!(shown["health"]["storage_reachable"], json!(false), "{shown}");
    server.restart();
    wait_until("the queue is served again", || {
        client.post_messages("in-tables", &[json!(3)]).unwrap().status == StatusCode::CREATED
    });
    let claim = client.claim("in-tables", 10, 60).unwrap().granted().unwrap();
    assert_eq!(claim.messages[0].body, json!(1));
}

#[test]
fn a_pool_beyond_its_quota_takes_deletes_and_no_messages() {
    let service = service();
    let client = &service.client;
    let uri = format!("{}&quota=700", Postgres::shared().fresh_uri());
    assert_eq!(add(client, &uri).status, StatusCode::CREATED);
    prefer_postgres(client);
    let ids = client.post_messages("q", &[json!(1), json!(2), json!(3)]).unwrap().posted_ids();
    wait_until("it is noticed", || {
        client.get("/v2/health").unwrap();
        client.post_messages("q", &[json!(4)]).unwrap().status == StatusCode::INSUFFICIENT_STORAGE
    });
    // New queues go where there is room, whatever the weights are.
    assert_eq!(client.patch("/v2/pools/default", &json!({"weight": 1})).unwrap().status, StatusCode::OK);
    for number in 0..8 {
        let posted = client.post_messages(&format!("new{number}"), &[json!(1)]).unwrap();
        assert_eq!(posted.status, StatusCode::CREATED);
    }
    let health = client.get("/v2/health").unwrap().json();
    assert_eq!(health["pools"]["tables"]["writable"], false, "{health}");
    assert_eq!(client.delete_message("q", &ids[0], None).unwrap().status, StatusCode::NO_CONTENT);
}
