//! Post, claim and delete over HTTP, with the messages in each pool. The tree is embedded in all of them.

use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use crate::median;
use crate::support::server::{Server, ServerBuilder};
use angarium_testbed::postgres::Postgres;
use angarium_testbed::redis::{Redis, SYNCED};

/// The median rates of the pools in Redis and PostgreSQL, as parts of that of the embedded pool in the same round.
#[expect(clippy::print_stdout, reason = "the result is what a benchmark is for")]
pub fn ratios(rounds: usize, window: Duration) -> [(&'static str, f64); 2] {
    let (redis, postgres) = (Redis::start(SYNCED), Postgres::start(&[]));
    let pools = ["embedded:journal".to_owned(), redis.uri(""), postgres.uri("")];
    let dirs = pools.each_ref().map(|_| TempDir::new().expect("a directory"));
    let servers: [Server; 3] = std::array::from_fn(|at| {
        ServerBuilder::new(&dirs[at].path().join("data")).arg("--pool").arg(&pools[at]).start()
    });
    let mut ratios = [Vec::new(), Vec::new()];
    for round in 0..rounds {
        let [embedded, redis, postgres] = servers.each_ref().map(|server| cycles_per_second(server, window));
        println!(
            "round {round}: {embedded:.0} cycles/s embedded, {redis:.0} in Redis, {postgres:.0} in PostgreSQL"
        );
        ratios[0].push(redis / embedded);
        ratios[1].push(postgres / embedded);
    }
    let [redis, postgres] = ratios.map(median);
    [("Redis", redis), ("PostgreSQL", postgres)]
}

/// Messages that went the whole way, by 64 connections over 64 queues.
fn cycles_per_second(server: &Server, window: Duration) -> f64 {
    let output = Command::new(env!("CARGO_BIN_EXE_angarium"))
        .args(["bench", "cycle", "--json", "--no-ceiling", "--connections", "64", "--queues", "64"])
        .args(["--seconds", &window.as_secs().to_string(), "--keep", "--url", server.base()])
        .stderr(Stdio::inherit())
        .output()
        .expect("the built program can be started");
    assert!(output.status.success(), "the load failed: {}", String::from_utf8_lossy(&output.stdout));
    let report: Value = serde_json::from_slice(&output.stdout).expect("the report is JSON");
    report["server"]["messages_per_second"].as_f64().expect("the report has a rate")
}
