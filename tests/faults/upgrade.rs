//! Owns upgrades: the program of an earlier commit and the one built here serve the same data, after each other and side by
//! side, and nothing acknowledged is lost.

use std::thread;
use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::StdRng;
use tempfile::TempDir;

use super::crash::{assert_kept, create_queues};
use super::drain::drain;
use super::history::History;
use super::load::Load;
use super::verdict::judge;
use crate::support::cluster::{Cluster, REPLICAS};
use crate::support::server::ServerBuilder;
use crate::support::settings::{self, earlier_program};

/// How long both versions serve side by side, in each of the mixtures.
const SIDE_BY_SIDE: Duration = Duration::from_secs(2);

#[test]
fn a_cluster_is_upgraded_replica_by_replica_and_back_without_a_loss() {
    let mut dice = StdRng::seed_from_u64(settings::seed("upgrade"));
    let mut cluster = Cluster::start_with(|builder| builder.program(earlier_program()));
    let (history, mut load) = (History::new(), Load::balanced().without_purges());
    create_queues(&cluster.client(), false);
    let base = cluster.balancer.base();
    let now = env!("CARGO_BIN_EXE_angarium");
    load.run_while(&base, &history, &mut dice, || {
        // The last of them goes back once, and forth again: what the new one wrote the old one reads.
        let ways = (0..REPLICAS).map(|replica| (replica, now.into()));
        let back_and_forth = [earlier_program(), now.into()].map(|program| (REPLICAS - 1, program));
        for (replica, program) in ways.chain(back_and_forth) {
            thread::sleep(SIDE_BY_SIDE);
            cluster.leave(replica);
            cluster.change(replica, |builder| builder.program(program.clone()));
            cluster.enter(replica);
            cluster.await_calm();
        }
    });
    drain(&cluster.client(), &history);
    assert_kept("upgrade of a cluster", 1, &judge(&history.record()));
}

#[test]
fn what_the_earlier_program_left_on_its_disk_is_served() {
    let mut dice = StdRng::seed_from_u64(settings::seed("upgrade alone"));
    let dir = TempDir::new().expect("a temporary directory");
    let builder = ServerBuilder::new(&dir.path().join("data"));
    let (history, mut load) = (History::new(), Load::new().without_purges());
    let earlier = builder.clone().program(earlier_program()).start();
    create_queues(&earlier.client(), false);
    let base = earlier.base().to_owned();
    load.run_while(&base, &history, &mut dice, || {
        thread::sleep(SIDE_BY_SIDE);
        earlier.kill9();
    });
    let server = builder.start();
    load.run_while(server.base(), &history, &mut dice, || thread::sleep(SIDE_BY_SIDE));
    drain(&server.client(), &history);
    assert_kept("upgrade alone", 1, &judge(&history.record()));
}
