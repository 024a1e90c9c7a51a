//! Owns the rounds in which a cluster behind its load balancer is struck: replicas killed, frozen, cut off, taken away and
//! brought back, ZooKeeper without its leader or stopped as a whole. Nothing acknowledged is lost, nothing is served twice.
//!
//! Two queues lie in a pool in Redis, one in PostgreSQL. `ANGARIUM_CLUSTER_ROUNDS` is how many times each kind of fault strikes,
//! and how often all of them strike at once; docs/cluster.md has the command.

use std::thread;
use std::time::{Duration, Instant};

use http::StatusCode;
use rand::rngs::StdRng;
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{Rng, SeedableRng};
use serde_json::json;

use super::crash::assert_kept;
use super::drain::drain;
use super::history::History;
use super::load::{Load, QUEUES};
use super::verdict::judge;
use crate::support::cluster::{Cluster, Part, REPLICAS};
use angarium_testbed::held::wait_until;
use angarium_testbed::proxy::Wire;
use angarium_testbed::settings;
use angarium_testbed::zookeeper::{SESSION, ZooKeeper};

/// How long a fault lasts that others must notice.
const PAST_THE_SESSION: Duration = Duration::from_secs(SESSION.as_secs() + 3);

/// What strikes.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    Kill,
    Freeze,
    Leave,
    Cut(Part, Wire),
    KillLeader,
    RestartTree,
}

const FAULTS: [Fault; 11] = [
    Fault::Kill,
    Fault::Freeze,
    Fault::Leave,
    Fault::Cut(Part::Tree, Wire::Deaf),
    Fault::Cut(Part::Tree, Wire::Mute),
    Fault::Cut(Part::Pool, Wire::Deaf),
    Fault::Cut(Part::Peers, Wire::Deaf),
    Fault::Cut(Part::Peers, Wire::Mute),
    Fault::Cut(Part::Peers, Wire::Silent),
    Fault::KillLeader,
    Fault::RestartTree,
];

/// What a replica may be cut off from while others are struck.
const CUTS: [(Part, Wire); 7] = [
    (Part::Tree, Wire::Deaf),
    (Part::Tree, Wire::Mute),
    (Part::Pool, Wire::Deaf),
    (Part::Pool, Wire::Mute),
    (Part::Peers, Wire::Deaf),
    (Part::Peers, Wire::Mute),
    (Part::Peers, Wire::Silent),
];

/// The flavor of queues that lie in PostgreSQL, and the queue that does.
const ROWS: &str = "rows";
const IN_ROWS: &str = QUEUES[1];

/// A cluster with its queues in both kinds of pools.
fn start() -> Cluster {
    let mut cluster = Cluster::start();
    cluster.add_postgres(ROWS);
    let client = cluster.client();
    for queue in QUEUES {
        let flavor = (queue == IN_ROWS).then(|| json!({"_flavor": ROWS}));
        let created = client.put(&format!("/v2/queues/{queue}"), flavor.as_ref()).expect("it answers");
        assert_eq!(created.status, StatusCode::CREATED, "queue {queue}: {}", created.text());
    }
    cluster
}

/// A blow to a replica, or to the tree, and the mending of it.
pub fn strike(cluster: &mut Cluster, fault: Fault, replica: usize, dice: &mut StdRng) {
    eprintln!("{fault:?} of replica {replica}");
    match fault {
        Fault::Kill => {
            cluster.kill9(replica);
            thread::sleep(Duration::from_millis(dice.random_range(0..3000)));
            cluster.enter(replica);
        }
        Fault::Freeze => {
            cluster.freeze(replica);
            thread::sleep(PAST_THE_SESSION);
            cluster.thaw(replica);
        }
        Fault::Leave => {
            cluster.leave(replica);
            thread::sleep(Duration::from_millis(dice.random_range(0..3000)));
            cluster.enter(replica);
        }
        Fault::Cut(part, wire) => {
            cluster.cut(replica, part, wire);
            thread::sleep(PAST_THE_SESSION);
            cluster.heal();
        }
        Fault::KillLeader => {
            let leader = cluster.ensemble.leader();
            cluster.ensemble.0[leader].kill9();
            thread::sleep(Duration::from_millis(dice.random_range(0..5000)));
            cluster.ensemble.0[leader].restart();
        }
        Fault::RestartTree => {
            cluster.ensemble.kill9();
            cluster.ensemble.restart();
        }
    }
}

/// All of it at once: one replica is stopped, one is cut off from something, one is killed, and meanwhile ZooKeeper
/// loses its leader or stops as a whole. Then all of it is mended, in any order.
fn strike_all(cluster: &mut Cluster, dice: &mut StdRng) {
    let mut replicas: Vec<usize> = (0..REPLICAS).collect();
    replicas.shuffle(dice);
    let [frozen, cut, killed] = replicas[..] else { unreachable!("there are three") };
    let (part, wire) = *CUTS.choose(dice).expect("there are some");
    let is_whole = dice.random_bool(0.5);
    eprintln!(
        "{frozen} stands still, {cut} has {wire:?} to {part:?}, {killed} is killed, ZooKeeper whole: {is_whole}"
    );
    cluster.freeze(frozen);
    cluster.cut(cut, part, wire);
    cluster.kill9(killed);
    let leader = cluster.ensemble.leader();
    match is_whole {
        true => cluster.ensemble.kill9(),
        false => cluster.ensemble.0[leader].kill9(),
    }
    thread::sleep(Duration::from_millis(dice.random_range(0..3000)));
    match is_whole {
        true => cluster.ensemble.restart(),
        false => cluster.ensemble.0[leader].restart(),
    }
    thread::sleep(Duration::from_secs(dice.random_range(0..=PAST_THE_SESSION.as_secs())));
    cluster.thaw(frozen);
    cluster.heal();
    cluster.enter(killed);
}

/// Under load, until the cluster is calm again.
pub fn under_load(
    cluster: &mut Cluster,
    (history, load): (&History, &mut Load),
    dice: &mut StdRng,
    strike: impl FnOnce(&mut Cluster, &mut StdRng),
) {
    let base = cluster.balancer.base();
    let mut own_dice = StdRng::from_rng(dice);
    load.run_while(&base, history, dice, || {
        thread::sleep(Duration::from_millis(500));
        strike(cluster, &mut own_dice);
        thread::sleep(Duration::from_secs(1));
    });
    let mended = Instant::now();
    cluster.await_calm();
    history.calmed();
    eprintln!("calm after {:?}", mended.elapsed());
}

#[test]
fn cluster_faults_lose_and_double_nothing_acknowledged() {
    let (seed, rounds) = (settings::seed("cluster"), settings::number("ANGARIUM_CLUSTER_ROUNDS", 1));
    let mut dice = StdRng::seed_from_u64(seed);
    let mut cluster = start();
    let (history, mut load) = (History::new(), Load::balanced());
    for _ in 0..rounds {
        let mut faults = FAULTS;
        faults.shuffle(&mut dice);
        for fault in faults {
            under_load(&mut cluster, (&history, &mut load), &mut dice, |cluster, dice| {
                let replica = dice.random_range(0..REPLICAS);
                strike(cluster, fault, replica, dice);
            });
        }
        under_load(&mut cluster, (&history, &mut load), &mut dice, strike_all);
    }
    wait_until("each replica watches the tree once", || {
        cluster.ensemble.0.iter().map(ZooKeeper::watches).sum::<usize>() == REPLICAS
    });
    drain(&cluster.client(), &history);
    assert_kept("cluster", rounds, &judge(&history.record()));
}
