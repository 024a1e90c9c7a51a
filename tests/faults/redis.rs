//! Owns what strikes a Redis pool: death under load, silence, a restart from an older state, fail-over.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use angarium_storage::{QueueChanges, StoreError};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::writers::{judge, load, settle};
use angarium_testbed::drivers::registered;
use angarium_testbed::owner::{Owner, SLOT, appends, epoch, id, ids, messages, queue, removes};
use angarium_testbed::redis::{Redis, RedisCluster, RedisSentinels, SYNCED};
use angarium_testbed::settings;

#[tokio::test(flavor = "multi_thread")]
async fn kill_9_of_redis_loses_and_revives_nothing() {
    let (seed, rounds) = (settings::seed("redis"), settings::number("ANGARIUM_CRASH_ROUNDS", 3));
    let mut redis = Redis::start(SYNCED);
    let pool = registered(&redis.uri("")).await;
    let over = Arc::default();
    let load = load(&pool, seed, &over).await;
    let mut dice = StdRng::seed_from_u64(seed);
    for _ in 0..rounds {
        tokio::time::sleep(Duration::from_millis(dice.random_range(200..800))).await;
        redis = tokio::task::spawn_blocking(move || {
            redis.kill9();
            redis.restart();
            redis
        })
        .await
        .unwrap();
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    judge("redis killed", load, &over).await;
}

#[tokio::test]
async fn batch_at_silent_redis_is_resolved_by_its_repeat() {
    let redis = Redis::start(SYNCED);
    let pool = registered(&redis.uri("")).await;
    let mut owner = Owner::fence(&pool, SLOT, 1).await;
    owner.append(queue(SLOT, 1), &messages([1])).await;
    let batch = owner.batch(2, vec![appends(queue(SLOT, 1), &messages([2]))]);
    redis.pause();
    let failure = pool.commit(&batch).await;
    redis.resume();
    assert!(matches!(failure, Err(StoreError::Unknown(_))), "{failure:?}");
    // The first try is in the socket of a connection that no process uses any more, and is read now.
    settle(&*pool, &batch).await;
    let gone = QueueChanges { low: id(1), ..removes(queue(SLOT, 1), &[id(2)]) };
    settle(&*pool, &owner.batch(3, vec![gone])).await;
    assert_eq!(owner.all(queue(SLOT, 1)).await, messages([1]));
    assert!(matches!(pool.commit(&batch).await, Err(StoreError::Stale)));
    assert_eq!(owner.all(queue(SLOT, 1)).await, messages([1]));
}

#[tokio::test]
async fn late_batch_of_replaced_owner_is_refused() {
    let redis = Redis::start(SYNCED);
    let pool = registered(&redis.uri("")).await;
    let old = Owner::fence(&pool, SLOT, 1).await;
    let late = old.batch(1, vec![appends(queue(SLOT, 1), &messages([1]))]);
    redis.pause();
    let failure = pool.commit(&late).await;
    assert!(matches!(failure, Err(StoreError::Unknown(_))), "{failure:?}");
    redis.resume();
    // A service of its own, with connections of its own.
    let other = registered(&redis.uri("")).await;
    let new = Owner::fence(&other, SLOT, 2).await;
    let seen = new.all(queue(SLOT, 1)).await;
    let refused = pool.commit(&late).await;
    assert!(matches!(refused, Err(StoreError::Fenced(by)) if by == epoch(2)), "{refused:?}");
    assert_eq!(
        new.all(queue(SLOT, 1)).await,
        seen,
        "what came before the fence was seen, the rest never comes"
    );
}

#[tokio::test]
async fn redis_with_lost_tail_continues_under_new_fence() {
    let mut redis = Redis::start(SYNCED);
    let pool = registered(&redis.uri("")).await;
    let mut owner = Owner::fence(&pool, SLOT, 1).await;
    owner.append(queue(SLOT, 1), &messages([1])).await;
    let (log, copy) = (redis.data().join("appendonlydir"), redis.data().join("copy"));
    copy_files(&log, &copy);
    owner.append(queue(SLOT, 1), &messages([2, 3])).await;
    redis.kill9();
    fs::remove_dir_all(&log).unwrap();
    fs::rename(&copy, &log).unwrap();
    redis.restart();
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

fn copy_files(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for file in fs::read_dir(from).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), to.join(file.file_name())).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sentinel_failover_keeps_replicated_data() {
    let seed = settings::seed("sentinel");
    let start = || {
        RedisSentinels::start(&[
            "appendonly yes",
            "appendfsync always",
            "save \"\"",
            "repl-diskless-sync-delay 0",
        ])
    };
    let mut servers = tokio::task::spawn_blocking(start).await.unwrap();
    let pool = registered(&servers.uri("wait=1")).await;
    let over = Arc::default();
    let load = load(&pool, seed, &over).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    servers.master.kill9();
    // Nothing can have the replica that was asked for before the old master is back, as a replica.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let servers = tokio::task::spawn_blocking(move || {
        servers.master.restart();
        servers
    });
    let servers = servers.await.unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    judge("fail-over by Sentinels", load, &over).await;
    drop(servers);
}

#[tokio::test(flavor = "multi_thread")]
async fn cluster_failover_keeps_replicated_data() {
    let seed = settings::seed("cluster");
    let mut cluster = tokio::task::spawn_blocking(RedisCluster::start).await.unwrap();
    let pool = registered(&cluster.uri("wait=1&prefix=p")).await;
    let over = Arc::default();
    let load = load(&pool, seed, &over).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let cluster = tokio::task::spawn_blocking(move || {
        let master = cluster.master_of("p:stamp");
        master.kill9();
        std::thread::sleep(Duration::from_secs(4));
        master.restart();
        cluster
    });
    let cluster = cluster.await.unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    judge("fail-over in a cluster", load, &over).await;
    drop(cluster);
}
