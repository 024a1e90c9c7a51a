//! Queues that ask for `sync` by name: they are refused where it cannot be reached, at their creation, at a change, at
//! placement, and at a post when the pool came down.

use http::StatusCode;
use serde_json::{Value, json};

use super::{Service, service};
use crate::support::client::Answer;
use angarium_testbed::held::wait_until;
use angarium_testbed::redis::{Redis, SYNCED};

const RELAXED: &[&str] = &["appendonly yes", "appendfsync everysec", "save \"\""];

/// A service whose only pool for new queues is on this server.
fn service_on(redis: &Redis) -> Service {
    let service = service();
    let pool = json!({"uri": redis.uri(""), "weight": 100});
    assert_eq!(service.client.put("/v2/pools/redis", Some(&pool)).unwrap().status, StatusCode::CREATED);
    set_weight(&service, 0);
    service
}

fn set_weight(service: &Service, weight: u32) {
    let answer = service.client.patch("/v2/pools/default", &json!({"weight": weight})).unwrap();
    assert_eq!(answer.status, StatusCode::OK);
}

fn create(service: &Service, queue: &str, metadata: Value) -> Answer {
    service.client.put(&format!("/v2/queues/{queue}"), Some(&metadata)).unwrap()
}

fn synced() -> Value {
    json!({"_durability": "sync"})
}

#[test]
fn sync_queue_is_not_created_in_relaxed_pool() {
    let redis = Redis::start(RELAXED);
    let service = service_on(&redis);
    let refused = create(&service, "q", synced());
    assert_eq!(refused.status, StatusCode::BAD_REQUEST);
    assert!(refused.text().contains("_durability"), "{}", refused.text());
    assert_eq!(create(&service, "q", json!({})).status, StatusCode::CREATED, "nothing was made");
    let posted = service.client.post_messages("q", &[json!(1)]).unwrap().json();
    assert_eq!(posted["durability"], "relaxed");
}

#[test]
fn sync_queue_is_placed_in_a_sync_pool() {
    let redis = Redis::start(RELAXED);
    let service = service_on(&redis);
    set_weight(&service, 1);
    for number in 0..12 {
        let queue = format!("q{number}");
        assert_eq!(create(&service, &queue, synced()).status, StatusCode::CREATED);
        let posted = service.client.post_messages(&queue, &[json!(1)]).unwrap().json();
        assert_eq!(posted["durability"], "sync");
    }
}

#[test]
fn queue_in_relaxed_pool_is_not_changed_to_sync() {
    let redis = Redis::start(RELAXED);
    let service = service_on(&redis);
    assert_eq!(create(&service, "q", json!({})).status, StatusCode::CREATED);
    let change = |class: &str| {
        let patch = json!([{"op": "add", "path": "/metadata/_durability", "value": class}]).to_string();
        let media_type = "application/openstack-messaging-v2.0-json-patch";
        service.client.send_as(http::Method::PATCH, "/v2/queues/q", media_type, patch.as_bytes()).unwrap()
    };
    let refused = change("sync");
    assert_eq!(refused.status, StatusCode::BAD_REQUEST);
    assert!(refused.text().contains("_durability"), "{}", refused.text());
    assert_eq!(change("relaxed").status, StatusCode::OK);
}

#[test]
fn sync_queue_takes_no_posts_while_its_pool_is_relaxed() {
    let redis = Redis::start(SYNCED);
    let service = service_on(&redis);
    let client = &service.client;
    assert_eq!(create(&service, "q", synced()).status, StatusCode::CREATED);
    let ids = client.post_messages("q", &[json!(1), json!(2)]).unwrap().posted_ids();
    redis.set("appendfsync", "everysec");
    redis.cut_connections();
    let mut refused = None;
    wait_until("it is noticed", || {
        let answer = client.post_messages("q", &[json!(3)]).unwrap();
        let is_refused = answer.json()["code"] == "not_durable";
        refused = Some(answer);
        is_refused
    });
    let refused = refused.unwrap();
    assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(refused.text().contains("redis"), "it names the pool: {}", refused.text());
    assert_eq!(client.delete_message("q", &ids[0], None).unwrap().status, StatusCode::NO_CONTENT);
    redis.set("appendfsync", "always");
    redis.cut_connections();
    wait_until("it is durable again", || client.post_messages("q", &[json!(4)]).unwrap().status == 201);
}
