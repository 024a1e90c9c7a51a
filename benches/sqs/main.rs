//! What clients of Amazon SQS get: messages a second, one by one and in batches, beside an empty handler; FIFO queues
//! beside standard ones; receives beside few and many waiting messages, also behind blocked groups; long polls that
//! wait for nothing.
//!
//! `cargo bench --bench sqs` takes some minutes and fails when a bar is missed. Bodies have 256 bytes, each answer
//! follows its sync, and the generator runs on the same machine. Rates depend on what else runs there: they are printed
//! beside what is aimed at on two idle cores, and ratios in one run are judged.

#[path = "../../tests/support/mod.rs"]
mod support;

mod depth;
mod idle;
mod load;

use std::time::Duration;

/// What is measured beside the empty handler: in words, how, the messages a second that are aimed at, and the bar for the
/// service's CPU for a message in requests of that handler.
const RATES: [(&str, &str, f64, f64); 4] = [
    ("sends", "post", 20_000.0, 5.0),
    ("receives of ten, each deleted for itself", "drain --batch 10 --waiting 80000", 10_000.0, 8.0),
    ("sends of ten", "post --batch 10", 100_000.0, 1.6),
    ("receives of ten, deleted together", "drain --batch 10 --bulk --waiting 250000", 100_000.0, 3.5),
];
const RATE_ROUNDS: &str = "--rounds 3 --seconds 1 --warmup 0";

/// A send, a receive and a delete of ten messages each, so that as many wait after a turn as before.
const TURNS: &str = "cycle --batch 10 --bulk --seconds 2 --warmup 1";
const ROUNDS: usize = 5;
/// In words, how, and the bar of the rates, standard to FIFO. Where a request is of one message most of it is the request; in
/// batches what shows is that the pool writes three keys for a message of a FIFO queue, in place of one: what is aimed at is
/// 1.5 there too.
const KINDS: [(&str, &str, f64); 3] = [
    ("sends", "post --seconds 2", 1.5),
    ("receives of ten, each deleted for itself", "drain --batch 10 --waiting 60000 --seconds 2", 1.5),
    ("batches of ten all through", TURNS, 2.0),
];
/// Of the rates, beside few to beside many.
const DEPTH_BAR: f64 = 1.2;
/// The same of a FIFO queue, in which each group is read from the pool for itself. What is aimed at is 1.2 here too.
const FIFO_DEPTH_BAR: f64 = 1.5;
const FEW: usize = 1_000;
const MANY: usize = 1_000_000;
/// Waiting messages of blocked groups, and how many groups those are.
const BLOCKED: [usize; 2] = [30_000, 30];

const POLLS: usize = 1_000;
/// What they may cost in ten seconds: as much as the clock of processes shows at all.
const POLLS_BAR: Duration = Duration::from_millis(30);

#[expect(clippy::print_stdout, reason = "the result is what a benchmark is for")]
fn main() {
    let mut missed = Vec::new();
    let mut judge = |what: &str, figure: String, is_kept: bool| {
        println!("{what}: {figure}");
        if !is_kept {
            missed.push(what.to_owned());
        }
    };
    println!("load average {}", std::fs::read_to_string("/proc/loadavg").unwrap_or_default().trim());
    for (what, words, aim, bar) in RATES {
        let report = load::run(&format!("{words} {RATE_ROUNDS}"));
        let (rate, empty, cost) = (report.messages(), report.empty_requests(), report.cost());
        let figure = format!(
            "{rate:.0} messages/s (aim {aim:.0}), empty handler {empty:.0} requests/s; \
             a message costs {cost:.2} of its requests (bar {bar})"
        );
        judge(what, figure, cost <= bar);
    }
    for (what, words, bar) in KINDS {
        let kinds = ["", "--groups 100"].map(|groups| format!("{words} --no-ceiling {groups}"));
        let fifo = ratio(ROUNDS, || kinds.each_ref().map(|words| load::run(&format!("{words} --rounds 1"))));
        let what = format!("standard to FIFO with 100 groups, {what}");
        judge(&what, format!("{fifo:.2} (bar {bar})"), fifo <= bar);
    }
    let deep = depth::standard(TURNS, [FEW, MANY], ROUNDS);
    let figure = format!("{deep:.2} (bar {DEPTH_BAR})");
    judge("beside a thousand waiting messages to beside a million", figure, deep <= DEPTH_BAR);
    let blocked = depth::blocked(TURNS, BLOCKED, ROUNDS);
    let figure = format!("{blocked:.2} (bar {DEPTH_BAR})");
    judge("FIFO beside nothing to behind blocked groups", figure, blocked <= DEPTH_BAR);
    let deep = depth::fifo(TURNS, [FEW, MANY], ROUNDS);
    let figure = format!("{deep:.2} (bar {FIFO_DEPTH_BAR})");
    let what = "FIFO with 100 groups beside a thousand waiting messages to beside a million";
    judge(what, figure, deep <= FIFO_DEPTH_BAR);
    let [without, with] = idle::cpu_without_and_with(POLLS);
    let figure = format!("{with:?} of CPU in ten seconds, and {without:?} without (bar {POLLS_BAR:?} more)");
    judge("a thousand long polls that wait for nothing", figure, with <= without + POLLS_BAR);
    assert!(missed.is_empty(), "missed: {missed:?}");
}

/// The median over rounds of one rate to the other, measured in turn.
#[expect(clippy::print_stdout, reason = "the result is what a benchmark is for")]
fn ratio(rounds: usize, mut round: impl FnMut() -> [load::Report; 2]) -> f64 {
    let mut ratios: Vec<f64> = (0..rounds)
        .map(|number| {
            let [one, other] = round().map(|report| report.messages());
            println!("round {number}: {one:.0} messages/s, {other:.0} messages/s");
            one / other
        })
        .collect();
    ratios.sort_by(f64::total_cmp);
    ratios[rounds / 2]
}
