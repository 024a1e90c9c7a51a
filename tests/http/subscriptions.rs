//! Subscriptions of queues over HTTP: create, show, change, end.

use std::thread;
use std::time::{Duration, Instant};

use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::{Service, service};
use crate::support::client::{Claim, Client};
use crate::support::server::ServerBuilder;
use angarium_testbed::held::wait_until;

const SUBSCRIPTIONS: &str = "/v2/queues/q/subscriptions";
/// An id of the right form that no subscription has.
const UNKNOWN: &str = "019ab1c2-5f07-7d3e-8a41-3c5d7e9f1b20";

/// Subscribes and returns the path of the subscription.
fn subscribe(client: &Client, queue: &str, subscriber: &str) -> String {
    let path = format!("/v2/queues/{queue}/subscriptions");
    let created = client.post(&path, &json!({ "subscriber": subscriber })).unwrap();
    assert_eq!(created.status, StatusCode::CREATED, "{}", created.text());
    format!("{path}/{}", created.json()["subscription_id"].as_str().unwrap())
}

impl Service {
    pub fn subscribe(&self, subscriber: &str) -> String {
        subscribe(&self.client, "q", subscriber)
    }
}

/// Claims messages of a subscription.
pub fn claim(client: &Client, subscription: &str, limit: usize) -> Option<Claim> {
    let path = format!("{subscription}/claims?limit={limit}");
    client.post(&path, &json!({"ttl": 300, "grace": 60})).unwrap().granted()
}

/// Claims and deletes messages of a subscription until there is none, and returns their bodies.
pub fn drain(client: &Client, subscription: &str) -> Vec<Value> {
    let mut bodies = Vec::new();
    while let Some(claim) = claim(client, subscription, 20) {
        let ids: Vec<&str> = claim.messages.iter().map(|message| message.id.as_str()).collect();
        let path = format!("{subscription}/messages?ids={}&claim_ids={}", ids.join(","), claim.id);
        assert_eq!(client.delete(&path).unwrap().status, StatusCode::NO_CONTENT);
        bodies.extend(claim.messages.into_iter().map(|message| message.body));
    }
    bodies
}

/// How many messages there are below a path: of a queue or a subscription.
pub fn total(client: &Client, path: &str) -> Value {
    client.get(&format!("{path}/stats")).unwrap().json()["messages"]["total"].take()
}

#[test]
fn subscription_is_created_shown_changed_and_deleted() {
    let service = service();
    let client = &service.client;
    let terms = json!({
        "subscriber": "pull:billing", "ttl": 220_367_260_800_u64, "options": {"_max_claim_count": 3, "note": [1, 2]},
        "zaqar": "does not read this"
    });
    let created = client.post(SUBSCRIPTIONS, &terms).unwrap();
    assert_eq!(created.status, StatusCode::CREATED, "{}", created.text());
    assert_eq!(created.headers["location"], SUBSCRIPTIONS);
    let id = created.json()["subscription_id"].as_str().unwrap().to_owned();
    let path = format!("{SUBSCRIPTIONS}/{id}");
    // The queue exists from then on.
    assert_eq!(client.get("/v2/queues/q").unwrap().headers["x-queue-exists"], "true");

    let shown = client.get(&path).unwrap();
    let mut json = shown.json();
    assert!(json["age"].take().as_u64().unwrap() < 60);
    assert_eq!(
        (shown.status, json),
        (
            StatusCode::OK,
            json!({
                "id": id, "source": "q", "subscriber": "pull:billing", "ttl": 220_367_260_800_u64, "age": null,
                "options": {"_max_claim_count": 3, "note": [1, 2]}, "confirmed": true,
                "bounds": {"max_messages": 1_000_000, "max_bytes": 1 << 30, "overflow": "suspend"},
                "backlog": {"suspended": false, "filling": false, "left_out": 0, "dropped": 0}
            })
        )
    );
    let again = client.post(SUBSCRIPTIONS, &json!({"subscriber": "pull:billing"})).unwrap();
    assert_eq!((again.status, &again.json()["code"]), (StatusCode::CONFLICT, &json!("conflict")));

    let other = service.subscribe("pull:audit");
    for change in [
        json!({"subscriber": "pull:accounting"}),
        json!({"ttl": 90, "x": 1}),
        json!({"options": {"note": "short"}}),
    ] {
        assert_eq!(client.patch(&path, &change).unwrap().status, StatusCode::NO_CONTENT, "{change}");
    }
    let taken = client.patch(&path, &json!({"subscriber": "pull:audit"})).unwrap();
    assert_eq!(taken.status, StatusCode::CONFLICT);
    let json = client.get(&path).unwrap().json();
    assert_eq!(
        (&json["subscriber"], &json["ttl"], &json["options"]),
        (&json!("pull:accounting"), &json!(90), &json!({"note": "short"}))
    );

    assert_eq!(
        client.put(&format!("{path}/confirm"), Some(&json!({"confirmed": true}))).unwrap().status,
        204
    );
    let refused = client.put(&format!("{path}/confirm"), Some(&json!({"confirmed": false}))).unwrap();
    assert_eq!((refused.status, &refused.json()["code"]), (StatusCode::BAD_REQUEST, &json!("invalid")));

    for _ in 0..2 {
        assert_eq!(client.delete(&path).unwrap().status, StatusCode::NO_CONTENT);
    }
    assert_eq!(client.get(&path).unwrap().status, StatusCode::NOT_FOUND);
    assert_eq!(client.get(&other).unwrap().status, StatusCode::OK);
    // The name is free again.
    service.subscribe("pull:accounting");
}

#[test]
fn invalid_subscription_is_refused_and_named() {
    let service = service();
    let client = &service.client;
    let path = service.subscribe("pull:");
    let deep = format!(r#"{{"x": "{}"}}"#, "y".repeat(65_536));
    let large: Value = serde_json::from_str(&deep).unwrap();
    for (body, field) in [
        (json!({}), "subscriber"),
        (json!({"subscriber": 7}), "subscriber"),
        (json!({"subscriber": ""}), "subscriber"),
        (json!({"subscriber": "http://127.0.0.1/hook"}), "subscriber"),
        (json!({"subscriber": "pull:a b"}), "subscriber"),
        (json!({"subscriber": "queue:q"}), "subscriber"),
        (json!({"subscriber": "queue:a~b"}), "subscriber"),
        (json!({"subscriber": "pull:x", "ttl": 0}), "ttl"),
        (json!({"subscriber": "pull:x", "ttl": 59}), "ttl"),
        (json!({"subscriber": "pull:x", "ttl": -1}), "ttl"),
        (json!({"subscriber": "pull:x", "ttl": "60"}), "ttl"),
        (json!({"subscriber": "pull:x", "options": []}), "options"),
        (json!({"subscriber": "pull:x", "options": {"_fifo": true}}), "options"),
        (json!({"subscriber": "pull:x", "options": large}), "options"),
        (json!({"subscriber": "pull:x", "options": {"max_messages": 0}}), "options.max_messages"),
        (json!({"subscriber": "pull:x", "options": {"max_bytes": "1"}}), "options.max_bytes"),
        (json!({"subscriber": "pull:x", "options": {"overflow": "drop"}}), "options.overflow"),
        (json!([]), "the body must be a JSON object"),
    ] {
        for refused in [client.post(SUBSCRIPTIONS, &body).unwrap(), client.patch(&path, &body).unwrap()] {
            assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{body}: {}", refused.text());
            let error = refused.json();
            assert_eq!(error["code"], json!("invalid"), "{error}");
            let said = error["description"].as_str().unwrap();
            assert!(said.contains(field), "{body}: {said}");
        }
    }
    for field in ["ttl", "options"] {
        let refused = client.post(SUBSCRIPTIONS, &json!({"subscriber": "pull:x", field: null})).unwrap();
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{field}: {}", refused.text());
    }
    // A change keeps the kind, and has something to change: null is nothing.
    let nothing = json!({"subscriber": null, "ttl": null, "options": null});
    for body in [json!({"subscriber": "queue:other"}), json!({"confirmed": true}), nothing] {
        assert_eq!(client.patch(&path, &body).unwrap().status, StatusCode::BAD_REQUEST, "{body}");
    }
    let json = client.get(&path).unwrap().json();
    assert_eq!(
        (&json["subscriber"], &json["ttl"], &json["options"]),
        (&json!("pull:"), &json!(3_600), &json!({}))
    );
    for body in [json!({}), json!({"confirmed": 1}), json!([])] {
        let refused = client.put(&format!("{path}/confirm"), Some(&body)).unwrap();
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{body}");
    }
}

#[test]
fn missing_subscription_is_not_found_in_every_operation() {
    let service = service();
    let client = &service.client;
    client.create_queue("q").unwrap();
    let there = service.subscribe("pull:");
    let id = there.rsplit_once('/').unwrap().1.to_owned();
    let gone = [
        format!("{SUBSCRIPTIONS}/{UNKNOWN}"),
        format!("{SUBSCRIPTIONS}/no-id"),
        // A subscription is one of its source alone.
        format!("/v2/queues/other/subscriptions/{id}"),
    ];
    let document: Value = client.get("/v2/openapi.json").unwrap().json();
    let below = "/v2/queues/{queue_name}/subscriptions/{subscription_id}";
    let mut operations = 0;
    for (path, item) in document["paths"].as_object().unwrap() {
        let Some(rest) = path.strip_prefix(below) else { continue };
        for method in item.as_object().unwrap().keys() {
            let method: Method = method.to_ascii_uppercase().parse().unwrap();
            let rest = ["{message_id}", "{claim_id}", "{task_id}", "{group}"]
                .iter()
                .fold(rest.to_owned(), |rest, parameter| rest.replace(parameter, UNKNOWN));
            let body = match (&method, &*rest) {
                (&Method::GET | &Method::DELETE, _) => None,
                (_, "") => Some(json!({"ttl": 60})),
                (_, "/confirm") => Some(json!({"confirmed": true})),
                _ => Some(json!({})),
            };
            for gone in &gone {
                let answer =
                    client.send(method.clone(), &[gone, &*rest].concat(), &[], body.as_ref()).unwrap();
                if method == Method::DELETE && rest.is_empty() {
                    assert_eq!(answer.status, StatusCode::NO_CONTENT);
                    continue;
                }
                assert_eq!(answer.status, StatusCode::NOT_FOUND, "{method} {gone}{rest}: {}", answer.text());
                let json = answer.json();
                assert_eq!(json["code"], json!("not_found"), "{method} {gone}{rest}");
                assert!(json["description"].as_str().unwrap().contains("subscription"), "{json}");
            }
            operations += 1;
        }
    }
    assert!(operations >= 30, "{operations}");
    assert_eq!(client.get(&there).unwrap().status, StatusCode::OK);
    assert_eq!(client.get("/v2/queues/other").unwrap().headers["x-queue-exists"], "false");
}

#[test]
fn pages_have_every_subscription_once() {
    let service = service();
    let client = &service.client;
    let empty = client.get(SUBSCRIPTIONS).unwrap();
    assert_eq!((empty.status, empty.json()), (StatusCode::OK, json!({"subscriptions": [], "links": []})));
    let mut made: Vec<String> = (0..7).map(|n| service.subscribe(&format!("pull:{n}"))).collect();
    let mut path = format!("{SUBSCRIPTIONS}?limit=3");
    let mut listed = Vec::new();
    loop {
        let page = client.get(&path).unwrap().json();
        let subscriptions = page["subscriptions"].as_array().unwrap();
        listed.extend(
            subscriptions.iter().map(|one| format!("{SUBSCRIPTIONS}/{}", one["id"].as_str().unwrap())),
        );
        let Some(link) = page["links"].get(0) else { break };
        assert!(subscriptions.len() <= 3 && link["rel"] == "next", "{page}");
        link["href"].as_str().unwrap().clone_into(&mut path);
    }
    made.sort();
    assert_eq!(listed, made);
    for query in ["limit=0", "limit=21", "limit=x", "marker=no-id"] {
        let refused = client.get(&format!("{SUBSCRIPTIONS}?{query}")).unwrap();
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{query}");
    }
}

#[test]
fn purge_and_deletion_end_subscriptions() {
    let service = service();
    let client = &service.client;
    let (first, second) = (service.subscribe("pull:a"), service.subscribe("pull:b"));
    client.post_messages("q", &[json!(1)]).unwrap();
    // The purge of a subscription leaves the others and the queue.
    assert_eq!(
        client.post(&format!("{first}/purge"), &json!({"resource_types": ["messages"]})).unwrap().status,
        204
    );
    assert_eq!((total(client, &first), total(client, &second)), (json!(0), json!(1)));
    let only = json!({"resource_types": ["subscriptions"]});
    assert_eq!(client.post("/v2/queues/q/purge", &only).unwrap().status, StatusCode::NO_CONTENT);
    assert_eq!(client.get(SUBSCRIPTIONS).unwrap().json()["subscriptions"], json!([]));
    assert_eq!(client.get(&format!("{second}/stats")).unwrap().status, StatusCode::NOT_FOUND);
    assert_eq!(total(client, "/v2/queues/q"), json!(1));

    let third = service.subscribe("pull:a");
    client.post_messages("q", &[json!(2)]).unwrap();
    assert_eq!(client.delete("/v2/queues/q").unwrap().status, StatusCode::NO_CONTENT);
    assert_eq!(client.get(&third).unwrap().status, StatusCode::NOT_FOUND);
    client.create_queue("q").unwrap();
    assert_eq!(client.get(SUBSCRIPTIONS).unwrap().json()["subscriptions"], json!([]));
    assert_eq!(client.post(&format!("{third}/claims"), &json!({})).unwrap().status, StatusCode::NOT_FOUND);
    client.post_messages("q", &[json!(3)]).unwrap();
    assert_eq!(total(client, "/v2/queues/q"), json!(1));
}

#[test]
fn subscription_ends_with_its_ttl() {
    let service = service();
    let client = &service.client;
    let created = client.post(SUBSCRIPTIONS, &json!({"subscriber": "pull:", "ttl": 60})).unwrap();
    let path = format!("{SUBSCRIPTIONS}/{}", created.json()["subscription_id"].as_str().unwrap());
    client.post_messages("q", &[json!(1)]).unwrap();
    let begun = Instant::now();
    wait_until_in(Duration::from_secs(90), || client.get(&path).unwrap().status == StatusCode::NOT_FOUND);
    assert!(begun.elapsed() > Duration::from_secs(50), "{:?}", begun.elapsed());
    assert_eq!(client.post(&format!("{path}/claims"), &json!({})).unwrap().status, StatusCode::NOT_FOUND);
    assert_eq!(client.post_messages("q", &[json!(2)]).unwrap().status, StatusCode::CREATED);
    wait_until("the log tells it", || service.server.last_lines().contains("subscription ended"));
    assert_eq!(total(client, "/v2/queues/q"), json!(2));
}

/// Waits longer than other tests do: the shortest life of a subscription is a minute.
fn wait_until_in(most: Duration, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < most);
        thread::sleep(Duration::from_millis(500));
    }
}

#[test]
fn subscriptions_and_copies_outlive_kill_9() {
    let data = tempfile::tempdir().unwrap();
    let builder = ServerBuilder::new(data.path());
    let server = builder.start();
    let client = server.client();
    let (pulled, forwarded) = (subscribe(&client, "q", "pull:a"), subscribe(&client, "q", "queue:copies"));
    client.post_messages("q", &[json!(1), json!(2)]).unwrap();
    let claimed = claim(&client, &pulled, 1).unwrap();
    let shown = client.get(&pulled).unwrap().json();
    server.kill9();
    let server = builder.start();
    let client = server.client();
    let mut again = client.get(&pulled).unwrap().json();
    again["age"] = shown["age"].clone();
    assert_eq!(again, shown);
    assert_eq!(client.get(SUBSCRIPTIONS).unwrap().json()["subscriptions"].as_array().unwrap().len(), 2);
    let kept = client.get(&format!("{pulled}/claims/{}", claimed.id)).unwrap();
    assert_eq!(kept.json()["messages"][0]["body"], json!(1), "{}", kept.text());
    client.post_messages("q", &[json!(3)]).unwrap();
    assert_eq!(drain(&client, &pulled), [json!(2), json!(3)]);
    wait_until("all copies have arrived", || total(&client, "/v2/queues/copies") == json!(3));
    wait_until("none is on its way", || total(&client, &forwarded) == json!(0));
}

#[test]
fn queue_list_has_no_queue_of_a_subscription() {
    let service = service();
    let client = &service.client;
    let path = service.subscribe("pull:");
    client.post_messages("q", &[json!(1)]).unwrap();
    assert_eq!(total(client, &path), json!(1));
    let listed = client.get("/v2/queues?with_count=true&with_stats=true").unwrap().json();
    let names: Vec<&Value> =
        listed["queues"].as_array().unwrap().iter().map(|queue| &queue["name"]).collect();
    assert_eq!(names, [&json!("q")]);
    assert_eq!(listed["count"], json!(1));
    let id = path.rsplit_once('/').unwrap().1.replace('-', "");
    for name in [format!("q~{id}"), format!("q%7E{id}")] {
        assert_eq!(client.get(&format!("/v2/queues/{name}/stats")).unwrap().status, StatusCode::BAD_REQUEST);
    }
}

#[test]
fn reader_sees_subscriptions_and_changes_none() {
    let service = service();
    let path = service.subscribe("pull:");
    service.client.post_messages("q", &[json!(1)]).unwrap();
    let reader = service.client.clone().with_header("X-Roles", "reader");
    let nested = ["/messages", "/stats", "/peek", "/explain", "/claims"].map(|end| [&path, end].concat());
    for path in [SUBSCRIPTIONS, &path].into_iter().chain(nested.iter().map(String::as_str)) {
        assert_eq!(reader.get(path).unwrap().status, StatusCode::OK, "{path}");
    }
    let body = json!({"subscriber": "pull:x"});
    for (method, path) in [
        (Method::POST, SUBSCRIPTIONS.to_owned()),
        (Method::PATCH, path.clone()),
        (Method::DELETE, path.clone()),
        (Method::PUT, format!("{path}/confirm")),
        (Method::POST, format!("{path}/claims")),
        (Method::DELETE, format!("{path}/messages?pop=1")),
        (Method::POST, format!("{path}/purge")),
    ] {
        let refused = reader.send(method.clone(), &path, &[], Some(&body)).unwrap();
        assert_eq!(refused.status, StatusCode::FORBIDDEN, "{method} {path}");
    }
    assert_eq!(total(&service.client, &path), json!(1));
    // No message is posted to a subscription.
    let posted =
        service.client.post(&format!("{path}/messages"), &json!({"messages": [{"body": 1}]})).unwrap();
    assert_eq!(posted.status, StatusCode::METHOD_NOT_ALLOWED);
}

#[test]
fn log_counts_copies_of_a_deleted_queue() {
    let service = service();
    let client = &service.client;
    let logged = |parts: &[&str]| {
        service
            .server
            .last_lines()
            .lines()
            .filter(|line| parts.iter().all(|part| line.contains(part)))
            .count()
    };
    service.subscribe("pull:billing");
    service.subscribe("pull:audit");
    client.post_messages("q", &[json!(1), json!(2), json!(3)]).unwrap();
    assert_eq!(client.delete("/v2/queues/q").unwrap().status, StatusCode::NO_CONTENT);
    wait_until("the log counts them", || logged(&["copies discarded with their queue", "messages=6"]) == 1);
    // With their pool they count with the messages of the queue.
    service.subscribe("pull:billing");
    client.post_messages("q", &[json!(1), json!(2)]).unwrap();
    let pool = json!({"uri": "embedded:second", "weight": 100});
    assert_eq!(client.put("/v2/pools/second", Some(&pool)).unwrap().status, StatusCode::CREATED);
    assert_eq!(client.delete("/v2/pools/default?force=true").unwrap().status, StatusCode::NO_CONTENT);
    let event = "messages of a queue discarded with their pool";
    wait_until("the log counts them", || logged(&[event, "queue=q ", "messages=4"]) == 1);
    assert_eq!(logged(&[event]), 1, "{}", service.server.last_lines());
}

#[test]
fn spellings_of_an_address_are_one_subscriber() {
    let service = service();
    let client = &service.client;
    let created = |subscriber: &str| {
        let body = json!({ "subscriber": subscriber });
        client.post(SUBSCRIPTIONS, &body).unwrap().status
    };
    assert_eq!(created("HTTPS://Hooks.example:443"), StatusCode::CREATED);
    for repeated in ["https://hooks.example/", "https://hooks.example"] {
        assert_eq!(created(repeated), StatusCode::CONFLICT, "{repeated}");
    }
    let all = client.get(SUBSCRIPTIONS).unwrap().json();
    assert_eq!(all["subscriptions"][0]["subscriber"], json!("https://hooks.example/"));
    assert_eq!(created("https://hooks.example/A"), StatusCode::CREATED);
    assert_eq!(created("https://hooks.example/a"), StatusCode::CREATED);
}
