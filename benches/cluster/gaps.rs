//! The gaps in service, as a client of the load balancer sees them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use http::StatusCode;
use parking_lot::Mutex;
use serde_json::json;

use crate::LEFT;
use crate::support::client::Client;
use crate::support::cluster::{Cluster, REPLICAS};

/// Clients that ask without a pause while a replica leaves.
const CLIENTS: usize = 4;
/// How long they ask before that and after it.
const AROUND: Duration = Duration::from_secs(3);
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

/// In each round a replica is killed and ZooKeeper loses its leader once, and replicas leave `leaves` times.
#[expect(clippy::print_stdout, reason = "the result is what a benchmark is for")]
pub fn measure(rounds: usize, leaves: usize) -> Gaps {
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

        for _ in 0..leaves {
            let owner = cluster.owner_of(QUEUE);
            let Leave { before, around, slow, asked, failed } = around_the_end_of(&mut cluster, owner);
            let of = format!("{slow} of {asked} requests over {SLOW:?}, {failed} failed");
            println!("SIGTERM: {around:.1?} at most, {before:.1?} before it; {of}");
            if around > LEFT {
                println!("{}", cluster.last_lines());
            }
            gaps.left = gaps.left.max(around);
            gaps.failed += failed;
            cluster.enter(owner);
            cluster.await_calm();
        }

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

/// What requests met while a replica was told to end.
#[derive(Default)]
struct Leave {
    /// The longest until then.
    before: Duration,
    /// The longest from then on.
    around: Duration,
    /// How many from then on took longer than [`SLOW`], of how many.
    slow: usize,
    asked: usize,
    /// How many failed, at any time.
    failed: usize,
}

/// What a request takes at most while nothing happens.
const SLOW: Duration = Duration::from_millis(50);

fn around_the_end_of(cluster: &mut Cluster, replica: usize) -> Leave {
    let (over, told) = (AtomicBool::new(false), AtomicBool::new(false));
    let seen = Mutex::new(Leave::default());
    let base = cluster.balancer.base();
    let ask = |number: usize| {
        let (client, queue) = (Client::new(&base), format!("{QUEUE}-{}", number % REPLICAS));
        while !over.load(Ordering::Relaxed) {
            let start = Instant::now();
            let posted = client.post_messages(&queue, &[json!(number)]);
            let took = start.elapsed();
            let mut seen = seen.lock();
            seen.failed += usize::from(!posted.is_ok_and(|answer| answer.status == StatusCode::CREATED));
            if told.load(Ordering::Relaxed) {
                seen.asked += 1;
                seen.slow += usize::from(took > SLOW);
                seen.around = seen.around.max(took);
            } else {
                seen.before = seen.before.max(took);
            }
        }
    };
    thread::scope(|scope| {
        for number in 0..CLIENTS {
            scope.spawn(move || ask(number));
        }
        thread::sleep(AROUND);
        told.store(true, Ordering::Relaxed);
        cluster.leave(replica);
        thread::sleep(AROUND);
        over.store(true, Ordering::Relaxed);
    });
    seen.into_inner()
}
