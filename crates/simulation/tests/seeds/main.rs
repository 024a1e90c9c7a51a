//! Runs of single seeds. Rounds of many seeds are those of `tests/simulation`.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::time::Duration;

use angarium_simulation::process::Process;
use angarium_simulation::run::{Report, run};
use angarium_simulation::scenario::{REGRESSIONS, Scenario};
use angarium_simulation::scheduler::Policy;
use angarium_simulation::trace::Trace;
use angarium_simulation::world::World;

/// Runs a short scenario, and keeps its lines.
fn run_short(seed: u64) -> Report {
    let mut scenario = Scenario::of_seed(seed);
    scenario.steps = scenario.steps.min(12);
    run(&scenario, Trace::kept())
}

#[test]
fn same_seed_has_same_trace() {
    let seeds = [3, 4];
    let [first, second] = [(); 2].map(|()| seeds.map(run_short));
    for (one, other) in first.iter().zip(&second) {
        assert_eq!(one.lines, other.lines);
        assert_eq!(one.trace_hash, other.trace_hash);
        assert!(one.counts.operations > 0 && one.lines.len() > 1_000, "{:?}", one.counts);
    }
    assert_ne!(first[0].trace_hash, first[1].trace_hash);
}

#[test]
fn failed_seeds_stay_good() {
    for seed in REGRESSIONS {
        let report = run(&Scenario::of_seed(*seed), Trace::hashed());
        assert!(report.violations.is_empty(), "seed {seed}: {:?}", report.violations);
    }
}

#[test]
fn busy_cluster_has_three_replicas_and_many_requests() {
    let scenario = Scenario::busy(4, 40);
    assert!(scenario.cluster.replicas == 3 && !scenario.cluster.is_embedded, "{scenario:?}");
    let report = run(&scenario, Trace::hashed());
    assert!(report.violations.is_empty(), "{:?}", report.violations);
    assert!(report.counts.operations >= 160, "{:?}", report.counts);
}

#[test]
fn faults_happen_and_are_counted() {
    let reports = [5, 6, 7].map(run_short);
    assert!(reports.iter().map(|report| report.faults.total()).sum::<u64>() > 10);
}

#[tokio::test(start_paused = true)]
async fn paused_process_makes_no_step_and_crashed_one_none_ever() {
    let world = World::new(1, Policy::Equal, Trace::hashed());
    let process = Process::start(world.clone(), "one".into());
    let counting = |process: &Process| {
        process.tasks().spawn(async move {
            for _ in 0..10 {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        })
    };
    let (mut task, began) = (counting(&process), world.elapsed());
    process.pause();
    assert!(tokio::time::timeout(Duration::from_secs(60), &mut task).await.is_err());
    process.resume();
    task.await.unwrap();
    assert!(world.elapsed() - began > Duration::from_secs(60));
    let task = counting(&process);
    process.crash();
    assert!(task.await.unwrap_err().is_cancelled());
    assert!(counting(&process).await.unwrap_err().is_cancelled());
    assert!(!process.is_alive());
}
