//! Very many queues over three replicas: what they cost in memory and in ZooKeeper, and how long it takes until the others
//! serve the third of a replica that dies.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use http::StatusCode;
use serde_json::json;

use crate::support::client::Client;
use crate::support::cluster::{Cluster, REPLICAS};

/// Clients that make queues, each at a replica of its own choice.
const CLIENTS: usize = 12;
/// How often it is looked who owns what.
const LOOK: Duration = Duration::from_millis(50);

/// What was measured.
pub struct Scale {
    /// Bytes of memory of all replicas, for each queue that was used and rests.
    pub per_queue: u64,
    /// Bytes of the heap of ZooKeeper's leader after a collection.
    pub heap: u64,
    /// Watches at all servers of ZooKeeper.
    pub watches: usize,
    /// From the end of the session of a replica that was killed, until a queue of each of its slots has answered a claim.
    pub taken_over: Duration,
    /// From the start of a process on its data until it is ready.
    pub started: Duration,
}

pub fn measure(queues: usize) -> Scale {
    let mut cluster = Cluster::start();
    let before = cluster.memory();
    make(&cluster, queues);
    let grown = cluster.memory().saturating_sub(before);
    let watches = cluster.ensemble.0.iter().map(|server| server.watches()).sum();
    let heap = cluster.ensemble.0[cluster.ensemble.leader()].heap_after_collection();
    let taken_over = take_over(&mut cluster, queues);
    let begun = Instant::now();
    cluster.enter(0);
    while cluster.client_of(0).get("/readyz").map(|answer| answer.status).ok() != Some(StatusCode::OK) {
        thread::sleep(LOOK);
    }
    let started = begun.elapsed();
    cluster.await_calm();
    let queues = u64::try_from(queues).expect("it is a number of queues");
    Scale { per_queue: grown / queues, heap, watches, taken_over, started }
}

fn name(number: usize) -> String {
    format!("queue-{number}")
}

/// Makes queues by their first message, which is taken out again.
fn make(cluster: &Cluster, queues: usize) {
    thread::scope(|scope| {
        for first in 0..CLIENTS {
            let client = cluster.client_of(first % REPLICAS);
            scope
                .spawn(move || (first..queues).step_by(CLIENTS).for_each(|number| use_once(&client, number)));
        }
    });
}

fn use_once(client: &Client, number: usize) {
    let queue = name(number);
    let posted = client.post_messages(&queue, &[json!(number)]).expect("it answers");
    assert_eq!(posted.status, StatusCode::CREATED, "{}", posted.text());
    let popped = client.delete(&format!("/v2/queues/{queue}/messages?pop=1")).expect("it answers");
    assert_eq!(popped.status, StatusCode::OK, "{}", popped.text());
}

/// Kills the first replica.
fn take_over(cluster: &mut Cluster, queues: usize) -> Duration {
    let mut of_slot: BTreeMap<u64, String> = BTreeMap::new();
    for number in 0..queues {
        of_slot.entry(Cluster::slot_of(&name(number))).or_insert_with(|| name(number));
    }
    let lost: Vec<&String> = of_slot.values().filter(|queue| cluster.owner_of(queue) == 0).collect();
    cluster.kill9(0);
    while cluster.owned(1).1 == REPLICAS {
        thread::sleep(LOOK);
    }
    let over = Instant::now();
    let client = cluster.client_of(1);
    for queue in lost {
        while client.claim(queue, 1, 60).map(|answer| answer.status).ok() != Some(StatusCode::NO_CONTENT) {
            thread::sleep(LOOK);
        }
    }
    over.elapsed()
}
