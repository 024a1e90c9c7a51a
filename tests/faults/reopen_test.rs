//! Owns the tests of a store that fails while the service runs, and of a disk without room: nothing acknowledged is
//! lost, and the service heals by itself. It never restarts it but to look at what is left.

use std::thread;
use std::time::{Duration, Instant};

use http::StatusCode;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::json;
use tempfile::TempDir;

use super::crash::{assert_kept, live_under_load};
use super::powercut::PowerCut;
use super::rollback::Survival;
use crate::support::client::Client;
use crate::support::server::{Server, ServerBuilder};
use angarium_testbed::settings;

/// None of those that the load uses.
const QUEUE: &str = "parcels";
/// Longer than the longest pause between two tries to open a store again, on a busy machine.
const HEALED: Duration = Duration::from_secs(60);

/// Posts until a post is accepted. The ids of what was.
fn post_until_accepted(server: &Server, client: &Client) -> Vec<String> {
    let start = Instant::now();
    loop {
        let answer = client.post_messages(QUEUE, &[json!("after")]).expect("the server is up");
        if answer.status == StatusCode::CREATED {
            return answer.posted_ids();
        }
        assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE, "{}", answer.text());
        assert!(start.elapsed() < HEALED, "it does not heal\n{}", server.last_lines());
        thread::sleep(Duration::from_millis(50));
    }
}

/// A store that fails as told heals, serves, and after a power cut still has what it acknowledged.
fn heals_from(fail: fn(&PowerCut), mend: fn(&PowerCut)) {
    let cut = PowerCut::new();
    let server = cut.server().start();
    let client = server.client();
    let mut ids = post_until_accepted(&server, &client);
    fail(&cut);
    let refused = client.post_messages(QUEUE, &[json!("during")]).expect("the server is up");
    assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE, "{}", refused.text());
    assert_eq!(client.get("/livez").expect("the server is up").status, StatusCode::OK);
    assert_eq!(client.get("/readyz").expect("the server is up").status, StatusCode::SERVICE_UNAVAILABLE);
    mend(&cut);
    for _ in 0..3 {
        ids.extend(post_until_accepted(&server, &client));
    }
    server.kill9();
    cut.strike(Survival::Nothing, &mut StdRng::seed_from_u64(0));
    let server = cut.server().start();
    for id in ids {
        let found = server.client().get_message(QUEUE, &id).expect("the server is up");
        assert_eq!(found.status, StatusCode::OK, "{id} is lost: {}", found.text());
    }
}

#[test]
fn service_heals_after_failed_syncs_and_loses_nothing() {
    heals_from(PowerCut::fail_syncs, PowerCut::mend_syncs);
}

#[test]
fn service_heals_after_failed_writes_and_loses_nothing() {
    heals_from(PowerCut::fill_disk, PowerCut::empty_disk);
}

#[test]
fn failures_under_load_lose_nothing_acknowledged() {
    let (seed, rounds) = (settings::seed("failures"), settings::number("ANGARIUM_FAILURE_ROUNDS", 2));
    let cut = PowerCut::new();
    let pause = |dice: &mut StdRng, millis| thread::sleep(Duration::from_millis(dice.random_range(millis)));
    let live = |server: &Server, dice: &mut StdRng| {
        for (fail, mend) in [
            (PowerCut::fail_syncs as fn(&PowerCut), PowerCut::mend_syncs as fn(&PowerCut)),
            (PowerCut::fill_disk, PowerCut::empty_disk),
        ] {
            pause(dice, 100..600);
            fail(&cut);
            pause(dice, 1..400);
            mend(&cut);
            post_until_accepted(server, &server.client());
        }
        pause(dice, 100..400);
    };
    let verdict = live_under_load(&cut.server(), rounds, seed, live, |_, dice| {
        cut.strike(Survival::Nothing, dice);
    });
    assert_kept("failures", rounds, &verdict);
}

#[test]
fn posts_below_reserve_are_refused_and_rest_works() {
    let dir = TempDir::new().expect("a temporary directory");
    let data = dir.path().join("data");
    let server = Server::start(&data);
    let posted = server.client().post_messages(QUEUE, &[json!(1), json!(2)]).expect("the server is up");
    assert_eq!(posted.status, StatusCode::CREATED, "{}", posted.text());
    assert!(server.terminate().success());

    let server = ServerBuilder::new(&data).arg("--reserve").arg(u64::MAX.to_string()).start();
    let client = server.client();
    let refused = client.post_messages(QUEUE, &[json!(3)]).expect("the server is up");
    assert_eq!(refused.status, StatusCode::INSUFFICIENT_STORAGE, "{}", refused.text());
    let body = refused.json();
    assert_eq!((&body["code"], &body["may_retry"]), (&json!("full"), &json!(true)), "{body}");
    assert_eq!(body["nothing_written"], json!(true), "{body}");
    let claim = client.claim(QUEUE, 1, 60).expect("the server is up").granted().expect("two are waiting");
    let deleted = client.delete_message(QUEUE, &claim.messages[0].id, Some(&claim.id));
    assert_eq!(deleted.expect("the server is up").status, StatusCode::NO_CONTENT);
    let released = client.release_claim(QUEUE, &claim.id).expect("the server is up");
    assert_eq!(released.status, StatusCode::NO_CONTENT, "{}", released.text());
    assert!(server.terminate().success());

    let server = Server::start(&data);
    let left = server.client().claim(QUEUE, 10, 60).expect("the server is up").granted();
    let left: Vec<_> = left.expect("one is left").messages.into_iter().map(|message| message.body).collect();
    assert_eq!(left, [json!(2)]);
    let posted = server.client().post_messages(QUEUE, &[json!(3)]).expect("the server is up");
    assert_eq!(posted.status, StatusCode::CREATED, "{}", posted.text());
}
