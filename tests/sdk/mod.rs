//! Clients that generators make of the document, and a tester that reads it, each against a real server. Nothing that is
//! generated is kept: a document that breaks a generator fails here.
#![allow(clippy::panic, reason = "a test fails by it")]

use std::path::Path;
use std::process::Command;

use crate::support::server::Server;
use crate::support::settings;

const HOUSE: &str = env!("CARGO_MANIFEST_DIR");
/// Where the Rust client is built.
const RUST_CLIENT: &str = "target/rust-client";

/// Runs a command, and fails with all that it and the server said if it fails.
fn run(command: &mut Command, server: Option<&Server>) {
    let ended = command.env("NO_PROXY", "*").output();
    let ended = ended.unwrap_or_else(|error| {
        panic!("{command:?}: {error}. Run the tests with tests/run: it installs what they need")
    });
    if !ended.status.success() {
        let (out, err) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
        panic!("{command:?}:\n{out}{err}\n{}", server.map(Server::last_lines).unwrap_or_default());
    }
}

/// Makes a client of the document in `into`.
fn generate(generator: &str, options: &str, into: &Path) {
    let mut command = Command::new(settings::test_tools().join("bin/openapi-generator-cli"));
    command.args(["generate", "-i"]).arg(Path::new(HOUSE).join("openapi/angarium.json"));
    command.args(["-g", generator, "-o"]).arg(into);
    run(command.arg(format!("--additional-properties={options}")), None);
}

#[test]
fn generated_python_client_posts_claims_and_deletes() {
    let dir = tempfile::tempdir().expect("there is room for a temporary directory");
    let client = dir.path().join("client");
    generate("python", "packageName=angarium_sdk", &client);
    let server = Server::start(&dir.path().join("data"));
    let mut python = Command::new(settings::test_tools().join("bin/python"));
    python.arg(Path::new(HOUSE).join("tests/sdk/python.py")).arg(server.base()).env("PYTHONPATH", &client);
    run(&mut python, Some(&server));
}

#[test]
fn generated_typescript_client_posts_claims_and_deletes() {
    let dir = tempfile::tempdir().expect("there is room for a temporary directory");
    generate("typescript-fetch", "supportsES6=true", &dir.path().join("client"));
    let main = dir.path().join("main.ts");
    std::fs::copy(Path::new(HOUSE).join("tests/sdk/typescript.ts"), &main).expect("the script can be copied");
    let mut compiler = Command::new(settings::test_tools().join("node_modules/.bin/tsc"));
    compiler.args(["--strict", "--target", "es2022", "--lib", "es2022,dom", "--module", "commonjs"]);
    run(compiler.arg("--outDir").arg(dir.path().join("out")).arg(&main), None);
    let server = Server::start(&dir.path().join("data"));
    run(Command::new("node").arg(dir.path().join("out/main.js")).arg(server.base()), Some(&server));
}

#[test]
fn generated_rust_client_posts_claims_and_deletes() {
    let dir = tempfile::tempdir().expect("there is room for a temporary directory");
    let server = Server::start(dir.path());
    // Kept between runs, and apart from the service, whose build needs none of it; tests/run has built it.
    let (package, target) =
        (Path::new(HOUSE).join("tests/sdk/rust/Cargo.toml"), Path::new(HOUSE).join(RUST_CLIENT));
    let mut cargo = Command::new(env!("CARGO"));
    cargo
        .args(["run", "--quiet", "--locked", "--manifest-path"])
        .arg(package)
        .arg("--target-dir")
        .arg(target);
    run(cargo.arg("--").arg(server.base()), Some(&server));
}

#[test]
fn schemathesis_finds_no_unexplained_difference_from_the_document() {
    let dir = tempfile::tempdir().expect("there is room for a temporary directory");
    let server = Server::start(dir.path());
    let mut tester = Command::new(settings::test_tools().join("bin/schemathesis"));
    let folder = Path::new(HOUSE).join("tests/sdk");
    // Without a choice of checks it makes all of them; a choice here would outweigh the exceptions.
    tester.arg("--config-file").arg(folder.join("schemathesis.toml")).args(["--no-color", "run"]);
    tester.arg(server.url("/v2/openapi.json")).env("PYTHONPATH", folder);
    // It leaves files where it runs, and Python would leave some beside the hooks.
    run(tester.env("PYTHONDONTWRITEBYTECODE", "1").current_dir(dir.path()), Some(&server));
}
