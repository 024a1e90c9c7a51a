//! Holds of queues in a cluster: through any replica, and after the death of the owner.

use http::StatusCode;
use rustix::process::Signal;
use serde_json::json;

use super::{Cluster, queues, slot_of};
use crate::support::client::Client;
use angarium_testbed::held::wait_until;

fn hold(client: &Client, queue: &str) {
    let held =
        client.put(&format!("/v2/queues/{queue}/hold"), Some(&json!({"reason": "bad deploy"}))).unwrap();
    assert_eq!(held.status, StatusCode::OK, "{}", held.text());
}

/// A claim through this replica gets nothing, and the reason.
fn assert_held(client: &Client, queue: &str) {
    let nothing = client.claim(queue, 1, 300).unwrap();
    assert_eq!(nothing.status, StatusCode::NO_CONTENT, "{}", nothing.text());
    assert_eq!(nothing.headers["x-held"], "bad deploy");
}

#[test]
fn hold_is_in_force_at_all_replicas_and_after_a_take_over() {
    let mut cluster = Cluster::start(2);
    let queue = queues(64).into_iter().find(|queue| cluster.owner_of(slot_of(queue)) == 0).unwrap();
    cluster.client(1).post_messages(&queue, &[json!(1), json!(2)]).unwrap();
    // The request is forwarded to the owner.
    hold(&cluster.client(1), &queue);
    assert_held(&cluster.client(0), &queue);
    assert_held(&cluster.client(1), &queue);
    cluster.replicas[0].server.take().unwrap().kill9();
    cluster.wait_until_shared();
    let client = cluster.client(1);
    assert_held(&client, &queue);
    let path = format!("/v2/queues/{queue}/hold");
    assert_eq!(client.get(&path).unwrap().json()["reason"], json!("bad deploy"));
    assert_eq!(client.delete(&path).unwrap().status, StatusCode::NO_CONTENT);
    assert_eq!(client.claim(&queue, 10, 300).unwrap().granted().unwrap().messages.len(), 2);
}

/// The owner is stopped beyond its session. The next owner holds the queue, and the former one grants nothing when it
/// continues.
#[test]
fn thawed_owner_grants_nothing_of_queue_held_meanwhile() {
    let cluster = Cluster::start(2);
    let queue = queues(64).into_iter().find(|queue| cluster.owner_of(slot_of(queue)) == 0).unwrap();
    cluster.client(1).post_messages(&queue, &[json!(1)]).unwrap();
    cluster.replicas[0].server().signal(Signal::STOP);
    let client = cluster.client(1);
    wait_until("the other replica has taken the queue", || {
        client.stats(&queue).is_ok_and(|stats| stats.status == StatusCode::OK)
    });
    hold(&client, &queue);
    cluster.replicas[0].server().signal(Signal::CONT);
    for _ in 0..20 {
        let answer = cluster.client(0).claim(&queue, 1, 300).unwrap();
        assert!(
            answer.status == StatusCode::NO_CONTENT || answer.status == StatusCode::SERVICE_UNAVAILABLE,
            "{}",
            answer.text()
        );
    }
}

/// The owner dies while messages of a held group are aside, and the next one while they are made ready again.
#[test]
fn group_hold_and_its_release_outlive_their_owners() {
    let mut cluster = Cluster::start(3);
    let queue = queues(64).into_iter().find(|queue| cluster.owner_of(slot_of(queue)) == 0).unwrap();
    let client = cluster.client(1);
    let path = format!("/v2/queues/{queue}/groups/g/hold");
    let messages: Vec<_> = (0..20).map(|number| json!({"body": number, "group": "g"})).collect();
    for _ in 0..50 {
        let posted =
            client.post(&format!("/v2/queues/{queue}/messages"), &json!({ "messages": messages })).unwrap();
        assert_eq!(posted.status, StatusCode::CREATED, "{}", posted.text());
    }
    assert_eq!(client.put(&path, Some(&json!({"reason": "bad deploy"}))).unwrap().status, StatusCode::OK);
    assert_eq!(client.claim(&queue, 1, 300).unwrap().status, StatusCode::NO_CONTENT);
    cluster.replicas[0].server.take().unwrap().kill9();
    cluster.wait_until_shared();
    let owner = cluster.owner_of(slot_of(&queue));
    let other = cluster.client(3 - owner);
    assert_eq!(other.claim(&queue, 1, 300).unwrap().status, StatusCode::NO_CONTENT);
    assert_eq!(other.delete(&path).unwrap().status, StatusCode::NO_CONTENT);
    cluster.replicas[owner].server.take().unwrap().kill9();
    cluster.wait_until_shared();
    wait_until("all messages are ready", || {
        other.stats(&queue).is_ok_and(|stats| stats.json()["messages"]["ready"] == json!(1_000))
    });
    let claim = other.claim(&queue, 20, 300).unwrap().granted().unwrap();
    assert_eq!(claim.messages.len(), 20);
}
