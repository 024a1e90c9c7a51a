//! Owns the rounds in which the messages of a whole service lie in Redis and Redis is killed: nothing acknowledged is
//! lost, and service resumes by itself. The judge and the load are those of [`super::crash`].

use std::thread;
use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::StdRng;
use tempfile::TempDir;

use super::crash::{assert_kept, create_queues, kill_under_load};
use super::drain::drain;
use super::history::History;
use super::load::{Load, QUEUES};
use super::verdict::judge;
use crate::support::server::{Server, ServerBuilder};
use angarium_testbed::held::wait_until;
use angarium_testbed::redis::{Redis, RedisSentinels, SYNCED};
use angarium_testbed::settings;

pub(super) fn service_on(uri: &str, dir: &TempDir) -> ServerBuilder {
    ServerBuilder::new(&dir.path().join("data")).arg("--pool").arg(uri)
}

#[test]
fn kill_9_of_redis_below_service_loses_nothing() {
    let (seed, rounds) = (settings::seed("redis service"), settings::number("ANGARIUM_CRASH_ROUNDS", 2));
    let mut redis = Redis::start(SYNCED);
    let dir = TempDir::new().expect("a temporary directory");
    let server = service_on(&redis.uri(""), &dir).start();
    let (history, mut load, mut dice) = (History::new(), Load::new(), StdRng::seed_from_u64(seed));
    create_queues(&server.client(), false);
    for _ in 0..rounds {
        load.run_while(server.base(), &history, &mut dice, || {
            thread::sleep(Duration::from_millis(800));
            redis.kill9();
            thread::sleep(Duration::from_millis(500));
            redis.restart();
            thread::sleep(Duration::from_secs(2));
        });
    }
    wait_for_service(&server);
    drain(&server.client(), &history);
    assert_kept("Redis killed", rounds, &judge(&history.record()));
}

#[test]
fn kill_9_of_service_on_redis_loses_nothing() {
    let (seed, rounds) = (settings::seed("redis pool"), settings::number("ANGARIUM_CRASH_ROUNDS", 2));
    let redis = Redis::start(SYNCED);
    let dir = TempDir::new().expect("a temporary directory");
    let verdict = kill_under_load(&service_on(&redis.uri(""), &dir), rounds, seed, |_, _| {});
    assert_kept("service on Redis", rounds, &verdict);
}

#[test]
fn sentinel_failover_below_service_loses_no_replicated_data() {
    let seed = settings::seed("redis fail-over");
    let mut servers = RedisSentinels::start(SYNCED);
    let dir = TempDir::new().expect("a temporary directory");
    let server = service_on(&servers.uri("wait=1"), &dir).start();
    let (history, mut load, mut dice) = (History::new(), Load::new(), StdRng::seed_from_u64(seed));
    create_queues(&server.client(), false);
    load.run_while(server.base(), &history, &mut dice, || {
        thread::sleep(Duration::from_millis(800));
        servers.master.kill9();
        thread::sleep(Duration::from_secs(3));
        servers.master.restart();
        thread::sleep(Duration::from_secs(6));
    });
    wait_for_service(&server);
    drain(&server.client(), &history);
    assert_kept("fail-over", 1, &judge(&history.record()));
}

/// The drain takes no 503 for an answer: it begins when every queue is served.
pub(super) fn wait_for_service(server: &Server) {
    let client = server.client();
    let is_served = |queue: &&str| client.stats(queue).is_ok_and(|answer| answer.status.is_success());
    let answers = || client.get("/readyz").is_ok_and(|answer| answer.status.is_success());
    wait_until("every queue is served", || answers() && QUEUES.iter().all(is_served));
}
