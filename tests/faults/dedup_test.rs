//! Owns the tests of an id of deduplication that is forgotten and posted again in one batch: a duplicate of the second post is
//! recognised after kill -9.

use std::ops::Range;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use http::StatusCode;
use serde_json::{Value, json};

use super::powercut::PowerCut;
use crate::support::client::Client;
use crate::support::clock_step::SteppedClock;
use crate::support::cluster::Cluster;
use crate::support::server::{Server, ServerBuilder};
use angarium_testbed::held::wait_until;

/// How long an id is remembered.
const REMEMBERED: Duration = Duration::from_secs(300);
/// The state after the service is started again.
const LEFT: Duration = Duration::from_secs(12);
/// All slots are swept in this time, in the order of their numbers, from each start on.
const SWEEP_ROUND: Duration = Duration::from_secs(30);
/// A slot that is swept a while after the id has expired.
const SWEPT: Range<u64> = 110..130;
/// By which a sweep may be late.
const LATE: Duration = Duration::from_secs(3);

/// A queue in order of groups.
#[derive(Clone)]
struct Fifo {
    name: String,
    path: String,
}

impl Fifo {
    fn new(name: &str) -> Self {
        Self { name: name.to_owned(), path: format!("/v2/queues/{name}") }
    }

    fn create(&self, client: &Client) {
        let made = client.put(&self.path, Some(&json!({"_fifo": true}))).expect("the server is up");
        assert_eq!(made.status, StatusCode::CREATED, "{}", made.text());
    }

    fn post(&self, client: &Client, message: &Value) -> String {
        let messages = json!({"messages": [message]});
        let posted = client.post(&format!("{}/messages", self.path), &messages).expect("the server is up");
        assert_eq!(posted.status, StatusCode::CREATED, "{}", posted.text());
        posted.posted_ids().remove(0)
    }

    /// Posts the message with the id of deduplication.
    fn repeat(&self, client: &Client) -> String {
        self.post(client, &json!({"body": "repeated", "group": "a", "dedup_id": "1"}))
    }

    /// Holds the batch of a message at the gate: what follows is one batch.
    fn hold_batch(&self, cut: &PowerCut, server: &Server) -> JoinHandle<String> {
        cut.close_gate();
        let (fifo, client) = (self.clone(), server.client());
        let held = thread::spawn(move || fifo.post(&client, &json!({"body": "held", "group": "b"})));
        wait_until("a sync waits", || cut.held_syncs() > 0);
        // The sync may be another one, behind which the batch waits.
        thread::sleep(Duration::from_millis(300));
        held
    }

    /// Repeats the message until it is a new one. A duplicate of the old one waits behind the batch too.
    fn repeat_until_new(&self, server: &Server, old: &str) -> JoinHandle<String> {
        let (fifo, client, old) = (self.clone(), server.client(), old.to_owned());
        thread::spawn(move || {
            loop {
                let id = fifo.repeat(&client);
                if id != old {
                    return id;
                }
                thread::sleep(Duration::from_millis(20));
            }
        })
    }

    /// Kills the service and starts it again: a duplicate of the message that was posted last is recognised.
    fn assert_remembered(&self, cut: &PowerCut, server: Server, last: &str) {
        assert_eq!(self.repeat(&server.client()), last, "it is remembered in memory");
        server.kill9();
        let server = cut.server().start();
        assert_eq!(self.repeat(&server.client()), last, "it is remembered on the disk");
    }
}

#[test]
fn dedup_id_purged_and_posted_in_one_batch_survives_kill() {
    let (cut, fifo) = (PowerCut::new(), Fifo::new("letters"));
    let server = cut.server().arg("--commit-timeout=1h").start();
    let client = server.client();
    fifo.create(&client);
    let old = fifo.repeat(&client);
    assert_eq!(fifo.repeat(&client), old);

    let held = fifo.hold_batch(&cut, &server);
    let name = fifo.name.clone();
    let purging = thread::spawn(move || client.purge(&name).expect("the server is up"));
    // The removal of its note waits behind the batch from then on, and the new post behind that.
    thread::sleep(Duration::from_secs(2));
    let posting = fifo.repeat_until_new(&server, &old);
    thread::sleep(Duration::from_secs(1));
    assert!(!posting.is_finished() && !held.is_finished() && !purging.is_finished(), "all of them wait");
    cut.open_gate();
    let purged = purging.join().unwrap();
    assert_eq!(purged.status, StatusCode::NO_CONTENT, "{}", purged.text());
    held.join().unwrap();
    fifo.assert_remembered(&cut, server, &posting.join().unwrap());
}

#[test]
fn dedup_id_expired_and_posted_in_one_batch_survives_kill() {
    let cut = PowerCut::new();
    let slot = |name: &String| Cluster::slot_of(name);
    let mut names = (0..).map(|number| format!("letters-{number}"));
    let fifo = Fifo::new(&names.find(|name| SWEPT.contains(&slot(name))).expect("there are enough"));
    // The clock is right from the second start on.
    let behind = i64::try_from((REMEMBERED - LEFT).as_millis()).expect("it is small");
    let clock = SteppedClock::new(-behind);
    let server = ServerBuilder::new(&cut.data()).through(&clock.command()).start();
    fifo.create(&server.client());
    let old = fifo.repeat(&server.client());
    server.kill9();

    let server = cut.server().arg("--commit-timeout=1h").start();
    let swept = Instant::now() + SWEEP_ROUND / 256 * u32::try_from(SWEPT.end).expect("it is a slot") + LATE;
    assert_eq!(fifo.repeat(&server.client()), old, "it is not forgotten yet");
    thread::sleep(LEFT - Duration::from_secs(3));
    let held = fifo.hold_batch(&cut, &server);
    // The removal of its note waits behind the batch from then on.
    thread::sleep(swept.saturating_duration_since(Instant::now()));
    let posting = fifo.repeat_until_new(&server, &old);
    thread::sleep(Duration::from_secs(1));
    assert!(!posting.is_finished() && !held.is_finished(), "both of them wait");
    cut.open_gate();
    held.join().unwrap();
    fifo.assert_remembered(&cut, server, &posting.join().unwrap());
}
