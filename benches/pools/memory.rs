//! The memory of the service beside a few waiting messages and beside a million, in pools that are other processes.

use std::fs;
use std::thread;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::client::Client;
use crate::support::server::{Server, ServerBuilder};
use angarium_testbed::postgres::Postgres;
use angarium_testbed::redis::{Redis, SYNCED};

/// Memory beside few waiting, as a part of that beside many: what is resident may not grow by more than this states.
pub const BAR: f64 = 0.5;
const FEW: usize = 1_000;
const MANY: usize = 1_000_000;
/// Messages in one post that fills a queue, threads that fill it, and the bytes of a body.
const FILL: usize = 500;
const FILLERS: usize = 4;
const BODY_BYTES: usize = 32;

/// For each pool, the memory beside few waiting as a part of that beside many.
pub fn ratios() -> [(&'static str, f64); 2] {
    let redis = Redis::start(SYNCED);
    let in_redis = ratio("Redis", &redis.uri("prefix=few"), &redis.uri("prefix=many"));
    drop(redis);
    let postgres = Postgres::start(&[]);
    let in_postgres = ratio("PostgreSQL", &postgres.uri("schema=few"), &postgres.uri("schema=many"));
    [("Redis", in_redis), ("PostgreSQL", in_postgres)]
}

#[expect(clippy::print_stdout, reason = "the result is what a benchmark is for")]
fn ratio(name: &str, few: &str, many: &str) -> f64 {
    let (few, many) = (resident_beside(few, FEW), resident_beside(many, MANY));
    println!("{name}: {few} KiB resident beside {FEW} waiting, {many} KiB beside {MANY}");
    few as f64 / many as f64
}

/// Resident memory of a service that took in so many messages, in KiB.
fn resident_beside(pool: &str, messages: usize) -> u64 {
    let dir = TempDir::new().expect("a directory");
    let server = ServerBuilder::new(&dir.path().join("data")).arg("--pool").arg(pool).start();
    fill(&server, messages);
    let claim = server.client().claim("backlog", 10, 60).expect("the server answers");
    assert_eq!(claim.status, 201, "{}", claim.text());
    let stats = server.client().stats("backlog").expect("the server answers").json();
    assert_eq!(stats["messages"]["total"], messages, "{stats}");
    resident_kib(&server)
}

fn fill(server: &Server, messages: usize) {
    let bodies = vec![json!("x".repeat(BODY_BYTES - 2)); FILL.min(messages / FILLERS)];
    let posts = messages / bodies.len() / FILLERS;
    thread::scope(|scope| {
        for _ in 0..FILLERS {
            scope.spawn(|| {
                let client = server.client();
                (0..posts).for_each(|_| post(&client, &bodies));
            });
        }
    });
}

fn post(client: &Client, bodies: &[Value]) {
    let answer = client.post_messages("backlog", bodies).expect("the server answers");
    assert_eq!(answer.status, 201, "{}", answer.text());
}

fn resident_kib(server: &Server) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", server.pid())).expect("the server runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("Linux says it");
    line.trim().trim_end_matches(" kB").parse().expect("it is a number")
}
