//! What it costs that requests arrive at the wrong replica: two of them on one ZooKeeper, asked in turn and without a load
//! balancer, against one alone with the same tree and pool.

use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use crate::support::redis::{Redis, SYNCED};
use crate::support::server::{Server, ServerBuilder};
use crate::support::zookeeper::ZooKeeper;

/// The median ratio of the rounds.
#[expect(clippy::print_stdout, reason = "the result is what a benchmark is for")]
pub fn ratio(rounds: usize) -> f64 {
    let zookeeper = ZooKeeper::start_as_deployed();
    let redis = Redis::start(SYNCED);
    let mut ratios: Vec<_> = (0..rounds)
        .map(|round| {
            let (one, two) = (cycles(&zookeeper, &redis, round, 1), cycles(&zookeeper, &redis, round, 2));
            println!("round {round}: {one:.0} requests/s through one replica, {two:.0} through two in turn");
            two / one
        })
        .collect();
    ratios.sort_by(f64::total_cmp);
    ratios[ratios.len() / 2]
}

fn cycles(zookeeper: &ZooKeeper, redis: &Redis, round: usize, replicas: usize) -> f64 {
    let (tree, dir) = (zookeeper.fresh_tree().to_string(), TempDir::new().expect("a temporary directory"));
    let pool = redis.uri(&format!("prefix=forwarded-{round}-{replicas}"));
    let servers: Vec<_> = (0..replicas).map(|number| start(&tree, &pool, &dir, number)).collect();
    if replicas > 1 {
        await_shares(&servers[0]);
    }
    let mut bench = Command::new(env!("CARGO_BIN_EXE_angarium"));
    bench.args(["bench", "cycle", "--queues", "64", "--seconds", "4", "--json"]);
    servers.iter().for_each(|server| {
        bench.args(["--url", server.base()]);
    });
    let ended = bench.output().expect("the program starts");
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    let report: Value = serde_json::from_slice(&ended.stdout).expect("it is JSON");
    report["server"]["requests_per_second"].as_f64().expect("it is a number")
}

fn start(tree: &str, pool: &str, dir: &TempDir, number: usize) -> Server {
    let builder = ServerBuilder::new(&dir.path().join(number.to_string()));
    builder.arg("--coordination").arg(tree).arg("--pool").arg(pool).start()
}

/// Until the second replica has taken its share.
fn await_shares(server: &Server) {
    crate::support::held::wait_until("both have slots", || {
        let answer = server.client().get("/v2/components").expect("it answers").json();
        let components = answer["components"].as_array().cloned().unwrap_or_default();
        let slots: Vec<_> =
            components.iter().map(|one| one["slots"].as_array().map_or(0, Vec::len)).collect();
        slots.iter().sum::<usize>() == 256 && slots.iter().all(|slots| *slots > 64)
    });
}
