//! Draining a pool over HTTP: its queues go to others while they are used, and it can be deleted then.

use std::time::{Duration, Instant};

use http::StatusCode;
use serde_json::{Value, json};

use super::service;
use super::subscriptions::{drain, total};
use crate::support::client::Client;
use crate::support::server::Server;
use angarium_testbed::held::wait_until;

const DRAIN: &str = "/v2/pools/default/drain";
const QUEUES: usize = 40;

fn add(client: &Client, pool: &str) {
    let body = json!({"uri": format!("embedded:{pool}"), "weight": 100});
    assert_eq!(client.put(&format!("/v2/pools/{pool}"), Some(&body)).unwrap().status, StatusCode::CREATED);
}

/// Many small queues in the first pool, and then a second one.
fn filled(client: &Client, messages: usize) {
    for number in 0..QUEUES {
        let bodies: Vec<Value> = (0..messages).map(|message| json!(message)).collect();
        let posted = client.post_messages(&format!("q{number}"), &bodies).unwrap();
        assert_eq!(posted.status, StatusCode::CREATED);
    }
    add(client, "second");
}

fn is_done(client: &Client) -> bool {
    client.get(DRAIN).unwrap().json()["done"] == json!(true)
}

fn assert_whole(client: &Client, messages: usize) {
    for number in 0..QUEUES {
        let stats = client.stats(&format!("q{number}")).unwrap().json();
        assert_eq!(stats["messages"]["total"], json!(messages), "q{number}");
    }
}

#[test]
fn all_queues_of_a_pool_go_away_and_it_can_be_deleted() {
    let service = service();
    let client = &service.client;
    filled(client, 3);
    let claim = client.claim("q0", 1, 300).unwrap().granted().unwrap();
    assert_eq!(client.delete("/v2/pools/default").unwrap().status, StatusCode::FORBIDDEN);
    let begun = client.post(DRAIN, &json!({})).unwrap();
    assert_eq!(begun.status, StatusCode::ACCEPTED, "{}", begun.text());
    assert_eq!(begun.json()["waiting"], json!(QUEUES));
    // All but the one with a claimed message, which stays until that is deleted.
    wait_until("one is left", || {
        client.get(DRAIN).unwrap().json() == json!({"done": false, "waiting": 0, "moving": 1})
    });
    assert_whole(client, 3);
    assert_eq!(client.delete("/v2/pools/default").unwrap().status, StatusCode::FORBIDDEN);
    let deleted = client.delete_message("q0", &claim.messages[0].id, Some(&claim.id)).unwrap();
    assert_eq!(deleted.status, StatusCode::NO_CONTENT);
    wait_until("it is empty", || is_done(client));
    // What is new leaves elsewhere too.
    client.post_messages("later", &[json!(1)]).unwrap();
    assert!(is_done(client));
    assert_eq!(client.delete("/v2/pools/default").unwrap().status, StatusCode::NO_CONTENT);
    assert_eq!(client.get(DRAIN).unwrap().status, StatusCode::NOT_FOUND);
    assert_eq!(client.stats("q1").unwrap().json()["messages"]["total"], json!(3));
}

#[test]
fn killed_service_continues_drain() {
    let service = service();
    filled(&service.client, 20);
    assert_eq!(service.client.post(DRAIN, &json!({"rate": 20})).unwrap().status, StatusCode::ACCEPTED);
    let service = service.again(Server::kill9);
    let client = &service.client;
    assert_eq!(client.get(DRAIN).unwrap().json()["rate"], json!(20));
    wait_until("it is empty", || is_done(client));
    assert_whole(client, 20);
}

#[test]
fn stopped_drain_keeps_moved_queues() {
    let service = service();
    let client = &service.client;
    filled(client, 1);
    assert_eq!(client.post(DRAIN, &json!({})).unwrap().status, StatusCode::ACCEPTED);
    assert_eq!(client.delete(DRAIN).unwrap().status, StatusCode::NO_CONTENT);
    let pool = client.get("/v2/pools/default?detailed=true").unwrap().json();
    assert_eq!(pool["state"], json!("active"));
    assert_eq!(client.get(DRAIN).unwrap().status, StatusCode::NOT_FOUND);
    assert_eq!(client.delete(DRAIN).unwrap().status, StatusCode::NOT_FOUND);
    wait_until("those on their way arrive", || {
        let map = client.get("/v2/admin/map?format=json").unwrap().json();
        map["moves"] == json!([])
    });
    assert_whole(client, 1);
}

#[test]
fn pool_without_alternative_is_not_drained() {
    let service = service();
    let client = &service.client;
    assert_eq!(client.post(DRAIN, &json!({})).unwrap().status, StatusCode::CONFLICT);
    add(client, "second");
    assert_eq!(
        client.patch("/v2/pools/second", &json!({"state": "draining"})).unwrap().status,
        StatusCode::OK
    );
    assert_eq!(client.post(DRAIN, &json!({})).unwrap().status, StatusCode::CONFLICT);
    assert_eq!(client.post("/v2/pools/none/drain", &json!({})).unwrap().status, StatusCode::NOT_FOUND);
    for wrong in [json!({"rate": 0}), json!({"rates": 1})] {
        assert_eq!(client.post(DRAIN, &wrong).unwrap().status, StatusCode::BAD_REQUEST, "{wrong}");
    }
    assert_eq!(client.get("/v2/pools/default?detailed=true").unwrap().json()["state"], json!("active"));
}

#[test]
fn claimed_queues_keep_no_others_in_the_pool() {
    let service = service();
    let client = &service.client;
    filled(client, 2);
    // More than are copied at a time.
    let held: Vec<String> = (0..20).map(|number| format!("q{number}")).collect();
    for queue in &held {
        client.claim(queue, 1, 300).unwrap().granted().unwrap();
    }
    assert_eq!(client.post(DRAIN, &json!({})).unwrap().status, StatusCode::ACCEPTED);
    wait_until("only those are left", || {
        client.get(DRAIN).unwrap().json() == json!({"done": false, "waiting": 0, "moving": held.len()})
    });
    assert_whole(client, 2);
}

#[test]
fn unplaceable_queues_delay_no_others() {
    let service = service();
    let client = &service.client;
    let made = client.put("/v2/flavors/gone", Some(&json!({"pool_list": ["default"]}))).unwrap();
    assert_eq!(made.status, StatusCode::CREATED);
    for number in 0..5 {
        let body = json!({"_flavor": "gone"});
        let made = client.put(&format!("/v2/queues/stays{number}"), Some(&body)).unwrap();
        assert_eq!(made.status, StatusCode::CREATED);
    }
    assert_eq!(client.delete("/v2/flavors/gone").unwrap().status, StatusCode::NO_CONTENT);
    filled(client, 1);
    let began = Instant::now();
    assert_eq!(client.post(DRAIN, &json!({})).unwrap().status, StatusCode::ACCEPTED);
    wait_until("only those are left", || {
        client.get(DRAIN).unwrap().json() == json!({"done": false, "waiting": 5, "moving": 0})
    });
    // Each of them used to cost a pause of 20 s.
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    // They go when a pool takes them.
    let taken = client.put("/v2/flavors/gone", Some(&json!({"pool_list": ["second"]}))).unwrap();
    assert_eq!(taken.status, StatusCode::CREATED);
    wait_until("the last go", || is_done(client));
}

#[test]
fn drained_queue_takes_its_subscriptions_along() {
    let service = service();
    let client = &service.client;
    let (billing, audit) = (service.subscribe("pull:billing"), service.subscribe("queue:audit"));
    client.post_messages("q", &[json!(1), json!(2)]).unwrap();
    add(client, "second");
    let begun = client.post(DRAIN, &json!({})).unwrap().json();
    assert_eq!(begun["done"], json!(false), "{begun}");
    let late = service.subscribe("pull:late");
    client.post_messages("q", &[json!(3)]).unwrap();
    wait_until("it is empty", || is_done(client));
    assert_eq!(drain(client, &billing), [json!(1), json!(2), json!(3)]);
    assert_eq!(drain(client, &late), [json!(3)]);
    // A copy on its way to another queue arrives there a moment later.
    wait_until("all copies have arrived", || total(client, "/v2/queues/audit") == json!(3));
    assert_eq!(client.delete("/v2/pools/default").unwrap().status, StatusCode::NO_CONTENT);
    for path in [billing, audit, late] {
        assert_eq!(client.delete(&path).unwrap().status, StatusCode::NO_CONTENT);
    }
}
