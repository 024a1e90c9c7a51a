//! Backup of a cluster: copies of the tree, of Redis and of PostgreSQL at different moments, while messages move between
//! the two pools.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use http::StatusCode;
use parking_lot::Mutex;
use serde_json::json;
use tempfile::TempDir;

use super::{Cluster, MAX_WAIT};
use crate::support::client::Client;
use crate::support::pauses::Stopper;
use angarium_testbed::held::{wait_out, wait_until};
use angarium_testbed::postgres::{Postgres, fresh_schema};
use angarium_testbed::zookeeper::ZooKeeper;

/// Time between two copies.
const APART: Duration = Duration::from_millis(700);

/// Messages that are posted before the first copy.
const LEAST: usize = 200;

/// Queues with dead letters in the other pool, and where these go.
const QUEUES: [(&str, &str); 4] =
    [("r-1", "p-dead-1"), ("r-2", "p-dead-2"), ("p-1", "r-dead-1"), ("p-2", "r-dead-2")];

/// The messages that were acknowledged, with the time of the answer.
#[derive(Default)]
struct PostHistory {
    next: AtomicU64,
    acked: Mutex<Vec<(Instant, u64)>>,
}

impl PostHistory {
    fn post(&self, client: &Client, queue: &str) {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let answer = client.post_messages(queue, &[json!(number)]);
        if answer.is_ok_and(|answer| answer.status == StatusCode::CREATED) {
            self.acked.lock().push((Instant::now(), number));
        }
    }

    fn before(&self, time: Instant) -> BTreeSet<u64> {
        let acked = self.acked.lock();
        acked.iter().filter(|(at, _)| *at < time).map(|(_, number)| *number).collect()
    }
}

/// Posts to a queue, and claims and releases its messages, which become dead letters.
fn work(client: &Client, queue: &str, posted: &PostHistory, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        posted.post(client, queue);
        if let Some(claim) = client.claim(queue, 5, 60).ok().and_then(|answer| answer.granted()) {
            let _ = client.release_claim(queue, &claim.id);
        }
    }
}

fn create_queues(client: &Client, table: &str) {
    let pool = json!({"uri": table, "weight": 100, "flavor": "table"});
    assert_eq!(client.put("/v2/pools/table", Some(&pool)).unwrap().status, StatusCode::CREATED);
    let flavor = json!({"pool_list": ["table"]});
    assert_eq!(client.put("/v2/flavors/table", Some(&flavor)).unwrap().status, StatusCode::CREATED);
    let create = |queue: &str, mut metadata: serde_json::Value| {
        if queue.starts_with('p') {
            metadata["_flavor"] = json!("table");
        }
        let made = client.put(&format!("/v2/queues/{queue}"), Some(&metadata)).unwrap();
        assert_eq!(made.status, StatusCode::CREATED, "{}", made.text());
    };
    for (queue, dead) in QUEUES {
        create(dead, json!({}));
        create(queue, json!({"_dead_letter_queue": dead, "_max_claim_count": 1}));
    }
}

fn tree(arguments: &[&str], address: &str) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_angarium"));
    let done = command.arg("tree").args(arguments).args(["--coordination", address]).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

fn copy_files(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-a").arg(from).arg(to).status().unwrap();
    assert!(copied.success());
}

/// Claims everything, until each of these messages was found. Returns all that were found.
fn find(client: &Client, wanted: &BTreeSet<u64>) -> Vec<u64> {
    let (mut found, start) = (Vec::new(), Instant::now());
    let names: Vec<&str> = QUEUES.iter().flat_map(|(queue, dead)| [*queue, *dead]).collect();
    let mut idle = 0;
    while idle < 20 || !wanted.iter().all(|number| found.contains(number)) {
        idle += 1;
        for queue in &names {
            let claim = client.claim(queue, 20, 3_600).unwrap().granted();
            let Some(claim) = claim.filter(|claim| !claim.messages.is_empty()) else { continue };
            idle = 0;
            found.extend(claim.messages.iter().map(|message| message.body.as_u64().unwrap()));
        }
        if start.elapsed() > MAX_WAIT {
            break;
        }
        thread::sleep(Duration::from_millis(50));
    }
    found
}

#[test]
fn copies_of_different_moments_miss_nothing_of_the_earliest() {
    let (postgres, schema, dir) = (Postgres::start(&[]), fresh_schema(), TempDir::new().unwrap());
    let mut cluster = Cluster::without_replicas(ZooKeeper::shared(), &[]);
    cluster.add();
    cluster.add();
    cluster.wait_until_shared();
    create_queues(&cluster.client(0), &postgres.uri(&format!("schema={schema}")));
    let (posted, stop, file) =
        (PostHistory::default(), AtomicBool::new(false), dir.path().join("tree.jsonl"));
    let file = file.to_str().unwrap();
    let (log, copy) = (cluster.redis.data().join("appendonlydir"), dir.path().join("appendonlydir"));
    let (mut earliest, mut dump) = (Instant::now(), String::new());
    thread::scope(|scope| {
        let stopper = Stopper(&stop);
        for (number, (queue, _)) in QUEUES.iter().enumerate() {
            let (client, posted, stop) = (cluster.client(number % 2), &posted, &stop);
            scope.spawn(move || work(&client, queue, posted, stop));
        }
        wait_until("some messages are posted", || posted.before(Instant::now()).len() > LEAST);
        let client = cluster.client(0);
        let hold = json!({"reason": "backup", "transfer": true});
        for pool in ["default", "table"] {
            // 503 until all slots have confirmed it.
            wait_out("the transfers of the pool are held", || {
                let held = client.put(&format!("/v2/pools/{pool}/hold"), Some(&hold)).unwrap();
                (held.status != StatusCode::OK).then(|| held.text())
            });
        }
        earliest = Instant::now();
        tree(&["export", file], &cluster.address);
        thread::sleep(APART);
        copy_files(&log, dir.path());
        thread::sleep(APART);
        dump = postgres.dump(&schema);
        for pool in ["default", "table"] {
            let released = client.delete(&format!("/v2/pools/{pool}/hold")).unwrap();
            assert_eq!(released.status, StatusCode::NO_CONTENT);
        }
        thread::sleep(Duration::from_secs(2));
        drop(stopper);
    });
    for replica in &mut cluster.replicas {
        replica.server.take().unwrap().kill9();
    }
    cluster.redis.kill9();
    fs::remove_dir_all(&log).unwrap();
    copy_files(&copy, cluster.redis.data());
    cluster.redis.restart();
    postgres.sql(&format!("DROP SCHEMA \"{schema}\" CASCADE"));
    postgres.load(&dump);
    cluster.address = ZooKeeper::shared().fresh_tree().to_string();
    tree(&["import", file, "--hold-transfers"], &cluster.address);
    cluster.replicas.clear();
    cluster.add();
    let client = cluster.client(0);
    let holds = client.get("/v2/admin/holds").unwrap().json();
    let held: Vec<_> = holds["holds"].as_array().unwrap().iter().map(|hold| &hold["transfer"]).collect();
    assert_eq!(held, [&json!(true); 2], "{holds}");
    for pool in ["default", "table"] {
        client.delete(&format!("/v2/pools/{pool}/hold")).unwrap();
    }
    let wanted = posted.before(earliest);
    assert!(wanted.len() > LEAST);
    let found = find(&client, &wanted);
    let once: BTreeSet<u64> = found.iter().copied().collect();
    let missing: Vec<_> = wanted.difference(&once).collect();
    assert!(missing.is_empty(), "{} of {} are missing: {missing:?}", missing.len(), wanted.len());
    assert_eq!(once.len(), found.len(), "some are there twice");
}
