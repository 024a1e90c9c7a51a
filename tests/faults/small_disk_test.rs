//! A disk that fills, on a real small file system: what continues, what is refused, and what returns.

use std::collections::BTreeSet;
use std::process::Command;
use std::time::{Duration, Instant};

use http::StatusCode;
use rand::distr::{Alphanumeric, SampleString};
use serde_json::{Value, json};

use super::small_disk::SmallDisk;
use crate::support::client::{Answer, Client};
use crate::support::server::Server;

const QUEUE: &str = "q";
const MIB: u64 = 1 << 20;
/// As long as a busy machine may need to get room back.
const MAX_WAIT: Duration = Duration::from_secs(120);

/// A body that nothing makes smaller.
fn body() -> Value {
    json!(Alphanumeric.sample_string(&mut rand::rng(), 200_000))
}

fn post(client: &Client) -> Answer {
    client.post_messages(QUEUE, &[body()]).expect("the server is up")
}

/// Posts until that is refused. The ids that were acknowledged, and the refusal.
fn post_until_refused(client: &Client) -> (BTreeSet<String>, Answer) {
    let mut acknowledged = BTreeSet::new();
    loop {
        let answer = post(client);
        if answer.status != StatusCode::CREATED {
            return (acknowledged, answer);
        }
        acknowledged.extend(answer.posted_ids());
    }
}

/// Posts until that is accepted again.
fn post_until_accepted(server: &Server, client: &Client) -> BTreeSet<String> {
    let start = Instant::now();
    loop {
        let answer = post(client);
        if answer.status == StatusCode::CREATED {
            return answer.posted_ids().into_iter().collect();
        }
        assert!(start.elapsed() < MAX_WAIT, "{} {}", answer.text(), server.last_lines());
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// Claims and deletes up to so many messages. Their ids.
fn consume(client: &Client, most: usize) -> BTreeSet<String> {
    let mut consumed = BTreeSet::new();
    while consumed.len() < most {
        let claim = client.claim(QUEUE, 20.min(most - consumed.len()), 300).expect("the server is up");
        assert!(claim.status.is_success(), "{}", claim.text());
        let Some(claim) = claim.granted() else { break };
        for message in &claim.messages {
            let deleted = client.delete_message(QUEUE, &message.id, Some(&claim.id)).expect("it is up");
            assert_eq!(deleted.status, StatusCode::NO_CONTENT, "{}", deleted.text());
            assert!(consumed.insert(message.id.clone()), "{} comes twice", message.id);
        }
    }
    consumed
}

#[test]
fn externally_filled_disk_refuses_posts_until_room() {
    let disk = SmallDisk::new(320);
    let server = disk.server().arg(format!("--reserve={}", 128 * MIB)).start();
    let client = server.client();
    let mut acknowledged: BTreeSet<_> = (0..40).flat_map(|_| post(&client).posted_ids()).collect();
    assert_eq!(acknowledged.len(), 40);
    disk.fill(120 * MIB);
    let (more, refused) = post_until_refused(&client);
    acknowledged.extend(more);
    assert_eq!(refused.status, StatusCode::INSUFFICIENT_STORAGE, "{}", refused.text());
    assert_eq!(refused.json()["nothing_written"], json!(true));
    let gone = consume(&client, 30);
    assert_eq!(gone.len(), 30);
    assert_eq!(post(&client).status, StatusCode::INSUFFICIENT_STORAGE);
    disk.empty();
    acknowledged.extend(post_until_accepted(&server, &client));
    let left = consume(&client, usize::MAX);
    assert_eq!(gone.union(&left).cloned().collect::<BTreeSet<_>>(), acknowledged);
}

#[test]
fn deleting_messages_frees_a_full_disk() {
    let disk = SmallDisk::new(320);
    let server = disk.server().arg(format!("--reserve={}", 128 * MIB)).start();
    let client = server.client();
    let (acknowledged, refused) = post_until_refused(&client);
    assert_eq!(refused.status, StatusCode::INSUFFICIENT_STORAGE, "{}", refused.text());
    assert_eq!(consume(&client, usize::MAX), acknowledged);
    for _ in 0..50 {
        post_until_accepted(&server, &client);
    }
    assert_eq!(consume(&client, usize::MAX).len(), 50);
}

#[test]
fn full_disk_loses_nothing_acknowledged() {
    let disk = SmallDisk::new(320);
    // Nothing is kept free, so that the writes themselves fail.
    let builder = disk.server().arg("--reserve=0");
    let server = builder.start();
    let client = server.client();
    let mut acknowledged: BTreeSet<_> = (0..40).flat_map(|_| post(&client).posted_ids()).collect();
    for _ in 0..3 {
        let refused = std::thread::scope(|scope| {
            scope.spawn(|| disk.fill(0));
            let (more, refused) = post_until_refused(&client);
            acknowledged.extend(more);
            refused
        });
        assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE, "{}", refused.text());
        disk.empty();
        acknowledged.extend(post_until_accepted(&server, &client));
    }
    server.kill9();
    let server = builder.start();
    let found = consume(&server.client(), usize::MAX);
    let lost: Vec<_> = acknowledged.difference(&found).collect();
    assert!(lost.is_empty(), "{} of {} are lost: {lost:?}", lost.len(), acknowledged.len());
}

#[test]
fn restore_to_a_full_disk_names_the_disk() {
    let (place, disk) = (tempfile::tempdir().unwrap(), SmallDisk::new(20));
    let server = Server::start(&place.path().join("data"));
    let client = server.client();
    for _ in 0..200 {
        assert_eq!(post(&client).status, StatusCode::CREATED);
    }
    let (backup, restored) = (place.path().join("backup"), disk.place().join("restored"));
    let program = env!("CARGO_BIN_EXE_angarium");
    let saved =
        Command::new(program).arg("backup").arg(&backup).args(["--url", server.base()]).status().unwrap();
    assert!(saved.success());
    let mut restore = disk.command(program);
    let refused = restore.arg("restore").arg(&backup).arg("--data").arg(&restored).output().unwrap();
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{why}");
    assert!(why.contains("the disk of") && why.contains("is full"), "{why}");
    assert!(!disk.root().join("restored").exists());
}
