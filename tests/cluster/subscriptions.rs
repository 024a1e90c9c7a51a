//! Subscriptions in a cluster: through any replica, and after the death of the owner.

use std::collections::BTreeSet;

use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::{Cluster, queues, slot_of};
use crate::support::client::{Claim, Client};
use crate::support::sink::Sink;
use angarium_testbed::held::wait_until;

fn claim(client: &Client, subscription: &str) -> Claim {
    let claimed = client.post(&format!("{subscription}/claims?limit=20"), &json!({"ttl": 300})).unwrap();
    claimed.granted().unwrap_or_else(|| panic!("{}: {}", claimed.status, claimed.text()))
}

/// Claims and deletes messages until there is none. Returns their bodies.
fn drain(client: &Client, subscription: &str) -> Vec<Value> {
    let mut bodies = Vec::new();
    loop {
        let claimed = client.post(&format!("{subscription}/claims?limit=20"), &json!({"ttl": 300})).unwrap();
        let Some(claim) = claimed.granted() else { return bodies };
        let ids: Vec<&str> = claim.messages.iter().map(|message| message.id.as_str()).collect();
        let path = format!("{subscription}/messages?ids={}&claim_ids={}", ids.join(","), claim.id);
        assert_eq!(client.delete(&path).unwrap().status, StatusCode::NO_CONTENT);
        bodies.extend(claim.messages.into_iter().map(|message| message.body));
    }
}

fn bodies(claim: &Claim) -> Vec<&Value> {
    claim.messages.iter().map(|message| &message.body).collect()
}

#[test]
fn copies_are_served_by_all_replicas_and_after_a_take_over() {
    let mut cluster = Cluster::start(2);
    let mut names = queues(64).into_iter();
    let queue = names.find(|queue| cluster.owner_of(slot_of(queue)) == 0).unwrap();
    let target = names.find(|queue| cluster.owner_of(slot_of(queue)) == 1).unwrap();
    let path = format!("/v2/queues/{queue}/subscriptions");
    let subscribe = |subscriber: &str| {
        let created = cluster.client(1).post(&path, &json!({ "subscriber": subscriber })).unwrap();
        assert_eq!(created.status, StatusCode::CREATED, "{}", created.text());
        format!("{path}/{}", created.json()["subscription_id"].as_str().unwrap())
    };
    let (pulled, _) = (subscribe("pull:"), subscribe(&format!("queue:{target}")));
    cluster.client(1).post_messages(&queue, &[json!(1), json!(2)]).unwrap();
    // Each request is forwarded to the owner of the source, and each path in an answer leads there too.
    let mut first = claim(&cluster.client(1), &pulled);
    assert_eq!(bodies(&first), [&json!(1), &json!(2)]);
    let held = cluster.client(0).get(&format!("{pulled}/claims/{}", first.id)).unwrap();
    let href = held.json()["messages"][0]["href"].as_str().unwrap().to_owned();
    assert_eq!(cluster.client(1).delete(&href).unwrap().status, StatusCode::NO_CONTENT);
    let settled = json!({"messages": [{"id": first.messages.remove(1).id, "done": {}}]});
    let settled = cluster.client(1).post(&format!("{pulled}/claims/{}/settle", first.id), &settled).unwrap();
    assert_eq!(settled.json()["results"][0]["status"], json!(200), "{}", settled.text());
    let has_arrived = |client: &Client, messages: usize| {
        client.stats(&target).unwrap().json()["messages"]["ready"] == json!(messages)
    };
    wait_until("copies are in the other queue", || has_arrived(&cluster.client(0), 2));

    cluster.client(1).post_messages(&queue, &[json!(3)]).unwrap();
    cluster.replicas[0].server.take().unwrap().kill9();
    cluster.wait_until_shared();
    let client = cluster.client(1);
    assert_eq!(bodies(&claim(&client, &pulled)), [&json!(3)]);
    client.post_messages(&queue, &[json!(4)]).unwrap();
    assert_eq!(bodies(&claim(&client, &pulled)), [&json!(4)]);
    wait_until("copies are in the other queue", || has_arrived(&client, 4));
}

#[test]
fn topic_is_served_by_all_replicas_and_after_a_take_over() {
    let mut cluster = Cluster::start(2);
    let topic = queues(64).into_iter().find(|name| cluster.owner_of(slot_of(name)) == 0).unwrap();
    let path = format!("/v2/topics/{topic}");
    let post = |client: &Client, body: u32| {
        let posted =
            client.post(&format!("{path}/messages"), &json!({"messages": [{ "body": body }]})).unwrap();
        assert_eq!(posted.status, StatusCode::CREATED, "{}", posted.text());
    };
    let client = cluster.client(1);
    assert_eq!(client.put(&path, None).unwrap().status, StatusCode::CREATED);
    let created = client.post(&format!("{path}/subscriptions"), &json!({"subscriber": "pull:"})).unwrap();
    let own = format!("{path}/subscriptions/{}", created.json()["subscription_id"].as_str().unwrap());
    post(&client, 1);
    assert_eq!(bodies(&claim(&client, &own)), [&json!(1)]);
    post(&client, 2);
    cluster.replicas[0].server.take().unwrap().kill9();
    cluster.wait_until_shared();
    let client = cluster.client(1);
    assert_eq!(bodies(&claim(&client, &own)), [&json!(2)]);
    post(&client, 3);
    assert_eq!(bodies(&claim(&client, &own)), [&json!(3)]);
    // The new owner knows that the name is taken.
    assert_eq!(client.put(&format!("/v2/queues/{topic}"), None).unwrap().status, StatusCode::CONFLICT);
    assert_eq!(client.get(&format!("{path}/stats")).unwrap().json()["subscriptions"], json!(1));
}

/// The copies of a queue at one replica arrive in a queue at the other one, which has subscriptions of its own. The owner of
/// the target ends in the middle, while one of these is suspended.
#[test]
fn arrivals_of_other_replica_are_copied_once_and_caught_up() {
    let mut cluster = Cluster::start(2);
    let mut names = queues(64).into_iter();
    let source = names.find(|queue| cluster.owner_of(slot_of(queue)) == 0).unwrap();
    let target = names.find(|queue| cluster.owner_of(slot_of(queue)) == 1).unwrap();
    let client = cluster.client(0);
    let subscribe = |queue: &str, body: &Value| {
        let path = format!("/v2/queues/{queue}/subscriptions");
        let created = client.post(&path, body).unwrap();
        assert_eq!(created.status, StatusCode::CREATED, "{}", created.text());
        format!("{path}/{}", created.json()["subscription_id"].as_str().unwrap())
    };
    subscribe(&source, &json!({"subscriber": format!("queue:{target}")}));
    let whole = subscribe(&target, &json!({"subscriber": "pull:"}));
    let bounded = subscribe(&target, &json!({"subscriber": "pull:b", "options": {"max_messages": 5}}));
    let post = |bodies: std::ops::Range<u32>| {
        for body in bodies {
            client.post_messages(&source, &[json!(body)]).unwrap();
            client.post_messages(&target, &[json!(1_000 + body)]).unwrap();
        }
    };
    post(0..10);
    cluster.replicas[1].server.take().unwrap().kill9();
    cluster.wait_until_shared();
    post(10..15);
    let arrived = || client.stats(&target).unwrap().json()["messages"]["ready"] == json!(30);
    wait_until("messages have arrived", arrived);
    let backlog = || client.get(&bounded).unwrap().json()["backlog"].take();
    assert_eq!(backlog()["left_out"], json!(25));
    let all: BTreeSet<u64> = (0..15).flat_map(|body| [body, 1_000 + body]).collect();
    for path in [&whole, &bounded] {
        let mut copies = Vec::new();
        wait_until("copies are missing", || {
            copies.extend(drain(&client, path).iter().filter_map(Value::as_u64));
            copies.len() >= 30
        });
        assert_eq!(copies.len(), 30, "{copies:?}");
        assert_eq!(BTreeSet::from_iter(copies), all);
    }
    wait_until("it is suspended still", || {
        backlog() == json!({"suspended": false, "filling": false, "left_out": 0, "dropped": 0})
    });
}

#[test]
fn webhook_confirms_through_any_replica_past_a_take_over() {
    const SETTINGS: &[&str] = &["--webhook-allow=127.0.0.0/8", "--webhook-confirmation=subscriber"];
    let mut cluster = Cluster::start_with(2, SETTINGS);
    let queue = queues(64).into_iter().find(|name| cluster.owner_of(slot_of(name)) == 0).unwrap();
    let path = format!("/v2/queues/{queue}/subscriptions");
    let sinks =
        [Sink::start(&[]), Sink::start(&["HTTP/1.1 503 Unavailable\r\nContent-Length: 0\r\n\r\n"; 3])];
    for sink in &sinks {
        let created = cluster.client(1).post(&path, &json!({"subscriber": sink.url()})).unwrap();
        assert_eq!(created.status, StatusCode::CREATED, "{}", created.text());
    }
    let confirm = |client: &Client, sink: &Sink| {
        let asked = sink.received.lock().last().unwrap().json();
        let names = ["URL-Signature", "URL-Expires", "URL-Methods", "URL-Paths", "X-Project-ID"];
        let headers = names.map(|name| (name, asked[name].as_str().unwrap()));
        let at = asked["URL-Paths"].as_str().unwrap();
        client.send(Method::PUT, at, &headers, Some(&json!({"confirmed": true}))).unwrap().status
    };
    wait_until("the first requests", || sinks.iter().all(|sink| sink.count() > 0));
    assert_eq!(confirm(&cluster.client(1), &sinks[0]), StatusCode::NO_CONTENT);
    cluster.client(1).post_messages(&queue, &[json!(1)]).unwrap();
    // On a busy machine a request whose answer is late is made again.
    wait_until("the delivery", || sinks[0].received.lock().last().unwrap().json()["body"] == json!(1));
    cluster.replicas[0].server.take().unwrap().kill9();
    cluster.wait_until_shared();
    // The next owner asks until it is answered.
    wait_until("more requests", || sinks[1].count() > 3);
    let client = cluster.client(1);
    assert_eq!(confirm(&client, &sinks[1]), StatusCode::NO_CONTENT);
    client.post_messages(&queue, &[json!(2)]).unwrap();
    for sink in &sinks {
        wait_until("the delivery", || sink.received.lock().last().unwrap().json()["body"] == json!(2));
    }
}
