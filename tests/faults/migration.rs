//! Owns the rounds in which queues move between pools of every kind while producers and consumers work and the server is
//! killed: nothing acknowledged is lost, doubled or out of order.
//!
//! `ANGARIUM_MIGRATION_ROUNDS` is how many times the queues go once through every direction.

use std::thread;
use std::time::{Duration, Instant};

use http::StatusCode;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::json;
use tempfile::TempDir;

use super::crash::{assert_kept, create_queues};
use super::drain::drain;
use super::history::History;
use super::load::{Load, QUEUES};
use super::verdict::judge;
use crate::support::client::Client;
use crate::support::server::{Server, ServerBuilder};
use angarium_testbed::postgres::Postgres;
use angarium_testbed::redis::{Redis, SYNCED};
use angarium_testbed::settings;

/// From each kind of pool to each other one, beginning and ending with the one that queues are created in.
const WAY: [&str; 7] = ["default", "redis", "postgres", "default", "postgres", "redis", "default"];
/// Within this a queue has gone over, kills and the end of the claims of the dead among them.
const MAX_WAIT: Duration = Duration::from_secs(60);

fn add_pools(client: &Client, redis: &Redis, postgres: &str) {
    for (pool, uri) in [("redis", redis.uri("")), ("postgres", postgres.to_owned())] {
        let added =
            client.put(&format!("/v2/pools/{pool}"), Some(&json!({"uri": uri, "weight": 0}))).unwrap();
        assert_eq!(added.status, StatusCode::CREATED, "{}", added.text());
    }
}

/// Whether every queue has come to where it leaves. One that has not been told to leaves there from now on.
pub fn is_there(client: &Client, pool: &str) -> bool {
    QUEUES.iter().all(|queue| {
        let path = format!("/v2/queues/{queue}/migrate");
        match client.post(&path, &json!({"pool": pool})) {
            Ok(answer) if answer.status == StatusCode::CONFLICT => {
                matches!(client.get(&path), Ok(view) if view.status == StatusCode::NOT_FOUND)
            }
            Ok(_) | Err(_) => false,
        }
    })
}

/// Lets the queues go to a pool, and kills the server once on the way.
fn send_to(
    pool: &str,
    server: Server,
    builder: &ServerBuilder,
    (load, history): (&mut Load, &History),
    dice: &mut StdRng,
) -> Server {
    let base = server.base().to_owned();
    let wait = Duration::from_millis(dice.random_range(0..400));
    load.run_while(&base, history, dice, || {
        let _ = is_there(&server.client(), pool);
        thread::sleep(wait);
        server.kill9();
    });
    let server = builder.start();
    let base = server.base().to_owned();
    let mut come = false;
    load.run_while(&base, history, dice, || {
        let start = Instant::now();
        while !is_there(&server.client(), pool) && start.elapsed() < MAX_WAIT {
            thread::sleep(Duration::from_millis(50));
        }
        come = start.elapsed() < MAX_WAIT;
        // The next round begins with connections of its own.
        server.kill9();
    });
    assert!(come, "the queues do not come to {pool}");
    builder.start()
}

#[test]
fn queues_migrate_between_pool_kinds_under_load_and_kill_9() {
    let (seed, rounds) = (settings::seed("migration"), settings::number("ANGARIUM_MIGRATION_ROUNDS", 1));
    let mut dice = StdRng::seed_from_u64(seed);
    let dir = TempDir::new().expect("a temporary directory");
    // Claims that no process ends must not hold a queue up for long.
    let builder = ServerBuilder::new(&dir.path().join("data")).arg("--min-claim-ttl").arg("1");
    let (redis, postgres) = (Redis::start(SYNCED), Postgres::shared().fresh_uri());
    let (history, mut load) = (History::new(), Load::new().with_claims_of(1..=2));
    let mut server = builder.start();
    create_queues(&server.client(), false);
    add_pools(&server.client(), &redis, &postgres);
    for _ in 0..rounds {
        for pool in &WAY[1..] {
            let began = Instant::now();
            server = send_to(pool, server, &builder, (&mut load, &history), &mut dice);
            eprintln!("to {pool} in {:?}", began.elapsed());
        }
    }
    drain(&server.client(), &history);
    assert_kept("migration", rounds, &judge(&history.record()));
}
