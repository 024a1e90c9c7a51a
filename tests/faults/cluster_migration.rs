//! Owns the rounds in which queues of a cluster move between Redis and PostgreSQL under load while the replicas that serve them
//! are killed, stand still and hand their slots over; and the draining of a pool by three replicas, one of which dies.
//!
//! `ANGARIUM_MIGRATION_ROUNDS` is how many times the queues go there and back.

use std::thread;
use std::time::{Duration, Instant};

use http::StatusCode;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::json;

use super::cluster::{Fault, strike, under_load};
use super::crash::{assert_kept, create_queues};
use super::drain::drain;
use super::history::History;
use super::load::{Load, QUEUES};
use super::migration::is_there;
use super::verdict::judge;
use crate::support::client::Client;
use crate::support::cluster::Cluster;
use angarium_testbed::settings;

/// Within this all queues have gone over, what struck and the end of the claims of the dead among them.
const MAX_WAIT: Duration = Duration::from_secs(90);
/// Messages a second: the blow falls while they go over.
const RATE: u32 = 400;
const ROWS: &str = "rows";

/// Three replicas, with a second pool that only who names it moves to.
fn start() -> Cluster {
    // Claims that no process ends must not hold a queue up for long.
    let mut cluster = Cluster::start_with(|builder| builder.arg("--min-claim-ttl").arg("1"));
    cluster.add_postgres(ROWS);
    let client = cluster.client();
    let change = json!({"flavor": null, "weight": 0});
    assert_eq!(client.patch("/v2/pools/rows", &change).expect("it answers").status, StatusCode::OK);
    create_queues(&client, false);
    cluster
}

/// Has all queues go to a pool, asking whichever replica the load balancer chooses.
fn send(client: &Client, pool: &str) {
    for queue in QUEUES {
        let body = json!({"pool": pool, "rate": RATE});
        let begun = client.post(&format!("/v2/queues/{queue}/migrate"), &body).expect("it answers");
        assert_eq!(begun.status, StatusCode::ACCEPTED, "{}", begun.text());
    }
}

fn await_that(what: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < MAX_WAIT, "not within {MAX_WAIT:?}: {what}");
        thread::sleep(Duration::from_millis(100));
    }
    eprintln!("{what}: {:?}", start.elapsed());
}

/// Strikes the owner of one of the queues while all of them are on their way.
fn strike_an_owner(cluster: &mut Cluster, pool: &str, fault: Fault, dice: &mut StdRng) {
    let owner = cluster.owner_of(QUEUES[dice.random_range(0..QUEUES.len())]);
    send(&cluster.client(), pool);
    thread::sleep(Duration::from_millis(dice.random_range(0..800)));
    strike(cluster, fault, owner, dice);
    let client = cluster.client();
    await_that(&format!("the queues come to {pool}"), || is_there(&client, pool));
}

fn is_drained(client: &Client, pool: &str) -> bool {
    let view = client.get(&format!("/v2/pools/{pool}/drain"));
    view.is_ok_and(|view| view.status == StatusCode::OK && view.json()["done"] == json!(true))
}

#[test]
fn queues_migrate_while_owners_die_and_hand_over() {
    let (seed, rounds) =
        (settings::seed("cluster migration"), settings::number("ANGARIUM_MIGRATION_ROUNDS", 1));
    let mut dice = StdRng::seed_from_u64(seed);
    let mut cluster = start();
    let (history, mut load) = (History::new(), Load::balanced().with_claims_of(1..=2));
    for _ in 0..rounds {
        for (pool, fault) in
            [(ROWS, Fault::Kill), ("default", Fault::Leave), (ROWS, Fault::Freeze), ("default", Fault::Kill)]
        {
            under_load(&mut cluster, (&history, &mut load), &mut dice, |cluster, dice| {
                strike_an_owner(cluster, pool, fault, dice);
            });
        }
    }
    // Each replica moves those of its slots away; what one of them had begun the others end.
    under_load(&mut cluster, (&history, &mut load), &mut dice, |cluster, dice| {
        let client = cluster.client();
        let opened = client.patch("/v2/pools/rows", &json!({"weight": 100})).expect("it answers");
        assert_eq!(opened.status, StatusCode::OK);
        let begun = client.post("/v2/pools/default/drain", &json!({"rate": RATE})).expect("it answers");
        assert_eq!(begun.status, StatusCode::ACCEPTED, "{}", begun.text());
        strike(cluster, Fault::Kill, cluster.owner_of(QUEUES[0]), dice);
        await_that("the pool is drained", || is_drained(&client, "default"));
    });
    let client = cluster.client();
    await_that("the pool is deleted", || {
        let deleted = client.delete("/v2/pools/default").expect("it answers");
        deleted.status == StatusCode::NO_CONTENT
    });
    drain(&client, &history);
    assert_kept("cluster migration", rounds, &judge(&history.record()));
}
