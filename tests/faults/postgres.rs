//! Owns what strikes a PostgreSQL pool: death under load, lost answers, fail-over.

use std::sync::Arc;
use std::time::Duration;

use angarium_storage::{QueueChanges, StoreError};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::writers::{judge, load, settle};
use angarium_testbed::drivers::registered;
use angarium_testbed::held::wait_until;
use angarium_testbed::owner::{Owner, SLOT, appends, epoch, id, ids, messages, queue, removes};
use angarium_testbed::postgres::Postgres;
use angarium_testbed::settings;

#[tokio::test(flavor = "multi_thread")]
async fn kill_9_of_postgres_loses_and_revives_nothing() {
    let (seed, rounds) = (settings::seed("postgres"), settings::number("ANGARIUM_CRASH_ROUNDS", 3));
    let mut server = Postgres::start(&[]);
    let pool = registered(&server.uri("")).await;
    let over = Arc::default();
    let load = load(&pool, seed, &over).await;
    let mut dice = StdRng::seed_from_u64(seed);
    for _ in 0..rounds {
        tokio::time::sleep(Duration::from_millis(dice.random_range(300..1_200))).await;
        server = tokio::task::spawn_blocking(move || {
            server.kill9();
            server.restart();
            server
        })
        .await
        .unwrap();
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    judge("postgres killed", load, &over).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn batch_of_ended_session_is_resolved_by_its_repeat() {
    let server = Arc::new(Postgres::start(&[]));
    let pool = registered(&server.uri("")).await;
    let mut owner = Owner::fence(&pool, SLOT, 1).await;
    owner.append(queue(SLOT, 1), &messages([1])).await;
    let holder = server.hold("SELECT FROM angarium.records FOR UPDATE");
    let batch = owner.batch(2, vec![appends(queue(SLOT, 1), &messages([2]))]);
    let ending = Arc::clone(&server);
    let end = tokio::task::spawn_blocking(move || {
        let text = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
            WHERE application_name = 'angarium' AND wait_event_type = 'Lock'";
        wait_until("it waits", || ending.sql(text) != "0");
    });
    let failure = pool.commit(&batch).await;
    end.await.unwrap();
    drop(holder);
    assert!(matches!(failure, Err(StoreError::Unknown(_))), "{failure:?}");
    settle(&*pool, &batch).await;
    let gone = QueueChanges { low: id(1), ..removes(queue(SLOT, 1), &[id(2)]) };
    pool.commit(&owner.batch(3, vec![gone])).await.unwrap();
    assert_eq!(owner.all(queue(SLOT, 1)).await, messages([1]));
}

#[tokio::test]
async fn absent_postgres_gets_no_requests() {
    let mut server = Postgres::start(&[]);
    let pool = registered(&server.uri("")).await;
    let owner = Owner::fence(&pool, SLOT, 1).await;
    server.kill9();
    let batch = owner.batch(1, vec![appends(queue(SLOT, 1), &messages([1]))]);
    // A connection that was open may still take the first.
    let _ = pool.commit(&batch).await;
    let failure = pool.commit(&batch).await;
    assert!(matches!(failure, Err(StoreError::NotSent(_))), "{failure:?}");
    assert!(pool.check_open().is_err());
    server.restart();
    settle(&*pool, &batch).await;
    assert_eq!(owner.all(queue(SLOT, 1)).await, messages([1]));
}

#[tokio::test(flavor = "multi_thread")]
async fn fail_over_to_a_synchronous_standby_loses_nothing() {
    let seed = settings::seed("postgres standby");
    let mut server = Postgres::start(&[]);
    let standby = server.follow();
    let pool = registered(&server.uri_of_both(&standby)).await;
    let over = Arc::default();
    let load = load(&pool, seed, &over).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let _standby = tokio::task::spawn_blocking(move || {
        server.kill9();
        standby.promote();
        standby
    })
    .await
    .unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
    judge("postgres failed over", load, &over).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_with_lost_tail_continues_under_new_fence() {
    let mut server = Postgres::start(&[]);
    let pool = registered(&server.uri("")).await;
    let mut owner = Owner::fence(&pool, SLOT, 1).await;
    owner.append(queue(SLOT, 1), &messages([1])).await;
    server.kill9();
    server.keep_data();
    server.restart();
    settle(&*pool, &owner.batch(2, vec![appends(queue(SLOT, 1), &messages([2, 3]))])).await;
    server.kill9();
    server.go_back();
    server.restart();
    let batch = owner.batch(3, vec![appends(queue(SLOT, 1), &messages([4]))]);
    let mut outcome = pool.commit(&batch).await;
    while matches!(outcome, Err(StoreError::NotSent(_) | StoreError::Unknown(_))) {
        tokio::time::sleep(Duration::from_millis(50)).await;
        outcome = pool.commit(&batch).await;
    }
    assert!(matches!(outcome, Err(StoreError::WentBack)), "{outcome:?}");
    assert_eq!(pool.fence(SLOT, epoch(2)).await.unwrap(), id(1));
    let mut owner = Owner::fence(&pool, SLOT, 3).await;
    owner.append(queue(SLOT, 1), &messages([5])).await;
    assert_eq!(ids(&owner.all(queue(SLOT, 1)).await), [id(1), id(5)]);
}
