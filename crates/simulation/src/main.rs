//! `simulation`: runs seeds side by side, shows what a failing one did, and shows that deliberate defects are noticed.
#![expect(clippy::print_stdout, reason = "it is a command")]

use std::process::ExitCode;
use std::time::{Duration, Instant};

use angarium_simulation::logs;
use angarium_simulation::rounds::{Round, RoundLimits, Sums};
use angarium_simulation::run::run;
use angarium_simulation::scenario::Scenario;
use angarium_simulation::shrink::shrink;
use angarium_simulation::trace::Trace;
use clap::Parser;

/// The greatest number of scenarios that are tried to make one smaller.
const SHRINK_RUNS: u32 = 400;

/// Runs clusters over a simulated tree, simulated pools and a simulated network. One seed determines a run.
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
    /// Makes the scenario of a failing seed smaller, and prints all that happens in the smallest one that fails.
    #[arg(long)]
    shrink: Option<u64>,
    /// Runs each seed twice, and compares the traces.
    #[arg(long)]
    twice: bool,
    /// Runs clusters of three replicas, whose clients make so many steps each, with hardly a pause.
    #[arg(long)]
    busy: Option<usize>,
    /// Number of seeds that run at the same time.
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Deliberate defects of the product, by name, or `all`: for each, runs seeds until one fails. Needs the feature
    /// `mutations`.
    #[cfg(feature = "mutations")]
    #[arg(long, value_delimiter = ',')]
    mutations: Vec<String>,
}

impl Arguments {
    fn limits(&self) -> RoundLimits {
        let end = self.minutes.map(|minutes| Instant::now() + Duration::from_secs(60 * minutes));
        RoundLimits {
            first: self.first,
            seeds: self.seeds,
            end,
            jobs: self.jobs,
            twice: self.twice,
            busy: self.busy,
        }
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    #[cfg(feature = "mutations")]
    if !arguments.mutations.is_empty() {
        return seek(&arguments);
    }
    if let Some(seed) = arguments.replay {
        return replay(&arguments.limits().scenario(seed));
    }
    if let Some(seed) = arguments.shrink {
        let shrunk = shrink(arguments.limits().scenario(seed), SHRINK_RUNS);
        println!("the smallest of {} scenarios:", shrunk.runs);
        return replay(&shrunk.scenario);
    }
    let sums = Round::new(arguments.limits()).run(|seed, violation| println!("seed {seed}: {violation}"));
    print(&sums);
    exit_code(sums.failed.is_empty() && sums.seeds > 0)
}

fn exit_code(is_good: bool) -> ExitCode {
    if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs one scenario, and prints all that happens in it.
fn replay(scenario: &Scenario) -> ExitCode {
    logs::keep();
    let report = run(scenario, Trace::kept());
    report.lines.iter().for_each(|line| println!("{line}"));
    println!("{scenario:?}");
    report.violations.iter().for_each(|violation| println!("seed {}: {violation}", scenario.seed));
    exit_code(report.violations.is_empty())
}

/// Runs seeds with each of the mutations until one fails.
#[cfg(feature = "mutations")]
fn seek(arguments: &Arguments) -> ExitCode {
    use angarium_core::mutation::{Mutation, choose};
    let is_named =
        |mutation: &Mutation| arguments.mutations.iter().any(|name| name == "all" || name == mutation.name());
    let names: Vec<&str> = Mutation::ALL.iter().map(|mutation| mutation.name()).collect();
    let unknown = |name: &&String| *name != "all" && !names.contains(&name.as_str());
    if let Some(name) = arguments.mutations.iter().find(unknown) {
        println!("there is no mutation {name}; there are: {}", names.join(", "));
        return ExitCode::FAILURE;
    }
    let chosen: Vec<Mutation> = Mutation::ALL.iter().copied().filter(is_named).collect();
    let mut missed = Vec::new();
    for mutation in &chosen {
        choose(Some(*mutation));
        let began = Instant::now();
        let sums = Round::new(arguments.limits()).until_failure();
        let seconds = began.elapsed().as_secs();
        match sums.failed.first() {
            // The seed must be good without the defect.
            Some((seed, _)) if !is_good_without(&arguments.limits().scenario(*seed)) => {
                println!("{}: seed {seed} fails without the defect too", mutation.name());
                missed.push(mutation.name());
            }
            Some((seed, why)) => {
                let (name, rule, seeds) = (mutation.name(), mutation.rule(), sums.seeds);
                println!("{name} ({rule}): found after {seeds} seeds, {seconds} s: seed {seed}: {why}");
            }
            None => {
                println!("{} ({}): MISSED, {} seeds", mutation.name(), mutation.rule(), sums.seeds);
                missed.push(mutation.name());
            }
        }
    }
    choose(None);
    println!(
        "{} of {} mutations found; missed: {}",
        chosen.len() - missed.len(),
        chosen.len(),
        missed.join(", ")
    );
    exit_code(missed.is_empty() && !chosen.is_empty())
}

#[cfg(feature = "mutations")]
fn is_good_without(scenario: &Scenario) -> bool {
    angarium_core::mutation::choose(None);
    run(scenario, Trace::hashed()).violations.is_empty()
}

fn print(sums: &Sums) {
    let seconds = sums.took.as_secs_f64();
    println!(
        "{} seeds in {seconds:.0} s, {:.1} a second; {:.1} hours simulated; {} requests, {} messages posted, {} faults",
        sums.seeds,
        f64::from(u32::try_from(sums.seeds).unwrap_or(u32::MAX)) / seconds,
        sums.simulated.as_secs_f64() / 3_600.0,
        sums.counts.operations,
        sums.counts.posted,
        sums.faults.total()
    );
    for (fault, count) in &sums.faults.0 {
        println!("  {fault:?}: {count}");
    }
    let outcomes = sums.outcomes.iter().map(|(outcome, count)| format!("{outcome} {count}"));
    println!("copies: {:?}", sums.counts.copies);
    println!("outcomes: {}", outcomes.collect::<Vec<_>>().join(", "));
    #[cfg(feature = "mutations")]
    print_coverage();
    let failed: Vec<String> = sums.failed.iter().map(|(seed, _)| seed.to_string()).collect();
    println!("{} seeds failed {}", failed.len(), failed.join(" "));
}

/// Prints, for each protocol rule, how many of its points the product has reached, and the others.
#[cfg(feature = "mutations")]
fn print_coverage() {
    use angarium_core::mutation::{Mutation, reached};
    let mut rules: Vec<&str> = Mutation::ALL.iter().map(|mutation| mutation.rule()).collect();
    rules.dedup();
    let of_rule = |rule: &&str| {
        let points: Vec<&Mutation> = Mutation::ALL.iter().filter(|point| point.rule() == *rule).collect();
        let met = points.iter().filter(|point| reached(***point) > 0).count();
        format!("{rule} {met}/{}", points.len())
    };
    println!("points of the rules reached: {}", rules.iter().map(of_rule).collect::<Vec<_>>().join(", "));
    let missed = Mutation::ALL.iter().filter(|point| reached(**point) == 0).map(|point| point.name());
    println!("not reached: {}", missed.collect::<Vec<_>>().join(", "));
}
