//! What idle queues cost a process with its store: memory with all of them open, with all of them closed, and after a restart.
//!
//! `cargo bench --bench queues` makes 100,000 queues and takes about 15 minutes, most of which it waits until unused
//! queues are closed; `cargo bench --bench queues -- 1000000` makes a million. It fails when a bar is missed.

#[path = "../tests/support/mod.rs"]
mod support;

use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::client::Client;
use support::server::{Server, ServerBuilder};
use tempfile::TempDir;

const QUEUES: usize = 100_000;
const CLIENTS: usize = 8;
/// Resident memory of the process, with all queues closed and after a restart, whatever their number.
const MEMORY_BAR: usize = 200 << 20;
/// Resident memory of an open queue.
const OPEN_BAR: usize = 6_000;
/// Longer than unused queues stay open.
const REST: Duration = Duration::from_secs(30 * 60);
const LOOK: Duration = Duration::from_secs(15);

#[expect(clippy::print_stdout, reason = "the result is what a benchmark is for")]
fn main() {
    let queues = std::env::args().find_map(|word| word.parse().ok()).unwrap_or(QUEUES);
    let dir = TempDir::new().expect("a directory");
    let builder = ServerBuilder::new(&dir.path().join("data"));
    let server = builder.start();
    let empty = server.memory_at_rest();
    let start = Instant::now();
    use_each(&server, queues);
    let (opened, open) = (server.memory(), open_queues(&server));
    println!("{queues} queues made and used in {:.0?}, {open} of them open", start.elapsed());
    let start = Instant::now();
    while open_queues(&server) > 0 {
        assert!(start.elapsed() < REST, "{} queues are open", open_queues(&server));
        // A queue that no page has shown stays open for longer.
        server.client().get("/metrics").expect("the server answers");
        thread::sleep(LOOK);
    }
    let closed = server.memory_at_rest();
    println!("all are closed after {:.0?}", start.elapsed());
    server.terminate();
    let server = builder.start();
    let restarted = server.memory_at_rest();
    assert_eq!(open_queues(&server), 0, "a start opens no queue");
    let found = server.client().get(&format!("/v2/queues/{}", name(queues - 1))).expect("the server answers");
    assert_eq!(found.status, 200, "{}", found.text());
    let per_queue = opened.saturating_sub(empty) / open.max(1);
    for (state, bytes) in
        [("empty", empty), ("all open", opened), ("all closed", closed), ("restarted", restarted)]
    {
        println!("{state}: {:.1} MiB resident", bytes as f64 / f64::from(1 << 20));
    }
    println!("an open queue: {per_queue} bytes (bar {OPEN_BAR}); idle queues: bar {} MiB", MEMORY_BAR >> 20);
    let is_small = closed < MEMORY_BAR && restarted < MEMORY_BAR;
    assert!(is_small && per_queue < OPEN_BAR, "a bar is missed");
}

fn name(number: usize) -> String {
    format!("idle-{number}")
}

/// Makes each queue, posts a message to it, claims it and deletes it, as a queue is used that then rests.
fn use_each(server: &Server, queues: usize) {
    thread::scope(|scope| {
        for first in 0..CLIENTS {
            scope.spawn(move || {
                let client = server.client();
                for number in (first..queues).step_by(CLIENTS) {
                    use_once(&client, &name(number));
                }
            });
        }
    });
}

fn use_once(client: &Client, queue: &str) {
    let posted = client.post_messages(queue, &[json!("x")]).expect("the server answers");
    assert_eq!(posted.status, 201, "{}", posted.text());
    let claim = client.claim(queue, 1, 60).expect("the server answers").granted().expect("it is there");
    let deleted = client.delete_message(queue, &claim.messages[0].id, Some(&claim.id));
    assert_eq!(deleted.expect("the server answers").status, 204);
}

fn open_queues(server: &Server) -> usize {
    let stats = server.client().get("/v2/stats").expect("the server answers").json();
    let replicas = stats["components"].as_array().expect("they are listed");
    let open = |replica: &Value| replica["serves"]["open_queues"].as_u64();
    let open: u64 = replicas.iter().map(|replica| open(replica).expect("it is reported")).sum();
    usize::try_from(open).expect("it fits")
}
