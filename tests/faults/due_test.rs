//! Owns the tests of delayed messages that are removed in the second in which they are due: none of them appears as ready, no
//! claim is refused because of one, and the others are delivered.

use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant};

use http::StatusCode;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::client::Client;
use crate::support::server::{Server, ServerBuilder};
use angarium_testbed::held::wait_until;

/// Seconds until they are due.
const DELAY: u64 = 1;
/// Each has a client of its own.
const QUEUES: usize = 12;
/// How often messages of a queue are removed: a removal that ends between the read of the due messages and their wake is rare.
const ROUNDS: usize = 8;
/// Messages of a round, which are made ready together: the read of their page takes a while.
const MESSAGES: usize = 200;
/// Ids of one deletion.
const DELETED_AT_ONCE: usize = 20;
/// When the removals of a round begin before its messages are due: at another one of so many steps in each.
const STEPS: usize = 12;
const STEP: Duration = Duration::from_millis(3);
/// After this time messages that are not delayed any more can be claimed, and what must not appear would have appeared.
const ALL_SERVED: Duration = Duration::from_secs(1);

/// A queue and what removals have left in it.
struct WatchedQueue {
    name: String,
    client: Client,
    left: BTreeSet<String>,
}

/// Removes messages, all of which are in the queue and due now, or nearly so.
type Removal = fn(&mut WatchedQueue, ids: &[String]);

impl WatchedQueue {
    /// Posts messages that are due at the same instant, and removes of them at about that instant, again and again.
    fn run_rounds(&mut self, number: usize, remove: Removal) {
        let bodies: Vec<Value> = (0..MESSAGES).map(|body| json!(body)).collect();
        for round in 0..ROUNDS {
            let began = Instant::now();
            let posted = self.client.post_delayed(&self.name, &bodies, DELAY).unwrap();
            assert_eq!(posted.status, StatusCode::CREATED, "{}", posted.text());
            // The service counted from some instant between these two.
            let due = began + began.elapsed() / 2 + Duration::from_secs(DELAY);
            let early = STEP * u32::try_from((number + round) % STEPS).expect("it is small");
            thread::sleep((due - early).saturating_duration_since(Instant::now()));
            remove(self, &posted.posted_ids());
        }
    }

    /// Deletes the first half by their ids.
    fn delete_half(&mut self, ids: &[String]) {
        let (deleted, kept) = ids.split_at(ids.len() / 2);
        for ids in deleted.chunks(DELETED_AT_ONCE) {
            let path = format!("/v2/queues/{}/messages?ids={}", self.name, ids.join(","));
            let answer = self.client.delete(&path).unwrap();
            assert_eq!(answer.status, StatusCode::NO_CONTENT, "{}", answer.text());
        }
        self.left.extend(kept.iter().cloned());
    }

    /// Purges the queue.
    fn purge(&mut self, _: &[String]) {
        let purged = self.client.purge(&self.name).unwrap();
        assert_eq!(purged.status, StatusCode::NO_CONTENT, "{}", purged.text());
    }

    /// How many messages are not ready yet.
    fn delayed(&self) -> u64 {
        let stats = self.client.stats(&self.name).unwrap().json();
        stats["messages"]["delayed"].as_u64().unwrap_or_else(|| panic!("they are counted: {stats}"))
    }

    /// Claims give exactly the remaining messages, and none of them is refused.
    fn assert_left(&mut self) {
        let posted = self.client.post_messages(&self.name, &[json!("after"), json!("all")]).unwrap();
        self.left.extend(posted.posted_ids());
        let mut claimed = BTreeSet::new();
        loop {
            let answer = self.client.claim(&self.name, 100, 300).unwrap();
            assert!(answer.status.is_success(), "{}: {} {}", self.name, answer.status, answer.text());
            let Some(claim) = answer.granted() else { break };
            for message in claim.messages {
                assert!(claimed.insert(message.id), "{}: a message is claimed twice", self.name);
            }
        }
        assert!(claimed == self.left, "{}: {} claimed, {} left", self.name, claimed.len(), self.left.len());
    }
}

fn assert_removals_are_final(remove: Removal) {
    let dir = TempDir::new().unwrap();
    let builder = ServerBuilder::new(dir.path()).arg("--max-messages-per-page=500");
    let server = builder.arg("--max-messages-per-claim-or-pop=100").start();
    thread::scope(|scope| {
        for number in 0..QUEUES {
            let (name, client) = (format!("q{number}"), server.client());
            scope.spawn(move || {
                let mut queue = WatchedQueue { name, client, left: BTreeSet::new() };
                queue.run_rounds(number, remove);
                wait_until("no message is delayed any more", || queue.delayed() == 0);
                thread::sleep(ALL_SERVED);
                queue.assert_left();
            });
        }
    });
    assert_eq!(missing(&server), 0);
}

/// How many messages memory had and the pool had not.
fn missing(server: &Server) -> u64 {
    let page = server.client().get("/metrics").unwrap().text();
    let line = page.lines().find_map(|line| line.strip_prefix("angarium_messages_missing_total "));
    line.and_then(|count| count.parse().ok()).unwrap_or_else(|| panic!("it is counted: {page}"))
}

#[test]
fn messages_deleted_while_due_never_appear() {
    assert_removals_are_final(WatchedQueue::delete_half);
}

#[test]
fn messages_purged_while_due_never_appear() {
    assert_removals_are_final(WatchedQueue::purge);
}
