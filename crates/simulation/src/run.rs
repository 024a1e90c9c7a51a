//! One run: a cluster in the world of a seed, its load, its healing, and the judgement.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use angarium_core::durability::Durability;
use angarium_core::maps::HashKeys;
use parking_lot::Mutex;

use crate::cluster::{Cluster, START_MILLIS};
use crate::faults::{Fault, FaultCounts};
use crate::history::{History, HistoryCounts};
use crate::pool::Storages;
use crate::scenario::{Scenario, Verb};
use crate::trace::Trace;
use crate::tree::Ensemble;
use crate::workload::Workload;
use crate::world::World;
use crate::{leftovers, logs, panics, weather};

/// The longest time that a run may take, in simulated time.
const LONGEST: Duration = Duration::from_secs(6 * 3_600);

/// How long a cluster may take to be complete when no fault happens.
const COMPLETION: Duration = Duration::from_secs(300);

/// After this time no claim of a client lives.
const CLAIMS_END: Duration = Duration::from_secs(280);

/// As [`CLAIMS_END`], if requests hang: such a request may arrive after three minutes, and then claim.
const HUNG_CLAIMS_END: Duration = Duration::from_secs(460);

/// The outcome of a run.
#[derive(Debug, Default)]
pub struct Report {
    /// Broken promises; none in a good run.
    pub violations: Vec<String>,
    /// The hash of the trace.
    pub trace_hash: u64,
    /// The lines of the trace, if they were kept.
    pub lines: Vec<String>,
    /// Faults that happened.
    pub faults: FaultCounts,
    /// What clients did.
    pub counts: HistoryCounts,
    /// How many requests had each outcome.
    pub outcomes: BTreeMap<String, u64>,
    /// The simulated time.
    pub simulated: Duration,
}

impl Report {
    fn failed(why: String) -> Self {
        Self { violations: vec![format!("the run itself failed: {why}")], ..Self::default() }
    }
}

/// Runs a scenario.
pub fn run(scenario: &Scenario, trace: Trace) -> Report {
    // The same for all runs, also of other processes.
    let is_fixed = HashKeys::fix([1, 2]);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without I/O can be built");
    #[cfg(feature = "mutations")]
    angarium_core::small_bounds::choose(scenario.small_bounds);
    let panics = panics::watch();
    let mut report = runtime.block_on(async {
        let world = World::new(scenario.seed, scenario.cluster.policy, trace);
        let _logs = logs::show_in(&world);
        let (tasks, scenario) = (world.scheduler().tasks(), scenario.clone());
        let scheduler = world.scheduler().clone();
        let running = tasks.spawn(async move { run_in_world(&scenario, world).await });
        let report = tokio::select! {
            biased;
            report = running => report,
            () = scheduler.exhausted() => return Report::failed("no end after the max number of steps".into()),
        };
        report.unwrap_or_else(|error| Report::failed(error.to_string()))
    });
    drop(runtime);
    report.violations.extend(panics.take());
    if !is_fixed {
        report.violations.push("maps were used before the run, so their order is random".into());
    }
    report
}

async fn run_in_world(scenario: &Scenario, world: World) -> Report {
    let (has_dead_letters, is_relaxed) =
        (scenario.verbs.has(Verb::DeadLetters), scenario.verbs.has(Verb::Relaxed));
    let history = Arc::new(Mutex::new(History::new(has_dead_letters, is_relaxed)));
    let ended = tokio::time::timeout(LONGEST, run_phases(scenario, &world, &history)).await;
    if ended.is_err() {
        history.lock().violation(format!("the run has no end within {LONGEST:?}"));
    }
    let mut history = history.lock();
    let mut violations = history.take_violations();
    violations.extend(world.take_violations());
    violations.iter().for_each(|violation| world.note(|| format!("VIOLATION {violation}")));
    Report {
        violations,
        trace_hash: world.trace_hash(),
        lines: world.take_lines(),
        faults: world.faults(),
        counts: history.counts(),
        outcomes: history.outcomes().clone(),
        simulated: world.elapsed(),
    }
}

async fn run_phases(scenario: &Scenario, world: &World, history: &Arc<Mutex<History>>) {
    let ensemble = Ensemble::new(world.clone(), START_MILLIS);
    let storages = Storages::new(world.clone());
    // The first pool of an embedded store is on its disk.
    for uri in scenario.cluster.pools.iter().skip(usize::from(scenario.cluster.is_embedded)) {
        let class = if scenario.verbs.has(Verb::Relaxed) { Durability::Relaxed } else { Durability::Sync };
        storages.add(uri.trim_start_matches("sim://"), class);
    }
    let cluster = Cluster::new(world.clone(), ensemble, storages, scenario.cluster.clone());
    (0..cluster.size()).for_each(|node| cluster.start(node));
    let workload = Workload::new(cluster.clone(), scenario.clone(), Arc::clone(history));
    await_complete(&cluster, history).await;
    workload.create_queues().await;
    world.begin_faults(scenario.rates.clone());
    cluster.crash_every(scenario.crash_every);
    let faults = cluster.clone();
    world.spawn(weather::run(faults));
    workload.run_clients().await;
    world.heal();
    workload.lift_quota();
    await_complete(&cluster, history).await;
    workload.restore_pools().await;
    let hung = [Fault::ClientHung, Fault::PeerHung].into_iter().any(|fault| scenario.rates.of(fault) > 0);
    tokio::time::sleep(if hung { HUNG_CLAIMS_END } else { CLAIMS_END }).await;
    // A drain or a hold that hung may have begun meanwhile.
    workload.restore_pools().await;
    workload.release_holds().await;
    workload.delete_own_queues().await;
    workload.await_redrives().await;
    workload.check_unclaimed().await;
    workload.empty_circle().await;
    workload.empty_changing().await;
    workload.empty_queues().await;
    workload.run_probes().await;
    workload.wait_across_hold_end().await;
    workload.check_quota().await;
    leftovers::check(&cluster, history, scenario.verbs.has(Verb::PoolRemovals)).await;
    cluster.clear();
}

async fn await_complete(cluster: &Cluster, history: &Arc<Mutex<History>>) {
    let end = cluster.world().elapsed() + COMPLETION;
    while !cluster.is_whole() {
        if cluster.world().elapsed() > end {
            history.lock().violation("a replica does not run, or a slot has no owner".into());
            return;
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}
