//! Owns damage of what a killed service leaves beside its log: a damaged table stops the queue that needs it and no other, and
//! damage of no file, of whatever kind, shows less than was acknowledged in silence. `angarium doctor --data` finds each.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use http::{Method, StatusCode};
use rand::distr::{Alphanumeric, SampleString};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::client::{Answer, Client};
use crate::support::server::{Server, ServerBuilder};

const DAMAGED: &str = "parcels";
const OTHER: &str = "letters";
const POSTS: usize = 30;
/// Longer than half a block of a table, so that a block has few messages.
const BODY: usize = 3_000;
const MAX_WAIT: Duration = Duration::from_secs(90);
/// The last synced group is witnessed within a second; the rest is for a busy machine.
const WITNESSED: Duration = Duration::from_secs(3);
/// KiB of address space that the doctor may use, whatever a file states.
const DOCTOR_KIB: u64 = 4 << 20;

/// A message that was acknowledged.
struct PostedMessage {
    queue: &'static str,
    id: String,
    body: String,
}

fn post(client: &Client, queue: &'static str, count: usize) -> Vec<PostedMessage> {
    // Bytes that nothing makes smaller.
    let bodies: Vec<_> = (0..count).map(|_| Alphanumeric.sample_string(&mut rand::rng(), BODY)).collect();
    bodies
        .chunks(10)
        .flat_map(|bodies| {
            let texts: Vec<Value> = bodies.iter().map(|body| json!(body)).collect();
            let ids = client.post_messages(queue, &texts).unwrap().posted_ids();
            let posted = |(id, body): (String, &String)| PostedMessage { queue, id, body: body.clone() };
            ids.into_iter().zip(bodies).map(posted).collect::<Vec<_>>()
        })
        .collect()
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap().path();
        if entry.is_dir() { found.extend(files(&entry)) } else { found.push(entry) }
    }
    found.sort();
    found
}

fn position(bytes: &[u8], text: &[u8]) -> Option<usize> {
    bytes.windows(text.len()).position(|window| window == text)
}

/// The table that has the body of a message, and where in it.
fn table_of(data: &Path, posted: &PostedMessage) -> Option<(PathBuf, usize)> {
    let part = &posted.body.as_bytes()[BODY / 2..BODY / 2 + 40];
    let tables =
        files(&data.join("journal")).into_iter().filter(|file| file.parent().unwrap().ends_with("tables"));
    tables.into_iter().find_map(|file| Some((file.clone(), position(&fs::read(file).ok()?, part)?)))
}

/// Posts to these queues, and has all of it written to tables.
fn posted_to_tables(data: &Path, queues: &[&'static str]) -> Vec<PostedMessage> {
    let server = ServerBuilder::new(data).start();
    let client = server.client();
    let posted: Vec<_> = queues.iter().flat_map(|queue| post(&client, queue, POSTS)).collect();
    // Of the same queue: the table has no keys of another one.
    let spare = post(&client, queues[0], 1);
    server.terminate();
    // Below the reserve every change has all of it written to tables.
    let server = ServerBuilder::new(data).arg("--reserve=9000000000000000").start();
    let start = Instant::now();
    server.client().delete_message(queues[0], &spare[0].id, None).unwrap();
    while table_of(data, &posted[0]).is_none() {
        assert!(start.elapsed() < MAX_WAIT, "nothing was written to tables\n{}", server.last_lines());
        thread::sleep(Duration::from_millis(50));
    }
    // The keys of tables are listed with the next mark of the log.
    thread::sleep(WITNESSED);
    server.terminate();
    posted
}

/// Posts to both queues, has all of it written to tables, and posts once more. Then the service is killed.
fn killed(data: &Path) -> Vec<PostedMessage> {
    let mut posted = posted_to_tables(data, &[DAMAGED, OTHER]);
    let server = ServerBuilder::new(data).start();
    posted.extend(post(&server.client(), OTHER, 3));
    thread::sleep(WITNESSED);
    server.kill9();
    posted
}

fn flip(file: &Path, at: usize) {
    let mut bytes = fs::read(file).unwrap();
    bytes[at] ^= 4;
    fs::write(file, bytes).unwrap();
}

fn get(client: &Client, posted: &PostedMessage) -> Answer {
    client.get_message(posted.queue, &posted.id).unwrap()
}

fn assert_damaged(answer: &Answer) {
    assert_eq!(answer.status, StatusCode::INTERNAL_SERVER_ERROR, "{}", answer.text());
    let error = answer.json();
    assert_eq!(error["code"], "damaged", "{error}");
    assert_eq!((&error["may_retry"], &error["nothing_written"]), (&json!(false), &json!(true)), "{error}");
    assert!(error["description"].as_str().unwrap().contains("angarium doctor --data"), "{error}");
    assert!(!answer.headers.contains_key("retry-after"));
}

/// What the doctor finds wrong. It ends by itself, however the files are.
pub fn doctor(data: &Path) -> Vec<String> {
    let command =
        format!("ulimit -v {DOCTOR_KIB}; exec \"$0\" doctor --url http://127.0.0.1:1 -o json --data \"$1\"");
    let ended =
        Command::new("sh").args(["-c", &command, env!("CARGO_BIN_EXE_angarium")]).arg(data).output().unwrap();
    let errors = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(ended.status.code().is_some(), "{} {errors}", ended.status);
    let checks: Value =
        serde_json::from_slice(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {errors}"));
    let is_local = |check: &&Value| {
        let name = check["name"].as_str().unwrap();
        name.starts_with("store") || name == "instance"
    };
    let wrong =
        checks.as_array().unwrap().iter().filter(is_local).filter(|check| check["verdict"] == "wrong");
    let found: Vec<_> = wrong.map(|check| format!("{}: {}", check["name"], check["found"])).collect();
    assert!(found.is_empty() || !ended.status.success(), "{found:?}");
    found
}

#[test]
fn damaged_table_stops_its_queue_alone() {
    let dir = TempDir::new().unwrap();
    let posted = killed(dir.path());
    assert_eq!(doctor(dir.path()), Vec::<String>::new());
    let (table, at) = table_of(dir.path(), &posted[POSTS / 2]).unwrap();
    flip(&table, at);
    let found = doctor(dir.path());
    let has = |parts: &[&str]| found.iter().any(|found| parts.iter().all(|part| found.contains(part)));
    assert!(has(&[table.to_str().unwrap(), "key space entries", "messages that are ready"]), "{found:?}");
    assert!(has(&["store journal messages", DAMAGED, "cannot be read whole"]), "{found:?}");
    assert!(!has(&["store journal messages", OTHER]), "{found:?}");

    let server = ServerBuilder::new(dir.path()).start();
    let client = server.client();
    let (damaged, whole): (Vec<_>, Vec<_>) =
        posted.iter().partition(|posted| get(&client, posted).status != StatusCode::OK);
    assert!((1..=4).contains(&damaged.len()) && damaged.iter().all(|posted| posted.queue == DAMAGED));
    for posted in &damaged {
        assert_damaged(&get(&client, posted));
        assert_damaged(&client.delete_message(DAMAGED, &posted.id, None).unwrap());
    }
    // What can be read is claimed; then the queue is not empty, but damaged.
    let last = loop {
        let claim = client.claim(DAMAGED, 5, 300).unwrap();
        if claim.status != StatusCode::CREATED {
            break claim;
        }
    };
    assert_damaged(&last);
    let listed =
        client.get(&format!("/v2/queues/{DAMAGED}/messages?echo=true&include_claimed=true&limit=20"));
    let next = listed.unwrap();
    assert!(next.status != StatusCode::NO_CONTENT, "{}", next.text());
    assert_continues(&server, &client, &whole);
    let ready = client.get("/readyz").unwrap();
    assert_eq!(ready.status, StatusCode::OK);
    assert!(
        ready.json()["warnings"][0].as_str().unwrap().contains("angarium doctor --data"),
        "{}",
        ready.text()
    );
    let metrics = client.get("/metrics").unwrap().text();
    let reads = metrics.lines().find(|line| line.starts_with("angarium_damaged_reads{part=\"pool"));
    let reads: u64 = reads.unwrap().rsplit(' ').next().unwrap().parse().unwrap();
    assert!(reads as usize > damaged.len(), "{reads}");
    assert_place_logged_once(&server);
    // A queue that cannot be read can be deleted; the others go on while its messages cannot be cleared away.
    let deleted = client.send(Method::DELETE, &format!("/v2/queues/{DAMAGED}"), &[], None).unwrap();
    assert_eq!(deleted.status, StatusCode::NO_CONTENT, "{}", deleted.text());
    thread::sleep(Duration::from_secs(2));
    assert_continues(&server, &client, &whole);
    assert_place_logged_once(&server);
}

#[test]
fn unreadable_table_stops_its_queue_alone() {
    let dir = TempDir::new().unwrap();
    let mut posted = posted_to_tables(dir.path(), &[DAMAGED]);
    posted.extend(posted_to_tables(dir.path(), &[OTHER]));
    let table = |queue: &str| {
        let first = posted.iter().find(|posted| posted.queue == queue).unwrap();
        table_of(dir.path(), first).unwrap().0
    };
    let damaged = table(DAMAGED);
    assert_ne!(damaged, table(OTHER), "they are in one table");
    let bytes = fs::read(&damaged).unwrap();
    fs::write(&damaged, vec![0xa5; bytes.len()]).unwrap();
    let found = doctor(dir.path());
    assert!(found.iter().any(|found| found.contains(damaged.to_str().unwrap())), "{found:?}");

    for _ in 0..2 {
        let server = ServerBuilder::new(dir.path()).start();
        let client = server.client();
        let (own, whole): (Vec<_>, Vec<_>) = posted.iter().partition(|posted| posted.queue == DAMAGED);
        own.iter().for_each(|posted| assert_damaged(&get(&client, posted)));
        assert_damaged(&client.claim(DAMAGED, 5, 300).unwrap());
        assert_continues(&server, &client, &whole);
        let fresh = post(&client, "fresh", 3);
        fresh.iter().for_each(|posted| assert_eq!(get(&client, posted).json()["body"], json!(posted.body)));
        let warned = client.get("/readyz").unwrap();
        assert!(warned.text().contains("angarium doctor --data"), "{}", warned.text());
        server.terminate();
    }
    // The file itself is kept.
    let kept = files(dir.path()).into_iter().filter(|file| file.to_str().unwrap().contains("-table-"));
    assert!(kept.map(|file| fs::read(file).unwrap()).any(|kept| kept == vec![0xa5; bytes.len()]));
}

/// Reports of the recount repeat the error; the place itself is logged once.
fn assert_place_logged_once(server: &Server) {
    let lines = server.last_lines();
    assert_eq!(lines.matches("damage: stored data is damaged").count(), 1, "{lines}");
}

/// The other queue is read, written and emptied.
fn assert_continues(server: &Server, client: &Client, whole: &[&PostedMessage]) {
    let own = whole.iter().filter(|posted| posted.queue == OTHER);
    for posted in own {
        let answer = get(client, posted);
        assert_eq!(answer.json()["body"], json!(posted.body), "{}", server.last_lines());
    }
    for posted in post(client, OTHER, 3) {
        assert_eq!(client.delete_message(OTHER, &posted.id, None).unwrap().status, StatusCode::NO_CONTENT);
    }
}

/// What a file of a data directory is. One that is not known fails the test: it needs damage of its own here.
fn kind(file: &Path) -> &'static str {
    let text = file.to_str().unwrap();
    let name = file.file_name().unwrap().to_str().unwrap();
    let is_number = |text: &str| text.parse::<u64>().is_ok();
    match name {
        "instance" | "instance.copy" if !text.contains('/') => "identity",
        "location" if !text.contains('/') => "location",
        "version" if text == "journal/version" => "mark of the store",
        "lock" if text == "journal/lock" => "lock",
        "log-witness" if text == "journal/log-witness" => "witness",
        "table-keys" if text == "journal/table-keys" => "keys of tables",
        "current" if text.starts_with("journal/keyspaces/") => "number of the list",
        name if name.strip_suffix(".jnl").is_some_and(is_number) => "log",
        name if name.strip_prefix('v').is_some_and(is_number) => "list",
        name if is_number(name) && file.parent().unwrap().ends_with("tables") => "table",
        _ => panic!("{text} is of no known kind: damage it here"),
    }
}

fn used(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1)
}

/// Ways to damage a file, and what is left of it.
fn damages(bytes: &[u8]) -> Vec<(&'static str, Option<Vec<u8>>)> {
    let used = used(bytes);
    let mut flipped = bytes.to_vec();
    flipped[used / 2] ^= 4;
    let mut hostile = bytes.to_vec();
    hostile[used / 4..used].fill(0xff);
    vec![
        ("a bit", Some(flipped)),
        ("the greatest lengths", Some(hostile)),
        ("cut", Some(bytes[..used / 2].to_vec())),
        ("emptied", Some(Vec::new())),
        ("removed", None),
    ]
}

fn copied(from: &Path) -> TempDir {
    let to = TempDir::new().unwrap();
    let copied = Command::new("cp").arg("-a").arg(from.join(".")).arg(to.path()).status().unwrap();
    assert!(copied.success());
    // A service would refuse the copy.
    fs::remove_file(to.path().join("location")).unwrap();
    to
}

/// One file of each kind: the longest, since a short one may hold nothing. Of lists those in use.
fn one_of_each(data: &Path) -> Vec<PathBuf> {
    let mut chosen: Vec<(&'static str, u64, PathBuf)> = Vec::new();
    for file in files(data) {
        let inner = file.strip_prefix(data).unwrap().to_owned();
        let (kind, length) = (kind(&inner), file.metadata().unwrap().len());
        let is_current = |file: &Path| {
            let current = fs::read(file.with_file_name("current")).unwrap();
            file.ends_with(format!("v{}", u64::from_le_bytes(current[..8].try_into().unwrap())))
        };
        // A damaged mark of the place is written again.
        if ["lock", "location"].contains(&kind) || (kind == "list" && !is_current(&file)) {
            continue;
        }
        match chosen.iter_mut().find(|(known, ..)| *known == kind && kind != "identity") {
            Some(chosen) if chosen.1 < length => *chosen = (kind, length, inner),
            Some(_) => {}
            None => chosen.push((kind, length, inner)),
        }
    }
    chosen.into_iter().map(|(_, _, file)| file).collect()
}

#[test]
fn damage_of_each_kind_of_file_is_found_and_shows_nothing_less() {
    let dir = TempDir::new().unwrap();
    let posted = killed(dir.path());
    let chosen = one_of_each(dir.path());
    assert_eq!(chosen.len(), 9, "{chosen:?}");
    for file in chosen {
        let bytes = fs::read(dir.path().join(&file)).unwrap();
        for (name, left) in damages(&bytes) {
            let copy = copied(dir.path());
            let target = copy.path().join(&file);
            match &left {
                Some(left) => fs::write(&target, left).unwrap(),
                None => fs::remove_file(&target).unwrap(),
            }
            let found = doctor(copy.path());
            // The witness may be missing, as after an upgrade, and so may the keys of tables and the copy of the identity.
            let may_be_missing =
                ["log-witness", "table-keys", "instance.copy"].iter().any(|name| file.ends_with(name));
            assert!(!found.is_empty() || (left.is_none() && may_be_missing), "{}, {name}", file.display());
            check_start(copy.path(), &posted, &format!("{}, {name}", file.display()));
        }
    }
}

/// The service refuses to start, or each message is there or told to be damaged.
fn check_start(data: &Path, posted: &[PostedMessage], case: &str) {
    let Some(server) = ServerBuilder::new(data).try_start() else { return };
    let client = server.client();
    for posted in posted {
        let answer = get(&client, posted);
        if answer.status == StatusCode::OK {
            assert_eq!(answer.json()["body"], json!(posted.body), "{case}");
        } else {
            assert_eq!(answer.json()["code"], "damaged", "{case}: {} {}", answer.text(), server.last_lines());
        }
    }
}
