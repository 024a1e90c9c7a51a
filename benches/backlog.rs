//! What waiting messages cost: claims beside a thousand waiting and beside a million, the memory of the million, and
//! the time from a kill -9 to the first claim.
//!
//! `cargo bench --bench backlog` takes about a minute and fails when a bar is missed. The latencies are compared in
//! rounds that follow each other on one machine; memory and restart have bars of their own.

#[path = "../tests/support/mod.rs"]
mod support;

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::client::Client;
use support::server::{Server, ServerBuilder};
use tempfile::TempDir;

const FEW: usize = 1_000;
const MANY: usize = 1_000_000;
/// Of the median latencies of claims: beside many waiting, at most this many times that beside few.
const LATENCY_BAR: f64 = 1.5;
const MEMORY_BAR_MIB: u64 = 400;
const RESTART_BAR: Duration = Duration::from_secs(5);
const ROUNDS: usize = 5;
/// Claims of a round. Each message is deleted under its claim and posted again, so that the backlog keeps its size.
const CLAIMS: usize = 400;
const BODY_BYTES: usize = 200;
/// Messages in one post that fills a queue, and threads that fill it.
const FILL: usize = 500;
const FILLERS: usize = 4;
const QUEUE: &str = "backlog";

#[expect(clippy::print_stdout, reason = "the result is what a benchmark is for")]
fn main() {
    let dirs = [TempDir::new().expect("a directory"), TempDir::new().expect("a directory")];
    let builders = dirs.each_ref().map(|dir| ServerBuilder::new(&dir.path().join("data")));
    let servers = builders.each_ref().map(ServerBuilder::start);
    fill(&servers[0], FEW);
    fill(&servers[1], MANY);
    let mut ratios = Vec::new();
    for round in 0..ROUNDS {
        let [few, many] = servers.each_ref().map(|server| median_claim(&server.client()));
        let ratio = many.as_secs_f64() / few.as_secs_f64();
        println!("round {round}: claim beside {FEW}: {few:?}, beside {MANY}: {many:?}, ratio {ratio:.2}");
        ratios.push(ratio);
    }
    ratios.sort_by(f64::total_cmp);
    let ratio = ratios[ROUNDS / 2];
    let [_, large] = servers;
    let memory = resident_mib(&large);
    large.kill9();
    let start = Instant::now();
    let again = builders[1].start();
    let claimed = claim(&again.client());
    let restart = start.elapsed();
    println!("median ratio {ratio:.2} (bar {LATENCY_BAR}), resident {memory} MiB (bar {MEMORY_BAR_MIB})");
    println!("kill -9 to the first claim: {restart:?} (bar {RESTART_BAR:?})");
    assert!(claimed["id"].is_string());
    assert!(ratio <= LATENCY_BAR && memory < MEMORY_BAR_MIB && restart < RESTART_BAR, "a bar is missed");
}

fn fill(server: &Server, messages: usize) {
    let bodies = vec![body(); FILL.min(messages / FILLERS)];
    let posts = messages / bodies.len() / FILLERS;
    thread::scope(|scope| {
        for _ in 0..FILLERS {
            scope.spawn(|| {
                let client = server.client();
                for _ in 0..posts {
                    post(&client, &bodies);
                }
            });
        }
    });
}

fn body() -> Value {
    json!("x".repeat(BODY_BYTES - 2))
}

fn post(client: &Client, bodies: &[Value]) {
    let answer = client.post_messages(QUEUE, bodies).expect("the server answers");
    assert_eq!(answer.status, 201, "{}", answer.text());
}

fn claim(client: &Client) -> Value {
    let answer = client.claim(QUEUE, 1, 60).expect("the server answers");
    assert_eq!(answer.status, 201, "{}", answer.text());
    answer.json()
}

/// The median time of a claim, by one client.
fn median_claim(client: &Client) -> Duration {
    let mut times = Vec::with_capacity(CLAIMS);
    for _ in 0..CLAIMS {
        let start = Instant::now();
        let claimed = claim(client);
        times.push(start.elapsed());
        let id = claimed["messages"][0]["id"].as_str().expect("a claim has a message");
        let deleted = client.delete_message(QUEUE, id, claimed["id"].as_str()).expect("the server answers");
        assert_eq!(deleted.status, 204, "{}", deleted.text());
        post(client, &[body()]);
    }
    times.sort();
    times[CLAIMS / 2]
}

/// Resident memory of the server.
fn resident_mib(server: &Server) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", server.pid())).expect("the server runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("Linux says it");
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().expect("it is a number");
    kib / 1_024
}
