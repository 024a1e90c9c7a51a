//! Rounds of many seeds, which run side by side on threads of their own.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::faults::FaultCounts;
use crate::history::HistoryCounts;
use crate::run::{Report, run};
use crate::scenario::{REGRESSIONS, Scenario};
use crate::trace::Trace;

/// The bounds of a round.
#[derive(Clone, Copy, Debug)]
pub struct RoundLimits {
    /// The first seed.
    pub first: u64,
    /// The number of seeds.
    pub seeds: u64,
    /// The time after which no seed begins.
    pub end: Option<Instant>,
    /// Number of seeds that run at the same time.
    pub jobs: usize,
    /// Whether each seed runs twice, for a comparison of its traces.
    pub twice: bool,
    /// The number of steps of each client, if the runs are busy.
    pub busy: Option<usize>,
}

impl RoundLimits {
    /// Returns the scenario of a seed.
    pub fn scenario(&self, seed: u64) -> Scenario {
        match self.busy {
            Some(steps) => Scenario::busy(seed, steps),
            None => Scenario::of_seed(seed),
        }
    }
}

/// The sums over the seeds of a round.
#[derive(Debug, Default)]
pub struct Sums {
    /// Number of seeds.
    pub seeds: u64,
    /// What clients did.
    pub counts: HistoryCounts,
    /// How many requests had each outcome.
    pub outcomes: BTreeMap<String, u64>,
    /// Simulated time.
    pub simulated: Duration,
    /// Real time.
    pub took: Duration,
    /// Faults that happened.
    pub faults: FaultCounts,
    /// The failed seeds, each with its first broken promise.
    pub failed: Vec<(u64, String)>,
}

/// A round. It begins with the seeds that have failed before.
pub struct Round {
    limits: RoundLimits,
    /// The number of seeds that have begun.
    next: AtomicU64,
    is_over: AtomicBool,
    sums: Mutex<Sums>,
}

impl Round {
    /// Creates a round.
    pub fn new(limits: RoundLimits) -> Self {
        Self { limits, next: AtomicU64::new(0), is_over: AtomicBool::new(false), sums: Mutex::default() }
    }

    /// Runs all seeds, and calls `show` with each broken promise.
    pub fn run(self, show: impl Fn(u64, &str) + Sync) -> Sums {
        self.run_threads(&show)
    }

    /// Runs seeds until one fails.
    pub fn until_failure(self) -> Sums {
        self.run_threads(&|_, _: &str| self.is_over.store(true, Ordering::Relaxed))
    }

    fn run_threads(&self, show: &(impl Fn(u64, &str) + Sync)) -> Sums {
        let began = Instant::now();
        thread::scope(|scope| {
            for _ in 0..self.limits.jobs.max(1) {
                scope.spawn(|| self.run_seeds(show));
            }
        });
        let mut sums = std::mem::take(&mut *self.sums.lock());
        sums.failed.sort_unstable();
        sums.took = began.elapsed();
        sums
    }

    fn run_seeds(&self, show: &(impl Fn(u64, &str) + Sync)) {
        let regressions = REGRESSIONS.len();
        loop {
            let index = self.next.fetch_add(1, Ordering::Relaxed);
            let is_late = self.limits.end.is_some_and(|end| Instant::now() >= end);
            let regression = usize::try_from(index).ok().and_then(|index| REGRESSIONS.get(index)).copied();
            let place = index.saturating_sub(u64::try_from(regressions).unwrap_or(0));
            let seed = regression.unwrap_or_else(|| self.limits.first.saturating_add(place));
            let is_last = regression.is_none() && place >= self.limits.seeds;
            if is_late || is_last || self.is_over.load(Ordering::Relaxed) {
                return;
            }
            let report = run_seed(&self.limits.scenario(seed), self.limits.twice);
            report.violations.iter().for_each(|violation| show(seed, violation));
            self.sums.lock().add(seed, report);
        }
    }
}

fn run_seed(scenario: &Scenario, twice: bool) -> Report {
    let mut report = run(scenario, Trace::hashed());
    if twice && run(scenario, Trace::hashed()).trace_hash != report.trace_hash {
        report.violations.push("two runs have different traces".into());
    }
    report
}

impl Sums {
    fn add(&mut self, seed: u64, report: Report) {
        self.seeds += 1;
        self.counts.merge(report.counts);
        for (outcome, count) in report.outcomes {
            *self.outcomes.entry(outcome).or_default() += count;
        }
        self.simulated += report.simulated;
        self.faults.merge(&report.faults);
        self.failed.extend(report.violations.into_iter().next().map(|violation| (seed, violation)));
    }
}
