//! Claims against the plainest thing ZooKeeper can be asked: nodes created one at a time. Both on the same server, in
//! turn, and only their ratio is judged.
//!
//! `cargo bench --bench ensemble` starts a private ZooKeeper as deployments run it, needs what `tests/prepare` installs,
//! takes less than a minute, and fails when the median ratio is below the bar. ZooKeeper is warm before anything counts:
//! until its compiler is done, a node costs it several times as much, and both figures tell of the compiler.

#[path = "../tests/support/mod.rs"]
mod support;

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use angarium_testbed::zookeeper::ZooKeeper;
use serde_json::Value;
use zookeeper_client::{Acls, Client, CreateMode};

/// Claims by 64 clients, at least this many times the rate of single creates.
const BAR: f64 = 5.0;
const ROUNDS: usize = 3;
/// Rounds before them that count for nothing.
const WARM_UP: usize = 2;
const WINDOW: Duration = Duration::from_secs(3);
/// Bytes of a created node: those of a claim's record.
const NODE: [u8; 256] = [b'x'; 256];

#[expect(clippy::print_stdout, reason = "the result is what a benchmark is for")]
fn main() {
    let zookeeper = ZooKeeper::start_as_deployed();
    let mut ratios = Vec::new();
    for round in 0..WARM_UP + ROUNDS {
        let creates = creates_per_second(&zookeeper, round);
        let claims = claims_per_second(&zookeeper);
        println!(
            "round {round}: {creates:.0} single creates/s, {claims:.0} claims/s, ratio {:.2}",
            claims / creates
        );
        ratios.push(claims / creates);
    }
    ratios.drain(..WARM_UP);
    ratios.sort_by(f64::total_cmp);
    let median = ratios[ratios.len() / 2];
    println!("claims on ZooKeeper: {median:.2} times the rate of single creates (bar {BAR})");
    assert!(median >= BAR, "below the bar");
}

/// Creates nodes, each when the one before is there.
fn creates_per_second(zookeeper: &ZooKeeper, round: usize) -> f64 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let client = Client::connect(&zookeeper.endpoint().to_string()).await.expect("the server answers");
        let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
        let root = format!("/plain-{round}");
        client.create(&root, &[], &options).await.expect("the root is new");
        let (start, mut created) = (Instant::now(), 0_u32);
        while start.elapsed() < WINDOW {
            client.create(&format!("{root}/{created}"), &NODE, &options).await.expect("the node is new");
            created += 1;
        }
        f64::from(created) / start.elapsed().as_secs_f64()
    })
}

/// Claims of one message, by 64 connections on one queue. Over as many queues each claim would ask ZooKeeper for a check of
/// another slot beside the node.
fn claims_per_second(zookeeper: &ZooKeeper) -> f64 {
    let seconds = WINDOW.as_secs().to_string();
    let output = Command::new(env!("CARGO_BIN_EXE_angarium"))
        .args(["bench", "claim", "--json", "--no-ceiling", "--connections", "64"])
        .args(["--seconds", &seconds, "--coordination", &zookeeper.fresh_tree().to_string()])
        .stderr(Stdio::inherit())
        .output()
        .expect("the built program can be started");
    assert!(output.status.success(), "the load failed: {}", String::from_utf8_lossy(&output.stdout));
    let report: Value = serde_json::from_slice(&output.stdout).expect("the report is JSON");
    report["server"]["messages_per_second"].as_f64().expect("the report has a rate")
}
