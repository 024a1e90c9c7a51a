//! What clients of a cluster feel when a part of it goes: the gap in service after kill -9 of the owner of a queue, after
//! SIGTERM, after the death of ZooKeeper's leader. And what it costs that a request is passed on to its owner.
//!
//! `cargo bench --bench cluster` starts a private cluster, needs what `tests/prepare` installs, takes about two minutes, and
//! fails when a bar is missed. Everything is on one machine, so what is short there may be shorter elsewhere.

#[path = "../../tests/support/mod.rs"]
mod support;

mod forwarded;
mod gaps;

use std::time::Duration;

use support::zookeeper::{SESSION, TICK};

/// The gap after kill -9: the session, a tick of ZooKeeper and a second.
const KILLED: Duration = SESSION.saturating_add(TICK).saturating_add(Duration::from_secs(1));
/// What SIGTERM of a replica may add to a request.
const LEFT: Duration = Duration::from_millis(250);
/// The gap after the death of ZooKeeper's leader.
const LED: Duration = Duration::from_secs(3);
/// Requests to two replicas in turn, at least this part of those to one alone.
const FORWARDED: f64 = 0.6;
const ROUNDS: usize = 3;

#[expect(clippy::print_stdout, reason = "the result is what a benchmark is for")]
fn main() {
    let mut missed = Vec::new();
    let mut judge = |what: &str, figure: String, is_kept: bool| {
        println!("{what}: {figure}");
        if !is_kept {
            missed.push(what.to_owned());
        }
    };
    let of = |gap: Duration, bar: Duration| format!("{gap:.2?} at most (bar {bar:.2?})");
    let gaps = gaps::measure(ROUNDS);
    println!("sessions of {SESSION:?}, ticks of {TICK:?}, {ROUNDS} rounds");
    judge("gap after kill -9 of the owner", of(gaps.killed, KILLED), gaps.killed <= KILLED);
    judge("failed requests after SIGTERM", gaps.failed.to_string(), gaps.failed == 0);
    judge("longest request around SIGTERM", of(gaps.left, LEFT), gaps.left <= LEFT);
    judge("gap after the death of ZooKeeper's leader", of(gaps.led, LED), gaps.led <= LED);
    let ratio = forwarded::ratio(ROUNDS);
    let figure = format!("{ratio:.2} (bar {FORWARDED})");
    judge("cycles through two replicas in turn to those through one", figure, ratio >= FORWARDED);
    assert!(missed.is_empty(), "missed: {missed:?}");
}
