//! A backup of ten gigabytes beside posts: the latencies of posts with and without it, how long commits were stopped,
//! and the memory of the service.
//!
//! `cargo bench --bench backup` takes some minutes and three times its size of the disk, and fails when a bar is missed;
//! `cargo bench --bench backup -- 1000` makes a backup of a thousand megabytes. Measurements with and without a backup
//! alternate in one run.

#[path = "../tests/support/mod.rs"]
mod support;

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;
use support::client::Client;
use support::server::{Server, ServerBuilder};
use tempfile::TempDir;

const MEGABYTES: usize = 10_000;
/// Megabytes that a backup reads in a second, by default.
const RATE: f64 = 32.0;
/// Of the latencies of posts at the 99th percentile: beside a backup, at most this many times those without one.
const LATENCY_BAR: f64 = 2.0;
/// How long commits may be stopped while the snapshots are taken.
const STOP_BAR: f64 = 50.0;
/// What the service may take at most while it makes a backup, above what it takes at most without one.
const MEMORY_BAR: usize = 64 << 20;
const ROUNDS: usize = 3;
/// Time between two posts of a client: a load that the service serves without a queue of requests, so that a latency is
/// that of the post.
const POST_PAUSE: Duration = Duration::from_millis(5);
const POSTERS: usize = 2;
/// Lives of messages, in seconds. The posted ones live for the shortest time: after it the service has as many of them
/// beside a backup as without one, and the difference of its memory is that of the backup.
const POSTED_LIFE: u64 = 60;
const STORED_LIFE: u64 = 86_400;
/// Time of posts before the first measurement: the service then has as many of them as it has from then on.
const WARM_UP: Duration = Duration::from_secs(POSTED_LIFE + 10);
/// Of a stored message.
const FILL_BYTES: usize = 200_000;
/// Messages in one post that fills the queue, and threads that fill it.
const FILL: usize = 5;
const FILLERS: usize = 2;

#[expect(clippy::print_stdout, reason = "the result is what a benchmark is for")]
fn main() {
    let megabytes = std::env::args().find_map(|word| word.parse().ok()).unwrap_or(MEGABYTES);
    let dir = TempDir::new().expect("a directory");
    let server = ServerBuilder::new(&dir.path().join("data")).start();
    fill(&server, megabytes * 1_000_000 / FILL_BYTES);
    post_while(&server, || thread::sleep(WARM_UP));
    let time = Duration::from_secs_f64(megabytes as f64 / RATE);
    let mut rounds: Vec<Round> = (0..ROUNDS).map(|round| measure(&server, &dir, round, time)).collect();
    rounds.sort_by(|one, other| one.ratio.total_cmp(&other.ratio));
    let ratio = rounds[ROUNDS / 2].ratio;
    let stopped = rounds.iter().map(|round| round.stopped_ms).fold(0.0, f64::max);
    let grown = rounds.iter().map(|round| round.grown).max().unwrap_or_default();
    println!(
        "median ratio of p99 {ratio:.2} (bar {LATENCY_BAR}); commits stopped for {stopped} ms at most (bar {STOP_BAR}); \
         {} MiB more memory at most (bar {})",
        grown >> 20,
        MEMORY_BAR >> 20
    );
    assert!(ratio <= LATENCY_BAR && stopped < STOP_BAR && grown < MEMORY_BAR, "a bar is missed");
}

fn fill(server: &Server, messages: usize) {
    let body = "x".repeat(FILL_BYTES - 2);
    thread::scope(|scope| {
        for _ in 0..FILLERS {
            scope.spawn(|| {
                let client = server.client();
                for _ in 0..messages / FILL / FILLERS {
                    post(&client, "stored", FILL, &body, STORED_LIFE);
                }
            });
        }
    });
}

/// Posts messages of one body in one request.
fn post(client: &Client, queue: &str, messages: usize, body: &str, ttl: u64) {
    let messages = vec![json!({"body": body, "ttl": ttl}); messages];
    let answer = client.post(&format!("/v2/queues/{queue}/messages"), &json!({"messages": messages}));
    let answer = answer.expect("the server answers");
    assert_eq!(answer.status, 201, "{}", answer.text());
}

struct Round {
    /// p99 of posts beside a backup to that of posts without one.
    ratio: f64,
    stopped_ms: f64,
    /// Memory at most beside the backup, above that at most without it, in bytes.
    grown: usize,
}

/// Measures posts for the time of a backup without one, then beside one.
#[expect(clippy::print_stdout, reason = "the result is what a benchmark is for")]
fn measure(server: &Server, dir: &TempDir, round: usize, time: Duration) -> Round {
    let alone = post_while(server, || thread::sleep(time));
    let (start, mut told) = (Instant::now(), String::new());
    let beside = post_while(server, || told = backup(server, dir));
    let time = start.elapsed();
    let (most, most_alone) = (beside.memory, alone.memory);
    let grown = most.saturating_sub(most_alone);
    let (beside, alone) = (beside.times, alone.times);
    let [beside_p99, alone_p99] = [&beside, &alone].map(|times| percentile(times, 99));
    let ratio = beside_p99.as_secs_f64() / alone_p99.as_secs_f64();
    println!(
        "round {round}: {told}; it took {:.1} s; {} posts beside it: p50 {:?}, p99 {beside_p99:?}; {} without: \
         p50 {:?}, p99 {alone_p99:?}; ratio {ratio:.2}; memory at most {} MiB, {} without",
        time.as_secs_f64(),
        beside.len(),
        percentile(&beside, 50),
        alone.len(),
        percentile(&alone, 50),
        most >> 20,
        most_alone >> 20
    );
    Round { ratio, stopped_ms: stopped_ms(&told), grown }
}

/// Posts that were made beside something else.
struct Posts {
    /// The shortest first.
    times: Vec<Duration>,
    /// Memory of the service at most, in bytes.
    memory: usize,
}

/// Posts, and watches the memory of the service, until `other` has ended.
fn post_while(server: &Server, other: impl FnOnce()) -> Posts {
    let is_done = AtomicBool::new(false);
    let is_over = || is_done.load(Ordering::Relaxed);
    let mut memory = 0;
    let times = thread::scope(|scope| {
        let posting = scope.spawn(|| post_until(server, is_over));
        scope.spawn(|| {
            while !is_over() {
                memory = memory.max(server.memory());
                thread::sleep(Duration::from_millis(20));
            }
        });
        other();
        is_done.store(true, Ordering::Relaxed);
        posting.join().expect("the posts succeed")
    });
    Posts { times, memory }
}

/// Makes a backup and removes it. Returns what the command prints about it.
fn backup(server: &Server, dir: &TempDir) -> String {
    let target = dir.path().join("backup");
    let mut command = Command::new(env!("CARGO_BIN_EXE_angarium"));
    let ended =
        command.arg("backup").arg(&target).args(["--url", server.base()]).output().expect("it starts");
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    std::fs::remove_dir_all(&target).expect("it was made");
    String::from_utf8_lossy(&ended.stdout).trim().to_owned()
}

/// Reads the time from the last words of the command: "commits were stopped for 1.244 ms".
fn stopped_ms(told: &str) -> f64 {
    let number = told.strip_suffix(" ms").and_then(|rest| rest.rsplit(' ').next());
    number.and_then(|number| number.parse().ok()).expect("it tells the time")
}

/// Posts single messages by some clients until `is_over`. Returns the times of the posts, the shortest first.
fn post_until(server: &Server, is_over: impl Fn() -> bool + Sync) -> Vec<Duration> {
    let (is_over, client) = (&is_over, || server.client());
    let mut times: Vec<Duration> = thread::scope(|scope| {
        let posting: Vec<_> =
            (0..POSTERS).map(|_| scope.spawn(move || latencies(&client(), is_over))).collect();
        posting.into_iter().flat_map(|posting| posting.join().expect("the posts succeed")).collect()
    });
    times.sort();
    times
}

fn latencies(client: &Client, is_over: impl Fn() -> bool) -> Vec<Duration> {
    let (mut times, body) = (Vec::new(), "x".repeat(200));
    while !is_over() {
        let start = Instant::now();
        post(client, "posted", 1, &body, POSTED_LIFE);
        times.push(start.elapsed());
        thread::sleep(POST_PAUSE);
    }
    times
}

fn percentile(sorted: &[Duration], part: usize) -> Duration {
    sorted[(sorted.len() * part / 100).min(sorted.len() - 1)]
}
