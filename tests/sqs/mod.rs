//! The endpoint of SQS, met by the clients that programs use: the scripts of this folder against a real server.

use std::process::Command;

use crate::support::server::{Server, ServerBuilder};
use crate::support::settings;

/// The client of the last years of the query protocol, in a folder beside today's.
const OLD_BOTO3: &str = "old-boto3";

/// Runs a script of this folder against a server.
fn run_against(server: &Server, script: &str, change: impl FnOnce(&mut Command)) {
    let python = settings::test_tools().join("bin/python");
    let path = format!("{}/tests/sqs/{script}", env!("CARGO_MANIFEST_DIR"));
    let mut command = Command::new(&python);
    command.arg(&path).arg(server.base()).env("NO_PROXY", "*");
    for name in ["AWS_PROFILE", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "AWS_REGION"] {
        command.env_remove(name);
    }
    command.env("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE").env("AWS_SECRET_ACCESS_KEY", "secret");
    command.env("AWS_DEFAULT_REGION", "us-east-1").env("AWS_EC2_METADATA_DISABLED", "true");
    change(&mut command);
    let ended = command.output().unwrap_or_else(|error| {
        panic!("{}: {error}. Run the tests with tests/run: it installs the clients", python.display())
    });
    let said =
        format!("{}{}", String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    assert!(ended.status.success(), "{said}\n{}", server.last_lines());
}

/// Runs a script of this folder against a fresh server.
fn run(script: &str, change: impl FnOnce(&mut Command)) {
    let data = tempfile::tempdir().expect("there is room for a temporary directory");
    run_against(&ServerBuilder::new(data.path()).start(), script, change);
}

#[test]
fn boto3_works_with_standard_queues() {
    run("standard.py", |command| {
        command.env("AWS_RETRY_MODE", "standard");
    });
}

#[test]
fn boto3_of_the_query_protocol_works_with_standard_queues() {
    let old = settings::test_tools().join(OLD_BOTO3);
    assert!(old.is_dir(), "{} is missing: tests/prepare installs it", old.display());
    run("standard.py", |command| {
        command.env("PYTHONPATH", old).env("AWS_RETRY_MODE", "legacy");
    });
}
