//! A service that is stopped longer than its lease, and one whose clock is wrong.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use angarium_catalogue::{Catalogue, Owner};
use angarium_clock::Clock;
use angarium_coordination::embedded::EmbeddedTree;
use angarium_coordination::zookeeper::{ZooKeeperTimeouts, ZooKeeperTree};
use angarium_coordination::{Coordination, Op};
use angarium_core::names::{ProjectId, QueueName, QueueRef};
use angarium_journal::Journal;
use http::StatusCode;
use rustix::process::Signal;
use serde_json::json;
use tempfile::TempDir;
use uuid::Uuid;

use crate::support::server::ServerBuilder;
use angarium_testbed::held::START;
use angarium_testbed::zookeeper::ZooKeeper;

fn queue() -> QueueRef {
    let project = ProjectId::new("").unwrap();
    QueueRef { project, name: QueueName::new("q").unwrap() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thawed_service_answers_nothing_from_overtaken_memory() {
    let dir = TempDir::new().unwrap();
    let address = ZooKeeper::shared().fresh_tree();
    let server = ServerBuilder::new(dir.path()).arg("--coordination").arg(address.to_string());
    let server = server.arg("--pool").arg("embedded:journal").start();
    let client = server.client();
    assert_eq!(client.create_queue("q").unwrap().status, StatusCode::CREATED);
    assert_eq!(client.claim("q", 1, 60).unwrap().status, StatusCode::NO_CONTENT);
    server.signal(Signal::STOP);
    let tree: Arc<dyn Coordination> =
        Arc::new(ZooKeeperTree::open(address, ZooKeeperTimeouts::default()).await.unwrap());
    let path = format!("/meta/slots/{}", queue().slot());
    while tree.get(&format!("{path}/owner")).await.unwrap().is_some() {
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let other = Owner { instance: Uuid::new_v4(), address: "127.0.0.1:1".into(), nonce: Uuid::new_v4() };
    let catalogue = Catalogue::new(Arc::clone(&tree));
    let taken = catalogue.slots_take(&[queue().slot()], &other).await.unwrap();
    server.signal(Signal::CONT);
    let start = Instant::now();
    // It learns who has the slot now, and states nothing for that one.
    while start.elapsed() < Duration::from_secs(3) {
        assert_eq!(client.claim("q", 1, 60).unwrap().status, StatusCode::SERVICE_UNAVAILABLE);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    catalogue.slots_give_up(&taken, &other).await.unwrap();
    loop {
        let answer = client.claim("q", 1, 60).unwrap();
        if answer.status == StatusCode::NO_CONTENT {
            break;
        }
        assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
        assert!(start.elapsed() < START, "it does not serve again");
        thread::sleep(Duration::from_millis(20));
    }
    // It has taken the slot back before it said that there is nothing.
    assert!(tree.get(&path).await.unwrap().unwrap().version > taken[0].version);
}

#[tokio::test]
async fn clock_days_ahead_is_shown_until_accepted() {
    let dir = TempDir::new().unwrap();
    write_three_days_ago(&dir).await;
    for _ in 0..2 {
        let server = ServerBuilder::new(dir.path()).start();
        let ready = server.client().get("/readyz").unwrap();
        assert_eq!(ready.status, StatusCode::OK);
        assert!(ready.json()["warnings"][0].as_str().unwrap().contains("--accept-clock"));
        server.client().create_queue("q").unwrap();
        server.terminate();
    }
    for args in [&["--accept-clock"][..], &[]] {
        let server = args.iter().fold(ServerBuilder::new(dir.path()), |server, arg| server.arg(arg)).start();
        assert_eq!(server.client().get("/readyz").unwrap().json()["warnings"], json!([]));
        server.client().create_queue("q2").unwrap();
        server.terminate();
    }
}

async fn write_three_days_ago(dir: &TempDir) {
    let now = Clock::system().now();
    let clock = Clock::manual(now.minus_seconds(3 * 24 * 3_600).as_millis());
    let journal = Journal::open(&dir.path().join("journal"), &clock).unwrap();
    let tree = EmbeddedTree::open(journal).await.unwrap();
    tree.commit(&[], &[Op::create("/old", "")]).await.unwrap();
    // The identity of a directory is written at its first start, which this one has behind it.
    let other = TempDir::new().unwrap();
    ServerBuilder::new(other.path()).start().terminate();
    for name in ["instance", "instance.copy"] {
        std::fs::copy(other.path().join(name), dir.path().join(name)).unwrap();
    }
}
