//! Holds of queues and groups in a cluster: through any replica, after the death of the owner, and without ZooKeeper.

use http::StatusCode;
use rustix::process::Signal;
use serde_json::json;

use super::{Cluster, queues, slot_of};
use crate::support::client::Client;
use angarium_testbed::held::wait_until;
use angarium_testbed::zookeeper::ZooKeeper;

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

/// ZooKeeper is killed while a queue and a group are held. Without it and after its restart nothing is granted.
#[test]
fn holds_outlive_loss_of_zookeeper() {
    let mut zookeeper = ZooKeeper::start();
    let cluster = Cluster::start_on(&zookeeper, 2, &[]);
    let queues = queues(4);
    let grouped = json!({"messages": [{"body": 1, "group": "g"}]});
    for queue in &queues {
        let posted = cluster.client(0).post(&format!("/v2/queues/{queue}/messages"), &grouped).unwrap();
        assert_eq!(posted.status, StatusCode::CREATED, "{}", posted.text());
    }
    let group = format!("/v2/queues/{}/groups/g/hold", queues[0]);
    let queue = format!("/v2/queues/{}/hold", queues[1]);
    let terms = json!({"reason": "bad deploy"});
    for hold in [&group, &queue] {
        assert_eq!(cluster.client(1).put(hold, Some(&terms)).unwrap().status, StatusCode::OK);
    }
    let assert_nothing_granted = |queues: &[String]| {
        for (queue, replica) in queues.iter().flat_map(|queue| [(queue, 0), (queue, 1)]) {
            if let Ok(answer) = cluster.client(replica).claim(queue, 1, 300) {
                assert_ne!(answer.status, StatusCode::CREATED, "{queue}: {}", answer.text());
            }
        }
    };
    zookeeper.kill9();
    assert_nothing_granted(&queues[..2]);
    // A hold cannot be recorded now.
    for hold in [&queue, "/v2/pools/default/hold", "/v2/projects/000000000000/hold"] {
        let refused = cluster.client(0).put(hold, Some(&json!({"reason": "late"}))).unwrap();
        assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE, "{}", refused.text());
    }
    assert_nothing_granted(&queues[..2]);
    zookeeper.restart();
    cluster.wait_until_shared();
    assert_nothing_granted(&queues[..2]);
    for hold in ["/v2/pools/default/hold", "/v2/projects/000000000000/hold"] {
        wait_until("it is held", || {
            cluster.client(0).put(hold, Some(&terms)).is_ok_and(|answer| answer.status == StatusCode::OK)
        });
        assert_nothing_granted(&queues);
        assert_eq!(cluster.client(1).delete(hold).unwrap().status, StatusCode::NO_CONTENT);
    }
    for hold in [&group, &queue] {
        assert_eq!(cluster.client(1).delete(hold).unwrap().status, StatusCode::NO_CONTENT);
    }
    for queue in &queues {
        wait_until("its message is claimed", || {
            cluster.client(0).claim(queue, 1, 300).is_ok_and(|answer| answer.status == StatusCode::CREATED)
        });
    }
}
