//! What waiting messages cost: two servers with as many as are asked for, and the same load on both in turn.

use std::thread;

use serde_json::{Value, json};

use super::load::run_against;
use super::ratio;
use crate::support::client::Client;
use crate::support::server::{Server, ServerBuilder};

/// The queues that the load generator uses.
const STANDARD: &str = "bench-0";
const FIFO: &str = "bench-0.fifo";
/// Groups of the load, as many as it makes.
const GROUPS: usize = 100;
/// Messages in a post that fills a queue, and threads that fill it.
const FILL: usize = 250;
const FILLERS: usize = 4;

/// The rate beside the first number of waiting messages over that beside the second.
pub fn standard(turns: &str, waiting: [usize; 2], rounds: usize) -> f64 {
    compare(turns, waiting, rounds, |server, waiting| {
        fill(server, STANDARD, waiting, |_| json!({"body": body(), "ttl": 3600}));
    })
}

/// The same in a FIFO queue, whose groups take turns.
pub fn fifo(turns: &str, waiting: [usize; 2], rounds: usize) -> f64 {
    compare(&format!("{turns} --groups {GROUPS}"), waiting, rounds, |server, waiting| {
        create(server);
        fill(server, FIFO, waiting, |number| message(format!("group-{}", number % GROUPS)));
    })
}

/// The rate of a FIFO queue in which nothing waits over that where so many messages wait behind messages in flight, in so many
/// other groups.
pub fn blocked(turns: &str, [waiting, groups]: [usize; 2], rounds: usize) -> f64 {
    compare(&format!("{turns} --groups {GROUPS}"), [0, waiting], rounds, |server, waiting| {
        create(server);
        fill(server, FIFO, waiting, |number| message(format!("blocked-{}", number % groups)));
        // One message of each group: what is left of it waits for that.
        for _ in 0..if waiting > 0 { groups } else { 0 } {
            let claimed = server.client().claim(FIFO, 1, 3600).expect("it answers");
            assert_eq!(claimed.status, 201, "{}", claimed.text());
        }
    })
}

fn compare(turns: &str, waiting: [usize; 2], rounds: usize, prepare: impl Fn(&Server, usize)) -> f64 {
    let dirs = waiting.map(|_| tempfile::tempdir().expect("a directory"));
    let servers = dirs.each_ref().map(|dir| ServerBuilder::new(dir.path()).start());
    servers.iter().zip(waiting).for_each(|(server, waiting)| prepare(server, waiting));
    ratio(rounds, || servers.each_ref().map(|server| run_against(server, turns)))
}

fn create(server: &Server) {
    let created = server.client().put(&path(FIFO), Some(&json!({"_fifo": true}))).expect("it answers");
    assert_eq!(created.status, 201, "{}", created.text());
}

fn path(queue: &str) -> String {
    format!("/v2/queues/{queue}")
}

fn body() -> Value {
    json!("x".repeat(256))
}

fn message(group: String) -> Value {
    json!({"body": body(), "ttl": 3600, "group": group})
}

/// Posts messages, each made from its number.
fn fill(server: &Server, queue: &str, messages: usize, message: impl Fn(usize) -> Value + Sync) {
    let per_thread = messages / FILLERS;
    thread::scope(|scope| {
        for first in (0..FILLERS).map(|filler| filler * per_thread) {
            let (client, message) = (server.client(), &message);
            scope.spawn(move || {
                for start in (first..first + per_thread).step_by(FILL) {
                    let end = (start + FILL).min(first + per_thread);
                    post(&client, queue, (start..end).map(message).collect());
                }
            });
        }
    });
}

fn post(client: &Client, queue: &str, messages: Vec<Value>) {
    let answer = client.post(&format!("{}/messages", path(queue)), &json!({"messages": messages}));
    let answer = answer.expect("it answers");
    assert_eq!(answer.status, 201, "{}", answer.text());
}
