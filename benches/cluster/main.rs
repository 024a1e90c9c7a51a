//! What clients of a cluster feel when a part of it leaves: the gap in service after kill -9 of the owner of a queue,
//! after SIGTERM, after the death of ZooKeeper's leader. And what it costs that a request is passed on to its owner.
//!
//! `cargo bench --bench cluster` starts a private cluster, needs what `tests/prepare` installs, takes about two
//! minutes, and fails when a bar is missed. Everything is on one machine, so what is short there may be shorter
//! elsewhere. With one of the words `gaps`, `forwarded`, `link`, `scale` and `secure` it measures only that; `link`
//! compares requests that are forwarded in TLS and in clear text, and takes five minutes; `cargo bench --bench cluster
//! -- scale [QUEUES]` makes a hundred thousand queues unless told otherwise, which takes some minutes, and needs the
//! `jcmd` of a JDK; `secure [NODES]` closes two trees of a hundred thousand nodes under load, one of them interrupted.

#[path = "../../tests/support/mod.rs"]
mod support;

mod forwarded;
mod gaps;
mod link;
mod scale;
mod secure;

use std::time::Duration;

use angarium_testbed::zookeeper::{SESSION, TICK};
use support::cluster::REPLICAS;

/// The gap after kill -9: the session, a tick of ZooKeeper and a second.
const KILLED: Duration = SESSION.saturating_add(TICK).saturating_add(Duration::from_secs(1));
/// What SIGTERM of a replica may add to a request.
const LEFT: Duration = Duration::from_millis(250);
/// The gap after the death of ZooKeeper's leader.
const LED: Duration = Duration::from_secs(3);
/// Requests to two replicas in turn, at least this part of those to one alone.
const FORWARDED: f64 = 0.6;
/// CPU of a forwarded request in TLS, at most this many times that in clear text.
const LINK: f64 = 1.15;
const ROUNDS: usize = 3;
/// Rounds of the comparison of TLS and clear text, which differ little.
const LINK_ROUNDS: usize = 9;
/// How often replicas leave in each of them.
const LEAVES: usize = 4;

/// Queues of the measure of scale, and nodes of that of closing a tree.
const MANY: usize = 100_000;
/// What a queue that rests may cost in memory.
const PER_QUEUE: u64 = 2_000;
/// The heap of ZooKeeper after a collection.
const HEAP: u64 = 150_000_000;
/// From the end of a session until the slots of the replica are served by the others.
const TAKEN_OVER: Duration = Duration::from_secs(10);
/// What `tree secure` may take of memory.
const SECURING: u64 = 100_000_000;

/// What was found, beside its bars.
#[derive(Default)]
struct Verdict {
    missed: Vec<String>,
}

impl Verdict {
    #[expect(clippy::print_stdout, reason = "the result is what a benchmark is for")]
    fn judge(&mut self, what: &str, figure: &str, is_kept: bool) {
        println!("{what}: {figure}");
        if !is_kept {
            self.missed.push(what.to_owned());
        }
    }

    fn gap(&mut self, what: &str, gap: Duration, bar: Duration) {
        self.judge(what, &format!("{gap:.2?} at most (bar {bar:.2?})"), gap <= bar);
    }
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    let chosen = words.first().map(String::as_str);
    let many = words.get(1).map_or(MANY, |word| word.parse().expect("it is a number"));
    let mut verdict = Verdict::default();
    match chosen {
        None => {
            gaps(&mut verdict);
            forwarded(&mut verdict);
        }
        Some("gaps") => gaps(&mut verdict),
        Some("forwarded") => forwarded(&mut verdict),
        Some("link") => link(&mut verdict),
        Some("scale") => scale(&mut verdict, many),
        Some("secure") => secure(&mut verdict, many),
        Some(other) => verdict.judge(other, "it measures gaps, forwarded, link, scale or secure", false),
    }
    assert!(verdict.missed.is_empty(), "missed: {:?}", verdict.missed);
}

fn gaps(verdict: &mut Verdict) {
    let gaps = gaps::measure(ROUNDS, LEAVES);
    let sessions = format!("sessions of {SESSION:?}, ticks of {TICK:?}, {ROUNDS} rounds");
    verdict.judge("with", &sessions, true);
    verdict.gap("gap after kill -9 of the owner", gaps.killed, KILLED);
    verdict.judge("failed requests after SIGTERM", &gaps.failed.to_string(), gaps.failed == 0);
    verdict.gap("longest request around SIGTERM", gaps.left, LEFT);
    verdict.gap("gap after the death of ZooKeeper's leader", gaps.led, LED);
}

fn forwarded(verdict: &mut Verdict) {
    let ratios = forwarded::ratios(ROUNDS);
    let figure = format!("{:.2} (bar {FORWARDED})", ratios.rate);
    verdict.judge(
        "requests through two replicas in turn to those through one",
        &figure,
        ratios.rate >= FORWARDED,
    );
    let figure = format!("{:.2} (bar {FORWARDED})", ratios.cpu);
    verdict.judge("CPU for a request through one to that through two", &figure, ratios.cpu >= FORWARDED);
}

fn link(verdict: &mut Verdict) {
    let cost = link::measure(LINK_ROUNDS);
    let (least, greatest) = cost.extent;
    let figure = format!("{:.3} in the middle, of {least:.3} to {greatest:.3} (bar {LINK})", cost.median);
    verdict.judge("CPU of a forwarded request in TLS to that in clear text", &figure, cost.median <= LINK);
}

fn scale(verdict: &mut Verdict, queues: usize) {
    let found = scale::measure(queues);
    let of = |bytes: u64, bar: u64| format!("{bytes} bytes (bar {bar})");
    verdict.judge("queues", &queues.to_string(), true);
    verdict.judge("memory of a queue at rest", &of(found.per_queue, PER_QUEUE), found.per_queue < PER_QUEUE);
    verdict.judge("heap of ZooKeeper's leader after a collection", &of(found.heap, HEAP), found.heap < HEAP);
    let watches = format!("{} of {REPLICAS} replicas", found.watches);
    verdict.judge("watches", &watches, found.watches == REPLICAS);
    verdict.gap("take-over of a third after the end of its session", found.taken_over, TAKEN_OVER);
    verdict.judge("start of a replica", &format!("{:.2?}", found.started), true);
}

fn secure(verdict: &mut Verdict, nodes: usize) {
    let found = secure::measure(nodes);
    verdict.judge("nodes, in each of two trees", &nodes.to_string(), true);
    let names = ["in one run", "killed after half of the nodes", "run again", "with nothing to do"];
    for (name, run) in names.iter().zip(&found.runs) {
        let took = format!(
            "{:.1?}, {} nodes named, {} bytes of memory; {}",
            run.took, run.closed, run.memory, run.report
        );
        let is_whole = run.report == "killed" || run.report.contains("nodes are closed");
        verdict.judge(&format!("closing {name}"), &took, is_whole && run.memory < SECURING);
    }
    verdict.judge("open nodes that are left", &found.open.to_string(), found.open == 0);
    verdict.gap("time of a client without a success meanwhile", found.pause, LEFT);
}
