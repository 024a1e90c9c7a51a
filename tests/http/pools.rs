//! Pools over HTTP: who may change them, what is said of them, and that they serve without a restart.

use http::Method;
use serde_json::{Value, json};

use super::{Service, service};
use crate::support::client::{Answer, Client};
use crate::support::server::{Server, ServerBuilder};
use angarium_testbed::held::{free_port, wait_until};
use angarium_testbed::zookeeper::ZooKeeper;

const POOL: &str = "/v2/pools/two";

fn pool(path: &str, weight: u64) -> Value {
    json!({"uri": format!("embedded:{path}"), "weight": weight})
}

fn add(client: &Client, name: &str, body: &Value) -> Answer {
    client.put(&format!("/v2/pools/{name}"), Some(body)).unwrap()
}

fn code(answer: &Answer) -> String {
    answer.json()["code"].as_str().unwrap_or_default().to_owned()
}

/// The names of the pools on a page, and where its link leads.
fn page(client: &Client, path: &str) -> (Vec<String>, Option<String>) {
    let page = client.get(path).unwrap().json();
    let names = page["pools"].as_array().unwrap().iter().map(|pool| text(&pool["name"])).collect();
    (names, page["links"].as_array().unwrap().first().map(|link| text(&link["href"])))
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

#[test]
fn pool_shows_zaqar_keys_and_details_on_request() {
    let service = service();
    let body = json!({"uri": "embedded:pools/two", "weight": 7, "flavor": "fast", "options": {"a": [1]}});
    let added = add(&service.client, "two", &body);
    assert_eq!((added.status.as_u16(), added.headers["location"].to_str().unwrap()), (201, POOL));
    let brief =
        json!({"href": POOL, "name": "two", "uri": "embedded:pools/two", "weight": 7, "flavor": "fast"});
    let shown = service.client.get(POOL).unwrap().json();
    assert!(brief.as_object().unwrap().iter().all(|(key, value)| shown[key] == *value), "{shown}");
    assert_eq!((&shown["options"], &shown["state"]), (&Value::Null, &Value::Null));
    let detailed = service.client.get(&format!("{POOL}?detailed=true")).unwrap().json();
    assert_eq!((&detailed["options"], &detailed["state"]), (&json!({"a": [1]}), &json!("active")));
    assert_eq!(service.client.get("/v2/pools/none").unwrap().status, 404);
}

#[test]
fn pool_shows_health_and_usage() {
    let service = service();
    let pool = || service.client.get("/v2/pools/default").unwrap().json();
    assert_eq!(pool()["usage"], json!({"queues": 0, "messages": 0, "bytes": 0}));
    service.client.post_messages("q", &[json!("abc"), json!(1)]).unwrap();
    service.client.post_messages("r", &[json!(22)]).unwrap();
    let shown = pool();
    assert_eq!(shown["usage"], json!({"queues": 2, "messages": 3, "bytes": 8}));
    let health = &shown["health"];
    assert_eq!((&health["storage_reachable"], &health["writable"]), (&json!(true), &json!(true)));
    assert!(health["class"] == "sync" && health["seconds"].as_f64().unwrap() >= 0.0, "{health}");
}

#[test]
fn pools_are_listed_by_name_a_page_at_a_time() {
    let service = service();
    for name in ["c", "a", "b"] {
        assert_eq!(add(&service.client, name, &pool(name, 0)).status, 201);
    }
    let (names, next) = page(&service.client, "/v2/pools?limit=3");
    assert_eq!(names, ["a", "b", "c"]);
    let (names, next) = page(&service.client, &next.unwrap());
    assert_eq!(names, ["default"]);
    let (names, next) = page(&service.client, &next.unwrap());
    assert!(names.is_empty() && next.is_none());
    let answer = service.client.get("/v2/pools?limit=1&detailed=yes").unwrap();
    assert_eq!(answer.headers["content-location"], "/v2/pools?limit=1&detailed=yes");
    assert_eq!(answer.json()["pools"][0]["options"], json!({}));
    for limit in ["0", "21", "-1", "x"] {
        assert_eq!(service.client.get(&format!("/v2/pools?limit={limit}")).unwrap().status, 400, "{limit}");
    }
}

#[test]
fn only_administrators_see_and_change_pools() {
    let service = service();
    let as_role = |roles: &str| service.server.client().with_header("X-Roles", roles);
    for roles in ["", "member", "administrator,adm in"] {
        for (method, path) in [
            (Method::GET, "/v2/pools"),
            (Method::GET, "/v2/pools/default"),
            (Method::PUT, "/v2/pools/default"),
            (Method::PATCH, "/v2/pools/default"),
            (Method::DELETE, "/v2/pools/default"),
            (Method::GET, "/v2/health"),
            (Method::GET, "/v2/components"),
        ] {
            let body = (method != Method::GET).then(|| pool("x", 1));
            // A body that no client reads may cost the connection, so each request has its own.
            let refused = as_role(roles).send(method.clone(), path, &[], body.as_ref()).unwrap();
            assert_eq!(refused.status, 403, "{roles:?} {method} {path}");
            let said = refused.json();
            assert_eq!(
                (text(&said["title"]), code(&refused)),
                ("Not authorized".into(), "not_authorized".into())
            );
        }
    }
    assert_eq!(as_role("member, Admin").get("/v2/pools").unwrap().status, 200);
}

#[test]
fn wrong_bodies_are_refused_and_name_the_field() {
    let service = service();
    for (body, field) in [
        (json!({"weight": 1}), "uri"),
        (json!({"uri": "embedded:x"}), "weight"),
        (json!({"uri": "embedded:x", "weight": -1}), "weight"),
        (json!({"uri": "embedded:x", "weight": 4_294_967_296_u64}), "weight"),
        (json!({"uri": "embedded:x", "weight": 1.5}), "weight"),
        (json!({"uri": "embedded:x", "weight": true}), "weight"),
        (json!({"uri": "", "weight": 1}), "uri"),
        (json!({"uri": format!("embedded:{}", "x".repeat(250)), "weight": 1}), "uri"),
        (json!({"uri": "nothing:x", "weight": 1}), "uri"),
        (json!({"uri": "embedded:../x", "weight": 1}), "uri"),
        (json!({"uri": "embedded:/etc", "weight": 1}), "uri"),
        (json!({"uri": 1, "weight": 1}), "uri"),
        (json!({"uri": "embedded:x", "weight": 1, "flavor": "a b"}), "flavor"),
        (json!({"uri": "embedded:x", "weight": 1, "options": []}), "options"),
        (json!({"uri": "embedded:x", "weight": 1, "group": "g"}), "group"),
    ] {
        let refused = add(&service.client, "two", &body);
        assert_eq!(refused.status, 400, "{body}");
        let said = text(&refused.json()["description"]);
        assert!(said.contains(field), "{body}: {said}");
        assert_eq!(service.client.get(POOL).unwrap().status, 404, "{body}");
    }
    assert_eq!(service.client.patch("/v2/pools/default", &json!({})).unwrap().status, 400);
    assert_eq!(service.client.patch("/v2/pools/default", &json!({"state": "off"})).unwrap().status, 400);
    assert_eq!(service.client.patch("/v2/pools/none", &json!({"weight": 1})).unwrap().status, 404);
}

#[test]
fn pool_change_ignores_unknown_keys() {
    let service = service();
    let changed = service.client.patch("/v2/pools/default", &json!({"weight": 7, "group": "g"})).unwrap();
    assert_eq!((changed.status.as_u16(), &changed.json()["weight"]), (200, &json!(7)));
    let refused = service.client.patch("/v2/pools/default", &json!({"wieght": 8})).unwrap();
    assert_eq!(refused.status, 400, "nothing that it knows is in it");
}

#[test]
fn a_pool_is_not_pointed_to_where_nothing_answers() {
    let service = service();
    assert_eq!(add(&service.client, "two", &pool("two", 0)).status, 201);
    let dead = json!({"uri": format!("redis://127.0.0.1:{}/", free_port())});
    let refused = service.client.patch(POOL, &dead).unwrap();
    let said = refused.json();
    assert_eq!((refused.status.as_u16(), &said["may_retry"]), (400, &json!(false)), "{said}");
    assert!(text(&said["description"]).contains("uri"), "{said}");
    assert_eq!(service.client.get(POOL).unwrap().json()["uri"], json!("embedded:two"));
}

#[test]
fn a_pool_added_while_running_serves_at_once_and_after_kill_9() {
    let service = service();
    assert_eq!(service.client.patch("/v2/pools/default", &json!({"weight": 0})).unwrap().status, 200);
    let refused = service.client.post_messages("q", &[json!(1)]).unwrap();
    assert_eq!((refused.status.as_u16(), code(&refused)), (503, "no_pool".into()));
    assert_eq!(add(&service.client, "two", &pool("pools/two", 1)).status, 201);
    assert_eq!(service.client.post_messages("q", &[json!(1)]).unwrap().status, 201);
    let Service { server, data, .. } = service;
    server.kill9();
    let server = Server::start(data.path());
    let claimed = server.client().claim("q", 1, 60).unwrap().granted().unwrap();
    assert_eq!(claimed.messages[0].body, json!(1));
    assert!(data.path().join("pools/two").is_dir());
}

#[test]
fn queues_of_a_pool_are_counted_with_empty_ones() {
    let service = service();
    for queue in ["empty", "emptied"] {
        assert_eq!(service.client.create_queue(queue).unwrap().status, 201);
    }
    service.client.post_messages("full", &[json!(1)]).unwrap();
    let shown = service.client.get("/v2/pools/default").unwrap().json();
    assert_eq!((&shown["queues"], &shown["usage"]["queues"]), (&json!(3), &json!(1)));
    let refused = service.client.delete("/v2/pools/default").unwrap();
    assert!(refused.text().contains("3 queues are in it, with messages or without"), "{}", refused.text());
    for queue in ["emptied", "full"] {
        assert_eq!(service.client.delete(&format!("/v2/queues/{queue}")).unwrap().status, 204);
    }
    let refused = service.client.delete("/v2/pools/default").unwrap();
    assert!(refused.text().contains("1 queue is in it"), "{}", refused.text());
}

/// A project with one queue and three subscriptions would wonder about four.
#[test]
fn queues_of_subscriptions_are_counted_apart() {
    let service = service();
    assert_eq!(service.client.create_queue("q").unwrap().status, 201);
    for number in 0..3 {
        let subscription = json!({"subscriber": format!("pull:s{number}"), "ttl": 3_600});
        let path = "/v2/queues/q/subscriptions";
        assert_eq!(service.client.post(path, &subscription).unwrap().status, 201);
    }
    let shown = service.client.get("/v2/pools/default").unwrap().json();
    assert_eq!((&shown["queues"], &shown["subscription_queues"]), (&json!(4), &json!(3)), "{shown}");
    let map = service.client.get("/v2/admin/map?format=json").unwrap().json();
    let pool = &map["pools"][0];
    assert_eq!((&pool["queues"], &pool["subscription_queues"]), (&json!(4), &json!(3)), "{map}");
    let picture = service.client.get("/v2/admin/map").unwrap().text();
    assert!(picture.contains("4 queues (3 of subscriptions), "), "{picture}");
    let refused = service.client.delete("/v2/pools/default").unwrap();
    let said = "4 queues, 3 of them of subscriptions, are in it, with messages or without";
    assert!(refused.text().contains(said), "{}", refused.text());
}

#[test]
fn new_pool_is_not_silent() {
    let service = service();
    assert_eq!(add(&service.client, "two", &pool("two", 1)).status, 201);
    let stats = service.client.get("/v2/stats").unwrap().json();
    assert_eq!(stats["components"][0]["serves"]["silent_pools"], json!([]), "{stats}");
}

#[test]
fn used_pool_is_deletable_only_after_last_cleanup() {
    let service = service();
    service.client.post_messages("q", &[json!(1)]).unwrap();
    let refused = service.client.delete("/v2/pools/default").unwrap();
    assert_eq!((refused.status.as_u16(), code(&refused)), (403, "in_use".into()));
    assert_eq!(refused.json()["may_retry"], json!(false), "a queue stays until somebody deletes it");
    assert_eq!(service.client.delete("/v2/queues/q").unwrap().status, 204);
    // What it left is waited for.
    assert_eq!(service.client.delete("/v2/pools/default").unwrap().status, 204);
    assert_eq!(service.client.get("/v2/pools/default").unwrap().status, 404);
    let refused = service.client.create_queue("q").unwrap();
    assert_eq!((refused.status.as_u16(), code(&refused)), (503, "no_pool".into()));
    // Its storage stays where it was and may be a pool again.
    assert_eq!(add(&service.client, "again", &pool("journal", 1)).status, 201);
    assert_eq!(service.client.create_queue("q").unwrap().status, 201);
}

/// A pool can be deleted once nothing of a deleted queue is left: that tells from outside when it is clean.
#[test]
fn queue_deleted_before_kill_9_is_cleaned_after_it() {
    for pause in [0, 20, 400] {
        let service = service();
        for _ in 0..20 {
            service.client.post_messages("q", &vec![json!("x".repeat(1_000)); 100]).unwrap();
        }
        service.client.claim("q", 20, 3_600).unwrap();
        assert_eq!(service.client.delete("/v2/queues/q").unwrap().status, 204);
        std::thread::sleep(std::time::Duration::from_millis(pause));
        let Service { server, data, .. } = service;
        server.kill9();
        let server = Server::start(data.path());
        assert_eq!(server.client().claim("q", 1, 60).unwrap().status, 204, "{pause}");
        wait_until(&format!("it is cleaned away after {pause} ms"), || {
            server.client().delete("/v2/pools/default").unwrap().status == 204
        });
    }
}

#[test]
fn a_deleted_pools_directory_can_be_added_again() {
    let service = service();
    for _ in 0..3 {
        assert_eq!(add(&service.client, "two", &pool("pools/two", 0)).status, 201);
        assert_eq!(service.client.delete(POOL).unwrap().status, 204);
    }
    assert_eq!(service.client.delete(POOL).unwrap().status, 204);
}

#[test]
fn no_two_pools_have_the_same_storage() {
    let service = service();
    for uri in ["embedded:journal", "embedded:journal/"] {
        let refused = add(&service.client, "two", &json!({"uri": uri, "weight": 1}));
        assert_eq!((refused.status.as_u16(), code(&refused)), (409, "conflict".into()), "{uri}");
    }
    assert_eq!(add(&service.client, "two", &pool("two", 1)).status, 201);
    let refused = service.client.patch("/v2/pools/default", &json!({"uri": "embedded:two"})).unwrap();
    assert_eq!(refused.status, 409);
    assert_eq!(service.client.post_messages("q", &[json!(1)]).unwrap().status, 201);
}

#[test]
fn the_uri_of_a_used_pool_changes_only_to_the_same_storage() {
    let service = service();
    service.client.post_messages("q", &[json!(1)]).unwrap();
    let refused = service.client.patch("/v2/pools/default", &json!({"uri": "embedded:other"})).unwrap();
    assert_eq!((refused.status.as_u16(), code(&refused)), (403, "in_use".into()));
    let moved = service.client.patch("/v2/pools/default", &json!({"uri": "embedded:journal/"})).unwrap();
    assert_eq!((moved.status.as_u16(), &moved.json()["uri"]), (200, &json!("embedded:journal/")));
    service.client.post_messages("q", &[json!(2)]).unwrap();
    assert_eq!(service.client.claim("q", 10, 60).unwrap().granted().unwrap().messages.len(), 2);
}

#[test]
fn an_unused_pool_may_get_another_storage() {
    let service = service();
    assert_eq!(add(&service.client, "two", &pool("two", 1)).status, 201);
    assert_eq!(service.client.patch(POOL, &json!({"uri": "embedded:three"})).unwrap().status, 200);
    assert_eq!(service.client.patch("/v2/pools/default", &json!({"weight": 0})).unwrap().status, 200);
    assert_eq!(service.client.post_messages("q", &[json!(1)]).unwrap().status, 201);
    // The other one belongs to no client now.
    assert_eq!(add(&service.client, "four", &pool("two", 0)).status, 201);
    assert_eq!(service.client.claim("q", 1, 60).unwrap().status, 201);
}

#[test]
fn a_draining_pool_takes_no_new_queue_and_serves_those_it_has() {
    let service = service();
    service.client.post_messages("q", &[json!(1)]).unwrap();
    assert_eq!(service.client.patch("/v2/pools/default", &json!({"state": "draining"})).unwrap().status, 200);
    assert_eq!(service.client.create_queue("new").unwrap().status, 503);
    assert_eq!(service.client.post_messages("q", &[json!(2)]).unwrap().status, 201);
    assert_eq!(service.client.patch("/v2/pools/default", &json!({"state": "active"})).unwrap().status, 200);
    assert_eq!(service.client.create_queue("new").unwrap().status, 201);
}

#[test]
fn service_on_zookeeper_starts_without_pool() {
    let data = tempfile::tempdir().unwrap();
    let address = ZooKeeper::shared().fresh_tree().to_string();
    let builder = ServerBuilder::new(data.path()).arg("--coordination").arg(address);
    let server = builder.start();
    let client = server.client();
    assert_eq!(page(&client, "/v2/pools").0.len(), 0);
    let refused = client.post_messages("q", &[json!(1)]).unwrap();
    assert_eq!((refused.status.as_u16(), code(&refused)), (503, "no_pool".into()));
    assert_eq!(add(&client, "first", &pool("first", 1)).status, 201);
    assert_eq!(client.post_messages("q", &[json!(1)]).unwrap().status, 201);
    server.kill9();
    assert_eq!(builder.start().client().claim("q", 1, 60).unwrap().status, 201);
}

#[test]
fn a_pool_of_weight_0_serves_after_a_restart() {
    let service = service();
    service.client.post_messages("q", &[json!(1)]).unwrap();
    assert_eq!(service.client.patch("/v2/pools/default", &json!({"weight": 0})).unwrap().status, 200);
    let Service { server, data, .. } = service;
    assert!(server.terminate().success());
    let server = Server::start(data.path());
    assert_eq!(server.client().claim("q", 1, 60).unwrap().status, 201);
    assert_eq!(server.client().create_queue("new").unwrap().status, 503);
}
