//! Owns the rounds in which a cluster behind its load balancer is struck: replicas killed, frozen, cut off, taken away and
//! brought back, ZooKeeper without its leader or stopped as a whole. Nothing acknowledged is lost, nothing is served twice.
//!
//! `ANGARIUM_CLUSTER_ROUNDS` is how many times each kind of fault strikes.

use std::thread;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};

use super::crash::{assert_kept, create_queues};
use super::drain::drain;
use super::history::History;
use super::load::Load;
use super::verdict::judge;
use crate::support::cluster::{Cluster, Part, REPLICAS};
use crate::support::proxy::Wire;
use crate::support::settings;
use crate::support::zookeeper::SESSION;

/// How long a fault lasts that others must notice.
const PAST_THE_SESSION: Duration = Duration::from_secs(SESSION.as_secs() + 3);

/// What strikes.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Kill,
    Freeze,
    Leave,
    Cut(Part, Wire),
    KillLeader,
    RestartTree,
}

const FAULTS: [Fault; 9] = [
    Fault::Kill,
    Fault::Freeze,
    Fault::Leave,
    Fault::Cut(Part::Tree, Wire::Deaf),
    Fault::Cut(Part::Tree, Wire::Mute),
    Fault::Cut(Part::Pool, Wire::Deaf),
    Fault::Cut(Part::Peers, Wire::Silent),
    Fault::KillLeader,
    Fault::RestartTree,
];

/// A blow to one replica, or to the tree, and the mending of it.
fn strike(cluster: &mut Cluster, fault: Fault, dice: &mut StdRng) {
    let replica = dice.random_range(0..REPLICAS);
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

#[test]
fn whatever_strikes_a_cluster_nothing_acknowledged_is_lost_or_served_twice() {
    let (seed, rounds) = (settings::seed("cluster"), settings::number("ANGARIUM_CLUSTER_ROUNDS", 1));
    let mut dice = StdRng::seed_from_u64(seed);
    let mut cluster = Cluster::start();
    let (history, mut load) = (History::new(), Load::balanced());
    create_queues(&cluster.client(), false);
    let base = cluster.balancer.base();
    for _ in 0..rounds {
        let mut faults = FAULTS;
        faults.shuffle(&mut dice);
        for fault in faults {
            let mut own_dice = StdRng::from_rng(&mut dice);
            load.run_while(&base, &history, &mut dice, || {
                thread::sleep(Duration::from_millis(500));
                strike(&mut cluster, fault, &mut own_dice);
                thread::sleep(Duration::from_secs(1));
            });
            let mended = Instant::now();
            cluster.await_calm();
            eprintln!("calm {:?} after {fault:?}", mended.elapsed());
        }
    }
    drain(&cluster.client(), &history);
    assert_kept("cluster", rounds, &judge(&history.record()));
}
