//! What the program is installed with and watched with: the image, the compose file, the unit of systemd, the licences, the
//! dashboard and the alerts. No container can be built where these tests run, so they read the files and compare them with
//! the program.

mod compose;
mod dockerfile;
mod image;
mod licences;
mod unit;
mod watching;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A path of the repository.
fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn text(name: &str) -> String {
    std::fs::read_to_string(path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
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
fn arguments_that_the_program_lacks_are_caught() {
    assert!(takes(&words("serve --listen 127.0.0.1:1")));
    assert!(!takes(&words("serve --no-such-flag")));
    assert!(!takes(&words("serve --coordination http://nonsense")));
    assert!(settings("serve").contains(&"ANGARIUM_LISTEN".to_owned()));
}
