//! `simulation`: runs seeds, one after the other or side by side, and shows what a failing one did.
#![expect(clippy::print_stdout, reason = "it is a command")]

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use angarium_simulation::faults::FaultCounts;
use angarium_simulation::logs;
use angarium_simulation::run::{Report, run};
use angarium_simulation::scenario::Scenario;
use angarium_simulation::trace::Trace;
use clap::Parser;
use parking_lot::Mutex;

/// Runs brokers over a simulated tree, simulated pools and a simulated network. One seed determines a run.
#[derive(Parser)]
struct Arguments {
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    first: u64,
    /// The number of seeds.
    #[arg(long, default_value_t = 1_000)]
    seeds: u64,
    /// Ends after this many minutes.
    #[arg(long)]
    minutes: Option<u64>,
    /// Runs one seed, and prints all that happens in it.
    #[arg(long)]
    replay: Option<u64>,
    /// Runs each seed twice, and compares the traces.
    #[arg(long)]
    twice: bool,
    /// Number of seeds that run at the same time.
    #[arg(long, default_value_t = 2)]
    jobs: usize,
}

/// The sums over all seeds.
#[derive(Default)]
struct Sums {
    seeds: u64,
    operations: u64,
    delivered: u64,
    simulated: Duration,
    faults: FaultCounts,
    failed: Vec<(u64, Vec<String>)>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some(seed) = arguments.replay {
        return replay(seed);
    }
    let sums = run_all(&arguments);
    if sums.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn replay(seed: u64) -> ExitCode {
    logs::keep();
    let scenario = Scenario::of_seed(seed);
    let report = run(&scenario, Trace::kept());
    report.lines.iter().for_each(|line| println!("{line}"));
    println!("{scenario:?}");
    report.violations.iter().for_each(|violation| println!("seed {seed}: {violation}"));
    if report.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run_all(arguments: &Arguments) -> Sums {
    let (next, sums) = (AtomicU64::new(arguments.first), Mutex::new(Sums::default()));
    let began = Instant::now();
    let end = arguments.minutes.map(|minutes| began + Duration::from_secs(60 * minutes));
    thread::scope(|scope| {
        for _ in 0..arguments.jobs {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    let is_over = end.is_some_and(|end| Instant::now() >= end);
                    if is_over || seed >= arguments.first + arguments.seeds {
                        return;
                    }
                    let report = run_seed(seed, arguments.twice);
                    sums.lock().add(seed, report);
                }
            });
        }
    });
    let sums = sums.into_inner();
    sums.print(began.elapsed());
    sums
}

fn run_seed(seed: u64, twice: bool) -> Report {
    let scenario = Scenario::of_seed(seed);
    let mut report = run(&scenario, Trace::hashed());
    if twice && run(&scenario, Trace::hashed()).trace_hash != report.trace_hash {
        report.violations.push("two runs have different traces".into());
    }
    report
}

impl Sums {
    fn add(&mut self, seed: u64, report: Report) {
        self.seeds += 1;
        self.operations += report.counts.operations;
        self.delivered += report.counts.delivered;
        self.simulated += report.simulated;
        self.faults.merge(&report.faults);
        if !report.violations.is_empty() {
            report.violations.iter().for_each(|violation| println!("seed {seed}: {violation}"));
            self.failed.push((seed, report.violations));
        }
    }

    fn print(&self, took: Duration) {
        let seconds = took.as_secs_f64();
        println!(
            "{} seeds in {seconds:.1} s, {:.1} a second; {:.1} hours simulated; {} requests, {} deliveries, {} faults",
            self.seeds,
            f64::from(u32::try_from(self.seeds).unwrap_or(u32::MAX)) / seconds,
            self.simulated.as_secs_f64() / 3_600.0,
            self.operations,
            self.delivered,
            self.faults.total()
        );
        for (fault, count) in &self.faults.0 {
            println!("  {fault:?}: {count}");
        }
        println!(
            "{} seeds failed: {:?}",
            self.failed.len(),
            self.failed.iter().map(|(seed, _)| seed).collect::<Vec<_>>()
        );
    }
}
