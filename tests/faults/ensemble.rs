//! Owns the rounds in which the tree is in ZooKeeper and the pool on the service's disk: the service is killed,
//! ZooKeeper is killed, or both, and nothing acknowledged is lost. The judge and the load are those of [`super::crash`].

use std::thread;
use std::time::{Duration, Instant};

use http::StatusCode;
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::json;
use tempfile::TempDir;

use super::crash::{assert_kept, create_queues, kill_under_load, live_under_load};
use super::drain::drain;
use super::history::History;
use super::load::Load;
use super::verdict::judge;
use crate::support::server::{Server, ServerBuilder};
use angarium_testbed::held::{START, wait_until};
use angarium_testbed::settings;
use angarium_testbed::zookeeper::{Ensemble, ZooKeeper};

fn service_on(zookeeper: &ZooKeeper, dir: &TempDir) -> ServerBuilder {
    let address = zookeeper.fresh_tree().to_string();
    let builder = ServerBuilder::new(&dir.path().join("data")).arg("--coordination").arg(address);
    builder.arg("--pool").arg("embedded:journal")
}

#[test]
fn kill_9_of_a_service_on_zookeeper_loses_nothing_acknowledged() {
    let (seed, rounds) = (settings::seed("ensemble"), settings::number("ANGARIUM_CRASH_ROUNDS", 2));
    let dir = TempDir::new().expect("a temporary directory");
    let builder = service_on(ZooKeeper::shared(), &dir);
    let verdict = kill_under_load(&builder, rounds, seed, |_, _| {});
    assert_kept("service on ZooKeeper", rounds, &verdict);
}

#[test]
fn kill_9_of_zookeeper_loses_nothing_and_service_resumes() {
    let (seed, rounds) = (settings::seed("zookeeper"), settings::number("ANGARIUM_CRASH_ROUNDS", 2));
    let mut zookeeper = ZooKeeper::start();
    let dir = TempDir::new().expect("a temporary directory");
    let server = service_on(&zookeeper, &dir).start();
    let (history, mut load, mut dice) = (History::new(), Load::new(), StdRng::seed_from_u64(seed));
    create_queues(&server.client(), false);
    for _ in 0..rounds {
        load.run_while(server.base(), &history, &mut dice, || {
            thread::sleep(Duration::from_millis(500));
            zookeeper.kill9();
            thread::sleep(Duration::from_millis(500));
            zookeeper.restart();
            thread::sleep(Duration::from_secs(2));
        });
    }
    drain(&server.client(), &history);
    assert_kept("ZooKeeper killed", rounds, &judge(&history.record()));
}

/// ZooKeeper is first, and the service a moment later or none.
#[test]
fn kill_9_of_both_under_load_loses_nothing_acknowledged() {
    let (seed, rounds) = (settings::seed("both"), settings::number("ANGARIUM_CRASH_ROUNDS", 2));
    let zookeeper = Mutex::new(ZooKeeper::start());
    let dir = TempDir::new().expect("a temporary directory");
    let builder = service_on(&zookeeper.lock(), &dir);
    let live = |_: &Server, dice: &mut StdRng| {
        thread::sleep(Duration::from_millis(dice.random_range(300..1500)));
        zookeeper.lock().kill9();
        thread::sleep(Duration::from_millis(dice.random_range(0..100)));
    };
    let verdict = live_under_load(&builder, rounds, seed, live, |_, _| zookeeper.lock().restart());
    assert_kept("both killed", rounds, &verdict);
}

#[test]
fn a_claim_keeps_its_deadline_over_the_death_of_both() {
    let mut zookeeper = ZooKeeper::start();
    let dir = TempDir::new().expect("a temporary directory");
    let builder = service_on(&zookeeper, &dir);
    let server = builder.start();
    let client = server.client();
    client.post_messages("q", &[json!(1), json!(2)]).unwrap();
    let before = Instant::now();
    // It lasts longer than a busy machine needs to start both again.
    let claim = client.claim("q", 1, 600).unwrap().granted().unwrap();
    let granted = Instant::now();
    thread::sleep(Duration::from_secs(2));
    zookeeper.kill9();
    server.kill9();
    zookeeper.restart();
    let server = builder.start();
    let client = server.client();
    let since_granted = granted.elapsed().as_secs();
    let status = client.get(&format!("/v2/queues/q/claims/{}", claim.id)).unwrap();
    assert_eq!(status.status, StatusCode::OK);
    let age = status.json()["age"].as_u64().unwrap();
    // It is as old as it is, give or take the second that is rounded, and so ends when it was said to.
    assert!((since_granted.saturating_sub(1)..=before.elapsed().as_secs() + 1).contains(&age), "{age}");
    assert_eq!(status.json()["ttl"], 600);
    assert_eq!(status.json()["messages"][0]["body"], json!(1));
    // Its message is no other process's before that.
    let other = client.claim("q", 10, 60).unwrap().granted().unwrap();
    assert_eq!(other.messages.iter().map(|message| &message.body).collect::<Vec<_>>(), [&json!(2)]);
    let message = &claim.messages[0].id;
    let deleted = client.delete_message("q", message, Some(&claim.id)).unwrap();
    assert_eq!(deleted.status, StatusCode::NO_CONTENT);
}

#[test]
fn posts_and_deletes_work_and_claims_503_without_zookeeper() {
    let mut zookeeper = ZooKeeper::start();
    let dir = TempDir::new().expect("a temporary directory");
    let server = service_on(&zookeeper, &dir).start();
    let client = server.client();
    let posted = client.post_messages("q", &[json!(1), json!(2)]).unwrap().json();
    let first = posted["ids"][0].as_str().unwrap();
    assert_eq!(client.create_queue("empty").unwrap().status, StatusCode::CREATED);
    zookeeper.kill9();
    assert_eq!(client.post_messages("q", &[json!(3)]).unwrap().status, StatusCode::CREATED);
    assert_eq!(client.delete_message("q", first, None).unwrap().status, StatusCode::NO_CONTENT);
    let refused = client.claim("q", 1, 60).unwrap();
    assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
    // Nor is any process told that there is nothing, once the lease has ended.
    let start = Instant::now();
    while client.claim("empty", 1, 60).unwrap().status != StatusCode::SERVICE_UNAVAILABLE {
        assert!(start.elapsed() < Duration::from_secs(30), "it says so for ever");
        thread::sleep(Duration::from_millis(200));
    }
    assert!(refused.headers.contains_key("retry-after"));
    // No other replica does better, so it stays ready.
    let ready = client.get("/readyz").unwrap();
    assert_eq!(ready.status, StatusCode::OK);
    assert!(ready.json()["warnings"][0].as_str().unwrap().contains("no session"));
    assert_eq!(client.get("/livez").unwrap().status, StatusCode::OK);
    zookeeper.restart();
    let mut claimed = Vec::new();
    wait_until("both are claimed", || {
        let answer = client.claim("q", 10, 60).unwrap();
        if answer.status == StatusCode::CREATED {
            claimed.extend(answer.json()["messages"].as_array().unwrap().iter().map(|m| m["body"].clone()));
        }
        claimed.len() >= 2
    });
    claimed.sort_by_key(|body| body.as_u64());
    assert_eq!(claimed, [json!(2), json!(3)]);
}

/// The gap is from the death of the leader to the first claim that is granted after it.
#[test]
fn leader_death_loses_nothing_and_service_resumes() {
    let (seed, rounds) = (settings::seed("leader"), settings::number("ANGARIUM_CRASH_ROUNDS", 2));
    let mut ensemble = Ensemble::start();
    let dir = TempDir::new().expect("a temporary directory");
    let builder = ServerBuilder::new(&dir.path().join("data"));
    let builder = builder.arg("--coordination").arg(ensemble.fresh_tree().to_string());
    let server = builder.arg("--pool").arg("embedded:journal").start();
    let (history, mut load, mut dice) = (History::new(), Load::new(), StdRng::seed_from_u64(seed));
    create_queues(&server.client(), false);
    for round in 0..rounds {
        load.run_while(server.base(), &history, &mut dice, || {
            thread::sleep(Duration::from_millis(500));
            let leader = ensemble.leader();
            ensemble.0[leader].kill9();
            let killed = Instant::now();
            let client = server.client();
            client.post_messages("after", &[json!(round)]).unwrap();
            while client.claim("after", 1, 60).unwrap().status != StatusCode::CREATED {
                assert!(killed.elapsed() < START, "no claim is granted any more");
                thread::sleep(Duration::from_millis(20));
            }
            eprintln!("leader killed: the next claim was granted after {:?}", killed.elapsed());
            thread::sleep(Duration::from_millis(500));
            ensemble.0[leader].restart();
        });
    }
    drain(&server.client(), &history);
    assert_kept("leader killed", rounds, &judge(&history.record()));
}
