//! What peeks cost the claims beside them: the rate of claims of a queue of a million messages, alone and while another
//! client looks through the whole queue, and the memory of the process.
//!
//! `cargo bench --bench peek` takes about a minute and fails when a bar is missed; `cargo bench --bench peek -- 10000000`
//! looks through ten million messages. Rounds with and without the peek alternate in one run.

#[path = "../tests/support/mod.rs"]
mod support;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::client::Client;
use support::server::{Server, ServerBuilder};
use tempfile::TempDir;

const MESSAGES: usize = 1_000_000;
/// Of the times of a round: beside a peek, at most this many times that without one.
const TIME_BAR: f64 = 1.2;
/// Resident memory of the process at its end, with a million messages or ten.
const MEMORY_BAR: usize = 640 << 20;
const ROUNDS: usize = 9;
/// Claims of a round. Each message is deleted under its claim and posted again, so that the queue keeps its size.
const CLAIMS: usize = 500;
const BODY_BYTES: usize = 200;
/// Messages in one post that fills the queue, and threads that fill it.
const FILL: usize = 500;
const FILLERS: usize = 4;
const QUEUE: &str = "peeked";
/// The first page of a peek that reads every message and shows none.
const FIRST: &str = "/v2/queues/peeked/peek?contains=absent&limit=20";

/// The pages of a peek through the queue.
struct Walk {
    pages: usize,
    looked_at: u64,
}

#[expect(clippy::print_stdout, reason = "the result is what a benchmark is for")]
fn main() {
    let messages = std::env::args().find_map(|word| word.parse().ok()).unwrap_or(MESSAGES);
    let dir = TempDir::new().expect("a directory");
    let server = ServerBuilder::new(&dir.path().join("data")).start();
    fill(&server, messages);
    claims(&server.client());
    let (mut ratios, mut next) = (Vec::new(), FIRST.to_owned());
    for round in 0..ROUNDS {
        let alone = claims(&server.client());
        let (beside, walk) = claims_beside_peek(&server, &mut next);
        let ratio = beside.as_secs_f64() / alone.as_secs_f64();
        let rate = |time: Duration| CLAIMS as f64 / time.as_secs_f64();
        println!(
            "round {round}: {:.0} claims/s alone, {:.0} beside a peek of {} pages and {} messages, ratio {ratio:.2}",
            rate(alone),
            rate(beside),
            walk.pages,
            walk.looked_at
        );
        assert!(walk.looked_at > 0, "the peek has looked at nothing");
        ratios.push(ratio);
    }
    ratios.sort_by(f64::total_cmp);
    let (ratio, memory) = (ratios[ROUNDS / 2], server.memory());
    println!(
        "{messages} messages: median ratio {ratio:.2} (bar {TIME_BAR}), resident {} MiB (bar {} MiB)",
        memory >> 20,
        MEMORY_BAR >> 20
    );
    assert!(ratio <= TIME_BAR && memory < MEMORY_BAR, "a bar is missed");
}

fn fill(server: &Server, messages: usize) {
    let bodies = vec![body(); FILL.min(messages / FILLERS)];
    thread::scope(|scope| {
        for _ in 0..FILLERS {
            scope.spawn(|| {
                let client = server.client();
                for _ in 0..messages / bodies.len() / FILLERS {
                    post(&client, &bodies);
                }
            });
        }
    });
}

fn body() -> Value {
    json!("x".repeat(BODY_BYTES - 2))
}

fn post(client: &Client, bodies: &[Value]) {
    let answer = client.post_messages(QUEUE, bodies).expect("the server answers");
    assert_eq!(answer.status, 201, "{}", answer.text());
}

/// Returns the time of the claims of a round, by one client: of the claims alone, without the deletions and posts.
fn claims(client: &Client) -> Duration {
    let mut time = Duration::ZERO;
    for _ in 0..CLAIMS {
        let start = Instant::now();
        let answer = client.claim(QUEUE, 1, 60).expect("the server answers");
        time += start.elapsed();
        let claim = answer.granted().expect("there are messages");
        let deleted = client.delete_message(QUEUE, &claim.messages[0].id, Some(&claim.id));
        assert_eq!(deleted.expect("the server answers").status, 204);
        post(client, &[body()]);
    }
    time
}

/// Returns the time of the claims of a round while another client looks through the queue, from `next` on, and from its
/// begin again when it has reached the end.
fn claims_beside_peek(server: &Server, next: &mut String) -> (Duration, Walk) {
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        let walking = scope.spawn(|| walk(&server.client(), &is_done, next));
        let time = claims(&server.client());
        is_done.store(true, Ordering::Relaxed);
        (time, walking.join().expect("the peek has succeeded"))
    })
}

fn walk(client: &Client, is_done: &AtomicBool, next: &mut String) -> Walk {
    let mut walk = Walk { pages: 0, looked_at: 0 };
    while !is_done.load(Ordering::Relaxed) {
        let answer = client.get(next).expect("the server answers");
        assert_eq!(answer.status, 200, "{}", answer.text());
        let page = answer.json();
        walk.pages += 1;
        walk.looked_at += page["looked_at"].as_u64().expect("it is a number");
        *next = page["links"][0]["href"].as_str().unwrap_or(FIRST).to_owned();
    }
    walk
}
