//! What subscriptions cost: the service's CPU for a post beside that of a post without any, by their number and by the
//! size of bodies; copies that are made, and copies that are claimed and deleted, in a second; deliveries to webhooks.
//!
//! `cargo bench --bench fanout` takes about two minutes and writes a few GiB to the directory of temporary files. It
//! fails when a bar is missed. The load runs on the same machine; ratios in one run tell more than rates.

#[path = "../tests/support/mod.rs"]
mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::client::Client;
use support::server::{Server, ServerBuilder};
use tempfile::TempDir;

/// The queue to which `angarium bench` posts.
const QUEUE: &str = "bench-0";
const NUMBERS: [usize; 5] = [0, 1, 4, 16, 64];
/// Of the CPU for a plain post of ten messages: what each subscription adds, at most.
const ADDED_BAR: f64 = 0.25;
const BODIES: [usize; 3] = [200, 1_024, 65_536];
/// Subscriptions for rates.
const MANY: usize = 16;
/// Copies that are durable in a second, in posts of a hundred messages.
const ENTRIES_BAR: f64 = 50_000.0;
/// Copies that are claimed and deleted in a second.
const CLAIMED_BAR: f64 = 20_000.0;
const CLAIM: usize = 100;
const CONSUMERS: usize = 8;
const DELIVERIES_BAR: f64 = 5_000.0;
const DELIVERIES: usize = 40_000;
const WEBHOOKS: usize = 8;
/// Time of claims and the longest time of deliveries.
const SECONDS: Duration = Duration::from_secs(5);
const PATIENCE: Duration = Duration::from_secs(120);

#[expect(clippy::print_stdout, reason = "the result is what a benchmark is for")]
fn main() {
    println!("load average {}", std::fs::read_to_string("/proc/loadavg").unwrap_or_default().trim());
    let mut missed = Vec::new();
    let mut judge = |what: &str, figure: String, is_kept: bool| {
        println!("{what}: {figure}");
        if !is_kept {
            missed.push(what.to_owned());
        }
    };
    let ten = "post --batch 10 --connections 16 --rounds 3 --seconds 2";
    let plain = posts(0, ten);
    for number in NUMBERS {
        let posts = if number == 0 { plain } else { posts(number, ten) };
        let added = (posts.cpu / plain.cpu - 1.0) / number.max(1) as f64;
        let what = format!("posts of ten messages with {number} subscriptions");
        let figure = format!(
            "{:.0} posts/s, {:.0} µs of CPU each; a subscription adds {:.1} % of a plain post (bar {:.0} %)",
            posts.rate,
            posts.cpu,
            added * 100.0,
            ADDED_BAR * 100.0
        );
        judge(&what, figure, added <= ADDED_BAR);
    }
    for bytes in BODIES {
        let words = format!("post --connections 16 --rounds 1 --seconds 2 --body-bytes {bytes}");
        let [plain, fanned] = [0, MANY].map(|number| posts(number, &words));
        println!(
            "one message of {bytes} bytes: {:.0} µs of CPU, with {MANY} subscriptions {:.0} µs",
            plain.cpu, fanned.cpu
        );
    }
    let (entries, claimed) = entries_and_claims();
    judge(
        "copies made, in posts of a hundred",
        format!("{entries:.0}/s (bar {ENTRIES_BAR:.0})"),
        entries >= ENTRIES_BAR,
    );
    judge(
        "copies claimed and deleted",
        format!("{claimed:.0}/s (bar {CLAIMED_BAR:.0})"),
        claimed >= CLAIMED_BAR,
    );
    let delivered = deliveries();
    judge(
        "deliveries to webhooks",
        format!("{delivered:.0}/s (bar {DELIVERIES_BAR:.0})"),
        delivered >= DELIVERIES_BAR,
    );
    assert!(missed.is_empty(), "missed: {missed:?}");
}

/// The medians of a load.
#[derive(Clone, Copy)]
struct Posts {
    rate: f64,
    /// Microseconds of the service for a post.
    cpu: f64,
}

/// A service of its own, and the paths of subscriptions of the queue.
struct Fanning {
    server: Server,
    subscriptions: Vec<String>,
    _data: TempDir,
}

impl Fanning {
    fn start(subscribers: &[String], options: &Value) -> Self {
        let data = TempDir::new().expect("a directory");
        let server = ServerBuilder::new(&data.path().join("data"))
            .arg("--webhook-allow=127.0.0.0/8")
            .arg(format!("--max-messages-per-claim-or-pop={CLAIM}"))
            .arg(format!("--max-messages-per-page={CLAIM}"))
            .start();
        let client = server.client();
        let path = format!("/v2/queues/{QUEUE}/subscriptions");
        let subscribe = |subscriber: &String| {
            let created =
                client.post(&path, &json!({"subscriber": subscriber, "ttl": 86_400, "options": options}));
            let created = created.expect("the server answers");
            assert_eq!(created.status, 201, "{}", created.text());
            let id = created.json()["subscription_id"].as_str().expect("an id").to_owned();
            format!("{QUEUE}/subscriptions/{id}")
        };
        let subscriptions = subscribers.iter().map(subscribe).collect();
        Self { server, subscriptions, _data: data }
    }

    /// With readers that read nothing during the load, and bounds that it does not reach.
    fn pulled(number: usize) -> Self {
        let subscribers: Vec<String> = (0..number).map(|number| format!("pull:{number}")).collect();
        Self::start(&subscribers, &json!({"max_messages": 100_000_000, "max_bytes": 1_u64 << 40}))
    }

    fn load(&self, words: &str) -> Posts {
        let output = Command::new(env!("CARGO_BIN_EXE_angarium"))
            .arg("bench")
            .args(words.split_whitespace())
            .args(["--json", "--no-ceiling", "--keep", "--url", self.server.base()])
            .args(["--pid", &self.server.pid().to_string()])
            .stderr(Stdio::null())
            .output()
            .expect("the built program can be started");
        assert!(output.status.success(), "the load failed: {}", String::from_utf8_lossy(&output.stdout));
        let report: Value = serde_json::from_slice(&output.stdout).expect("the report is JSON");
        let figure = |name: &str| report["server"][name].as_f64().expect("the report has it");
        Posts { rate: figure("requests_per_second"), cpu: figure("server_us_per_request") }
    }
}

fn posts(subscriptions: usize, words: &str) -> Posts {
    Fanning::pulled(subscriptions).load(words)
}

/// Copies made in a second, then copies claimed and deleted in a second.
fn entries_and_claims() -> (f64, f64) {
    let fanning = Fanning::pulled(MANY);
    let posts = fanning.load("post --batch 100 --connections 16 --rounds 3 --seconds 2");
    let (taken, start) = (AtomicUsize::new(0), Instant::now());
    thread::scope(|scope| {
        for number in 0..CONSUMERS {
            let (client, taken, all) = (fanning.server.client(), &taken, &fanning.subscriptions);
            scope.spawn(move || {
                for queue in all.iter().cycle().skip(number) {
                    if start.elapsed() > SECONDS {
                        return;
                    }
                    taken.fetch_add(claim_and_delete(&client, queue), Ordering::Relaxed);
                }
            });
        }
    });
    let claimed = taken.into_inner() as f64 / start.elapsed().as_secs_f64();
    (posts.rate * (100 * MANY) as f64, claimed)
}

fn claim_and_delete(client: &Client, queue: &str) -> usize {
    let claimed = client.claim(queue, CLAIM, 60).expect("the server answers");
    let claim = claimed.granted().expect("there are messages");
    let ids: Vec<&str> = claim.messages.iter().map(|message| message.id.as_str()).collect();
    let deleted = client.delete_messages(queue, &ids, &claim.id).expect("the server answers");
    assert_eq!(deleted.status, 204, "{}", deleted.text());
    ids.len()
}

/// Deliveries in a second: from the first post until each message is deleted after its request.
fn deliveries() -> f64 {
    let sink = Sink::start();
    let subscribers: Vec<String> = (0..WEBHOOKS).map(|number| sink.url(number)).collect();
    let fanning = Fanning::start(&subscribers, &json!({"max_in_flight": 100}));
    let (client, start) = (fanning.server.client(), Instant::now());
    let bodies = vec![json!("x".repeat(198)); 100];
    for _ in 0..DELIVERIES / WEBHOOKS / bodies.len() {
        let posted = client.post_messages(QUEUE, &bodies).expect("the server answers");
        assert_eq!(posted.status, 201, "{}", posted.text());
    }
    let is_empty = |queue: &String| {
        let stats = client.stats(queue).expect("the server answers").json();
        stats["messages"]["total"] == json!(0)
    };
    while sink.received.load(Ordering::Relaxed) < DELIVERIES || !fanning.subscriptions.iter().all(is_empty) {
        assert!(start.elapsed() < PATIENCE, "{} deliveries", sink.received.load(Ordering::Relaxed));
        thread::sleep(Duration::from_millis(50));
    }
    DELIVERIES as f64 / start.elapsed().as_secs_f64()
}

/// A receiver of webhooks that answers each request at once.
struct Sink {
    address: SocketAddr,
    received: Arc<AtomicUsize>,
}

impl Sink {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it has one");
        let received = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&received);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let counted = Arc::clone(&counted);
                thread::spawn(move || receive(&stream, &counted));
            }
        });
        Self { address, received }
    }

    fn url(&self, number: usize) -> String {
        format!("http://{}/{number}", self.address)
    }
}

/// Reads requests and answers them until the connection ends.
fn receive(mut stream: &TcpStream, received: &AtomicUsize) -> Option<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let (mut length, mut line) = (0_usize, String::new());
        loop {
            line.clear();
            reader.read_line(&mut line).ok().filter(|bytes| *bytes > 0)?;
            if line.trim().is_empty() {
                break;
            }
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse().ok()?;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        received.fetch_add(1, Ordering::Relaxed);
        stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").ok()?;
    }
}
