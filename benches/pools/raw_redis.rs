//! The script of a batch as redis-benchmark sends it: the driver's own, but for the check of the batch's number, which a
//! sender of constant text cannot count up.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::driver::{BODY_BYTES, MESSAGES, SLOTS};
use angarium_testbed::redis::Redis;

const PRELUDE: &str = include_str!("../../crates/storage/src/redis/lua/prelude.lua");
const SCRIPT: &str = include_str!("../../crates/storage/src/redis/lua/commit.lua");
const KEYS: [&str; 19] = [
    "record",
    "bytes",
    "schedule",
    "buckets",
    "bodies",
    "readers",
    "shared",
    "lent",
    "lenders",
    "entries",
    "headers",
    "ready",
    "aside",
    "scheduled",
    "ranges",
    "notes",
    "names",
    "groups",
    "kept",
];
/// Sixteen bytes, of which redis-benchmark makes another id each time.
const ID: &str = "raw-__rand_int__";
/// Batches that are sent to learn how many fit into the window.
const PROBE: u64 = 200;

/// Sends appends for about the window.
pub fn batches_per_second(redis: &Redis, window: Duration) -> f64 {
    let sha = load(redis);
    let probed = run(redis, &sha, PROBE);
    let count = (probed * window.as_secs_f64()).max(PROBE as f64) as u64;
    let rate = run(redis, &sha, count);
    let there: u64 =
        redis::cmd("HLEN").arg("{raw}entries").query(&mut redis.connect()).expect("it is a hash");
    // Random ids meet now and then.
    assert!(there > count * MESSAGES as u64 * 9 / 10, "{there} of {count} batches are there");
    rate
}

/// Loads the script, and makes the record that it checks.
fn load(redis: &Redis) -> String {
    let check = SCRIPT.find("if seq == ARGV[3] then").expect("the script checks the number");
    let work = SCRIPT.find("local at = 6").expect("the script goes through its arguments");
    let script = format!("#!lua\n{PRELUDE}\n{}{}", &SCRIPT[..check], &SCRIPT[work..]);
    let mut connection = redis.connect();
    let record = "0".repeat(72);
    redis::cmd("SET").arg("{raw}record").arg(record).exec(&mut connection).expect("there is room");
    redis::cmd("SCRIPT").arg("LOAD").arg(script).query(&mut connection).expect("it is a script")
}

fn run(redis: &Redis, sha: &str, count: u64) -> f64 {
    let start = Instant::now();
    let done = Command::new("redis-benchmark")
        .args(["-p", &redis.port().to_string(), "-c", &SLOTS.to_string(), "-n", &count.to_string()])
        .args(["-r", "1000000000", "-q", "EVALSHA", sha, &KEYS.len().to_string()])
        .args(KEYS.map(|key| format!("{{raw}}{key}")))
        .args(arguments())
        .stdout(Stdio::null())
        .status()
        .expect("redis-benchmark is in redis-tools");
    assert!(done.success(), "redis-benchmark: {done}");
    count as f64 / start.elapsed().as_secs_f64()
}

/// The arguments in the order of the script.
fn arguments() -> Vec<String> {
    let zeros = |count| "0".repeat(count);
    // The epoch, two numbers, the greatest id, no numbering, and no shared bodies.
    let mut arguments = vec![zeros(24), zeros(11), zeros(11), zeros(32), String::new(), "0".to_owned()];
    arguments.extend([
        "queue-of-16-byte".to_owned(),
        (MESSAGES * BODY_BYTES).to_string(),
        MESSAGES.to_string(),
    ]);
    for _ in 0..MESSAGES {
        // A header, and a body.
        arguments.extend([ID.to_owned(), "x".repeat(54 + BODY_BYTES)]);
    }
    arguments.push(MESSAGES.to_string());
    arguments.extend((0..MESSAGES).map(|_| ID.to_owned()));
    // No updates, no removes, one bucket, no notes.
    arguments.extend(["0", "0", "1", "a-bucket-of-"].map(str::to_owned));
    arguments.extend([zeros(32), zeros(32), "0".to_owned(), "0".to_owned()]);
    arguments
}
