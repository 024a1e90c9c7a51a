//! Topics over HTTP: create, list, post, subscribe, delete.

use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::subscriptions::{drain, total};
use super::{Service, service};
use crate::support::client::Client;
use crate::support::server::ServerBuilder;
use angarium_testbed::held::wait_until;

const NEWS: &str = "/v2/topics/news";

impl Service {
    fn create_topic(&self) -> &Client {
        assert_eq!(self.client.put(NEWS, None).unwrap().status, StatusCode::CREATED);
        &self.client
    }
}

/// Subscribes to a topic and returns the path of the subscription.
fn subscribe(client: &Client, subscriber: &str) -> String {
    let path = format!("{NEWS}/subscriptions");
    let created = client.post(&path, &json!({ "subscriber": subscriber })).unwrap();
    assert_eq!(created.status, StatusCode::CREATED, "{}", created.text());
    assert_eq!(created.headers["location"], path);
    format!("{path}/{}", created.json()["subscription_id"].as_str().unwrap())
}

fn post(client: &Client, bodies: &[Value]) {
    let messages: Vec<Value> = bodies.iter().map(|body| json!({ "body": body })).collect();
    let posted = client.post(&format!("{NEWS}/messages"), &json!({ "messages": messages })).unwrap();
    assert_eq!(posted.status, StatusCode::CREATED, "{}", posted.text());
}

/// The status and the code of an answer.
fn refusal(client: &Client, method: Method, path: &str, body: Option<&Value>) -> (u16, String) {
    let refused = client.send(method, path, &[], body).unwrap();
    (refused.status.as_u16(), refused.json()["code"].as_str().unwrap_or_default().to_owned())
}

#[test]
fn topic_is_created_shown_changed_and_deleted() {
    let service = service();
    let client = &service.client;
    let metadata = json!({"_default_message_ttl": 600, "team": "a"});
    let created = client.put(NEWS, Some(&metadata)).unwrap();
    assert_eq!((created.status, &created.headers["location"]), (StatusCode::CREATED, &NEWS.parse().unwrap()));
    assert_eq!(client.put(NEWS, Some(&json!({"team": "b"}))).unwrap().status, StatusCode::NO_CONTENT);
    let shown = client.get(NEWS).unwrap().json();
    assert_eq!((&shown["team"], &shown["_default_message_ttl"]), (&json!("a"), &json!(600)));
    let change = br#"[{"op": "replace", "path": "/metadata/team", "value": "c"}]"#;
    let changed = client.send_as(Method::PATCH, NEWS, "application/json-patch+json", change).unwrap();
    assert_eq!((changed.status, &changed.json()["team"]), (StatusCode::OK, &json!("c")));
    let stats = client.get(&format!("{NEWS}/stats")).unwrap().json();
    assert_eq!((&stats["subscriptions"], &stats["messages"]["total"]), (&json!(0), &json!(0)));
    for _ in 0..2 {
        assert_eq!(client.delete(NEWS).unwrap().status, StatusCode::NO_CONTENT);
    }
    for path in [NEWS, "/v2/topics/news/stats", "/v2/topics/news/explain"] {
        assert_eq!(refusal(client, Method::GET, path, None), (404, "not_found".to_owned()), "{path}");
    }
}

#[test]
fn message_of_topic_reaches_each_subscriber() {
    let service = service();
    let client = service.create_topic();
    let (billing, audit) = (subscribe(client, "pull:billing"), subscribe(client, "pull:audit"));
    subscribe(client, "queue:copies");
    let posted =
        client.post(&format!("{NEWS}/messages"), &json!({"messages": [{"body": 1}, {"body": 2}]})).unwrap();
    let ids = posted.posted_ids();
    assert_eq!((posted.status, ids.len()), (StatusCode::CREATED, 2));
    assert_eq!(posted.headers["location"], format!("{NEWS}/messages?ids={}", ids.join(",")));
    assert_eq!(posted.json()["resources"][0], json!(format!("{NEWS}/messages/{}", ids[0])));

    let claimed = client.post(&format!("{billing}/claims"), &json!({"ttl": 300, "grace": 60})).unwrap();
    let location = claimed.headers["location"].to_str().unwrap().to_owned();
    assert!(location.starts_with(&format!("{billing}/claims/")), "{location}");
    let claim = claimed.granted().unwrap();
    assert_eq!(claim.messages.len(), 2);
    let href = claimed.json()["messages"][0]["href"].as_str().unwrap().to_owned();
    assert!(href.starts_with(&format!("{billing}/messages/")), "{href}");
    assert_eq!(client.delete(&href).unwrap().status, StatusCode::NO_CONTENT);
    assert_eq!(drain(client, &audit), [json!(1), json!(2)]);
    wait_until("all copies have arrived", || total(client, "/v2/queues/copies") == json!(2));
    assert_eq!(total(client, NEWS), json!(0));
    let batch = json!({"messages": [{"body": 3}, {"body": 4, "ttl": 1}]});
    let results = client.post(&format!("{NEWS}/messages/batch"), &batch).unwrap().json();
    let statuses: Vec<&Value> =
        results["results"].as_array().unwrap().iter().map(|one| &one["status"]).collect();
    assert_eq!(statuses, [&json!(201), &json!(400)]);
    assert_eq!(drain(client, &audit), [json!(3)]);
    let purged =
        client.post(&format!("{NEWS}/purge"), &json!({"resource_types": ["subscriptions"]})).unwrap();
    assert_eq!(purged.status, StatusCode::NO_CONTENT);
    let listed = client.get(&format!("{NEWS}/subscriptions")).unwrap().json();
    assert_eq!(listed["subscriptions"], json!([]));
}

#[test]
fn topic_and_queue_exclude_each_other() {
    let service = service();
    let client = service.create_topic();
    client.create_queue("q").unwrap();
    let conflict = (409, "conflict".to_owned());
    assert_eq!(refusal(client, Method::PUT, "/v2/queues/news", None), conflict);
    assert_eq!(refusal(client, Method::PUT, "/v2/topics/q", None), conflict);
    let (message, claim) = (json!({"messages": [{"body": 1}]}), json!({"ttl": 60, "grace": 60}));
    let pull = json!({"subscriber": "pull:"});
    // It would create the queue.
    assert_eq!(refusal(client, Method::POST, "/v2/queues/news/subscriptions", Some(&pull)), conflict);
    let missing = (404, "not_found".to_owned());
    for (path, method, body) in [
        ("/v2/queues/news", Method::GET, None),
        ("/v2/queues/news", Method::DELETE, None),
        ("/v2/queues/news/stats", Method::GET, None),
        ("/v2/queues/news/messages", Method::GET, None),
        ("/v2/queues/news/messages", Method::POST, Some(&message)),
        ("/v2/queues/news/claims", Method::POST, Some(&claim)),
        ("/v2/queues/news/subscriptions", Method::GET, None),
        ("/v2/queues/news/explain", Method::GET, None),
        ("/v2/topics/q", Method::GET, None),
        ("/v2/topics/q", Method::DELETE, None),
        ("/v2/topics/q/stats", Method::GET, None),
        ("/v2/topics/q/messages", Method::POST, Some(&message)),
        ("/v2/topics/q/subscriptions", Method::POST, Some(&pull)),
        ("/v2/topics/none/messages", Method::POST, Some(&message)),
        ("/v2/topics/none/subscriptions", Method::POST, Some(&pull)),
    ] {
        assert_eq!(refusal(client, method.clone(), path, body), missing, "{method} {path}");
    }
    // A topic has no messages of its own.
    for (path, status) in
        [("messages", 405), ("claims", 404), ("peek", 404), ("tasks", 404), ("migration", 404)]
    {
        assert_eq!(client.get(&format!("{NEWS}/{path}")).unwrap().status.as_u16(), status, "{path}");
    }
    let wrong = client.put("/v2/topics/news~", None).unwrap();
    assert_eq!(wrong.status, StatusCode::BAD_REQUEST);
}

#[test]
fn topics_are_listed_apart_from_queues() {
    let service = service();
    let client = &service.client;
    for name in ["a", "b", "c"] {
        client.put(&format!("/v2/topics/{name}"), Some(&json!({"team": name}))).unwrap();
        client.create_queue(&format!("{name}-queue")).unwrap();
    }
    let page = client.get("/v2/topics?limit=2&detailed=true&with_count=true").unwrap().json();
    let names = |page: &Value, key: &str| -> Vec<Value> {
        page[key].as_array().unwrap().iter().map(|one| one["name"].clone()).collect()
    };
    assert_eq!((names(&page, "topics"), &page["count"]), (vec![json!("a"), json!("b")], &json!(3)));
    assert_eq!(page["topics"][0]["href"], json!("/v2/topics/a"));
    assert_eq!(page["topics"][0]["metadata"]["team"], json!("a"));
    let next = page["links"][0]["href"].as_str().unwrap();
    assert!(next.starts_with("/v2/topics?"), "{next}");
    assert_eq!(names(&client.get(next).unwrap().json(), "topics"), [json!("c")]);
    let queues = client.get("/v2/queues?with_count=true").unwrap().json();
    assert_eq!(names(&queues, "queues"), [json!("a-queue"), json!("b-queue"), json!("c-queue")]);
    assert_eq!(queues["count"], json!(3));
}

#[test]
fn hold_of_topic_stops_its_posts() {
    let service = service();
    let client = service.create_topic();
    let subscription = subscribe(client, "pull:");
    let hold = format!("{NEWS}/hold");
    let claims = json!({"claim": true, "post": true, "reason": "x"});
    assert_eq!(refusal(client, Method::PUT, &hold, Some(&claims)), (400, "invalid".to_owned()));
    let held = client.put(&hold, Some(&json!({"post": true, "reason": "bad deploy"}))).unwrap();
    assert_eq!((held.status, &held.json()["claim"]), (StatusCode::OK, &json!(false)));
    let message = json!({"messages": [{"body": 1}]});
    let messages = format!("{NEWS}/messages");
    assert_eq!(refusal(client, Method::POST, &messages, Some(&message)), (503, "held".to_owned()));
    client.put(&hold, Some(&json!({"discard": true, "reason": "bad deploy"}))).unwrap();
    assert_eq!(client.post(&messages, &message).unwrap().status, StatusCode::ACCEPTED);
    assert_eq!(client.delete(&hold).unwrap().status, StatusCode::NO_CONTENT);
    post(client, &[json!(2)]);
    assert_eq!(drain(client, &subscription), [json!(2)]);
}

#[test]
fn topic_is_explained_by_its_subscriptions() {
    let service = service();
    let client = service.create_topic();
    let explained = || client.get(&format!("{NEWS}/explain")).unwrap().json();
    assert!(explained()["says"].as_str().unwrap().contains("without subscriptions"), "{}", explained());
    subscribe(client, "pull:a");
    subscribe(client, "pull:b");
    let told = explained();
    assert!(told["says"].as_str().unwrap().starts_with("This is a topic with 2 subscriptions"), "{told}");
    assert_eq!(told["subscriptions"], json!(2));
}

#[test]
fn killed_service_keeps_acknowledged_copies_of_topic() {
    let service = service();
    let client = service.create_topic();
    let (one, two) = (subscribe(client, "pull:one"), subscribe(client, "pull:two"));
    let bodies: Vec<Value> = (0..50).map(|n| json!(n)).collect();
    bodies.chunks(10).for_each(|some| post(client, some));
    let Service { server, data, .. } = service;
    server.kill9();
    let server = ServerBuilder::new(data.path()).start();
    let client = server.client();
    for subscription in [&one, &two] {
        assert_eq!(drain(&client, subscription), bodies);
    }
    assert_eq!(total(&client, NEWS), json!(0));
}
