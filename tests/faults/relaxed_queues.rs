//! Owns the tests of what a client of a relaxed queue may lose when the power is cut, and what no process may. It knows
//! the service by its API alone.

use std::thread;
use std::time::{Duration, Instant};

use http::StatusCode;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::json;

use super::powercut::PowerCut;
use super::rollback::Survival;
use crate::support::client::{Answer, Client, Reply};
use crate::support::server::Server;
use angarium_testbed::settings;

const RELAXED: &str = "notes";
const SYNCED: &str = "letters";
/// How long something may take that takes a moment, on a busy machine.
const SOON: Duration = Duration::from_secs(30);

fn expect(reply: Reply, status: StatusCode) -> Answer {
    let answer = reply.expect("the server is up");
    assert_eq!(answer.status, status, "{}", answer.text());
    answer
}

/// A server with a queue of each class, all of it on disk.
fn start(cut: &PowerCut) -> Server {
    let server = cut.server().start();
    for class in ["relaxed", "sync"] {
        let queue = if class == "sync" { SYNCED } else { RELAXED };
        let made = server.client().put(&format!("/v2/queues/{queue}"), Some(&json!({"_durability": class})));
        expect(made, StatusCode::CREATED);
    }
    server
}

/// Posts one message. The answer names the class of its queue.
fn post(client: &Client, queue: &str) -> String {
    let posted = expect(client.post_messages(queue, &[json!(queue)]), StatusCode::CREATED);
    assert_eq!(posted.json()["durability"], if queue == SYNCED { "sync" } else { "relaxed" });
    posted.posted_ids().remove(0)
}

/// Kills the server, cuts the power, and starts again on what is left: as little as can be.
fn strike(cut: &PowerCut, server: Server) -> Server {
    server.kill9();
    cut.strike(Survival::Nothing, &mut StdRng::seed_from_u64(0));
    cut.server().start()
}

/// How many of these messages are there. They are the first ones.
fn left(client: &Client, queue: &str, ids: &[String]) -> usize {
    let is_there = |id: &String| match client.get_message(queue, id).expect("the server is up").status {
        StatusCode::OK => true,
        status => {
            assert_eq!(status, StatusCode::NOT_FOUND);
            false
        }
    };
    let there: Vec<bool> = ids.iter().map(is_there).collect();
    let first = there.iter().take_while(|is_there| **is_there).count();
    assert!(there[first..].iter().all(|is_there| !is_there), "a message is gone from the middle: {there:?}");
    first
}

#[test]
fn relaxed_post_is_answered_early_and_lost_alone() {
    let cut = PowerCut::new();
    let server = start(&cut);
    let client = server.client();
    let mut relaxed = vec![post(&client, RELAXED)];
    let synced = vec![post(&client, SYNCED)];
    cut.close_gate();
    relaxed.push(post(&client, RELAXED));
    let server = strike_behind_the_gate(&cut, server);
    let client = server.client();
    assert_eq!((left(&client, RELAXED, &relaxed), left(&client, SYNCED, &synced)), (1, 1));
}

#[test]
fn power_cut_may_undo_relaxed_delete_alone() {
    let cut = PowerCut::new();
    let server = start(&cut);
    let client = server.client();
    let relaxed = vec![post(&client, RELAXED), post(&client, RELAXED)];
    let synced = vec![post(&client, SYNCED)];
    cut.close_gate();
    expect(client.delete_message(RELAXED, &relaxed[0], None), StatusCode::NO_CONTENT);
    expect(client.get_message(RELAXED, &relaxed[0]), StatusCode::NOT_FOUND);
    let server = strike_behind_the_gate(&cut, server);
    let client = server.client();
    assert_eq!((left(&client, RELAXED, &relaxed), left(&client, SYNCED, &synced)), (2, 1));
}

fn strike_behind_the_gate(cut: &PowerCut, server: Server) -> Server {
    server.kill9();
    cut.open_gate();
    cut.strike(Survival::Nothing, &mut StdRng::seed_from_u64(0));
    cut.server().start()
}

#[test]
fn a_relaxed_post_is_on_disk_after_a_moment() {
    let cut = PowerCut::new();
    let server = start(&cut);
    let client = server.client();
    post(&client, SYNCED);
    // What is written beside the log after that post is synced too.
    thread::sleep(Duration::from_secs(2));
    let before = cut.syncs();
    let relaxed = vec![post(&client, RELAXED)];
    let asked = Instant::now();
    while cut.syncs() == before {
        assert!(asked.elapsed() < SOON, "no sync covers the message");
        thread::sleep(Duration::from_millis(5));
    }
    let server = strike(&cut, server);
    assert_eq!(left(&server.client(), RELAXED, &relaxed), 1);
}

#[test]
fn power_cuts_lose_only_last_relaxed_messages() {
    let mut dice = StdRng::seed_from_u64(settings::seed("relaxed queues"));
    for _ in 0..3 {
        let cut = PowerCut::new();
        let server = start(&cut);
        let client = server.client();
        let (mut relaxed, mut synced, mut covered) = (Vec::new(), Vec::new(), 0);
        for _ in 0..dice.random_range(1..80) {
            if dice.random_ratio(1, 5) {
                synced.push(post(&client, SYNCED));
                covered = relaxed.len();
            } else {
                relaxed.push(post(&client, RELAXED));
            }
        }
        let server = strike(&cut, server);
        let client = server.client();
        assert_eq!(left(&client, SYNCED, &synced), synced.len());
        let kept = left(&client, RELAXED, &relaxed);
        assert!(kept >= covered, "{kept} of {} are left, and a sync covered {covered}", relaxed.len());
    }
}
