//! Waits for the outcomes of messages, at replicas that stop or are killed meanwhile.

use std::thread;
use std::time::{Duration, Instant};

use http::StatusCode;
use serde_json::{Value, json};

use super::queues;
use crate::support::client::{Claim, Client};
use crate::support::cluster::Cluster;
use angarium_testbed::held::wait_until;

/// The replica that serves a message stops: who waits for the outcome there is answered with the state, and who waits at
/// another replica gets the result from the next one that serves it.
#[test]
fn wait_for_result_outlives_serving_replica() {
    let mut cluster = Cluster::start();
    let queue = queues(64).into_iter().find(|queue| cluster.owner_of(queue) == 1).expect("it serves some");
    let client = cluster.client_of(0);
    let (path, claim) = claimed(&client, &queue);
    let [elsewhere, there] = [0, 1].map(|replica| waiter(cluster.client_of(replica), &path));
    thread::sleep(Duration::from_secs(1));
    let begun = Instant::now();
    cluster.leave(1);
    let (status, body) = there.join().unwrap();
    assert_eq!((status, &body["state"]), (StatusCode::OK, &json!("claimed")), "{body}");
    assert!(begun.elapsed() < Duration::from_secs(10), "it is answered at the stop");
    wait_until("another replica serves the queue", || client.stats(&queue).unwrap().status == StatusCode::OK);
    assert!(!elsewhere.is_finished(), "the other one waits on");
    let done = json!({"messages": [{"id": claim.messages[0].id, "done": {"result": 7}}]});
    let settled = client.post(&format!("/v2/queues/{queue}/claims/{}/settle", claim.id), &done).unwrap();
    assert_eq!(settled.json()["results"][0]["state"], "done", "{}", settled.text());
    let (status, body) = elsewhere.join().unwrap();
    assert_eq!((status, &body["outcome"]["result"]), (StatusCode::OK, &json!(7)), "{body}");
}

/// Posts a message that is kept, and claims it. Returns the path of the message.
fn claimed(client: &Client, queue: &str) -> (String, Claim) {
    let body = json!({"messages": [{"body": "work", "keep": 600}]});
    let posted = client.post(&format!("/v2/queues/{queue}/messages"), &body).unwrap();
    assert_eq!(posted.status, StatusCode::CREATED, "{}", posted.text());
    let claim = client.claim(queue, 1, 300).unwrap().granted().unwrap();
    (format!("/v2/queues/{queue}/messages/{}?wait=20", claim.messages[0].id), claim)
}

/// Waits for the outcome of a message, in a thread of its own.
fn waiter(client: Client, path: &str) -> thread::JoinHandle<(StatusCode, Value)> {
    let path = path.to_owned();
    thread::spawn(move || {
        let answer = client.get(&path).unwrap();
        (answer.status, answer.json())
    })
}
