//! Settings of a test run that come from the environment: its length, its seed, its tools. This module never changes
//! the environment.

use std::path::PathBuf;

/// The number in the environment variable, or the default when it is unset.
pub fn number(name: &str, default: u64) -> u64 {
    let Some(text) = read(name) else { return default };
    text.parse().unwrap_or_else(|_| panic!("{name} must be a number and is {text:?}"))
}

/// The seed of this run: `ANGARIUM_SEED`, or a random one. It is printed, so that a failure can be repeated.
pub fn seed(test: &str) -> u64 {
    let seed = number("ANGARIUM_SEED", rand::random());
    eprintln!("{test}: ANGARIUM_SEED={seed}");
    seed
}

/// The Python environment of `tests/run`: `ANGARIUM_TEST_TOOLS`, or the default directory.
pub fn test_tools() -> PathBuf {
    const MADE_BY_RUN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/test-tools");
    read("ANGARIUM_TEST_TOOLS").map_or_else(|| MADE_BY_RUN.into(), PathBuf::from)
}

/// The program built from the commit that `tests/compat-base` names.
pub fn earlier_program() -> PathBuf {
    let program = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/compat/angarium"));
    assert!(program.exists(), "{} is missing: tests/compat builds it", program.display());
    program
}

/// The search path for programs.
pub fn search_path() -> String {
    read("PATH").unwrap_or_default()
}

/// The directory of cargo's registry.
pub fn cargo_home() -> PathBuf {
    let below_home = || PathBuf::from(read("HOME").unwrap_or_default()).join(".cargo");
    read("CARGO_HOME").map_or_else(below_home, PathBuf::from)
}

#[expect(clippy::disallowed_methods, reason = "a test run has no config file; this is its only reader")]
fn read(name: &str) -> Option<String> {
    std::env::var(name).ok()
}
