//! The gaps in service, as a client of the load balancer sees them.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use http::StatusCode;
use parking_lot::Mutex;
use serde_json::json;

use crate::support::client::Client;
use crate::support::cluster::{Cluster, REPLICAS};

/// Clients that ask without a pause while a replica goes.
const CLIENTS: usize = 4;
/// How long they ask before that and after it.
const AROUND: Duration = Duration::from_secs(4);
const QUEUE: &str = "gap";

/// The longest of all rounds.
#[derive(Default)]
pub struct Gaps {
    pub killed: Duration,
    pub left: Duration,
    pub led: Duration,
    /// Requests around SIGTERM that did not succeed.
    pub failed: usize,
}

pub fn measure(rounds: usize) -> Gaps {
    let mut cluster = Cluster::start();
    let mut gaps = Gaps::default();
    for _ in 0..rounds {
        cluster.gap(QUEUE);
        let owner = cluster.owner_of(QUEUE);
        let killed = Instant::now();
        cluster.kill9(owner);
        cluster.gap(QUEUE);
        gaps.killed = gaps.killed.max(killed.elapsed());
        cluster.enter(owner);
        cluster.await_calm();

        let owner = cluster.owner_of(QUEUE);
        let (left, failed) = around_the_end_of(&mut cluster, owner);
        gaps.left = gaps.left.max(left);
        gaps.failed += failed;
        cluster.enter(owner);
        cluster.await_calm();

        let leader = cluster.ensemble.leader();
        let killed = Instant::now();
        cluster.ensemble.0[leader].kill9();
        cluster.gap(QUEUE);
        gaps.led = gaps.led.max(killed.elapsed());
        cluster.ensemble.0[leader].restart();
        cluster.await_calm();
    }
    gaps
}

/// The longest request while a replica is told to end, and how many failed.
fn around_the_end_of(cluster: &mut Cluster, replica: usize) -> (Duration, usize) {
    let (over, failed) = (AtomicBool::new(false), AtomicUsize::new(0));
    let longest = Mutex::new(Duration::ZERO);
    let base = cluster.balancer.base();
    let ask = |number: usize| {
        let (client, queue) = (Client::new(&base), format!("{QUEUE}-{}", number % REPLICAS));
        while !over.load(Ordering::Relaxed) {
            let start = Instant::now();
            let posted = client.post_messages(&queue, &[json!(number)]);
            if !posted.is_ok_and(|answer| answer.status == StatusCode::CREATED) {
                failed.fetch_add(1, Ordering::Relaxed);
            }
            let mut longest = longest.lock();
            *longest = longest.max(start.elapsed());
        }
    };
    thread::scope(|scope| {
        for number in 0..CLIENTS {
            scope.spawn(move || ask(number));
        }
        thread::sleep(AROUND);
        // What the machine is busy with before the replica goes is not of its going.
        *longest.lock() = Duration::ZERO;
        cluster.leave(replica);
        thread::sleep(AROUND);
        over.store(true, Ordering::Relaxed);
    });
    (longest.into_inner(), failed.into_inner())
}
