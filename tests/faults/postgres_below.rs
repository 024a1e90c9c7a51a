//! Owns the rounds in which the messages of a whole service lie in PostgreSQL and that, or the service, is killed:
//! nothing acknowledged is lost, and service resumes by itself. The judge and the load are those of [`super::crash`].

use std::thread;
use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::StdRng;
use tempfile::TempDir;

use super::crash::{assert_kept, create_queues, kill_under_load};
use super::drain::drain;
use super::history::History;
use super::load::Load;
use super::redis_below::{service_on, wait_for_service};
use super::verdict::judge;
use angarium_testbed::postgres::Postgres;
use angarium_testbed::settings;

#[test]
fn kill_9_of_postgres_below_service_loses_nothing() {
    let (seed, rounds) = (settings::seed("postgres service"), settings::number("ANGARIUM_CRASH_ROUNDS", 2));
    let mut postgres = Postgres::start(&[]);
    let dir = TempDir::new().expect("a temporary directory");
    let server = service_on(&postgres.uri(""), &dir).start();
    let (history, mut load, mut dice) = (History::new(), Load::new(), StdRng::seed_from_u64(seed));
    create_queues(&server.client(), false);
    for _ in 0..rounds {
        load.run_while(server.base(), &history, &mut dice, || {
            thread::sleep(Duration::from_millis(800));
            postgres.kill9();
            thread::sleep(Duration::from_millis(500));
            postgres.restart();
            thread::sleep(Duration::from_secs(2));
        });
    }
    wait_for_service(&server);
    drain(&server.client(), &history);
    assert_kept("PostgreSQL killed", rounds, &judge(&history.record()));
}

#[test]
fn kill_9_of_service_on_postgres_loses_nothing() {
    let (seed, rounds) = (settings::seed("postgres pool"), settings::number("ANGARIUM_CRASH_ROUNDS", 2));
    let postgres = Postgres::start(&[]);
    let dir = TempDir::new().expect("a temporary directory");
    let verdict = kill_under_load(&service_on(&postgres.uri(""), &dir), rounds, seed, |_, _| {});
    assert_kept("service on PostgreSQL", rounds, &verdict);
}

#[test]
fn failover_to_sync_standby_loses_nothing() {
    let seed = settings::seed("postgres fail-over");
    let mut postgres = Postgres::start(&[]);
    let standby = postgres.follow();
    let dir = TempDir::new().expect("a temporary directory");
    let server = service_on(&postgres.uri_of_both(&standby), &dir).start();
    let (history, mut load, mut dice) = (History::new(), Load::new(), StdRng::seed_from_u64(seed));
    create_queues(&server.client(), false);
    load.run_while(server.base(), &history, &mut dice, || {
        thread::sleep(Duration::from_millis(800));
        postgres.kill9();
        thread::sleep(Duration::from_millis(500));
        standby.promote();
        thread::sleep(Duration::from_secs(3));
    });
    wait_for_service(&server);
    drain(&server.client(), &history);
    assert_kept("PostgreSQL failed over", 1, &judge(&history.record()));
}
