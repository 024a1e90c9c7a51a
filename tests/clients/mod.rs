//! Zaqar's own clients against a real server, in the scripts of this folder.

use std::process::Command;

use crate::support::identity::{IdentityService, SERVICE_PASSWORD, SERVICE_USER};
use crate::support::server::{Server, ServerBuilder};
use angarium_testbed::settings;

/// Runs a script of this folder against a fresh server.
fn run(script: &str) {
    let data = tempfile::tempdir().expect("there is room for a temporary directory");
    let server = Server::start(data.path());
    run_against(&server, script, &[]);
}

/// Runs a script of this folder with the address of a server and more arguments.
fn run_against(server: &Server, script: &str, arguments: &[&str]) {
    let python = settings::test_tools().join("bin/python");
    let path = format!("{}/tests/clients/{script}", env!("CARGO_MANIFEST_DIR"));
    let ended =
        Command::new(&python).arg(&path).arg(server.base()).args(arguments).env("NO_PROXY", "*").output();
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
fn openstacksdk_works_with_queues_messages_and_subscriptions() {
    run("openstacksdk_messages.py");
}

#[test]
fn python_zaqarclient_works_with_subscriptions() {
    run("zaqarclient_subscriptions.py");
}

#[test]
fn python_zaqarclient_works_with_pools_and_flavors() {
    run("zaqarclient_pools.py");
}

#[test]
fn clients_of_openstack_work_with_tokens_of_keystone() {
    let (identity, data) = (IdentityService::start(), tempfile::tempdir().unwrap());
    let secret = data.path().join("secret");
    std::fs::write(&secret, SERVICE_PASSWORD).unwrap();
    let server = ServerBuilder::new(&data.path().join("data"))
        .arg("--keystone-url")
        .arg(identity.url())
        .arg("--keystone-user")
        .arg(SERVICE_USER)
        .arg("--keystone-cache-time=1")
        .arg("--keystone-secret-file")
        .arg(secret)
        .start();
    identity.offer_messaging(server.base());
    run_against(&server, "keystone_clients.py", &[&identity.url()]);
}

#[test]
fn clients_of_openstack_work_with_own_tokens() {
    let data = tempfile::tempdir().unwrap();
    let tokens = data.path().join("tokens.toml");
    let made = Command::new(env!("CARGO_BIN_EXE_angarium"))
        .args(["token", "new", "--project", "demo", "--tokens"])
        .arg(&tokens)
        .output()
        .unwrap();
    let token = String::from_utf8(made.stdout).unwrap().trim().to_owned();
    let server = ServerBuilder::new(&data.path().join("data")).arg("--tokens").arg(&tokens).start();
    let open = ServerBuilder::new(&data.path().join("open")).start();
    run_against(&server, "own_tokens.py", &[&token, open.base()]);
}
