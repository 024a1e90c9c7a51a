//! The conformance suites of pools and of the coordination tree, over the embedded pool and the embedded tree on a
//! simulated disk. The order of tasks and the time of each operation are those of several seeds.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

#[path = "../../../storage/tests/conformance/facts.rs"]
#[macro_use]
mod facts;

#[path = "../../../storage/tests/conformance/changes.rs"]
mod changes;
#[path = "../../../storage/tests/conformance/classes.rs"]
mod classes;
#[path = "../../../storage/tests/conformance/drops.rs"]
mod drops;
#[path = "../../../storage/tests/conformance/due.rs"]
mod due;
#[path = "../../../storage/tests/conformance/extras.rs"]
mod extras;
#[path = "../../../storage/tests/conformance/fences.rs"]
mod fences;
#[path = "../../../storage/tests/conformance/groups.rs"]
mod groups;
#[path = "../../../storage/tests/conformance/history.rs"]
mod history;
#[path = "../../../storage/tests/conformance/kept.rs"]
mod kept;
#[path = "../../../storage/tests/conformance/notes.rs"]
mod notes;
#[path = "../../../storage/tests/conformance/numbers.rs"]
mod numbers;
#[path = "../../../storage/tests/conformance/reads.rs"]
mod reads;
#[path = "../../../storage/tests/conformance/reopening.rs"]
mod reopening;
#[path = "../../../storage/tests/conformance/retained.rs"]
mod retained;
#[path = "../../../storage/tests/conformance/scans.rs"]
mod scans;
#[path = "../../../storage/tests/conformance/shared.rs"]
mod shared;
#[path = "../../../storage/tests/conformance/stamps.rs"]
mod stamps;
#[path = "../../../storage/tests/conformance/states.rs"]
mod states;
mod tree;

use std::sync::Arc;

use angarium_clock::Clock;
use angarium_core::maps::HashKeys;
use angarium_journal::JournalOptions;
use angarium_simulation::journal::{Disk, ProcessJournal};
use angarium_simulation::process::Process;
use angarium_simulation::scheduler::Policy;
use angarium_simulation::trace::Trace;
use angarium_simulation::world::World;
use angarium_storage::PoolStore;
use angarium_storage::embedded::EmbeddedPool;
use angarium_testbed::drivers::Storage;
use async_trait::async_trait;

/// The number of seeds of each fact.
const SEEDS: u64 = 3;

/// A disk whose journal is opened by one process after the other.
struct SimulatedDisk {
    disk: Disk,
    starts: u64,
}

impl SimulatedDisk {
    fn new(seed: u64) -> Self {
        HashKeys::fix([1, 2]);
        let world = World::new(seed, Policy::Equal, Trace::hashed());
        Self { disk: Disk::new(world, "a"), starts: 0 }
    }

    /// Opens the journal once the process before has closed it.
    async fn open_journal(&mut self, options: JournalOptions) -> ProcessJournal {
        self.disk.released().await;
        self.starts += 1;
        let process = Process::start(self.disk.world().clone(), format!("a.{}", self.starts));
        ProcessJournal::open(&self.disk, &process, &Clock::manual(0), options).unwrap()
    }

    async fn open_pool(&mut self, options: JournalOptions) -> Arc<dyn PoolStore> {
        Arc::new(EmbeddedPool::new(self.open_journal(options).await.journal()))
    }
}

#[async_trait]
impl Storage for SimulatedDisk {
    async fn open(&mut self) -> Arc<dyn PoolStore> {
        self.open_pool(JournalOptions::default()).await
    }

    async fn open_without_room(&mut self) -> Arc<dyn PoolStore> {
        self.open_pool(JournalOptions { reserve: u64::MAX, ..JournalOptions::default() }).await
    }
}

/// Makes each fact a test.
macro_rules! conformance {
    ([] { $($subject:ident { $($fact:ident)* })* }) => {
        mod pool {
            $(mod $subject {
                $(#[tokio::test(start_paused = true)]
                async fn $fact() {
                    use crate::{$subject, SEEDS, SimulatedDisk};
                    for seed in 0..SEEDS {
                        $subject::$fact(&mut SimulatedDisk::new(seed)).await;
                    }
                })*
            })*
        }
    };
}

facts! { conformance [] }
