//! What passes between replicas: claims whose client has left, long answers, owners that were replaced; and what is counted
//! of it.

use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use angarium_cluster::peer_client::STATES;
use http::StatusCode;
use rustix::process::Signal;
use serde_json::{Value, json};

use super::peers::{Guest, peer_address};
use super::{Cluster, MAX_WAIT, queues, slot_of};
use crate::support::client::Client;
use crate::support::cluster::{self, Part};
use angarium_testbed::held::wait_until;
use angarium_testbed::proxy::Wire;

/// A queue that this replica serves.
fn queue_of(cluster: &Cluster, replica: usize) -> String {
    let mut queues = queues(64).into_iter();
    queues.find(|queue| cluster.owner_of(slot_of(queue)) == replica).expect("each serves some")
}

/// What a replica shows of a metric.
fn metric(client: &Client, name: &str) -> Option<f64> {
    let page = client.get("/metrics").unwrap().text();
    page.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
}

/// The claim is granted and its answer has left the owner, but the replica between is stopped; then the client leaves.
#[test]
fn forwarded_claim_of_departed_client_is_returned_uncounted() {
    let cluster = Cluster::start(2);
    let (queue, owner) = (queue_of(&cluster, 1), cluster.client(1));
    let between = cluster.replicas[0].server();
    let address = between.base().strip_prefix("http://").unwrap();
    let mut client = TcpStream::connect(address).unwrap();
    let head = format!("POST /v2/queues/{queue}/claims?wait=20 HTTP/1.1\r\nHost: {address}\r\n");
    client.write_all(format!("{head}Content-Length: 0\r\n\r\n").as_bytes()).unwrap();
    wait_until("it waits at the owner", || metric(&owner, "angarium_waiting_claims") == Some(1.0));
    between.signal(Signal::STOP);
    assert_eq!(owner.post_messages(&queue, &[json!("m")]).unwrap().status, StatusCode::CREATED);
    let states = || owner.stats(&queue).unwrap().json()["messages"].clone();
    wait_until("it is claimed", || states()["claimed"] == 1);
    drop(client);
    between.signal(Signal::CONT);
    wait_until("it is given back", || states()["free"] == 1);
    let claim = owner.claim(&queue, 1, 60).unwrap().json();
    assert_eq!(claim["messages"][0]["claim_count"], 1, "nobody had it before: {claim}");
}

/// Only the owner knows the claims of a queue.
#[test]
fn peek_is_equal_from_any_replica() {
    let cluster = Cluster::start(2);
    let (queue, other) = (queue_of(&cluster, 1), cluster.client(0));
    other.post_messages(&queue, &[json!(1), json!(2)]).unwrap();
    let claim = json!({"ttl": 300, "by": "worker-1"});
    other
        .post(&format!("/v2/queues/{queue}/claims?limit=1"), &claim)
        .unwrap()
        .granted()
        .expect("one is ready");
    for client in [other, cluster.client(1)] {
        let page = client.get(&format!("/v2/queues/{queue}/peek")).unwrap().json();
        let shown = |key: &str| page["messages"].as_array().unwrap().iter().map(|m| m[key].clone()).collect();
        let (states, bodies): (Vec<Value>, Vec<Value>) = (shown("state"), shown("body"));
        assert_eq!(
            (states, bodies),
            (vec![json!("claimed"), json!("ready")], vec![json!(1), json!(2)]),
            "{page}"
        );
        assert_eq!(page["messages"][0]["claim"]["by"], "worker-1");
    }
}

/// The task is started through another replica than the one that runs it, and its replica dies in the middle.
#[test]
fn task_with_filter_continues_at_the_next_owner() {
    let mut cluster = Cluster::start(2);
    let queue = queue_of(&cluster, 1);
    let message = |number: u64| json!({"body": number, "tags": [if number.is_multiple_of(2) { "even" } else { "odd" }]});
    let messages: Vec<Value> = (0..60).map(message).collect();
    let path = format!("/v2/queues/{queue}/messages");
    cluster.client(0).post(&path, &json!({"messages": messages})).unwrap();
    let tasks = format!("/v2/queues/{queue}/tasks");
    let task = json!({"do": "delete", "filter": {"state": ["ready"], "tag": "even"}, "rate": 10});
    let begun = cluster.client(0).post(&tasks, &task).unwrap();
    assert_eq!(begun.status, 202, "{}", begun.text());
    let path = format!("{tasks}/{}", begun.json()["id"].as_str().unwrap());
    let shown = || cluster.client(0).get(&path).unwrap().json();
    let start = Instant::now();
    while shown()["moved"] == json!(0) {
        assert!(start.elapsed() < MAX_WAIT, "{}", shown());
    }
    cluster.replicas[1].server.take().unwrap().kill9();
    cluster.wait_until_shared();
    let shown = || cluster.client(0).get(&path).unwrap().json();
    while shown()["state"] != json!("completed") {
        assert!(start.elapsed() < MAX_WAIT, "{}", shown());
    }
    let stats = cluster.client(0).stats(&queue).unwrap().json();
    assert_eq!(stats["messages"]["total"], json!(30), "{stats}");
    let odd = cluster.client(0).get(&format!("/v2/queues/{queue}/peek?tag=even")).unwrap().json();
    assert_eq!(odd["messages"], json!([]));
}

#[test]
fn explanation_is_the_owners_from_any_replica() {
    let cluster = Cluster::start(2);
    let queue = queue_of(&cluster, 1);
    let id = cluster.client(0).post_messages(&queue, &[json!(1)]).unwrap().posted_ids().remove(0);
    for replica in 0..2 {
        let client = cluster.client(replica);
        let explained = client.get(&format!("/v2/queues/{queue}/explain")).unwrap().json();
        assert_eq!(explained["owner"], json!(cluster.replicas[1].instance()), "{explained}");
        assert_eq!(explained["says"], json!("1 message is ready: a claim gets the oldest."));
        let explained = client.get(&format!("/v2/queues/{queue}/messages/{id}/explain")).unwrap().json();
        assert_eq!(explained["state"], json!("ready"), "{explained}");
    }
}

#[test]
fn short_and_long_answers_are_equal_from_any_replica() {
    let cluster = Cluster::start(2);
    let queue = queue_of(&cluster, 1);
    let bodies: Vec<Value> = (0..4).map(|number: u8| json!(number.to_string().repeat(50_000))).collect();
    assert_eq!(cluster.client(0).post_messages(&queue, &bodies).unwrap().status, StatusCode::CREATED);
    let answered = |client: &Client| metric(client, "angarium_forwards_total{outcome=\"answered\"}").unwrap();
    let before = answered(&cluster.client(0));
    let pages = [0, 1].map(|replica| {
        let page = cluster.client(replica).get(&format!("/v2/queues/{queue}/messages?echo=true")).unwrap();
        assert_eq!(page.status, StatusCode::OK);
        let page = page.json();
        let bodies = page["messages"].as_array().unwrap().iter().map(|message| message["body"].clone());
        bodies.collect::<Vec<_>>()
    });
    assert_eq!(pages, [bodies.clone(), bodies]);
    assert_eq!(answered(&cluster.client(0)), before + 1.0);
    assert_eq!(answered(&cluster.client(1)), 0.0);
}

/// The process that is asked has heard no caller yet, as after a restart: it knows from the tree who came last.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replaced_target_owner_is_refused_by_fresh_process() {
    let cluster = tokio::task::spawn_blocking(|| Cluster::start(2)).await.unwrap();
    let guest = Guest::join(&cluster).await;
    let tree = Arc::clone(&guest.tree);
    let node = tree.get("/meta/slots/07").await.unwrap().unwrap();
    let (source, address) = (queue_of(&cluster, 0), peer_address(&cluster, 0));
    let states = async |transaction: u64| {
        let question = json!({
            "source": {"project": "000000000000", "name": source}, "source_id": null, "ids": [],
            "owner": {"slot": 7, "generation": 1, "transaction": transaction},
        });
        guest.send_soon(&address, STATES, &question).await
    };
    assert_eq!(states(node.modified - 1).await, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(states(node.modified).await, StatusCode::OK);
    assert_eq!(states(node.modified - 1).await, StatusCode::SERVICE_UNAVAILABLE);
    guest.leave().await;
}

#[test]
fn queues_of_killed_replica_wait_one_session_timeout() {
    let outage = || {
        let mut cluster = Cluster::start_with(2, &["--session-timeout", "3"]);
        cluster.replicas[0].server.take().unwrap().kill9();
        let killed = Instant::now();
        cluster.wait_until_shared();
        killed.elapsed()
    };
    // That of the usual setting ends seven seconds after the last word of the one that was killed, at the earliest. A busy
    // machine may add some: on a quiet one the first is short.
    let mut outages = (0..8).map(|_| outage()).inspect(|outage| eprintln!("an outage of {outage:.2?}"));
    assert!(outages.any(|outage| outage < Duration::from_secs(6)));
}

/// A message that waits for its pool, behind the replica that passed it on: its body is in the memory of both, once, until the
/// answer.
#[test]
fn forwarded_body_counts_once_until_its_answer() {
    let cluster = cluster::Cluster::start();
    let (entry, owner) = (cluster.client_of(0), cluster.client_of(1));
    let queue = queues(64).into_iter().find(|queue| cluster.owner_of(queue) == 1).expect("it serves some");
    let held = |client: &Client| metric(client, "angarium_budget_bytes{budget=\"bodies\"}").unwrap();
    let size = 200_000;
    let text = "x".repeat(size);
    let url = format!("http://localhost/000000000000/{queue}");
    let sqs = json!({"QueueUrl": url, "MessageBody": text});
    for is_sqs in [false, true] {
        wait_until("the pool serves", || {
            entry.post_messages(&queue, &[json!("first")]).unwrap().status == StatusCode::CREATED
        });
        wait_until("nothing is left of the first", || (held(&entry), held(&owner)) == (0.0, 0.0));
        cluster.cut(1, Part::Pool, Wire::Deaf);
        let send = || match is_sqs {
            true => entry.clone().with_header("x-amz-target", "AmazonSQS.SendMessage").post("/", &sqs),
            false => entry.post_messages(&queue, &[json!(text)]),
        };
        std::thread::scope(|scope| {
            let posting = scope.spawn(send);
            let bytes = f64::from(u32::try_from(size).unwrap());
            wait_until("both have it", || held(&entry) >= bytes && held(&owner) >= bytes);
            for client in [&entry, &owner] {
                assert!(held(client) < 1.5 * bytes, "{}", held(client));
            }
            cluster.heal();
            // Its pool may have been given up: then the outcome is unknown.
            posting.join().unwrap().unwrap();
        });
        wait_until("nothing is left of it", || (held(&entry), held(&owner)) == (0.0, 0.0));
    }
}
