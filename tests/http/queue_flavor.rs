//! Changing the flavor of a queue over HTTP: its messages go where the flavor's pools are.

use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::{Service, service};
use crate::support::client::Answer;
use crate::support::server::Server;
use angarium_testbed::held::wait_until;
use angarium_testbed::redis::{Redis, SYNCED};

const QUEUE: &str = "/v2/queues/q";
const WAY: &str = "/v2/queues/q/migrate";
const PATCH_TYPE: &str = "application/openstack-messaging-v2.0-json-patch";

fn put(service: &Service, path: &str, body: &Value) {
    let made = service.client.put(path, Some(body)).unwrap();
    assert_eq!(made.status, StatusCode::CREATED, "{path}: {}", made.text());
}

/// A service with two flavors beside its first pool, each of one pool: `fast` of `one`, `slow` of `two`.
fn with_flavors() -> Service {
    let service = service();
    for (flavor, pool) in [("fast", "one"), ("slow", "two")] {
        let uri = format!("embedded:{pool}");
        put(&service, &format!("/v2/pools/{pool}"), &json!({"uri": uri, "weight": 1, "flavor": flavor}));
        put(&service, &format!("/v2/flavors/{flavor}"), &json!({"pool_list": [pool]}));
    }
    service
}

fn patch(service: &Service, changes: &Value) -> Answer {
    service.client.send_as(Method::PATCH, QUEUE, PATCH_TYPE, changes.to_string().as_bytes()).unwrap()
}

fn choose(service: &Service, flavor: &str) -> Answer {
    patch(service, &json!([{"op": "add", "path": "/metadata/_flavor", "value": flavor}]))
}

fn remove(service: &Service) -> Answer {
    patch(service, &json!([{"op": "remove", "path": "/metadata/_flavor"}]))
}

fn flavor_of(service: &Service) -> Value {
    service.client.get(QUEUE).unwrap().json()["_flavor"].clone()
}

fn post(service: &Service, numbers: std::ops::Range<u32>) {
    let bodies: Vec<Value> = numbers.map(|number| json!(number)).collect();
    assert_eq!(service.client.post_messages("q", &bodies).unwrap().status, StatusCode::CREATED);
}

fn is_moving(service: &Service) -> bool {
    service.client.get(WAY).unwrap().status != StatusCode::NOT_FOUND
}

fn held(service: &Service, pool: &str) -> Value {
    service.client.get(&format!("/v2/pools/{pool}")).unwrap().json()["usage"]["messages"].clone()
}

/// Keeps a queue on its way until it is given back, since claimed messages do not go over.
fn claim_one(service: &Service) -> String {
    service.client.claim("q", 1, 300).unwrap().granted().unwrap().id
}

#[test]
fn queue_with_changed_flavor_migrates_whole() {
    let service = with_flavors();
    post(&service, 0..600);
    let changed = choose(&service, "fast");
    assert_eq!((changed.status, &changed.json()["_flavor"]), (StatusCode::OK, &json!("fast")));
    post(&service, 600..620);
    wait_until("it arrives", || !is_moving(&service));
    assert_eq!((held(&service, "default"), held(&service, "one")), (json!(0), json!(620)));
    // Without a flavor it returns to where pools have none.
    assert_eq!((remove(&service).status, flavor_of(&service)), (StatusCode::OK, Value::Null));
    wait_until("it is back", || !is_moving(&service));
    assert_eq!((held(&service, "default"), held(&service, "one")), (json!(620), json!(0)));
    let mut bodies = Vec::new();
    while let Some(claim) = service.client.claim("q", 20, 300).unwrap().granted() {
        bodies.extend(claim.messages.into_iter().map(|message| message.body));
    }
    assert_eq!(bodies, (0..620).map(|number| json!(number)).collect::<Vec<_>>());
}

#[test]
fn killed_service_continues_to_new_flavor() {
    let service = with_flavors();
    post(&service, 0..50);
    let claim = claim_one(&service);
    assert_eq!(choose(&service, "fast").status, StatusCode::OK);
    let service = service.again(Server::kill9);
    assert_eq!(flavor_of(&service), json!("fast"));
    assert!(is_moving(&service));
    assert_eq!(service.client.release_claim("q", &claim).unwrap().status, StatusCode::NO_CONTENT);
    wait_until("it arrives", || !is_moving(&service));
    assert_eq!(held(&service, "one"), json!(50));
}

#[test]
fn queue_in_pool_of_new_flavor_stays() {
    let service = with_flavors();
    post(&service, 0..1);
    put(&service, "/v2/flavors/same", &json!({"pool_list": ["default"]}));
    claim_one(&service);
    assert_eq!(choose(&service, "same").status, StatusCode::OK);
    assert!(!is_moving(&service));
    assert_eq!(service.client.delete("/v2/flavors/same").unwrap().status, StatusCode::NO_CONTENT);
    assert_eq!(remove(&service).status, StatusCode::OK, "one of a flavor that is gone");
    assert!(!is_moving(&service));
}

#[test]
fn migrating_queue_only_reverses_or_continues() {
    let service = with_flavors();
    post(&service, 0..10);
    let claim = claim_one(&service);
    assert_eq!(choose(&service, "fast").status, StatusCode::OK);
    let way = || service.client.get(WAY).unwrap().json();
    let from_to = || (way()["from"].clone(), way()["to"].clone());
    assert_eq!(from_to(), (json!("default"), json!("one")));
    let refused = choose(&service, "slow");
    assert_eq!((refused.status, flavor_of(&service)), (StatusCode::CONFLICT, json!("fast")));
    assert!(refused.text().contains("from pool default to pool one"), "{}", refused.text());
    // To cancel would leave it in a pool that does not have its flavor.
    let refused = service.client.delete(WAY).unwrap();
    assert_eq!(refused.status, StatusCode::CONFLICT, "{}", refused.text());
    assert_eq!(remove(&service).status, StatusCode::OK);
    let back = way();
    // It may be back already.
    if !back["state"].is_null() {
        assert_eq!(
            (&back["from"], &back["to"], &back["state"]),
            (&json!("one"), &json!("default"), &json!("canceled"))
        );
    }
    assert_eq!(choose(&service, "fast").status, StatusCode::OK);
    assert_eq!((from_to(), &way()["state"]), ((json!("default"), json!("one")), &json!("copying")));
    assert_eq!(choose(&service, "fast").status, StatusCode::OK, "it is that already");
    assert_eq!(service.client.release_claim("q", &claim).unwrap().status, StatusCode::NO_CONTENT);
    wait_until("it arrives", || !is_moving(&service));
    assert_eq!((held(&service, "default"), held(&service, "one")), (json!(0), json!(10)));
}

#[test]
fn unsuitable_flavor_is_refused_and_changes_nothing() {
    let service = with_flavors();
    let mut redis = Redis::start(SYNCED);
    put(&service, "/v2/pools/away", &json!({"uri": redis.uri(""), "weight": 1}));
    put(&service, "/v2/flavors/away", &json!({"pool_list": ["away"]}));
    redis.kill9();
    let closed = service.client.patch("/v2/pools/two", &json!({"weight": 0})).unwrap();
    assert_eq!(closed.status, StatusCode::OK);
    post(&service, 0..1);
    for (flavor, status, part) in [
        ("nobody", StatusCode::BAD_REQUEST, "_flavor"),
        ("a b", StatusCode::BAD_REQUEST, "_flavor"),
        ("slow", StatusCode::SERVICE_UNAVAILABLE, "pool"),
        ("away", StatusCode::SERVICE_UNAVAILABLE, "away"),
    ] {
        let refused = choose(&service, flavor);
        assert_eq!(refused.status, status, "{flavor}: {}", refused.text());
        assert!(refused.json()["description"].as_str().unwrap().contains(part), "{}", refused.text());
        assert_eq!((flavor_of(&service), is_moving(&service)), (Value::Null, false), "{flavor}");
    }
    post(&service, 1..2);
    assert_eq!(held(&service, "default"), json!(2));
}
