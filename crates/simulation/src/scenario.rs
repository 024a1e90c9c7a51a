//! The scenario of a run, drawn from its seed: the cluster, the load, and how often each fault happens. Each run draws a
//! part of the faults (swarm testing): some defects show only when other faults are absent.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::cluster::ClusterSettings;
use crate::faults::{Fault, FaultRates};
use crate::scheduler::Policy;

/// Seeds that have failed with the present workload. Every round begins with them.
pub const REGRESSIONS: &[u64] = &[545, 10_147];

/// Faults of requests, which are drawn for each request, and their greatest rates.
const REQUEST_FAULTS: &[(Fault, u32)] = &[
    (Fault::TreeRefused, 2_000),
    (Fault::TreeLost, 1_000),
    (Fault::TreeUnanswered, 2_000),
    (Fault::TreeSlow, 1_000),
    (Fault::TreeHung, 100),
    (Fault::TreeServerBehind, 2_000),
    (Fault::PoolRefused, 3_000),
    (Fault::PoolLost, 2_000),
    (Fault::PoolUnanswered, 3_000),
    (Fault::PoolSlow, 2_000),
    (Fault::PoolHung, 300),
    (Fault::PeerRefused, 5_000),
    (Fault::PeerLost, 2_000),
    (Fault::PeerUnanswered, 5_000),
    (Fault::PeerSlow, 3_000),
    (Fault::PeerHung, 500),
    (Fault::ClientRefused, 2_000),
    (Fault::ClientLost, 2_000),
    (Fault::ClientUnanswered, 5_000),
    (Fault::ClientSlow, 3_000),
    (Fault::ClientHung, 500),
    (Fault::ClientLeft, 3_000),
];

/// Faults of processes and servers, which are drawn every second, and their greatest rates.
const WEATHER_FAULTS: &[(Fault, u32)] = &[
    (Fault::TreeCut, 3_000),
    (Fault::TreeSessionEnded, 2_000),
    (Fault::TreeLeaderChanged, 1_000),
    (Fault::PoolFull, 2_000),
    (Fault::PoolRolledBack, 1_000),
    (Fault::ProcessCrash, 3_000),
    (Fault::ProcessStop, 2_000),
    (Fault::ProcessPause, 3_000),
];

/// The cluster, the load and the faults of a run.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The seed.
    pub seed: u64,
    /// The cluster.
    pub cluster: ClusterSettings,
    /// Number of queues; every second one is a FIFO queue.
    pub queues: usize,
    /// Number of clients.
    pub clients: usize,
    /// Number of steps of each client.
    pub steps: usize,
    /// The longest pause between two steps of a client, in milliseconds.
    pub pause_millis: u64,
    /// What clients do beside posts, claims and deletes.
    pub verbs: Verbs,
    /// How often each fault happens.
    pub rates: FaultRates,
}

/// What clients do beside posts, claims and deletes of messages.
#[derive(Clone, Copy, Debug)]
pub struct Verbs {
    /// Queues move between pools.
    pub migrations: bool,
    /// Messages that were claimed twice move to queues of dead letters.
    pub dead_letters: bool,
    /// Queues are purged.
    pub purges: bool,
    /// Standard queues are deleted, and created again by the next post.
    pub queue_deletions: bool,
    /// Pools and queues do not sync what they answer.
    pub relaxed: bool,
}

impl Scenario {
    /// Draws the scenario of a seed.
    pub fn of_seed(seed: u64) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let replicas = [1, 2, 3, 3][random.random_range(0..4)];
        let cluster = ClusterSettings {
            replicas,
            pools: vec!["sim://a".into(), "sim://b".into()],
            policy: [Policy::Equal, Policy::Equal, Policy::Ranked, Policy::Oldest][random.random_range(0..4)],
        };
        let mut rates = FaultRates::default();
        for (fault, greatest) in REQUEST_FAULTS.iter().chain(WEATHER_FAULTS) {
            if random.random_range(0..100) < 35 {
                rates.set(*fault, greatest / [1, 3, 10][random.random_range(0..3)]);
            }
        }
        Self {
            seed,
            cluster,
            queues: random.random_range(1..=4),
            clients: random.random_range(1..=6),
            steps: random.random_range(10..=60),
            pause_millis: [100, 1_000, 5_000, 20_000][random.random_range(0..4)],
            verbs: Verbs {
                migrations: random.random_range(0..3) == 0,
                dead_letters: random.random_range(0..3) == 0,
                purges: random.random_range(0..6) == 0,
                queue_deletions: random.random_range(0..6) == 0,
                relaxed: random.random_range(0..10) == 0,
            },
            rates,
        }
    }
}
