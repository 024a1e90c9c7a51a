//! What it costs that requests arrive at the wrong replica: two of them on one ZooKeeper, asked in turn and without a load
//! balancer, against one alone with the same tree and pool. Both the rate, which suffers from whatever else the machine does, and
//! the CPU of the replicas for a request, which does so less.

use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use crate::support::server::{Server, ServerBuilder};
use angarium_testbed::redis::{Redis, SYNCED};
use angarium_testbed::zookeeper::ZooKeeper;

/// Ticks of the clock of processes in a second: Linux has shown 100 everywhere for long.
const TICKS: f64 = 100.0;

/// The default of `--weight`.
pub(super) const WEIGHT: u32 = 100;

/// What the load was answered.
pub(super) struct Figures {
    pub(super) requests_per_second: f64,
    /// Of all replicas together.
    pub(super) microseconds_per_request: f64,
}

/// The medians of the rounds.
pub struct Ratios {
    /// Requests of two replicas to those of one.
    pub rate: f64,
    /// CPU for a request of one replica to that of two.
    pub cpu: f64,
}

#[expect(clippy::print_stdout, reason = "the result is what a benchmark is for")]
pub fn ratios(rounds: usize) -> Ratios {
    let zookeeper = ZooKeeper::start_as_deployed();
    let redis = Redis::start(SYNCED);
    let ratios: Vec<Ratios> = (0..rounds)
        .map(|round| {
            let (one, two) = (cycles(&zookeeper, &redis, round, 1), cycles(&zookeeper, &redis, round, 2));
            for (figures, what) in [(&one, "one replica"), (&two, "two in turn")] {
                let Figures { requests_per_second, microseconds_per_request } = figures;
                let cpu = format!("{microseconds_per_request:.0} us of CPU each");
                println!("round {round}: {requests_per_second:.0} requests/s through {what}, {cpu}");
            }
            Ratios {
                rate: two.requests_per_second / one.requests_per_second,
                cpu: one.microseconds_per_request / two.microseconds_per_request,
            }
        })
        .collect();
    let median = |of: fn(&Ratios) -> f64| {
        let mut all: Vec<f64> = ratios.iter().map(of).collect();
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    };
    Ratios { rate: median(|ratios| ratios.rate), cpu: median(|ratios| ratios.cpu) }
}

fn cycles(zookeeper: &ZooKeeper, redis: &Redis, round: usize, replicas: usize) -> Figures {
    let (tree, dir) = (zookeeper.fresh_tree().to_string(), TempDir::new().expect("a temporary directory"));
    let pool = redis.uri(&format!("prefix=forwarded-{round}-{replicas}"));
    let servers: Vec<_> = (0..replicas).map(|number| start(&tree, &pool, &dir, number, WEIGHT)).collect();
    if replicas > 1 {
        await_shares(&servers[0]);
    }
    load(&servers, servers.iter())
}

/// Sends requests to some of these servers, and counts the CPU of all.
pub(super) fn load<'s>(servers: &[Server], asked: impl Iterator<Item = &'s Server>) -> Figures {
    let used = || servers.iter().map(ticks).sum::<f64>();
    let before = used();
    let mut bench = Command::new(env!("CARGO_BIN_EXE_angarium"));
    // Without a time that is not counted, since CPU is.
    bench.args([
        "bench",
        "cycle",
        "--queues",
        "64",
        "--seconds",
        "6",
        "--warmup",
        "0",
        "--no-ceiling",
        "--keep",
        "--json",
    ]);
    asked.for_each(|server| {
        bench.args(["--url", server.base()]);
    });
    let ended = bench.output().expect("the program starts");
    let seconds = (used() - before) / TICKS;
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    let report: Value = serde_json::from_slice(&ended.stdout).expect("it is JSON");
    let requests_per_second = report["server"]["requests_per_second"].as_f64().expect("it is a number");
    Figures { requests_per_second, microseconds_per_request: seconds * 1e6 / (requests_per_second * 6.0) }
}

/// What a server has used of its processors.
fn ticks(server: &Server) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", server.pid())).expect("it runs");
    // Behind the name, which may hold anything: the 12th and the 13th are time of the user and of the system.
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace().skip(11).take(2);
    fields.filter_map(|field| field.parse::<f64>().ok()).sum()
}

/// A replica with the default share of the slots, or with another `weight`.
pub(super) fn start(tree: &str, pool: &str, dir: &TempDir, number: usize, weight: u32) -> Server {
    let builder = ServerBuilder::new(&dir.path().join(number.to_string()));
    let builder = builder.arg("--coordination").arg(tree).arg("--pool").arg(pool);
    builder.arg(format!("--weight={weight}")).start()
}

/// Until the second replica has taken its share.
fn await_shares(server: &Server) {
    angarium_testbed::held::wait_until("both have slots", || {
        let answer = server.client().get("/v2/components").expect("it answers").json();
        let components = answer["components"].as_array().cloned().unwrap_or_default();
        let slots: Vec<_> =
            components.iter().map(|one| one["slots"].as_array().map_or(0, Vec::len)).collect();
        slots.iter().sum::<usize>() == 256 && slots.iter().all(|slots| *slots > 64)
    });
}
