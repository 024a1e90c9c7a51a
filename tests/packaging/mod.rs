//! What the program is installed with and watched with: the image, the compose files, the files for Kubernetes, the unit of systemd, the licences, the
//! dashboard and the alerts. The files are compared with the program, and the program is started as they say. A container is built
//! where there is an engine.

mod cluster;
mod compose;
mod dev;
mod dockerfile;
mod engine;
mod image;
mod launch;
mod licences;
mod notify;
mod started;
mod unit;
mod watching;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use crate::support::yaml::yaml;

/// A path of the repository.
fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn text(name: &str) -> String {
    std::fs::read_to_string(path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn strings(value: &Value) -> Vec<String> {
    value.as_array().unwrap().iter().map(|word| word.as_str().unwrap().to_owned()).collect()
}

fn program(args: &[String]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_angarium")).args(args).env_clear().output().expect("it starts")
}

/// Whether the program takes these arguments: it shows their help in place of carrying them out.
fn takes(args: &[String]) -> bool {
    program(&[args, &["--help".to_owned()]].concat()).status.success()
}

/// The environment variables that a command reads.
fn settings(command: &str) -> Vec<String> {
    let help = program(&[command.to_owned(), "--help".to_owned()]);
    let help = String::from_utf8(help.stdout).expect("the help is text");
    let named = help.split("[env: ").skip(1).filter_map(|rest| rest.split(['=', ']']).next());
    named.map(ToOwned::to_owned).collect()
}

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(ToOwned::to_owned).collect()
}

#[test]
fn release_program_is_built_without_line_tables() {
    let manifest: toml::Table = text("Cargo.toml").parse().unwrap();
    let release = &manifest["profile"]["release"];
    assert_eq!(release.get("debug"), None, "line tables are three quarters of the program");
    // The standard library brings its own. `symbols` would take the names of functions out of backtraces too.
    assert_eq!(release["strip"].as_str(), Some("debuginfo"));
}

#[test]
fn arguments_unknown_to_the_program_are_caught() {
    assert!(takes(&words("serve --listen 127.0.0.1:1")));
    assert!(!takes(&words("serve --no-such-flag")));
    assert!(!takes(&words("serve --coordination http://nonsense")));
    assert!(settings("serve").contains(&"ANGARIUM_LISTEN".to_owned()));
}
