//! What pools in Redis and PostgreSQL cost: batches through the driver against the same script or statement sent by
//! redis-benchmark or pgbench, the cycle of a message over HTTP against the embedded pool, and the memory of a million
//! waiting messages. All on one machine, in turn, and only ratios are judged.
//!
//! `cargo bench --bench pools` starts private servers, needs what `tests/prepare` installs, takes about a minute, and
//! fails when a bar is missed.

#[path = "../../tests/support/mod.rs"]
mod support;

mod cycle;
mod driver;
mod memory;
mod raw_postgres;
mod raw_redis;

use std::time::Duration;

use angarium_testbed::postgres::Postgres;
use angarium_testbed::redis::{Redis, SYNCED};

/// Batches through the driver: at least this part of what the plain sender brings.
const BATCH_BAR: f64 = 0.6;
/// Cycles over HTTP: at least this part of those with the embedded pool.
const CYCLE_BAR: f64 = 0.4;
const ROUNDS: usize = 3;
const WINDOW: Duration = Duration::from_secs(2);

#[expect(clippy::print_stdout, reason = "the result is what a benchmark is for")]
fn main() {
    let mut missed = Vec::new();
    let mut judge = |what: &str, ratio: f64, bar: f64| {
        println!("{what}: {ratio:.2} (bar {bar})");
        if ratio < bar {
            missed.push(what.to_owned());
        }
    };
    judge("Redis, batches of the driver to those of redis-benchmark", redis_batches(), BATCH_BAR);
    judge("PostgreSQL, batches of the driver to those of pgbench", postgres_batches(), BATCH_BAR);
    for (name, ratio) in cycle::ratios(ROUNDS, WINDOW) {
        judge(&format!("{name}, cycles to those of the embedded pool"), ratio, CYCLE_BAR);
    }
    for (name, ratio) in memory::ratios() {
        judge(&format!("{name}, memory beside few waiting to that beside many"), ratio, memory::BAR);
    }
    assert!(missed.is_empty(), "below the bar: {missed:?}");
}

#[expect(clippy::print_stdout, reason = "the result is what a benchmark is for")]
fn redis_batches() -> f64 {
    let round = |round| {
        let redis = Redis::start(SYNCED);
        let driver = driver::batches_per_second(&redis.uri(""), 1, WINDOW);
        let plain = raw_redis::batches_per_second(&redis, WINDOW);
        println!("round {round}: {driver:.0} batches/s, redis-benchmark {plain:.0}");
        driver / plain
    };
    median((0..ROUNDS).map(round).collect())
}

#[expect(clippy::print_stdout, reason = "the result is what a benchmark is for")]
fn postgres_batches() -> f64 {
    let server = Postgres::start(&[]);
    let round = |round: usize| {
        let transaction = 2 * round as u64 + 1;
        let driver = driver::batches_per_second(&server.uri(""), transaction, WINDOW);
        driver::fence(&server.uri(""), transaction + 1);
        let plain = raw_postgres::batches_per_second(&server, transaction + 1, WINDOW);
        println!("round {round}: {driver:.0} batches/s, pgbench {plain:.0}");
        driver / plain
    };
    median((0..ROUNDS).map(round).collect())
}

/// The middle of an odd number of ratios.
fn median(mut ratios: Vec<f64>) -> f64 {
    ratios.sort_by(f64::total_cmp);
    ratios[ratios.len() / 2]
}
