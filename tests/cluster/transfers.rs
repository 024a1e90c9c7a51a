//! Dead letters whose queue another replica serves, and what a project holds at all of them.

use std::collections::BTreeSet;
use std::time::Instant;

use http::StatusCode;
use serde_json::{Value, json};

use super::{Cluster, MAX_WAIT, queues, slot_of};
use crate::support::client::Client;
use angarium_testbed::held::wait_until;

/// A queue of each of two replicas.
pub(super) fn one_of_each(cluster: &Cluster) -> (String, String) {
    let of = |replica: usize| {
        let mut queues = queues(64).into_iter();
        queues.find(|queue| cluster.owner_of(slot_of(queue)) == replica).expect("each serves some")
    };
    (of(0), of(1))
}

/// Posts these, and claims each as often as it may be.
pub(super) fn kill_messages(client: &Client, queue: &str, numbers: std::ops::Range<u64>) {
    let bodies: Vec<Value> = numbers.map(Value::from).collect();
    assert_eq!(client.post_messages(queue, &bodies).unwrap().status, StatusCode::CREATED);
    let claim = client.claim(queue, 20, 60).unwrap().granted().unwrap();
    assert_eq!(claim.messages.len(), bodies.len());
    assert_eq!(client.release_claim(queue, &claim.id).unwrap().status, StatusCode::NO_CONTENT);
    // The claim that would be one too many.
    assert_eq!(client.claim(queue, 20, 60).unwrap().status, StatusCode::NO_CONTENT);
}

/// Claims what arrives until it is as many as that. The source is claimed from too: a replica that was killed may not have set
/// its messages aside yet.
pub(super) fn arrivals(client: &Client, (source, target): (&str, &str), count: usize) -> BTreeSet<u64> {
    let (mut found, start) = (BTreeSet::new(), Instant::now());
    while found.len() < count {
        assert!(start.elapsed() < MAX_WAIT, "{} of {count} arrived", found.len());
        assert_ne!(client.claim(source, 20, 60).unwrap().status, StatusCode::CREATED, "they are dead");
        let path = format!("/v2/queues/{target}/claims?limit=20&wait=1");
        let answer = client.post(&path, &json!({"ttl": 300})).unwrap();
        if answer.status == StatusCode::CREATED {
            for message in answer.granted().unwrap().messages {
                assert!(found.insert(message.body.as_u64().unwrap()), "it arrived twice");
            }
        }
    }
    found
}

#[test]
fn dead_letters_reach_queue_of_another_replica() {
    let cluster = Cluster::start(2);
    let (source, target) = one_of_each(&cluster);
    let client = cluster.client(0);
    let metadata = json!({"_dead_letter_queue": target, "_max_claim_count": 1});
    assert_eq!(
        client.put(&format!("/v2/queues/{source}"), Some(&metadata)).unwrap().status,
        StatusCode::CREATED
    );
    kill_messages(&client, &source, 0..20);
    assert_eq!(arrivals(&client, (&source, &target), 20), (0..20).collect());
    for (queue, total) in [(&source, 0), (&target, 20)] {
        let stats = client.stats(queue).unwrap().json();
        assert_eq!(stats["messages"]["total"], json!(total), "{queue}");
    }
}

/// Rounds in which one of the two dies in the middle of transfers, and starts again.
#[test]
fn replica_death_loses_and_doubles_no_dead_letter() {
    let mut cluster = Cluster::start(2);
    let (source, target) = one_of_each(&cluster);
    let metadata = json!({"_dead_letter_queue": target, "_max_claim_count": 1});
    let created = cluster.client(0).put(&format!("/v2/queues/{source}"), Some(&metadata)).unwrap();
    assert_eq!(created.status, StatusCode::CREATED);
    let mut arrived = BTreeSet::new();
    for (round, victim) in [(0, 1), (1, 0)] {
        let survivor = cluster.client(1 - victim);
        kill_messages(&survivor, &source, 20 * round..20 * (round + 1));
        cluster.replicas[victim].server.take().unwrap().kill9();
        cluster.wait_until_shared();
        let more = arrivals(&survivor, (&source, &target), 20);
        assert!(arrived.is_disjoint(&more));
        arrived.extend(more);
        cluster.replicas[victim].server = Some(cluster.replicas[victim].builder.start());
        cluster.wait_until_shared();
    }
    assert_eq!(arrived, (0..40).collect());
    let left = cluster.client(0).stats(&source).unwrap().json();
    assert_eq!(left["messages"]["total"], json!(0));
}

/// A task moves dead letters back to a queue that another replica serves, and both of them die on its way, one after the other.
#[test]
fn redrive_task_outlives_both_replicas() {
    let mut cluster = Cluster::start(2);
    let (origin, dead) = one_of_each(&cluster);
    let metadata = json!({"_dead_letter_queue": dead, "_max_claim_count": 1});
    let created = cluster.client(0).put(&format!("/v2/queues/{origin}"), Some(&metadata)).unwrap();
    assert_eq!(created.status, StatusCode::CREATED);
    kill_messages(&cluster.client(0), &origin, 0..20);
    let free = |client: &Client, queue: &str| client.stats(queue).unwrap().json()["messages"]["free"].clone();
    let start = Instant::now();
    while free(&cluster.client(0), &dead) != json!(20) {
        assert!(start.elapsed() < MAX_WAIT, "they do not die");
    }
    let arn = format!("arn:aws:sqs:us-east-1:000000000000:{dead}");
    let sqs = |client: Client, operation: &str, asked: Value| {
        client.with_header("x-amz-target", &format!("AmazonSQS.{operation}")).post("/", &asked).unwrap()
    };
    let asked = json!({"SourceArn": arn, "MaxNumberOfMessagesPerSecond": 1});
    let answer = sqs(cluster.client(0), "StartMessageMoveTask", asked.clone());
    assert_eq!(answer.status, StatusCode::OK, "{:?}", answer.body);
    // The owner of the dead letters first, then that of the queue that they go to.
    for victim in [1, 0] {
        cluster.replicas[victim].server.take().unwrap().kill9();
        cluster.wait_until_shared();
        let again = sqs(cluster.client(1 - victim), "StartMessageMoveTask", asked.clone());
        assert_eq!(again.status, StatusCode::BAD_REQUEST, "it is running");
        cluster.replicas[victim].server = Some(cluster.replicas[victim].builder.start());
        cluster.wait_until_shared();
    }
    let client = cluster.client(1);
    let status = || {
        let listed = sqs(cluster.client(0), "ListMessageMoveTasks", json!({"SourceArn": arn})).json();
        listed["Results"][0]["Status"].clone()
    };
    let start = Instant::now();
    while status() != json!("COMPLETED") {
        assert!(start.elapsed() < MAX_WAIT, "{}", status());
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    // A message that has left its source is published in its target a moment later. The source is asked first.
    let has_arrived =
        |queue: &String| client.stats(queue).unwrap().json()["messages"]["in_transfer"] == json!(0);
    wait_until("messages have arrived", || has_arrived(&dead) && has_arrived(&origin));
    assert_eq!((free(&client, &dead), free(&client, &origin)), (json!(0), json!(20)));
    let claim = client.claim(&origin, 20, 60).unwrap().granted().unwrap();
    let found: BTreeSet<u64> = claim.messages.iter().map(|message| message.body.as_u64().unwrap()).collect();
    assert_eq!(found, (0..20).collect());
}

#[test]
fn project_holdings_are_counted_over_all_replicas() {
    let cluster = Cluster::start_with(2, &["--project-messages", "1000"]);
    // Instances have random ids: of a few queues one replica may own none.
    let is_owned = |queue: &String, replica| cluster.owner_of(slot_of(queue)) == replica;
    let is_owned = &is_owned;
    let owned_by = |replica| queues(64).into_iter().filter(move |queue| is_owned(queue, replica)).take(4);
    let queues: Vec<String> = (0..2).flat_map(owned_by).collect();
    assert_eq!(queues.len(), 8);
    for (number, queue) in queues.iter().enumerate() {
        let posted = cluster.client(number % 2).post_messages(queue, &[json!(1), json!(2)]).unwrap();
        assert_eq!(posted.status, StatusCode::CREATED);
    }
    for replica in 0..2 {
        let held = cluster.client(replica).get("/v2/quota").unwrap().json();
        assert_eq!((&held["queues"]["used"], &held["messages"]["used"]), (&json!(8), &json!(16)), "{held}");
        assert_eq!(held["messages"]["quota"], json!(1000));
    }
    // Each of them lets its share in, and no more: a queue is with one.
    let many: Vec<Value> = (0..900).map(Value::from).collect();
    let refused = cluster.client(0).post_messages(&queues[0], &many).unwrap();
    assert_eq!(
        (refused.status, &refused.json()["code"]),
        (StatusCode::TOO_MANY_REQUESTS, &json!("over_quota"))
    );
}
