//! Thousands of queues at rest: what they cost ZooKeeper when a replica starts. What they cost in memory and in time is measured by
//! `cargo bench --bench cluster -- scale`.

use std::thread;

use http::StatusCode;

use super::{Cluster, queues};
use angarium_testbed::held::wait_until;
use angarium_testbed::zookeeper::ZooKeeper;

const REPLICAS: usize = 3;
const QUEUES: usize = 2_000;
/// Clients that make them.
const CLIENTS: usize = 8;
/// Requests that a start may need more or less than another one: heartbeats, and what the background tasks ask for
/// meanwhile. One third of the queues is of the replica that starts.
const OTHERS: u64 = 300;

/// Kills a replica and starts it on its data, on which it takes its slots at once. How many requests ZooKeeper got until it
/// serves them.
fn start_again(cluster: &mut Cluster, zookeeper: &ZooKeeper) -> u64 {
    let replica = &mut cluster.replicas[0];
    replica.server.take().expect("it runs").kill9();
    let before = zookeeper.received();
    replica.server = Some(replica.builder.start());
    let asked = zookeeper.received() - before;
    cluster.wait_until_shared();
    asked
}

#[test]
fn start_cost_at_zookeeper_is_independent_of_queues() {
    let zookeeper = ZooKeeper::start();
    let mut cluster = Cluster::start_on(&zookeeper, REPLICAS, &[]);
    let without = start_again(&mut cluster, &zookeeper);
    let names = queues(QUEUES);
    thread::scope(|scope| {
        for (number, some) in names.chunks(QUEUES / CLIENTS).enumerate() {
            let client = cluster.client(number % REPLICAS);
            scope.spawn(move || {
                for queue in some {
                    let made = client.create_queue(queue).expect("it answers");
                    assert_eq!(made.status, StatusCode::CREATED, "{}", made.text());
                }
            });
        }
    });
    let with = start_again(&mut cluster, &zookeeper);
    assert!(with < without + OTHERS, "{with} requests with {QUEUES} queues, {without} without any");
    wait_until("each replica watches the tree once", || zookeeper.watches() == REPLICAS);
}
