//! Pools in Redis over HTTP: which are taken, what is shown of them, and what a request learns while their servers are
//! away.

use http::StatusCode;
use serde_json::{Value, json};

use super::service;
use crate::support::client::{Answer, Client};
use angarium_testbed::held::wait_until;
use angarium_testbed::redis::{Redis, SYNCED};

fn add(client: &Client, uri: &str) -> Answer {
    client.put("/v2/pools/redis", Some(&json!({"uri": uri, "weight": 100}))).unwrap()
}

/// Leaves only the pool in Redis for new queues.
fn prefer_redis(client: &Client) {
    assert_eq!(client.patch("/v2/pools/default", &json!({"weight": 0})).unwrap().status, StatusCode::OK);
}

#[test]
fn redis_pool_is_added_at_run_time_and_serves() {
    let (redis, service) = (Redis::start(SYNCED), service());
    let client = &service.client;
    assert_eq!(add(client, &redis.uri("")).status, StatusCode::CREATED);
    prefer_redis(client);
    assert_eq!(
        client.post_messages("q", &[json!(1), json!({"two": 2})]).unwrap().status,
        StatusCode::CREATED
    );
    let claim = client.claim("q", 10, 60).unwrap().granted().unwrap();
    let bodies: Vec<Value> = claim.messages.iter().map(|message| message.body.clone()).collect();
    assert_eq!(bodies, [json!(1), json!({"two": 2})]);
    for message in &claim.messages {
        let deleted = client.delete_message("q", &message.id, Some(&claim.id)).unwrap();
        assert_eq!(deleted.status, StatusCode::NO_CONTENT);
    }
    assert!(client.claim("q", 10, 60).unwrap().granted().is_none());
    let keys: Vec<String> = redis::cmd("KEYS").arg("*entries*").query(&mut redis.connect()).unwrap();
    assert_eq!(keys, [""; 0]);
}

#[test]
fn a_flavor_is_durable_when_all_of_its_pools_are() {
    let (lasting, fleeting) = (Redis::start(SYNCED), Redis::start(&["appendonly no", "save ''"]));
    let service = service();
    let client = &service.client;
    for (pool, redis) in [("lasting", &lasting), ("fleeting", &fleeting)] {
        let body = json!({"uri": redis.uri(""), "weight": 1});
        assert_eq!(
            client.put(&format!("/v2/pools/{pool}"), Some(&body)).unwrap().status,
            StatusCode::CREATED
        );
    }
    let all = json!(["FIFO", "CLAIMS", "DURABILITY", "AOD", "HIGH_THROUGHPUT"]);
    let without = json!(["FIFO", "CLAIMS", "AOD", "HIGH_THROUGHPUT"]);
    for (pools, capabilities) in [(json!(["lasting"]), &all), (json!(["lasting", "fleeting"]), &without)] {
        let made = client.put("/v2/flavors/f", Some(&json!({"pool_list": pools}))).unwrap();
        assert_eq!(made.status, StatusCode::CREATED);
        assert_eq!(client.get("/v2/flavors/f").unwrap().json()["capabilities"], *capabilities, "{pools}");
        let listed = client.get("/v2/flavors?detailed=true").unwrap().json();
        assert_eq!(listed["flavors"][0]["capabilities"], *capabilities, "{pools}");
    }
}

#[test]
fn evicting_server_is_refused_with_reason() {
    let (redis, service) = (Redis::start(&["maxmemory-policy volatile-lru"]), service());
    let refused = add(&service.client, &redis.uri(""));
    assert_eq!(refused.status, StatusCode::BAD_REQUEST);
    assert!(refused.text().contains("maxmemory-policy is volatile-lru"), "{}", refused.text());
}

#[test]
fn absent_server_is_refused_and_no_pool_made() {
    let mut redis = Redis::start(SYNCED);
    redis.kill9();
    let service = service();
    assert_eq!(add(&service.client, &redis.uri("")).status, StatusCode::BAD_REQUEST);
    assert_eq!(service.client.get("/v2/pools/redis").unwrap().status, StatusCode::NOT_FOUND);
}

#[test]
fn a_password_is_never_shown() {
    let (redis, service) = (Redis::start(&["requirepass hidden", "appendonly yes"]), service());
    let place = format!("@127.0.0.1:{}", redis.port());
    let wrong = add(&service.client, &format!("redis://:hiddenfrom{place}"));
    assert_eq!((wrong.status, wrong.text().contains("hidden")), (StatusCode::BAD_REQUEST, false));
    let added = add(&service.client, &format!("redis://:hidden{place}"));
    assert_eq!(
        (added.status, added.text().contains("hidden")),
        (StatusCode::CREATED, false),
        "{}",
        added.text()
    );
    for path in ["/v2/pools/redis", "/v2/pools?detailed=true", "/v2/health"] {
        let shown = service.client.get(path).unwrap().text();
        assert!(!shown.contains("hidden"), "{path}: {shown}");
    }
    assert!(service.client.get("/v2/pools/redis").unwrap().text().contains(&format!("redis://:***{place}")));
    assert!(!service.server.last_lines().contains("hidden"));
}

#[test]
fn while_redis_is_away_its_queues_say_503_and_others_go_on() {
    let (mut redis, service) = (Redis::start(SYNCED), service());
    let client = &service.client;
    assert_eq!(client.post_messages("on-disk", &[json!(1)]).unwrap().status, StatusCode::CREATED);
    assert_eq!(add(client, &redis.uri("")).status, StatusCode::CREATED);
    prefer_redis(client);
    assert_eq!(client.post_messages("in-redis", &[json!(1)]).unwrap().status, StatusCode::CREATED);
    redis.kill9();
    assert_eq!(
        client.post_messages("in-redis", &[json!(2)]).unwrap().status,
        StatusCode::SERVICE_UNAVAILABLE
    );
    assert_eq!(client.post_messages("on-disk", &[json!(2)]).unwrap().status, StatusCode::CREATED);
    redis.restart();
    wait_until("the queue is served again", || {
        client.post_messages("in-redis", &[json!(3)]).unwrap().status == StatusCode::CREATED
    });
    let claim = client.claim("in-redis", 10, 60).unwrap().granted().unwrap();
    assert_eq!(claim.messages[0].body, json!(1));
}

#[test]
fn a_full_redis_takes_deletes_and_no_messages() {
    let (redis, service) = (Redis::start(SYNCED), service());
    let client = &service.client;
    assert_eq!(add(client, &redis.uri("")).status, StatusCode::CREATED);
    prefer_redis(client);
    let ids = client.post_messages("q", &[json!(1), json!(2)]).unwrap().posted_ids();
    redis.set("maxmemory", "1");
    assert_eq!(client.post_messages("q", &[json!(3)]).unwrap().status, StatusCode::INSUFFICIENT_STORAGE);
    assert_eq!(client.delete_message("q", &ids[0], None).unwrap().status, StatusCode::NO_CONTENT);
    assert_eq!(client.claim("q", 10, 60).unwrap().granted().unwrap().messages.len(), 1);
    redis.set("maxmemory", "0");
    assert_eq!(client.post_messages("q", &[json!(3)]).unwrap().status, StatusCode::CREATED);
}
