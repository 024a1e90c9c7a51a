//! The copies of subscriptions over HTTP: each subscriber gets its own of every message.

use std::thread;
use std::time::{Duration, Instant};

use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::service;
use super::subscriptions::{claim, drain, total};
use crate::support::client::{Claim, Client};
use angarium_testbed::held::wait_until;

#[test]
fn consumer_of_subscription_has_its_own_copies() {
    let service = service();
    let client = &service.client;
    let subscription = service.subscribe("pull:billing");
    let ids = client.post_messages("q", &[json!({"n": 1}), json!(2)]).unwrap().posted_ids();

    let path = format!("{subscription}/claims");
    let claimed = client.post(&path, &json!({"ttl": 300, "grace": 60})).unwrap();
    assert_eq!(claimed.status, StatusCode::CREATED, "{}", claimed.text());
    let claim = claimed.granted().unwrap();
    assert_eq!(claimed.headers["location"], format!("{path}/{}", claim.id));
    // Ids of their own: two copies of a message may meet in one queue.
    let copies: Vec<&String> = claim.messages.iter().map(|message| &message.id).collect();
    assert_eq!(copies.len(), 2);
    assert!(copies.iter().all(|copy| !ids.contains(*copy)), "{copies:?}");
    let message = &claimed.json()["messages"][0];
    assert_eq!(message["body"], json!({"n": 1}));
    // Each path of the answer is below the subscription, and is the one that deletes the message.
    let href = message["href"].as_str().unwrap();
    assert_eq!(href, format!("{subscription}/messages/{}?claim_id={}", copies[0], claim.id));
    assert_eq!(client.delete(href).unwrap().status, StatusCode::NO_CONTENT);
    let settled = json!({"messages": [{"id": copies[1], "done": {}}]});
    let settled = client.post(&format!("{path}/{}/settle", claim.id), &settled).unwrap();
    assert_eq!(settled.status, StatusCode::OK, "{}", settled.text());
    assert_eq!(total(client, &subscription), json!(0));
    // The queue has kept its own.
    assert_eq!(total(client, "/v2/queues/q"), json!(2));
    assert_eq!(client.claim("q", 10, 300).unwrap().granted().unwrap().messages.len(), 2);
}

#[test]
fn each_group_of_consumers_gets_every_message() {
    let service = service();
    let client = &service.client;
    client.post_messages("q", &[json!("before")]).unwrap();
    let (billing, audit) = (service.subscribe("pull:billing"), service.subscribe("pull:audit"));
    let posted: Vec<Value> = (0..100).map(|n| json!(n)).collect();
    for messages in posted.chunks(10) {
        client.post_messages("q", messages).unwrap();
    }
    assert_eq!(drain(client, &billing), posted);
    assert_eq!(drain(client, &audit), posted);
    assert_eq!(total(client, "/v2/queues/q"), json!(101));
}

#[test]
fn subscribed_queue_gets_each_message_once() {
    let service = service();
    let client = &service.client;
    let path = service.subscribe("queue:copies");
    let posted: Vec<Value> = (0..40).map(|n| json!(n)).collect();
    for messages in posted.chunks(10) {
        client.post_messages("q", messages).unwrap();
    }
    wait_until("all copies have arrived", || total(client, "/v2/queues/copies") == json!(40));
    wait_until("none is on its way", || total(client, &path) == json!(0));
    let mut arrived = drain(client, "/v2/queues/copies");
    arrived.sort_by_key(Value::as_i64);
    assert_eq!(arrived, posted);
    assert_eq!(total(client, "/v2/queues/q"), json!(40));
}

#[test]
fn pull_subscription_keeps_order_of_groups() {
    let service = service();
    let client = &service.client;
    client.put("/v2/queues/q", Some(&json!({"_fifo": true}))).unwrap();
    let path = service.subscribe("pull:");
    for n in 0..10 {
        let messages = json!({"messages": [{"body": n, "group": "a"}, {"body": n, "group": "b"}]});
        assert_eq!(client.post("/v2/queues/q/messages", &messages).unwrap().status, StatusCode::CREATED);
    }
    let group = |claim: &Claim| claim.messages.iter().map(|message| message.body.clone()).collect::<Vec<_>>();
    let first = claim(client, &path, 1).unwrap();
    assert_eq!(group(&first), [json!(0)]);
    // While a message of a group is claimed, the other group is served alone.
    let second = claim(client, &path, 20).unwrap();
    assert_eq!(group(&second), (0..10).map(|n| json!(n)).collect::<Vec<_>>());
    assert!(claim(client, &path, 20).is_none());
    assert_eq!(client.delete(&format!("{path}/claims/{}", first.id)).unwrap().status, 204);
    let third = claim(client, &path, 20).unwrap();
    assert_eq!(group(&third), (0..10).map(|n| json!(n)).collect::<Vec<_>>());
}

#[test]
fn subscription_waits_for_messages_as_a_queue_does() {
    let service = service();
    let path = service.subscribe("pull:");
    let start = Instant::now();
    thread::scope(|scope| {
        let client = &service.client;
        let waiting = scope.spawn(|| client.post(&format!("{path}/claims?wait=20"), &json!({})).unwrap());
        thread::sleep(Duration::from_millis(300));
        service.client.post_messages("q", &[json!(1)]).unwrap();
        assert_eq!(waiting.join().unwrap().granted().unwrap().messages[0].body, json!(1));
    });
    assert!(start.elapsed() < Duration::from_secs(15));
}

#[test]
fn message_of_sqs_is_copied() {
    let service = service();
    let client = &service.client;
    let path = service.subscribe("pull:");
    let send = |operation: &str, body: Value| {
        let target = format!("AmazonSQS.{operation}");
        let headers = [("X-Amz-Target", &*target), ("Content-Type", "application/x-amz-json-1.0")];
        client.send(Method::POST, "/", &headers, Some(&body)).unwrap()
    };
    let url = send("GetQueueUrl", json!({"QueueName": "q"})).json()["QueueUrl"].take();
    let sent = send("SendMessage", json!({"QueueUrl": url, "MessageBody": "hello"}));
    assert_eq!(sent.status, StatusCode::OK, "{}", sent.text());
    let copy = claim(client, &path, 1).unwrap().messages.remove(0);
    assert!(copy.body.to_string().contains("hello"), "{}", copy.body);
    assert_eq!(send("ReceiveMessage", json!({"QueueUrl": url})).json()["Messages"][0]["Body"], "hello");
}

#[test]
fn held_subscription_grants_nothing_and_collects_copies() {
    let service = service();
    let client = &service.client;
    let (held, other) = (service.subscribe("pull:a"), service.subscribe("pull:b"));
    let hold = client.put(&format!("{held}/hold"), Some(&json!({"reason": "bad deploy"}))).unwrap();
    assert_eq!(hold.status, StatusCode::OK, "{}", hold.text());
    client.post_messages("q", &[json!(1)]).unwrap();
    let nothing = client.post(&format!("{held}/claims"), &json!({})).unwrap();
    assert_eq!(
        (nothing.status, &nothing.headers["x-held"]),
        (StatusCode::NO_CONTENT, &"bad deploy".parse().unwrap())
    );
    let explained = client.get(&format!("{held}/explain")).unwrap().json();
    assert_eq!(explained["held"], json!([hold.json()]), "{explained}");
    assert_eq!(drain(client, &other), [json!(1)]);
    assert_eq!(client.claim("q", 1, 300).unwrap().status, StatusCode::CREATED);
    assert_eq!(client.delete(&format!("{held}/hold")).unwrap().status, StatusCode::NO_CONTENT);
    assert_eq!(drain(client, &held), [json!(1)]);
}

/// Fails the only message of a subscription until it is a dead letter.
fn fail_twice(client: &Client, subscription: &str) {
    for _ in 0..2 {
        if let Some(claim) = claim(client, subscription, 1) {
            let path = format!("{subscription}/claims/{}", claim.id);
            assert_eq!(client.delete(&path).unwrap().status, StatusCode::NO_CONTENT);
        }
    }
}

#[test]
fn dead_letter_of_subscription_returns_while_it_exists() {
    let service = service();
    let client = &service.client;
    let terms = json!({
        "subscriber": "pull:", "options": {"_max_claim_count": 1, "_dead_letter_queue": "dead"}
    });
    let created = client.post("/v2/queues/q/subscriptions", &terms).unwrap();
    let id = created.json()["subscription_id"].as_str().unwrap().to_owned();
    let path = format!("/v2/queues/q/subscriptions/{id}");
    client.post_messages("q", &[json!(1)]).unwrap();
    fail_twice(client, &path);
    wait_until("it is a dead letter", || total(client, "/v2/queues/dead") == json!(1));
    assert_eq!(total(client, &path), json!(0));

    let redrive = || {
        let task = json!({"do": "move", "to": "origin", "filter": {}});
        let started = client.post("/v2/queues/dead/tasks", &task).unwrap();
        assert_eq!(started.status, StatusCode::ACCEPTED, "{}", started.text());
        let task = format!("/v2/queues/dead/tasks/{}", started.json()["id"].as_str().unwrap());
        wait_until("the task has ended", || client.get(&task).unwrap().json()["ended"].is_string());
        client.get(&task).unwrap().json()
    };
    assert_eq!(redrive()["moved"], json!(1));
    wait_until("it is back", || total(client, &path) == json!(1));
    fail_twice(client, &path);
    wait_until("it is a dead letter again", || total(client, "/v2/queues/dead") == json!(1));
    assert_eq!(client.delete(&path).unwrap().status, StatusCode::NO_CONTENT);
    let task = redrive();
    assert_eq!((&task["moved"], &task["failed"]), (&json!(0), &json!({"no_target": 1})), "{task}");
    assert_eq!(total(client, "/v2/queues/dead"), json!(1));
    // The queue has its own message all the time.
    assert_eq!(total(client, "/v2/queues/q"), json!(1));
}
