//! Owns the rounds in which a server is killed under load and started again on the same data, one history
//! over all of them; and the test that SIGKILL loses nothing. What happens to the disk between a death
//! and the next start is the caller's.

use std::thread;
use std::time::Duration;

use http::StatusCode;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tempfile::TempDir;

use super::drain::drain;
use super::history::History;
use super::load::{Load, QUEUES};
use super::verdict::{Verdict, judge};
use crate::support::client::Client;
use crate::support::server::{Server, ServerBuilder};
use angarium_testbed::settings;

/// Runs the rounds, then drains and judges. `aftermath` gets its turn after each kill, when the process
/// is gone, with its own dice.
pub fn kill_under_load(
    builder: &ServerBuilder,
    rounds: u64,
    seed: u64,
    aftermath: impl FnMut(u64, &mut StdRng),
) -> Verdict {
    let live =
        |_: &Server, dice: &mut StdRng| thread::sleep(Duration::from_millis(dice.random_range(300..1500)));
    live_under_load(builder, rounds, seed, live, aftermath)
}

/// The same, but what the server lives through before it is killed is the caller's too.
pub fn live_under_load(
    builder: &ServerBuilder,
    rounds: u64,
    seed: u64,
    mut live: impl FnMut(&Server, &mut StdRng),
    mut aftermath: impl FnMut(u64, &mut StdRng),
) -> Verdict {
    let (history, mut load) = (History::new(), Load::new());
    let mut dice = StdRng::seed_from_u64(seed);
    for round in 0..rounds {
        let server = builder.start();
        let base = server.base().to_owned();
        create_queues(&server.client(), round > 0);
        let mut life_dice = StdRng::from_rng(&mut dice);
        load.run_while(&base, &history, &mut dice, || {
            live(&server, &mut life_dice);
            server.kill9();
        });
        aftermath(round, &mut dice);
    }
    let server = builder.start();
    create_queues(&server.client(), rounds > 0);
    drain(&server.client(), &history);
    judge(&history.record())
}

/// A queue whose creation was acknowledged once is there for good.
pub fn create_queues(client: &Client, existing: bool) {
    let expected = if existing { StatusCode::NO_CONTENT } else { StatusCode::CREATED };
    for queue in QUEUES {
        let answer = client.create_queue(queue).expect("the server has just started");
        assert_eq!(answer.status, expected, "queue {queue}: {}", answer.text());
    }
}

/// Prints the summary and fails the test if any promise was broken.
pub fn assert_kept(test: &str, rounds: u64, verdict: &Verdict) {
    eprintln!("{test}: rounds {rounds}, {verdict}");
    assert!(verdict.is_clean(), "a promise was broken: {verdict}");
    assert!(verdict.acked > 0 && verdict.deleted > 0, "the load did nothing: {verdict}");
}

#[test]
fn kill_9_under_load_loses_nothing_acknowledged() {
    let (seed, rounds) = (settings::seed("crash"), settings::number("ANGARIUM_CRASH_ROUNDS", 3));
    let dir = TempDir::new().expect("a temporary directory");
    let builder = ServerBuilder::new(&dir.path().join("data"));
    let verdict = kill_under_load(&builder, rounds, seed, |_, _| {});
    assert_kept("crash", rounds, &verdict);
}
