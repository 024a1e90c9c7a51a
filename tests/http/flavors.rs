//! Flavors over HTTP: which pools they have, and where they place queues.

use http::Method;
use serde_json::{Value, json};

use super::{Service, service};

const FLAVOR: &str = "/v2/flavors/fast";

/// A service with two more pools, that take no queues unless a flavor names them.
fn with_pools() -> Service {
    let service = service();
    for name in ["one", "two"] {
        let body = json!({"uri": format!("embedded:{name}"), "weight": 1, "flavor": "nobody"});
        assert_eq!(service.client.put(&format!("/v2/pools/{name}"), Some(&body)).unwrap().status, 201);
    }
    service
}

fn make(service: &Service, pools: &[&str]) -> u16 {
    service.client.put(FLAVOR, Some(&json!({"pool_list": pools}))).unwrap().status.as_u16()
}

fn flavor_of(service: &Service, pool: &str) -> Value {
    service.client.get(&format!("/v2/pools/{pool}")).unwrap().json()["flavor"].clone()
}

#[test]
fn a_flavor_and_its_pools_say_the_same() {
    let service = with_pools();
    assert_eq!(make(&service, &["two", "one"]), 201);
    let expected = json!({"href": FLAVOR, "name": "fast", "pool_list": ["one", "two"],
        "capabilities": ["FIFO", "CLAIMS", "DURABILITY", "AOD", "HIGH_THROUGHPUT"]});
    assert_eq!(service.client.get(FLAVOR).unwrap().json(), expected);
    assert_eq!((flavor_of(&service, "one"), flavor_of(&service, "two")), (json!("fast"), json!("fast")));
    let changed = service.client.patch(FLAVOR, &json!({"pool_list": ["two"]})).unwrap();
    assert_eq!((changed.status.as_u16(), &changed.json()["pool_list"]), (200, &json!(["two"])));
    assert_eq!((flavor_of(&service, "one"), flavor_of(&service, "two")), (Value::Null, json!("fast")));
    // What a client of Zaqar sends beside it is left aside, if it has the form.
    let more = json!({"pool_list": ["two"], "capabilities": {"FIFO": true}, "pool": "one"});
    assert_eq!(service.client.patch(FLAVOR, &more).unwrap().status, 200);
    let wrong = json!({"pool_list": ["two"], "capabilities": []});
    assert_eq!(service.client.patch(FLAVOR, &wrong).unwrap().status, 400);
    let joined = service.client.patch("/v2/pools/one", &json!({"flavor": "fast"})).unwrap();
    assert_eq!(joined.status, 200);
    assert_eq!(service.client.get(FLAVOR).unwrap().json()["pool_list"], json!(["one", "two"]));
    for (body, left) in [(json!({"flavor": null}), json!(["two"])), (json!({"flavor": ""}), json!(["two"]))] {
        assert_eq!(service.client.patch("/v2/pools/one", &body).unwrap().status, 200);
        assert_eq!(service.client.get(FLAVOR).unwrap().json()["pool_list"], left);
    }
}

#[test]
fn only_queues_of_a_flavor_are_in_its_pools() {
    let service = with_pools();
    assert_eq!(make(&service, &["one"]), 201);
    assert_eq!(service.client.put("/v2/queues/q", Some(&json!({"_flavor": "fast"}))).unwrap().status, 201);
    service.client.post_messages("plain", &[json!(1)]).unwrap();
    let in_use = |pool: &str| service.client.delete(&format!("/v2/pools/{pool}")).unwrap().status == 403;
    // A flavor keeps its last pool anyway; without the flavor only the queue holds it.
    assert_eq!(service.client.delete(FLAVOR).unwrap().status, 204);
    assert!(in_use("one") && in_use("default") && !in_use("two"));
}

#[test]
fn an_unknown_flavor_is_refused_and_no_queue_is_made() {
    let service = service();
    let refused = service.client.put("/v2/queues/q", Some(&json!({"_flavor": "fast"}))).unwrap();
    assert_eq!(refused.status, 400);
    assert!(refused.json()["description"].as_str().unwrap().contains("_flavor"));
    assert_eq!(service.client.create_queue("q").unwrap().status, 201);
}

#[test]
fn flavor_of_closed_pools_is_no_pool() {
    let service = with_pools();
    assert_eq!(make(&service, &["one"]), 201);
    service.client.patch("/v2/pools/one", &json!({"weight": 0})).unwrap();
    let refused = service.client.put("/v2/queues/q", Some(&json!({"_flavor": "fast"}))).unwrap();
    assert_eq!((refused.status.as_u16(), &refused.json()["code"]), (503, &json!("no_pool")));
}

#[test]
fn the_last_pool_of_a_flavor_stays() {
    let service = with_pools();
    assert_eq!(make(&service, &["one", "two"]), 201);
    assert_eq!(service.client.delete("/v2/pools/one").unwrap().status, 204);
    assert_eq!(service.client.delete("/v2/pools/two").unwrap().status, 403);
    assert_eq!(service.client.delete(FLAVOR).unwrap().status, 204);
    assert_eq!(service.client.delete("/v2/pools/two").unwrap().status, 204);
    assert_eq!(service.client.delete(FLAVOR).unwrap().status, 204);
}

#[test]
fn flavor_of_missing_pools_is_refused() {
    let service = service();
    for body in [
        json!({"pool_list": ["none"]}),
        json!({"pool_list": []}),
        json!({"pool_list": "default"}),
        json!({"pool_list": ["a b"]}),
        json!({"pool_list": ["default"], "pool_group": "x"}),
        json!({"pool_list": ["default"], "capabilities": []}),
        json!({}),
    ] {
        let refused = service.client.put(FLAVOR, Some(&body)).unwrap();
        assert_eq!(refused.status, 400, "{body}");
        assert_eq!(service.client.get(FLAVOR).unwrap().status, 404, "{body}");
    }
    assert_eq!(service.client.patch(FLAVOR, &json!({"pool_list": ["default"]})).unwrap().status, 404);
}

#[test]
fn flavors_are_listed_by_name_with_capabilities_when_asked() {
    let service = with_pools();
    for (name, pool) in [("b", "one"), ("a", "two")] {
        let body = json!({"pool_list": [pool], "capabilities": {}});
        assert_eq!(service.client.put(&format!("/v2/flavors/{name}"), Some(&body)).unwrap().status, 201);
    }
    let page = service.client.get("/v2/flavors?limit=1").unwrap().json();
    assert_eq!(page["flavors"], json!([{"href": "/v2/flavors/a", "name": "a", "pool_list": ["two"]}]));
    let next = page["links"][0]["href"].as_str().unwrap();
    assert_eq!(service.client.get(next).unwrap().json()["flavors"][0]["name"], json!("b"));
    let page = service.client.get("/v2/flavors?detailed=true").unwrap().json();
    assert_eq!(page["flavors"][1]["capabilities"][0], json!("FIFO"));
}

#[test]
fn flavors_are_for_administrators() {
    let service = with_pools();
    assert_eq!(make(&service, &["one"]), 201);
    let member = service.server.client().with_header("X-Roles", "member");
    assert_eq!(member.get(FLAVOR).unwrap().status, 403);
    assert_eq!(member.get("/v2/flavors").unwrap().status, 403);
    for method in [Method::PUT, Method::PATCH, Method::DELETE] {
        let body = json!({"pool_list": ["two"]});
        assert_eq!(member.send(method.clone(), FLAVOR, &[], Some(&body)).unwrap().status, 403, "{method}");
    }
}
