//! Runs the random histories of this folder: with a printed seed, and shrunk after a failure.

use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use rand::rngs::SmallRng;
use rand::{RngCore, SeedableRng};

use angarium_testbed::settings;

/// Checks `fact` with many values. After a failure it shrinks the value first. `ANGARIUM_SEED` repeats a run,
/// `ANGARIUM_MODEL_CASES` makes it longer.
pub fn check<S: Strategy>(name: &str, cases: u64, values: &S, fact: impl Fn(S::Value)) {
    let cases = settings::number("ANGARIUM_MODEL_CASES", cases);
    check_seeded(name, settings::seed(name), cases, values, fact);
}

/// Checks `fact` with the values of a fixed seed.
pub fn check_seeded<S: Strategy>(name: &str, seed: u64, cases: u64, values: &S, fact: impl Fn(S::Value)) {
    let cases = u32::try_from(cases).expect("a number of cases");
    let mut bytes = [0; 32];
    SmallRng::seed_from_u64(seed).fill_bytes(&mut bytes);
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 20_000, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
    let outcome = runner.run(values, |value| {
        fact(value);
        Ok(())
    });
    if let Err(failure) = outcome {
        panic!("{name}, seed {seed}: {failure}");
    }
}
