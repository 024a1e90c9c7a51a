//! Who is up: one replica on ZooKeeper, its next process, and others that want to join.

use std::thread;
use std::time::{Duration, Instant};

use http::StatusCode;
use serde_json::json;
use tempfile::TempDir;

use crate::support::server::{Server, ServerBuilder};
use angarium_testbed::held::START;
use angarium_testbed::zookeeper::ZooKeeper;

fn service(address: &str, dir: &TempDir) -> ServerBuilder {
    ServerBuilder::new(dir.path()).arg("--coordination").arg(address).arg("--pool").arg("embedded:journal")
}

/// The claims that a request gets once it is answered at all: a replica that lost its session is refused for a while.
fn claim_soon(server: &Server) -> serde_json::Value {
    let (client, start) = (server.client(), Instant::now());
    loop {
        let answer = client.claim("q", 10, 60);
        let answer = answer.unwrap_or_else(|error| panic!("{error:?}: {}", server.last_lines()));
        if answer.status == StatusCode::CREATED {
            return answer.json()["messages"].clone();
        }
        assert!(start.elapsed() < START, "{answer:?}");
        thread::sleep(Duration::from_millis(100));
    }
}

/// The shared server grants sessions of up to ten seconds, and the service asks for twelve.
#[test]
fn a_killed_service_serves_again_before_its_old_session_ends() {
    let dir = TempDir::new().unwrap();
    let address = ZooKeeper::shared().fresh_tree().to_string();
    let server = service(&address, &dir).start();
    server.client().post_messages("q", &[json!(1)]).unwrap();
    server.kill9();
    let server = service(&address, &dir).start();
    let claimed = server.client().claim("q", 10, 60).unwrap();
    assert_eq!(claimed.status, StatusCode::CREATED);
    assert_eq!(claimed.json()["messages"][0]["body"], json!(1));
}

#[test]
fn second_replica_refuses_to_start_beside_embedded_pool() {
    let (first, second) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let address = ZooKeeper::shared().fresh_tree().to_string();
    let server = service(&address, &first).start();
    server.client().post_messages("q", &[json!(1)]).unwrap();
    let said = service(&address, &second).start_refused();
    assert!(said.contains("pool default"), "{said}");
    // Nor did the attempt take anything from the one that serves.
    assert_eq!(server.client().claim("q", 10, 60).unwrap().status, StatusCode::CREATED);
}

#[test]
fn two_processes_do_not_share_a_data_directory() {
    let dir = TempDir::new().unwrap();
    let address = ZooKeeper::shared().fresh_tree().to_string();
    let server = service(&address, &dir).start();
    let said = service(&address, &dir).start_refused();
    assert!(said.contains("in use by another process"), "{said}");
    assert_eq!(server.client().create_queue("q").unwrap().status, StatusCode::CREATED);
}

#[test]
fn service_with_lost_session_registers_and_serves_again() {
    let mut zookeeper = ZooKeeper::start();
    let dir = TempDir::new().unwrap();
    let server = service(&zookeeper.fresh_tree().to_string(), &dir).start();
    let client = server.client();
    client.post_messages("q", &[json!(1)]).unwrap();
    zookeeper.kill9();
    // Longer than the client waits before it gives its session up.
    thread::sleep(Duration::from_secs(16));
    zookeeper.restart();
    assert_eq!(claim_soon(&server)[0]["body"], json!(1));
    let start = Instant::now();
    while !server.last_lines().contains("registered again") {
        assert!(start.elapsed() < START, "{}", server.last_lines());
        thread::sleep(Duration::from_millis(50));
    }
    // Answers that write nothing are given again too.
    assert_eq!(client.claim("q", 10, 60).unwrap().status, StatusCode::NO_CONTENT);
}
