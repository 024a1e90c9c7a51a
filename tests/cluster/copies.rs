//! Two processes with the identity of one replica, on a data directory and on a copy of it: the earlier one stops.

use std::process::Command;
use std::thread;
use std::time::Duration;

use http::StatusCode;
use rustix::process::Signal;
use serde_json::json;
use tempfile::TempDir;

use super::{Cluster, queues};
use crate::support::server::{Server, ServerBuilder};

/// Starts a process on a copy of the data of the first replica, which may run.
fn start_copy(cluster: &Cluster, copy: &TempDir) -> Server {
    let original = cluster.replicas[0].builder.data();
    let copied = Command::new("cp").arg("-a").arg(original.join(".")).arg(copy.path()).status().unwrap();
    assert!(copied.success());
    let builder = ServerBuilder::new(copy.path()).arg("--moved").arg("--coordination").arg(&cluster.address);
    let builder = builder.arg("--pool").arg(cluster.redis.uri(""));
    cluster.settings.iter().fold(builder, |builder, setting| builder.arg(setting)).start()
}

/// Asserts that the process has stopped because of the other one.
fn assert_stopped_for(earlier: Server, later: &Server) {
    let words = earlier.await_last_words();
    assert!(words.contains("a copy of the data directory is in use"), "{words}");
    assert!(words.contains("unix_wait_status(1536)"), "{words}");
    assert!(words.contains(&format!("process {} of host", later.pid())), "{words}");
    assert!(words.contains(", at 127.0.0.1:") && words.contains(", started 20"), "{words}");
}

fn assert_served(cluster: &Cluster) {
    cluster.wait_until_shared();
    for (number, queue) in (0..2).flat_map(|number| queues(16).into_iter().map(move |queue| (number, queue)))
    {
        let answer = cluster.client(number).post_messages(&queue, &[json!(1)]).unwrap();
        assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.text());
    }
}

#[test]
fn earlier_process_stops_and_names_the_copy() {
    let (mut cluster, copy) = (Cluster::start(2), TempDir::new().unwrap());
    let later = start_copy(&cluster, &copy);
    assert_stopped_for(cluster.replicas[0].server.take().unwrap(), &later);
    cluster.replicas[0].server = Some(later);
    assert_served(&cluster);
}

/// It lost its session meanwhile, and must not register again in the place of the other.
#[test]
fn thawed_process_stops_for_its_copy() {
    let (mut cluster, copy) = (Cluster::start_with(2, &["--session-timeout=4"]), TempDir::new().unwrap());
    let earlier = cluster.replicas[0].server.take().unwrap();
    earlier.signal(Signal::STOP);
    let later = start_copy(&cluster, &copy);
    thread::sleep(Duration::from_secs(7));
    earlier.signal(Signal::CONT);
    assert_stopped_for(earlier, &later);
    cluster.replicas[0].server = Some(later);
    assert_served(&cluster);
}
