//! Owns the tests of a disk that refuses reads (EIO): requests that need them are refused as not written and may be repeated,
//! nothing is lost, and the service recovers as soon as the disk serves them again.

use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant};

use http::StatusCode;
use rand::distr::{Alphanumeric, SampleString};
use serde_json::{Value, json};

use super::powercut::PowerCut;
use crate::support::client::{Answer, Client};
use crate::support::server::Server;
use angarium_testbed::held::wait_until;

const QUEUE: &str = "letters";
/// Its messages were claimed and put back, so that they have headers of their own.
const RETURNED: &str = "returned";
/// Its messages are in memory alone.
const FRESH: &str = "fresh";
const MESSAGES: usize = 40;
/// Longer than half a block of a table, so that a block has few messages.
const BODY: usize = 3_000;
/// Queues with metadata, so many that their records fill more than a block of a table.
const DESCRIBED: usize = 200;
const MAX_WAIT: Duration = Duration::from_secs(60);
/// The refused part: tables alone, and not the log.
const TABLES: &str = "/tables/";

fn text() -> String {
    Alphanumeric.sample_string(&mut rand::rng(), BODY)
}

/// Posts messages whose bodies nothing makes smaller. Returns their ids and bodies.
fn post(client: &Client, queue: &str, count: usize) -> Vec<(String, String)> {
    let bodies: Vec<String> = (0..count).map(|_| text()).collect();
    let mut posted = Vec::new();
    for part in bodies.chunks(10) {
        let values: Vec<Value> = part.iter().map(|body| json!(body)).collect();
        let answer = client.post_messages(queue, &values).unwrap();
        assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.text());
        posted.extend(answer.posted_ids().into_iter().zip(part.iter().cloned()));
    }
    posted
}

fn described(number: usize) -> String {
    format!("/v2/queues/described-{number}")
}

/// What was acknowledged before the disk refused reads.
struct StoredMessages {
    letters: Vec<(String, String)>,
    returned: Vec<(String, String)>,
}

/// Bytes of tables below the data directory.
fn table_bytes(cut: &PowerCut) -> u64 {
    let spaces = std::fs::read_dir(cut.data().join("journal/keyspaces")).unwrap();
    let tables = spaces.filter_map(|space| std::fs::read_dir(space.unwrap().path().join("tables")).ok());
    tables.flatten().map(|table| table.and_then(|table| table.metadata()).map_or(0, |file| file.len())).sum()
}

/// A server that must read tables for all that was stored.
fn stored(cut: &PowerCut) -> (Server, StoredMessages) {
    let server = cut.server().start();
    let client = server.client();
    let stored = StoredMessages {
        letters: post(&client, QUEUE, MESSAGES),
        returned: post(&client, RETURNED, MESSAGES / 2),
    };
    for number in 0..DESCRIBED {
        let made = client.put(&described(number), Some(&json!({"about": text()}))).unwrap();
        assert_eq!(made.status, StatusCode::CREATED, "{}", made.text());
    }
    let claim = client.claim(RETURNED, 20, 300).unwrap().granted().unwrap();
    let released = client.release_claim(RETURNED, &claim.id).unwrap();
    assert_eq!(released.status, StatusCode::NO_CONTENT, "{}", released.text());
    let spare = post(&client, "spare", 2);
    server.terminate();
    // Below the reserve every change has all of it written to tables.
    let server = cut.server().arg("--reserve=9000000000000000").start();
    let least = ((MESSAGES + DESCRIBED) * BODY / 2) as u64;
    server.client().delete_message("spare", &spare[0].0, None).unwrap();
    wait_until("all is in tables", || table_bytes(cut) > least);
    server.terminate();
    (cut.server().start(), stored)
}

/// A refusal states that nothing was written and that the request may be repeated.
fn assert_refused(answer: &Answer) {
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE, "{}", answer.text());
    let error = answer.json();
    assert_eq!(error["code"], "unavailable", "{error}");
    assert_eq!((&error["may_retry"], &error["nothing_written"]), (&json!(true), &json!(true)), "{error}");
    assert!(answer.headers.contains_key("retry-after"), "{error}");
}

/// How many of these answers are refusals. All others have the status.
fn refusals(answers: impl Iterator<Item = Answer>, status: StatusCode) -> usize {
    let refused = answers.filter(|answer| answer.status != status);
    refused.inspect(assert_refused).count()
}

/// The answer to a request that is repeated while it is refused: a store that met a refused read is opened again, and
/// the one that is opened may have met the same read just before the disk served it.
fn repeated(request: &dyn Fn() -> Answer) -> Answer {
    let start = Instant::now();
    loop {
        let answer = request();
        if answer.status != StatusCode::SERVICE_UNAVAILABLE {
            return answer;
        }
        assert_refused(&answer);
        assert!(start.elapsed() < MAX_WAIT, "it is still refused: {}", answer.text());
        thread::sleep(Duration::from_millis(50));
    }
}

/// All messages of a queue by claims, each of which is deleted.
fn drain(client: &Client, queue: &str) -> BTreeSet<(String, String)> {
    drain_by(client, queue, |request| request())
}

/// The same; `send` gets each request.
fn drain_by(
    client: &Client,
    queue: &str,
    send: impl Fn(&dyn Fn() -> Answer) -> Answer,
) -> BTreeSet<(String, String)> {
    let mut drained = BTreeSet::new();
    while let Some(claim) = send(&|| client.claim(queue, 20, 300).unwrap()).granted() {
        for message in claim.messages {
            let deleted = send(&|| client.delete_message(queue, &message.id, Some(&claim.id)).unwrap());
            assert_eq!(deleted.status, StatusCode::NO_CONTENT, "{}", deleted.text());
            let body = message.body.as_str().unwrap().to_owned();
            assert!(drained.insert((message.id, body)), "a message is there twice");
        }
    }
    drained
}

#[test]
fn refused_reads_are_503_and_nothing_is_lost() {
    let cut = PowerCut::new();
    let (server, stored) = stored(&cut);
    let client = server.client();
    let fresh = post(&client, FRESH, 3);

    cut.refuse_reads("");
    let bodies = stored.letters.iter().map(|(id, _)| client.get_message(QUEUE, id).unwrap());
    assert!(refusals(bodies, StatusCode::OK) >= MESSAGES / 2);
    let lines = server.last_lines();
    assert_eq!(lines.matches("damage: disk refuses reads").count(), 1, "{lines}");
    let records = (0..DESCRIBED).map(|number| client.get(&described(number)).unwrap());
    assert!(refusals(records, StatusCode::OK) >= DESCRIBED / 2);
    let mut posted = Vec::new();
    for queue in [QUEUE, RETURNED] {
        for _ in 0..2 {
            assert_refused(&client.claim(queue, 20, 300).unwrap());
        }
        let body = text();
        let post = client.post_messages(queue, &[json!(body)]).unwrap();
        match post.status {
            StatusCode::CREATED => posted.push((queue, post.posted_ids().remove(0), body)),
            _ => assert_refused(&post),
        }
    }
    // A queue that needs no read of the disk is served, and a delete of a message that cannot be read is never acknowledged
    // without being done.
    for (id, body) in &fresh {
        let found = client.get_message(FRESH, id).unwrap();
        assert_eq!((found.status, &found.json()["body"]), (StatusCode::OK, &json!(body)), "{}", found.text());
    }
    assert_eq!(client.get("/livez").unwrap().status, StatusCode::OK);
    let warned = client.get("/readyz").unwrap().text();
    assert!(warned.contains("the disk refuses reads"), "{warned}");

    cut.allow_reads();
    let bodies = stored.letters.iter().map(|(id, _)| client.get_message(QUEUE, id).unwrap());
    assert_eq!(refusals(bodies, StatusCode::OK), 0);
    let records = (0..DESCRIBED).map(|number| client.get(&described(number)).unwrap());
    assert_eq!(refusals(records, StatusCode::OK), 0);
    for (queue, kept) in [(QUEUE, stored.letters), (RETURNED, stored.returned), (FRESH, fresh)] {
        let during = posted.iter().filter(|(at, ..)| *at == queue);
        let expected: BTreeSet<_> =
            kept.into_iter().chain(during.map(|(_, id, body)| (id.clone(), body.clone()))).collect();
        assert!(drain(&client, queue) == expected, "{queue} is not what was acknowledged");
    }
}

#[test]
fn start_with_refused_reads_changes_nothing() {
    let cut = PowerCut::new();
    let (server, stored) = stored(&cut);
    server.kill9();
    for part in ["", TABLES, ".jnl"] {
        cut.refuse_reads(part);
        assert!(cut.server().try_start().is_none(), "it starts without {part:?}");
        cut.allow_reads();
    }
    let server = cut.server().start();
    let expected: BTreeSet<_> = stored.letters.into_iter().collect();
    assert!(drain(&server.client(), QUEUE) == expected);
}

#[test]
fn merge_with_refused_reads_takes_nothing_from_tables() {
    let cut = PowerCut::new();
    let (server, stored) = stored(&cut);
    server.terminate();
    // Each change writes tables, and after a few of them they are merged.
    let server = cut.server().arg("--reserve=9000000000000000").start();
    let client = server.client();
    let start = Instant::now();
    cut.refuse_reads(TABLES);
    while !server.last_lines().contains("damaged table not rewritten") {
        assert!(start.elapsed() < 8 * MAX_WAIT, "no merge met the disk\n{}", server.last_lines());
        client.send(http::Method::DELETE, &described(0), &[], None).unwrap();
        client.put(&described(DESCRIBED), None).unwrap();
        client.send(http::Method::DELETE, &described(DESCRIBED), &[], None).unwrap();
        thread::sleep(Duration::from_millis(100));
    }
    cut.allow_reads();
    let first = &stored.letters[0].0;
    wait_until("it serves again", || client.get_message(QUEUE, first).unwrap().status == StatusCode::OK);
    assert!(!cut.data().join("journal/damaged-ranges").exists(), "{}", server.last_lines());
    let expected: BTreeSet<_> = stored.letters.into_iter().collect();
    assert!(drain_by(&client, QUEUE, repeated) == expected);
}
