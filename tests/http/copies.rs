//! A service on a copy of a data directory beside the original, with a pool outside of the machine: the earlier service
//! leaves the pool to the later one.

use std::path::Path;
use std::process::Command;

use http::StatusCode;
use rustix::process::Signal;
use serde_json::json;
use tempfile::TempDir;

use crate::support::server::{Server, ServerBuilder};
use angarium_testbed::held::wait_until;
use angarium_testbed::postgres::Postgres;
use angarium_testbed::redis::{Redis, SYNCED};

fn start(data: &Path, uri: &str) -> Server {
    ServerBuilder::new(data).arg("--moved").arg("--pool").arg(uri).start()
}

fn post(server: &Server, queue: &str) -> StatusCode {
    server.client().post_messages(queue, &[json!(1)]).unwrap().status
}

/// Starts a service on a copy of the data of another one, and asserts that this one leaves the pool.
fn check_copy(uri: &str) {
    let dir = TempDir::new().unwrap();
    let [original, copy] = ["original", "copy"].map(|name| dir.path().join(name));
    let earlier = start(&original, uri);
    assert_eq!(post(&earlier, "q"), StatusCode::CREATED);
    // A second start on the same data leaves its predecessor no pool, and has it itself.
    earlier.kill9();
    let earlier = start(&original, uri);
    assert_eq!(post(&earlier, "q"), StatusCode::CREATED);
    // Files of a running service may go while they are copied.
    earlier.signal(Signal::STOP);
    let copied = Command::new("cp").arg("-a").args([&original, &copy]).output().unwrap();
    earlier.signal(Signal::CONT);
    assert!(copied.status.success(), "{}", String::from_utf8_lossy(&copied.stderr));
    let later = start(&copy, uri);
    let process = format!("process {} of host", later.pid());
    let told = |server: &Server| server.last_lines().contains("pool used by copy of this installation");
    wait_until("the earlier one has left the pool", || told(&earlier));
    assert!(earlier.last_lines().contains(&process), "{}", earlier.last_lines());
    for queue in ["q", "other"] {
        assert_eq!(post(&earlier, queue), StatusCode::SERVICE_UNAVAILABLE);
    }
    assert_eq!(earlier.client().get("/readyz").unwrap().status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(post(&later, "q"), StatusCode::CREATED);
    assert!(!told(&later), "{}", later.last_lines());
    // Once one of them is stopped, the other may go on.
    later.terminate();
    earlier.terminate();
    let earlier = start(&original, uri);
    assert_eq!(post(&earlier, "q"), StatusCode::CREATED);
    assert_eq!(earlier.client().stats("q").unwrap().json()["messages"]["total"], json!(4));
}

#[test]
fn earlier_of_two_copies_leaves_redis() {
    check_copy(&Redis::start(SYNCED).uri(""));
}

#[test]
fn earlier_of_two_copies_leaves_postgres() {
    check_copy(&Postgres::shared().fresh_uri());
}
