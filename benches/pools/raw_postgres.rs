//! The statement of a batch as pgbench sends it: the driver's own, with ids that the server makes up, in sessions with the
//! driver's settings.

use std::fs;
use std::time::Duration;

use tempfile::TempDir;

use crate::driver::{BODY_BYTES, MESSAGES, POOL, SLOTS};
use angarium_testbed::postgres::Postgres;

const STATEMENT: &str = include_str!("../../crates/storage/src/postgres/sql/commit.sql");
/// As `connection.rs` tells every session.
const SETTINGS: &str = "-c search_path=angarium -c plan_cache_mode=force_generic_plan -c jit=off \
    -c max_parallel_workers_per_gather=0 -c enable_seqscan=off -c enable_bitmapscan=off -c enable_hashjoin=off \
    -c enable_mergejoin=off -c enable_sort=off -c synchronous_commit=on";

/// Sends appends for the window; the slots are fenced with this epoch.
pub fn batches_per_second(server: &Postgres, transaction: u64, window: Duration) -> f64 {
    let dir = TempDir::new().expect("a directory");
    let file = dir.path().join("batch.sql");
    fs::write(&file, script(transaction)).expect("the directory is ours");
    let before = entries(server);
    let done = server
        .pgbench()
        .env("PGOPTIONS", SETTINGS)
        .args(["--no-vacuum", "--protocol=prepared", "--define=seq=0", "--jobs=1"])
        .arg(format!("--define=bodies={}", array(&format!("\\\\x{}", "78".repeat(BODY_BYTES)))))
        .args([format!("--client={SLOTS}"), format!("--time={}", window.as_secs())])
        .arg(format!("--file={}", file.display()))
        .output()
        .expect("pgbench is in the server's package");
    assert!(done.status.success(), "pgbench: {}", String::from_utf8_lossy(&done.stderr));
    let written = (entries(server) - before) / MESSAGES as u64;
    let said = String::from_utf8_lossy(&done.stdout);
    let rate = said.lines().find_map(|line| line.strip_prefix("tps = ")).expect("pgbench says the rate");
    let rate: f64 = rate.split(' ').next().expect("it begins with it").parse().expect("it is a number");
    assert!(written > 0, "nothing was written: {said}");
    rate
}

fn entries(server: &Postgres) -> u64 {
    server.sql("SELECT count(*) FROM angarium.entries").parse().expect("it is a number")
}

/// An array of as many as there are messages.
fn array(element: &str) -> String {
    format!("{{{}}}", vec![format!("\"{element}\""); MESSAGES].join(","))
}

/// What one client does: the statement, with its parameters in place.
fn script(transaction: u64) -> String {
    let queue = "(lpad(to_hex(:client_id + 128), 2, '0') || repeat('0', 30))::uuid";
    let each = |value: &str| format!("array_fill({value}, ARRAY[{MESSAGES}])");
    let ids = format!("(SELECT array_agg(gen_random_uuid()) FROM generate_series(1, {MESSAGES}))");
    let bytes = format!("ARRAY[{}::int8]", MESSAGES * BODY_BYTES);
    let one = |value: &str| format!("ARRAY[{value}]");
    let slot = one(":client_id::int2");
    // The records: slot, pool, generation, transaction, number, fences, greatest id; and the setting for the commit.
    let transaction = one(&format!("{transaction}::int8"));
    let mut values = vec![slot.clone(), format!("'{POOL}'"), one("1::int8"), transaction, one(":seq::int8")];
    let zero = one("'00000000-0000-0000-0000-000000000000'::uuid");
    values.extend([one("NULL::int8"), zero.clone(), "NULL".into()]);
    // The queues: slot, id, low, least, messages, bytes, scheduled, aside; and nothing removed.
    let least = one("'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid");
    values.extend([slot, one(queue), zero, least, one(&format!("{MESSAGES}::int8")), bytes]);
    values.extend(["'{0}'", "'{0}'", "'{}'", "'{}'", "'{}'"].map(str::to_owned));
    // The appends: slot, queue, id, state, created, ready, expires, ttl, attempts, size, client, peer, first claim, group,
    // body.
    values.extend([each(":client_id::int2"), each(queue), ids, each("0::int2")]);
    values.extend(["1000::int8", "1000::int8", "3601000::int8", "3600::int4", "0::int4"].map(each));
    values.push(each(&format!("{BODY_BYTES}::int4")));
    values.extend(["NULL::uuid", "NULL::bytea", "NULL::int8", "NULL::text"].map(each));
    values.push(":bodies".into());
    let mut statement = STATEMENT.to_owned();
    for (place, value) in values.iter().enumerate().rev() {
        statement = statement.replace(&format!("${}", place + 1), value);
    }
    format!("\\set seq :seq + 1\n{statement};\n")
}
