//! The scenario of a run, drawn from its seed: the cluster, the load, and how often each fault happens. Each run draws
//! a part of the faults (swarm testing): some defects show only when other faults are absent.

use std::collections::BTreeSet;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::cluster::ClusterSettings;
use crate::faults::{Fault, FaultRates};
use crate::scheduler::Policy;

/// Seeds that have failed with the present workload. Every round begins with them.
pub const REGRESSIONS: &[u64] = &[425, 2_037, 7_285, 50_096, 50_193];

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
    (Fault::ClientDuplicated, 10_000),
];

/// Faults of processes and servers, which are drawn every second, and their greatest rates.
const WEATHER_FAULTS: &[(Fault, u32)] = &[
    (Fault::TreeCut, 3_000),
    (Fault::TreeSessionEnded, 2_000),
    (Fault::TreeLeaderChanged, 1_000),
    (Fault::PeerCut, 2_000),
    (Fault::PoolFull, 2_000),
    (Fault::PoolDown, 1_000),
    (Fault::PoolRolledBack, 1_000),
    (Fault::ProcessCrash, 3_000),
    (Fault::ProcessStop, 2_000),
    (Fault::ProcessPause, 3_000),
];

/// More faults of processes, servers and storages, which are drawn beside the scenario: seeds without them are as they were before.
const ADDED_FAULTS: &[(Fault, u32)] = &[(Fault::TreeReadsSlow, 2_000), (Fault::PoolForeign, 30_000)];

/// The rate of late answers to reads of pools, in seeds with [`Verb::Races`].
const LATE_RATE: u32 = 1_000;

/// The same in seeds with [`Verb::OwnQueues`], in which a page is read while its messages change.
const OWN_LATE_RATE: u32 = 12_000;

/// How often a process finds another storage under the name of a pool in these seeds, in which processes end often.
const OWN_FOREIGN_RATE: u32 = 15_000;

/// Faults of the disk of an embedded store, which are drawn for each operation, and their greatest rates.
const DISK_FAULTS: &[(Fault, u32)] = &[
    (Fault::DiskWriteFailed, 2_000),
    (Fault::DiskSyncFailed, 2_000),
    (Fault::DiskReadFailed, 100),
    (Fault::DiskStalled, 1_000),
    (Fault::DiskFull, 500),
    (Fault::DiskExhausted, 300),
    (Fault::DiskCrash, 500),
];

/// Faults of processes and connections with which a step of the clock by minutes may end claims early: after them no
/// replica may be left with the time from before the step.
const NOT_WITH_CLOCK_STEPS: &[Fault] = &[
    Fault::TreeCut,
    Fault::TreeHung,
    Fault::TreeReadsSlow,
    Fault::TreeSessionEnded,
    Fault::TreeSlow,
    Fault::ProcessCrash,
    Fault::ProcessStop,
    Fault::ProcessPause,
];

/// What the generator of the verbs that were added last differs by from that of the scenario.
const LATER_VERBS: u64 = 0x7665_7262_7300_0003;

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
    /// Whether no fault happens, so that every request succeeds in time.
    pub is_calm: bool,
    /// How often each fault happens.
    pub rates: FaultRates,
    /// After every so many operations on the disk of an embedded store its process ends; none for never.
    pub crash_every: Option<u64>,
    /// The greatest bound of caches and steps of the product, if these are small, so that a few messages need many
    /// pages. Only a build with mutations has such bounds.
    pub small_bounds: Option<usize>,
}

/// What clients do in a run beside posts, claims and deletes of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verb {
    /// Queues move between pools.
    Migrations,
    /// Messages that were claimed twice move to queues of dead letters.
    DeadLetters,
    /// Queues are purged.
    Purges,
    /// Standard queues are deleted, and created again by the next post.
    QueueDeletions,
    /// Pools and queues do not sync what they answer.
    Relaxed,
    /// Messages are settled: done, failed, deferred or moved, with forwards.
    Settles,
    /// Claims are released with a delay.
    LaterReleases,
    /// Some messages live for one to two minutes.
    ShortLives,
    /// Two clients post the same messages to a FIFO queue at once.
    Duplicates,
    /// Standard queues are also used through SQS.
    Sqs,
    /// Pools are drained, and their weights change.
    Pools,
    /// Pools are deleted when no queue is in them, and added again.
    PoolDeletions,
    /// Pools are removed with the messages in them, and added again.
    PoolRemovals,
    /// Queues are held and released.
    Holds,
    /// Groups of queues are held and released.
    GroupHolds,
    /// Pools and the project are held and released.
    SharedHolds,
    /// Messages are popped.
    Pops,
    /// Queues and topics have subscriptions, which come and go.
    Subscriptions,
    /// A message is posted while a claim waits for it.
    AwaitedPosts,
    /// Requests about one message meet while it changes, and pools are late.
    Races,
    /// Clients use queues alone, of which they know all, and processes and pools fail just then.
    OwnQueues,
    /// The project has a quota, which changes.
    Quotas,
    /// Some holds end by themselves.
    EndingHolds,
    /// Messages are requeued: kept ones return.
    Requeues,
    /// Two queues subscribe to each other.
    Circles,
    /// A FIFO queue is used through SQS.
    SqsFifo,
    /// The terms of a subscription change beside posts.
    SubscriptionChanges,
}

impl Verb {
    /// Each verb, with the number of seeds of which one has it.
    const ONE_IN: &[(Self, u32)] = &[
        (Self::Migrations, 3),
        (Self::DeadLetters, 3),
        (Self::Purges, 6),
        (Self::QueueDeletions, 6),
        (Self::Relaxed, 10),
        (Self::Settles, 2),
        (Self::LaterReleases, 2),
        (Self::ShortLives, 4),
        (Self::Duplicates, 2),
        (Self::Sqs, 3),
        (Self::Pools, 4),
    ];

    /// More verbs, which are drawn beside the scenario: seeds without them are as they were before.
    const ADDED: &[(Self, u32)] = &[
        (Self::PoolDeletions, 6),
        (Self::PoolRemovals, 10),
        (Self::Holds, 5),
        (Self::GroupHolds, 4),
        (Self::SharedHolds, 5),
        (Self::Pops, 3),
        (Self::Subscriptions, 3),
        (Self::AwaitedPosts, 2),
        (Self::Races, 6),
        (Self::OwnQueues, 3),
    ];

    /// More verbs, which have a generator of their own: seeds without them are as they were before.
    const LATER: &[(Self, u32)] = &[
        (Self::Quotas, 7),
        (Self::EndingHolds, 6),
        (Self::Requeues, 6),
        (Self::Circles, 9),
        (Self::SqsFifo, 6),
        (Self::SubscriptionChanges, 7),
    ];

    /// The verbs that may refuse a request although nothing fails.
    const NOT_WHEN_CALM: &[Self] = &[
        Self::Migrations,
        Self::Purges,
        Self::QueueDeletions,
        Self::Relaxed,
        Self::Pools,
        Self::PoolDeletions,
        Self::PoolRemovals,
        Self::Holds,
        Self::GroupHolds,
        Self::SharedHolds,
        Self::Races,
        Self::OwnQueues,
    ];

    /// The verbs with which a client does not know all of the queues that it uses alone: pools lose messages, or hold
    /// or move them.
    const NOT_WITH_OWN_QUEUES: &[Self] =
        &[Self::Relaxed, Self::Pools, Self::PoolDeletions, Self::PoolRemovals, Self::SharedHolds];
}

/// The verbs of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verbs(BTreeSet<Verb>);

impl Verbs {
    fn draw(random: &mut StdRng) -> Self {
        // Draws nothing from the scenario.
        let mut beside = random.clone();
        let drawn = Verb::ONE_IN.iter().filter(|(_, count)| random.random_range(0..*count) == 0);
        let mut verbs = Self(drawn.map(|(verb, _)| *verb).collect());
        beside.random_range(0..u32::MAX);
        let added = Verb::ADDED.iter().filter(|(_, count)| beside.random_range(0..*count) == 0);
        verbs.0.extend(added.map(|(verb, _)| *verb));
        // The holds of a queue and of its groups end with its deletion.
        if verbs.has(Verb::Holds) || verbs.has(Verb::GroupHolds) {
            verbs.remove(Verb::QueueDeletions);
        }
        // A deleted queue is created again without the life that messages of SQS have by it.
        if verbs.has(Verb::QueueDeletions) {
            verbs.remove(Verb::Sqs);
        }
        if Verb::NOT_WITH_OWN_QUEUES.iter().any(|verb| verbs.has(*verb)) {
            verbs.remove(Verb::OwnQueues);
        }
        verbs
    }

    /// Adds verbs that were added last, unless others undo what these do.
    fn draw_later(&mut self, seed: u64) {
        let mut random = StdRng::seed_from_u64(seed ^ LATER_VERBS);
        for (verb, count) in Verb::LATER {
            if random.random_range(0..*count) == 0 {
                self.0.insert(*verb);
            }
        }
        if self.has(Verb::Relaxed) || self.has(Verb::PoolRemovals) {
            self.remove(Verb::Circles);
            self.remove(Verb::SubscriptionChanges);
        }
        if self.has(Verb::PoolRemovals) {
            self.remove(Verb::SqsFifo);
        }
    }

    /// Whether clients use a verb.
    pub fn has(&self, verb: Verb) -> bool {
        self.0.contains(&verb)
    }

    /// Returns the verbs in order.
    pub fn iter(&self) -> impl Iterator<Item = Verb> + '_ {
        self.0.iter().copied()
    }

    /// Takes a verb out.
    pub fn remove(&mut self, verb: Verb) {
        self.0.remove(&verb);
    }
}

impl Scenario {
    /// Draws the scenario of a seed.
    pub fn of_seed(seed: u64) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let replicas = [1, 2, 3, 3][random.random_range(0..4)];
        let is_embedded = random.random_range(0..5) == 0;
        let cluster = ClusterSettings {
            replicas: if is_embedded { 1 } else { replicas },
            is_embedded,
            pools: vec!["sim://a".into(), "sim://b".into()],
            policy: [Policy::Equal, Policy::Equal, Policy::Ranked, Policy::Oldest][random.random_range(0..4)],
        };
        let is_calm = random.random_range(0..10) == 0;
        let mut rates = draw_rates(&mut random, is_calm, is_embedded);
        let has_crashes = is_embedded && !is_calm && random.random_range(0..4) == 0;
        let crash_every = has_crashes.then(|| random.random_range(50..3_000));
        let mut verbs = Verbs::draw(&mut random);
        verbs.draw_later(seed);
        if is_calm {
            Verb::NOT_WHEN_CALM.iter().for_each(|verb| verbs.remove(*verb));
        }
        if verbs.has(Verb::OwnQueues) {
            rates.set(Fault::PoolLate, OWN_LATE_RATE);
            rates.set(Fault::PoolForeign, OWN_FOREIGN_RATE);
        } else if verbs.has(Verb::Races) {
            rates.set(Fault::PoolLate, LATE_RATE);
        }
        // Draws nothing from the scenario.
        let mut beside = random.clone();
        beside.random_range(0..u64::MAX);
        let small_bounds = (beside.random_range(0..3) > 0).then(|| [1, 2, 4, 8][beside.random_range(0..4)]);
        let mut scenario = Self {
            seed,
            cluster,
            queues: random.random_range(1..=4),
            clients: random.random_range(1..=6),
            steps: random.random_range(10..=60),
            pause_millis: [100, 1_000, 5_000, 20_000][random.random_range(0..4)],
            verbs,
            is_calm,
            rates,
            crash_every,
            small_bounds,
        };
        if beside.random_range(0..4) == 0 {
            scenario.rush(&mut beside);
        }
        scenario
    }
}

impl Scenario {
    /// Draws the scenario of a seed, with three replicas over the simulated tree, and clients that make so many steps with
    /// hardly a pause: most of the processor's time is then spent in requests.
    pub fn busy(seed: u64, steps: usize) -> Self {
        let mut scenario = Self::of_seed(seed);
        let mut random = StdRng::seed_from_u64(seed);
        scenario.rush(&mut random);
        scenario.steps = steps;
        scenario.cluster.replicas = 3;
        scenario.cluster.is_embedded = false;
        scenario.crash_every = None;
        scenario
    }

    /// Lets many clients use few queues with hardly a pause, so that their requests meet within the time of one answer.
    fn rush(&mut self, random: &mut StdRng) {
        self.queues = self.queues.min(2);
        self.clients = random.random_range(4..=8);
        self.steps = random.random_range(40..=120);
        self.pause_millis = [1, 5, 20][random.random_range(0..3)];
    }
}

/// Lets a fault happen in about a third of the seeds, with the greatest rate or a part of it.
fn draw_rate(random: &mut StdRng, rates: &mut FaultRates, fault: Fault, greatest: u32) {
    if random.random_range(0..100) < 35 {
        rates.set(fault, greatest / [1, 3, 10][random.random_range(0..3)]);
    }
}

fn draw_rates(random: &mut StdRng, is_calm: bool, is_embedded: bool) -> FaultRates {
    let mut rates = FaultRates::default();
    // Draws nothing from the scenario.
    let mut beside = random.clone();
    let of_disks = if is_embedded { DISK_FAULTS } else { &[] };
    let others = REQUEST_FAULTS.iter().chain(WEATHER_FAULTS);
    let can_happen = |(fault, _): &&(Fault, u32)| !is_embedded || !fault.is_of_tree();
    for (fault, greatest) in others.filter(can_happen).chain(of_disks) {
        draw_rate(random, &mut rates, *fault, *greatest);
    }
    beside.random_range(0..u32::MAX);
    for (fault, greatest) in ADDED_FAULTS.iter().filter(can_happen) {
        draw_rate(&mut beside, &mut rates, *fault, *greatest);
    }
    if random.random_range(0..20) == 0 && !is_embedded {
        rates.set(Fault::TreeClockStepped, 500);
        NOT_WITH_CLOCK_STEPS.iter().for_each(|fault| rates.set(*fault, 0));
    }
    if is_calm { FaultRates::default() } else { rates }
}
