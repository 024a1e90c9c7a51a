//! Zaqar's own clients against a real server, in the scripts of this folder.

use std::process::Command;

use crate::support::server::Server;
use crate::support::settings;

/// Runs a script of this folder against a fresh server.
fn run(script: &str) {
    let data = tempfile::tempdir().expect("there is room for a temporary directory");
    let server = Server::start(data.path());
    let python = settings::test_tools().join("bin/python");
    let path = format!("{}/tests/clients/{script}", env!("CARGO_MANIFEST_DIR"));
    let ended = Command::new(&python).arg(&path).arg(server.base()).env("NO_PROXY", "*").output();
    let ended = ended.unwrap_or_else(|error| {
        panic!("{}: {error}. Run the tests with tests/run: it installs the clients", python.display())
    });
    let said =
        format!("{}{}", String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    assert!(ended.status.success(), "{said}\n{}", server.last_lines());
}

#[test]
fn python_zaqarclient_works_with_queues_messages_and_claims() {
    run("zaqarclient_queues.py");
}

#[test]
fn openstacksdk_works_with_queues_and_messages() {
    run("openstacksdk_messages.py");
}

#[test]
fn python_zaqarclient_works_with_pools_and_flavors() {
    run("zaqarclient_pools.py");
}
