//! Replicas that are restarted one after the other, each at its old address, as in a rolling upgrade.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use http::StatusCode;
use serde_json::json;

use super::{Cluster, queues};
use crate::support::client::{Client, Reply};
use crate::support::pauses::{Stopper, max_hand_over};
use angarium_testbed::held::free_port;
use angarium_testbed::zookeeper::ZooKeeper;

/// What a replica may take to stop: handing over, the farewell to its clients, and what is under way.
const STOP: Duration = Duration::from_secs(12);

/// What was done to a queue.
#[derive(Default)]
struct Traffic {
    requests: usize,
    longest: Duration,
    /// Everything that was refused, had no answer, or took too long.
    failures: Vec<String>,
}

impl Traffic {
    fn note(&mut self, what: &str, wanted: StatusCode, ask: impl FnOnce() -> Reply) -> Reply {
        let began = Instant::now();
        let reply = ask();
        self.requests += 1;
        let is_good = reply.as_ref().is_ok_and(|answer| answer.status == wanted);
        self.longest = self.longest.max(began.elapsed());
        if !is_good || began.elapsed() > max_hand_over() {
            self.failures.push(format!("{what}, {:?}: {reply:?}", began.elapsed()));
        }
        reply
    }

    /// Posts, claims and deletes through these replicas in turn until told to stop.
    fn run(clients: &[Client], queue: &str, stop: &AtomicBool) -> Self {
        let mut traffic = Self::default();
        let mut clients = clients.iter().cycle();
        while !stop.load(Ordering::Relaxed) {
            let client = clients.next().unwrap();
            let post = || client.post_messages(queue, &[json!(1)]);
            let _ = traffic.note("post", StatusCode::CREATED, post);
            let claimed = traffic.note("claim", StatusCode::CREATED, || client.claim(queue, 1, 300));
            let created = claimed.ok().filter(|answer| answer.status == StatusCode::CREATED);
            let Some(claim) = created.and_then(|answer| answer.granted()) else { continue };
            let delete = || client.delete_message(queue, &claim.messages[0].id, Some(&claim.id));
            let _ = traffic.note("delete", StatusCode::NO_CONTENT, delete);
        }
        traffic
    }
}

/// Connections to it that the others keep end while they rest, and it is there again before they are used.
#[test]
fn rolling_restart_costs_others_no_request_and_no_time() {
    let mut cluster = Cluster::without_replicas(ZooKeeper::shared(), &[]);
    (0..3).for_each(|_| {
        let peers = format!("127.0.0.1:{}", free_port());
        cluster.add_with(|builder| builder.arg("--peer-listen").arg(peers));
    });
    cluster.wait_until_shared();
    let queues = queues(12);
    for restarted in 0..3 {
        let others: Vec<usize> = (0..3).filter(|replica| *replica != restarted).collect();
        let clients: Vec<Client> = others.iter().map(|replica| cluster.client(*replica)).collect();
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let stopper = Stopper(&stop);
            let (clients, stop) = (&clients, &stop);
            let run = |queue| scope.spawn(move || Traffic::run(clients, queue, stop));
            let running: Vec<_> = queues.iter().map(|queue| run(queue)).collect();
            thread::sleep(Duration::from_secs(1));
            let began = Instant::now();
            let ended = cluster.replicas[restarted].server.take().unwrap().terminate();
            let took = began.elapsed();
            cluster.replicas[restarted].server = Some(cluster.replicas[restarted].builder.start());
            cluster.wait_until_shared();
            thread::sleep(Duration::from_secs(1));
            drop(stopper);
            let traffic: Vec<_> = running.into_iter().map(|running| running.join().unwrap()).collect();
            let longest = traffic.iter().map(|traffic| traffic.longest).max();
            eprintln!("restart of replica {restarted}: {:.2?} at most for a request", longest.unwrap());
            for traffic in traffic {
                assert_eq!(traffic.failures, [""; 0], "of {}, replica {restarted}", traffic.requests);
                assert!(traffic.requests > 10);
            }
            assert!(ended.success() && took < STOP, "{ended} after {took:?}");
        });
    }
}
