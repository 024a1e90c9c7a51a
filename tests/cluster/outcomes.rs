//! Waits for the outcomes of messages, at replicas that stop or are killed meanwhile.

use std::thread;
use std::time::{Duration, Instant};

use http::StatusCode;
use serde_json::{Value, json};

use super::queues;
use crate::support::client::{Claim, Client};
use crate::support::cluster::Cluster;
use angarium_testbed::held::wait_until;

/// How long clients wait: no request may wait longer.
const WAIT: Duration = Duration::from_secs(20);

/// The replica that serves a message stops: who waits for the outcome there is answered with the state, and who waits at
/// another replica gets the result from the next one that serves it.
#[test]
fn wait_for_result_outlives_serving_replica() {
    let mut cluster = Cluster::start();
    let queue = queues(64).into_iter().find(|queue| cluster.owner_of(queue) == 1).expect("it serves some");
    let client = cluster.client_of(0);
    let (path, claim) = claimed(&client, &queue);
    let there = waiter(cluster.client_of(1), &path, |_| true);
    // The stop of a replica on a busy machine may take longer than a client may wait: then it waits again.
    let elsewhere = waiter(cluster.client_of(0), &path, OutcomeWait::is_cut_short);
    thread::sleep(Duration::from_secs(1));
    cluster.leave(1);
    let waited = there.join().unwrap();
    assert!(waited.is_cut_short(), "it is answered at the stop: {:?}", waited.lasted);
    let OutcomeWait { status, body, .. } = waited;
    assert_eq!((status, &body["state"]), (StatusCode::OK, &json!("claimed")), "{body}");
    wait_until("another replica serves the queue", || client.stats(&queue).unwrap().status == StatusCode::OK);
    assert!(!elsewhere.is_finished(), "the other one waits on");
    let done = json!({"messages": [{"id": claim.messages[0].id, "done": {"result": 7}}]});
    let settled = client.post(&format!("/v2/queues/{queue}/claims/{}/settle", claim.id), &done).unwrap();
    assert_eq!(settled.json()["results"][0]["state"], "done", "{}", settled.text());
    let OutcomeWait { status, body, .. } = elsewhere.join().unwrap();
    assert_eq!((status, &body["outcome"]["result"]), (StatusCode::OK, &json!(7)), "{body}");
}

/// Posts a message that is kept, and claims it. Returns the path of the message.
fn claimed(client: &Client, queue: &str) -> (String, Claim) {
    let body = json!({"messages": [{"body": "work", "keep": 600}]});
    let posted = client.post(&format!("/v2/queues/{queue}/messages"), &body).unwrap();
    assert_eq!(posted.status, StatusCode::CREATED, "{}", posted.text());
    let claim = client.claim(queue, 1, 300).unwrap().granted().unwrap();
    let path = format!("/v2/queues/{queue}/messages/{}?wait={}", claim.messages[0].id, WAIT.as_secs());
    (path, claim)
}

/// The answer to a client that has waited for an outcome.
struct OutcomeWait {
    status: StatusCode,
    body: Value,
    /// How long the client waited for the answer.
    lasted: Duration,
}

impl OutcomeWait {
    /// Whether the answer came before the time of the wait was over.
    fn is_cut_short(&self) -> bool {
        self.lasted < WAIT - Duration::from_secs(1)
    }
}

/// Waits for the outcome of a message, in a thread of its own, again and again until an answer is the last one.
fn waiter(client: Client, path: &str, is_last: fn(&OutcomeWait) -> bool) -> thread::JoinHandle<OutcomeWait> {
    let path = path.to_owned();
    thread::spawn(move || {
        loop {
            let begun = Instant::now();
            let answer = client.get(&path).unwrap();
            let waited = OutcomeWait { status: answer.status, body: answer.json(), lasted: begun.elapsed() };
            if is_last(&waited) || waited.body["state"] != "claimed" {
                return waited;
            }
        }
    })
}
