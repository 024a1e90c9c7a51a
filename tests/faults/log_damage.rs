//! Owns damage of the embedded store's log after a SIGKILL: the service does not start on less than it acknowledged,
//! states what is lost and what to do, and continues when that is accepted. `angarium doctor --data` states the same.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use http::StatusCode;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::server::ServerBuilder;

const QUEUE: &str = "parcels";
const POSTS: usize = 60;
/// The last synced group is witnessed within a second; the rest is for a busy machine.
const WITNESSED: Duration = Duration::from_secs(3);
const PAGE: usize = 4_096;

/// Posts one by one, then kills the service. The ids of the messages.
fn killed(data: &Path) -> Vec<String> {
    let server = ServerBuilder::new(data).start();
    let client = server.client();
    let post =
        |number: usize| client.post_messages(QUEUE, &[json!({ "number": number })]).unwrap().posted_ids();
    let ids = (0..POSTS).flat_map(post).collect();
    thread::sleep(WITNESSED);
    server.kill9();
    ids
}

/// Offset behind the last byte of a log that is not zero.
fn used(log: &[u8]) -> usize {
    log.iter().rposition(|byte| *byte != 0).unwrap() + 1
}

fn doctor(data: &Path) -> (bool, Value) {
    let ended = Command::new(env!("CARGO_BIN_EXE_angarium"))
        .args(["doctor", "--url", "http://127.0.0.1:1", "-o", "json", "--data"])
        .arg(data)
        .output()
        .unwrap();
    let checks: Value = serde_json::from_slice(&ended.stdout).unwrap();
    let store = checks.as_array().unwrap().iter().find(|check| check["name"] == "store journal").unwrap();
    (ended.status.success(), store.clone())
}

#[test]
fn damaged_log_is_refused_until_accepted() {
    let dir = TempDir::new().unwrap();
    let ids = killed(dir.path());
    let log = dir.path().join("journal/0.jnl");
    let whole = fs::read(&log).unwrap();
    let used = used(&whole);
    let body = format!("{{\"number\":{}}}", POSTS / 2);
    let middle = whole[..used].windows(body.len()).position(|found| found == body.as_bytes()).unwrap();
    assert_eq!(doctor(dir.path()).1["verdict"], "ok");
    let mut flipped = whole.clone();
    flipped[middle] ^= 4;
    let mut zeroed = whole.clone();
    zeroed[middle / PAGE * PAGE..][..PAGE].fill(0);
    for damaged in [&zeroed, &whole[..middle].to_vec(), &flipped] {
        fs::write(&log, damaged).unwrap();
        let said = ServerBuilder::new(dir.path()).start_refused();
        assert!(said.contains("0.jnl is damaged at byte") && said.contains("--accept-log-damage"), "{said}");
        let (is_success, store) = doctor(dir.path());
        assert!(!is_success && store["verdict"] == "wrong", "{store}");
        assert!(store["found"].as_str().unwrap().contains("0.jnl at byte"), "{store}");
        assert!(fs::read(&log).unwrap() == *damaged, "the log was changed");
    }
    let server = ServerBuilder::new(dir.path()).arg("--accept-log-damage").start();
    let is_there = |id: &String| server.client().get_message(QUEUE, id).unwrap().status == StatusCode::OK;
    let kept = ids.iter().take_while(|id| is_there(id)).count();
    assert!(kept > POSTS / 4 && kept < POSTS, "{kept}");
    assert!(server.last_lines().contains("damage accepted"), "{}", server.last_lines());
    server.terminate();
    let server = ServerBuilder::new(dir.path()).start();
    assert!(
        ids[..kept].iter().all(|id| server.client().get_message(QUEUE, id).unwrap().status == StatusCode::OK)
    );
}
