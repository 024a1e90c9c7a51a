//! The bounds of subscriptions over HTTP and SQS: each effect of a post beyond them, and what a reader of the state sees.

use http::StatusCode;
use serde_json::{Value, json};

use super::subscriptions::{drain, total};
use super::{Service, service};
use crate::support::client::Client;
use crate::support::server::Server;
use angarium_testbed::held::wait_until;

/// Subscribes with these options and returns the path of the subscription.
fn subscribe(client: &Client, subscriber: &str, options: &Value) -> String {
    let path = "/v2/queues/q/subscriptions";
    let created = client.post(path, &json!({"subscriber": subscriber, "options": options})).unwrap();
    assert_eq!(created.status, StatusCode::CREATED, "{}", created.text());
    format!("{path}/{}", created.json()["subscription_id"].as_str().unwrap())
}

fn shows(service: &Service, line: &str) -> bool {
    let page = service.client.get("/metrics").unwrap().text();
    page.lines().any(|shown| shown == line)
}

#[test]
fn suspended_subscription_is_shown_after_a_kill() {
    let service = service();
    let options = json!({"max_messages": 2, "overflow": "suspend"});
    let path = subscribe(&service.client, "pull:", &options);
    service.client.post_messages("q", &[json!(1), json!(2)]).unwrap();
    let first = service.client.post_messages("q", &[json!(3)]).unwrap().posted_ids();
    let last = service.client.post_messages("q", &[json!(4), json!(5)]).unwrap().posted_ids();
    for line in ["angarium_suspended_subscriptions 1", "angarium_messages_left_out_total 3"] {
        assert!(shows(&service, line), "{line}");
    }
    let id = path.rsplit('/').next().unwrap();
    let own = format!("queue=\"q/{id}\",what=\"left_out\"}} 3");
    let page = service.client.get("/metrics").unwrap().text();
    let mut lines = page.lines().filter(|line| line.starts_with("angarium_subscription_omissions_total{"));
    assert!(lines.any(|line| line.ends_with(&own)), "{own} is missing: {page}");
    let service = service.again(Server::kill9);
    let shown = service.client.get(&path).unwrap().json();
    assert_eq!(shown["bounds"], json!({"max_messages": 2, "max_bytes": 1 << 30, "overflow": "suspend"}));
    let mut backlog = shown["backlog"].clone();
    assert!(backlog["gap"]["since"].take().as_str().unwrap().ends_with('Z'));
    let gap = json!({"since": null, "first": first[0], "last": last[1], "messages": 3});
    assert_eq!(backlog, json!({"suspended": true, "filling": true, "left_out": 3, "dropped": 0, "gap": gap}));
    let listed = service.client.get("/v2/queues/q/subscriptions").unwrap().json();
    assert_eq!(listed["subscriptions"][0]["backlog"], shown["backlog"]);
    let explained = service.client.get("/v2/queues/q/explain").unwrap().json();
    assert!(explained["says"].as_str().unwrap().contains("is full and gets no copies"), "{explained}");
    let explained = service.client.get(&format!("{path}/explain")).unwrap().json();
    assert!(explained["says"].as_str().unwrap().contains("3 messages were left out"), "{explained}");
    let mut copies = Vec::new();
    wait_until("it does not catch up", || {
        copies.extend(drain(&service.client, &path));
        copies.len() >= 5
    });
    assert_eq!(copies, [1, 2, 3, 4, 5].map(|body| json!(body)));
    wait_until("it is suspended still", || {
        service.client.get(&path).unwrap().json()["backlog"]["suspended"] == json!(false)
    });
    service.client.post_messages("q", &[json!(6)]).unwrap();
    assert_eq!(drain(&service.client, &path), [json!(6)]);
    let backlog = service.client.get(&path).unwrap().json()["backlog"].take();
    assert_eq!(backlog, json!({"suspended": false, "filling": false, "left_out": 0, "dropped": 0}));
    assert!(shows(&service, "angarium_messages_caught_up_total 3"));
    assert_eq!(total(&service.client, "/v2/queues/q"), json!(6));
    assert!(shows(&service, "angarium_suspended_subscriptions 0"));
}

#[test]
fn oldest_copies_are_dropped_before_the_answer() {
    let service = service();
    let path = subscribe(&service.client, "pull:", &json!({"max_messages": 2, "overflow": "drop_oldest"}));
    service.client.post_messages("q", &[json!(1), json!(2), json!(3)]).unwrap();
    assert_eq!(total(&service.client, &path), json!(2));
    let service = service.again(Server::kill9);
    service.client.post_messages("q", &[json!(4)]).unwrap();
    let backlog = service.client.get(&path).unwrap().json()["backlog"].take();
    assert_eq!(backlog, json!({"suspended": false, "filling": false, "left_out": 0, "dropped": 2}));
    assert_eq!(drain(&service.client, &path), [json!(3), json!(4)]);
    assert!(shows(&service, "angarium_messages_dropped_total 1"), "since the start");
    let queue = json!({"subscriber": "queue:other", "options": {"overflow": "drop_oldest"}});
    let refused = service.client.post("/v2/queues/q/subscriptions", &queue).unwrap();
    assert_eq!(refused.status, StatusCode::BAD_REQUEST);
    assert!(
        refused.json()["description"].as_str().unwrap().starts_with("options.overflow"),
        "{}",
        refused.text()
    );
}

#[test]
fn full_subscription_refuses_posts_of_both_apis() {
    let service = service();
    let client = &service.client;
    let path = subscribe(client, "pull:", &json!({"max_messages": 2, "overflow": "refuse"}));
    let other = service.subscribe("pull:other");
    client.post_messages("q", &[json!(1)]).unwrap();
    let posted = json!({"messages": [{"body": 2}, {"body": 3}]});
    let refused = client.post("/v2/queues/q/messages", &posted).unwrap();
    assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(refused.headers.contains_key("retry-after"));
    let error = refused.json();
    assert_eq!(
        (&error["code"], &error["may_retry"], &error["nothing_written"]),
        (&json!("subscription_full"), &json!(true), &json!(true))
    );
    client.post_messages("q", &[json!(2)]).unwrap();
    let send = service.server.client().with_header("x-amz-target", "AmazonSQS.SendMessage");
    let refused = send.post("/", &json!({"QueueUrl": "q", "MessageBody": "3"})).unwrap();
    assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE, "{}", refused.text());
    let error = refused.json();
    assert!(error["__type"].as_str().unwrap().contains("ServiceUnavailable"), "{error}");
    assert!(error["message"].as_str().unwrap().contains("refuses posts beyond"), "{error}");
    for path in ["/v2/queues/q", &other, &path] {
        assert_eq!(total(client, path), json!(2), "{path}");
    }
    assert_eq!(drain(client, &path), [json!(1), json!(2)]);
    wait_until("it is full still", || {
        send.post("/", &json!({"QueueUrl": "q", "MessageBody": "3"})).unwrap().status == StatusCode::OK
    });
}
