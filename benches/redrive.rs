//! A redrive of ten messages of a million: a task moves the messages that have a tag, and leaves all others as they
//! were. Its time, the memory of the process, and the latencies of claims of the same queue with and without it.
//!
//! `cargo bench --bench redrive` takes a few minutes and fails when another message is moved or changed, or a bar is
//! missed; `cargo bench --bench redrive -- 20000` does the same with fewer messages. Measurements with and without a
//! task alternate in one run.

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
/// Messages that each task finds. They are spread over the queue.
const RARE: usize = 10;
/// Of the latencies of claims at the 99th percentile: beside a task, at most this many times that without one. Without
/// a task the service is idle between two requests, and a scan beside the claims also takes from the caches of the
/// processor.
const LATENCY_BAR: f64 = 2.0;
const MEMORY_BAR: usize = 640 << 20;
/// Tasks beside claims.
const ROUNDS: usize = 5;
/// Time between two claims: a load that the service serves without a queue of requests, so that a latency is that of
/// the claim.
const CLAIM_PAUSE: Duration = Duration::from_millis(2);
const BODY_BYTES: usize = 200;
/// Messages in one post that fills the queue, and threads that fill it.
const FILL: usize = 500;
const FILLERS: usize = 4;
/// Messages on a page of the peek that lists the queue.
const PAGE: usize = 500;
const QUEUE: &str = "waiting";
const REPAIRED: &str = "repaired";
const TASKS: &str = "/v2/queues/waiting/tasks";

#[expect(clippy::print_stdout, reason = "the result is what a benchmark is for")]
fn main() {
    let messages = std::env::args().find_map(|word| word.parse().ok()).unwrap_or(MESSAGES);
    let dir = TempDir::new().expect("a directory");
    let server = ServerBuilder::new(&dir.path().join("data"))
        .arg("--max-messages-per-page")
        .arg(PAGE.to_string())
        .start();
    let client = server.client();
    for _ in 0..RARE {
        fill(&server, messages / RARE);
        post_rare(&client);
    }
    assert_eq!(client.create_queue(REPAIRED).expect("the server answers").status, 201);
    let idle = server.memory();
    check_others_untouched(&server);
    let ratio = measure_claims(&server);
    let memory = server.memory();
    println!(
        "median ratio of p99 {ratio:.2} (bar {LATENCY_BAR}); resident {} MiB before, {} MiB after (bar {} MiB)",
        idle >> 20,
        memory >> 20,
        MEMORY_BAR >> 20
    );
    assert!(ratio <= LATENCY_BAR && memory < MEMORY_BAR, "a bar is missed");
}

fn fill(server: &Server, messages: usize) {
    let body = json!("x".repeat(BODY_BYTES - 2));
    let bodies = vec![body; FILL.min(messages / FILLERS)];
    thread::scope(|scope| {
        for _ in 0..FILLERS {
            scope.spawn(|| {
                let client = server.client();
                for _ in 0..messages / bodies.len() / FILLERS {
                    let answer = client.post_messages(QUEUE, &bodies).expect("the server answers");
                    assert_eq!(answer.status, 201, "{}", answer.text());
                }
            });
        }
    });
}

/// Posts one message for each task.
fn post_rare(client: &Client) {
    let rare: Vec<Value> =
        (0..=ROUNDS).map(|round| json!({"body": "rare", "ttl": 3_600, "tags": [tag(round)]})).collect();
    let answer = client.post(&format!("/v2/queues/{QUEUE}/messages"), &json!({"messages": rare}));
    assert_eq!(answer.expect("the server answers").status, 201);
}

fn tag(round: usize) -> String {
    format!("rare {round}")
}

/// Moves the messages of a round, and returns the task when it has ended.
fn redrive(client: &Client, round: usize) -> Value {
    let filter = json!({"state": ["ready"], "tag": tag(round)});
    let asked = json!({"do": "move", "filter": filter, "to": REPAIRED});
    let answer = client.post(TASKS, &asked).expect("the server answers");
    assert_eq!(answer.status, 202, "{}", answer.text());
    loop {
        let task = client.get(TASKS).expect("the server answers").json()["tasks"][0].take();
        if task["state"] != "running" {
            assert_eq!((&task["state"], &task["moved"]), (&json!("completed"), &json!(RARE)), "{task}");
            assert_eq!((&task["failed"], &task["filter"]), (&json!({}), &filter), "{task}");
            return task;
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// Moves the messages of round 0 while no other client is there, and compares all messages with those before.
#[expect(clippy::print_stdout, reason = "the result is what a benchmark is for")]
fn check_others_untouched(server: &Server) {
    let client = server.client();
    let before = listed(&client, QUEUE);
    let (start, idle) = (Instant::now(), server.memory());
    let mut peak = idle;
    let is_done = AtomicBool::new(false);
    let task = thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                peak = peak.max(server.memory());
                thread::sleep(Duration::from_millis(20));
            }
        });
        let task = redrive(&client, 0);
        is_done.store(true, Ordering::Relaxed);
        task
    });
    println!(
        "a task moved {} of {} messages in {:.1} s; resident {} MiB before it, {} MiB at most",
        task["moved"],
        task["looked_at"],
        start.elapsed().as_secs_f64(),
        idle >> 20,
        peak >> 20
    );
    assert_eq!(task["looked_at"], json!(before.len()));
    let is_rare = |message: &&Value| message["details"]["tags"] == json!([tag(0)]);
    let (rare, others): (Vec<&Value>, Vec<&Value>) = before.iter().partition(is_rare);
    let after = listed(&client, QUEUE);
    assert_eq!(after.len(), before.len() - RARE);
    assert!(others.into_iter().eq(&after), "another message was moved or changed, or the order was");
    let ids = |messages: &[Value]| messages.iter().map(|message| message["id"].clone()).collect::<Vec<_>>();
    assert_eq!(
        ids(&listed(&client, REPAIRED)),
        rare.iter().map(|message| message["id"].clone()).collect::<Vec<_>>()
    );
    let stats = client.stats(QUEUE).expect("the server answers").json();
    assert_eq!(stats["messages"]["free"], json!(after.len()), "{stats}");
}

/// Lists all messages of a queue, without the fields that a second later differ.
fn listed(client: &Client, queue: &str) -> Vec<Value> {
    let mut all = Vec::new();
    let mut next = Some(format!("/v2/queues/{queue}/peek?body=none&limit={PAGE}"));
    while let Some(path) = next {
        let answer = client.get(&path).expect("the server answers");
        assert_eq!(answer.status, 200, "{}", answer.text());
        let mut page = answer.json();
        let messages = page["messages"].as_array_mut().expect("it is a list");
        all.extend(messages.iter_mut().map(|message| {
            let mut message = message.take();
            message.as_object_mut().expect("it is an object").remove("age");
            message
        }));
        next = page["links"][0]["href"].as_str().map(ToOwned::to_owned);
    }
    all
}

/// Measures claims beside a task and for the same time without one, in turn. Returns the median ratio.
#[expect(clippy::print_stdout, reason = "the result is what a benchmark is for")]
fn measure_claims(server: &Server) -> f64 {
    let mut ratios = Vec::new();
    for round in 1..=ROUNDS {
        let (is_done, start) = (AtomicBool::new(false), Instant::now());
        let (beside, task) = thread::scope(|scope| {
            let claiming = scope.spawn(|| latencies(&server.client(), || is_done.load(Ordering::Relaxed)));
            let task = redrive(&server.client(), round);
            is_done.store(true, Ordering::Relaxed);
            (claiming.join().expect("the claims succeed"), task)
        });
        let time = start.elapsed();
        let start = Instant::now();
        let alone = latencies(&server.client(), || start.elapsed() > time);
        let [beside_p99, alone_p99] = [&beside, &alone].map(|times| percentile(times, 99));
        let ratio = beside_p99.as_secs_f64() / alone_p99.as_secs_f64();
        println!(
            "round {round}: {} of {} moved in {:.1} s; {} claims beside it: p50 {:?}, p99 {beside_p99:?}; {} without: \
             p50 {:?}, p99 {alone_p99:?}; ratio {ratio:.2}",
            task["moved"],
            task["looked_at"],
            time.as_secs_f64(),
            beside.len(),
            percentile(&beside, 50),
            alone.len(),
            percentile(&alone, 50)
        );
        ratios.push(ratio);
    }
    ratios.sort_by(f64::total_cmp);
    ratios[ROUNDS / 2]
}

/// Claims single messages and deletes them until `is_over`. Returns the times of the claims, the shortest first.
fn latencies(client: &Client, is_over: impl Fn() -> bool) -> Vec<Duration> {
    let mut times = Vec::new();
    while !is_over() {
        let start = Instant::now();
        let answer = client.claim(QUEUE, 1, 60).expect("the server answers");
        times.push(start.elapsed());
        let claim = answer.granted().expect("there are messages");
        let deleted = client.delete_message(QUEUE, &claim.messages[0].id, Some(&claim.id));
        assert_eq!(deleted.expect("the server answers").status, 204);
        thread::sleep(CLAIM_PAUSE);
    }
    times.sort();
    times
}

fn percentile(sorted: &[Duration], part: usize) -> Duration {
    sorted[(sorted.len() * part / 100).min(sorted.len() - 1)]
}
