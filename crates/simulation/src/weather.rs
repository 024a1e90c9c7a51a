//! Faults of processes, sessions and storages, which happen while clients work.

use std::time::Duration;

use crate::cluster::Cluster;
use crate::faults::Fault;
use crate::world::World;

/// The faults of one second.
async fn pass_second(cluster: &Cluster) {
    let world = cluster.world();
    tokio::time::sleep(Duration::from_millis(500 + world.below(1_000))).await;
    let node = usize::try_from(world.below(100)).unwrap_or(0) % cluster.size();
    if world.draws(Fault::ProcessPause) && cluster.process(node).is_some() {
        cluster.pause(node, some_seconds(world, 40));
    }
    if world.draws(Fault::ProcessCrash) {
        cluster.crash(node, some_seconds(world, 20));
    }
    if world.draws(Fault::ProcessStop) {
        cluster.stop(node, some_seconds(world, 5));
    }
    if let Some(tree) = cluster.tree(node) {
        if world.happens(Fault::TreeCut) {
            tree.cut(some_seconds(world, 25));
        }
        if world.happens(Fault::TreeSessionEnded) {
            cluster.end_session(node);
        }
    }
    if world.happens(Fault::TreeLeaderChanged) {
        let step = i64::try_from(world.below(4_000)).unwrap_or(0) - 2_000;
        cluster.ensemble().change_leader(step);
    }
    if world.happens(Fault::TreeClockStepped) {
        let step = i64::try_from(world.below(600_000)).unwrap_or(0) - 300_000;
        cluster.ensemble().change_leader(step);
    }
    if world.happens(Fault::TreeReadsSlow) {
        cluster.ensemble().slow_reads(some_seconds(world, 40));
    }
    if cluster.size() > 1 && world.happens(Fault::PeerCut) {
        cut(cluster, node);
    }
    pass_pools(cluster);
}

/// Loses all that a replica sends to another one for a while.
fn cut(cluster: &Cluster, from: usize) {
    let others = u64::try_from(cluster.size()).unwrap_or(1).saturating_sub(1).max(1);
    let to = (from + 1 + usize::try_from(cluster.world().below(others)).unwrap_or(0)) % cluster.size();
    cluster.cut(from, to, some_seconds(cluster.world(), 30));
}

fn pass_pools(cluster: &Cluster) {
    let world = cluster.world();
    if let Some(storage) = cluster.storages().any() {
        if world.happens(Fault::PoolFull) {
            let pause = some_seconds(world, 30);
            storage.set_full(true);
            let full = storage.clone();
            world.spawn(async move {
                tokio::time::sleep(pause).await;
                full.set_full(false);
            });
        }
        if world.happens(Fault::PoolDown) {
            let pause = Duration::from_millis(5_000 + world.below(55_000));
            storage.set_down(true);
            let down = storage.clone();
            world.spawn(async move {
                tokio::time::sleep(pause).await;
                down.set_down(false);
            });
        }
        if world.draws(Fault::PoolRolledBack) {
            storage.roll_back();
        }
    }
}

/// Lets faults happen until the world is healed.
pub async fn run(cluster: Cluster) {
    while !cluster.world().is_healed() {
        pass_second(&cluster).await;
    }
}

/// Mostly a short time, and at most `most` seconds.
fn some_seconds(world: &World, most: u64) -> Duration {
    let limit = if world.below(3) == 0 { most * 1_000 } else { most * 100 };
    Duration::from_millis(50 + world.below(limit))
}
