//! Clients that generators make of the document, and a tester that reads it, each against a real server. Nothing that is
//! generated is kept: a document that breaks a generator fails here.
#![allow(clippy::panic, reason = "a test fails by it")]

mod generators;

use std::collections::HashMap;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::support::server::{Server, ServerBuilder};
use angarium_testbed::settings;

const HOUSE: &str = env!("CARGO_MANIFEST_DIR");
/// Where the Rust client is built.
const RUST_CLIENT: &str = "target/rust-clients";

/// Runs a command and answers what it printed; fails with all that it and the server said if it fails.
fn run(command: &mut Command, server: Option<&Server>) -> String {
    let ended = command.env("NO_PROXY", "*").output();
    let ended = ended.unwrap_or_else(|error| {
        panic!("{command:?}: {error}. Run the tests with tests/run: it installs what they need")
    });
    let printed = [&ended.stdout, &ended.stderr].map(|bytes| String::from_utf8_lossy(bytes)).concat();
    if !ended.status.success() {
        panic!("{command:?}:\n{printed}\n{}", server.map(Server::last_lines).unwrap_or_default());
    }
    printed
}

fn copy(script: &str, to: &Path) {
    if let Some(folder) = to.parent() {
        std::fs::create_dir_all(folder).expect("there is room");
    }
    std::fs::copy(Path::new(HOUSE).join("tests/sdk").join(script), to).expect("the script can be copied");
}

/// Whether `tests/prepare` found no generators for this machine. Told past the capture of the test harness.
fn lacks_generators() -> bool {
    let note = std::fs::read_to_string(settings::test_tools().join("generators-skipped"));
    if let Ok(architecture) = &note {
        let _ =
            writeln!(std::io::stderr(), "\nSKIPPED: no generators of clients for {}\n", architecture.trim());
    }
    note.is_ok()
}

#[test]
fn tools_of_prepare_have_pinned_needs() {
    let read = |path: &str| std::fs::read_to_string(Path::new(HOUSE).join(path)).expect(path);
    let script = read("tests/prepare");
    let pins: HashMap<&str, &str> =
        script.lines().filter_map(|line| line.strip_prefix("readonly ")?.split_once('=')).collect();
    let clients: Vec<Vec<&str>> = script
        .lines()
        .filter_map(|line| Some(line.trim().strip_prefix("make_client ")?.split_whitespace().collect()))
        .collect();
    assert!(clients.len() > 4, "{clients:?}");
    for client in clients {
        let constraints = read(&format!("tests/constraints/{}.txt", client[0]));
        let (package, version) = (client[1].replace('_', "-"), pins[client[2].trim_matches(['"', '$'])]);
        assert!(
            constraints.lines().any(|line| line == format!("{package}=={version}")),
            "{client:?}: {constraints}"
        );
    }
    for folder in ["tests/sdk/hey-api", "tests/sqs/js"] {
        assert!(script.contains(&format!(" {folder}\n")), "{folder} is used");
        let lock: Value =
            serde_json::from_str(&read(&format!("{folder}/package-lock.json"))).expect("it is JSON");
        let packages = lock["packages"].as_object().expect("it has packages");
        let is_pinned = |package: &Value| package["version"].is_string() && package["integrity"].is_string();
        let loose: Vec<_> =
            packages.iter().filter(|(name, package)| !name.is_empty() && !is_pinned(package)).collect();
        assert!(packages.len() > 5 && loose.is_empty(), "{loose:?}");
    }
}

#[test]
fn python_client_of_openapi_generator_takes_the_tour() {
    let dir = tempfile::tempdir().expect("there is room for a temporary directory");
    let client = dir.path().join("client");
    generators::openapi_generator("python", "packageName=angarium_sdk", &client);
    let wide = ServerBuilder::new(&dir.path().join("wide"));
    let wide = wide.arg("--max-messages-post-size=4MiB").arg("--max-message-ttl=30d").start();
    let servers = [("python.py", Server::start(&dir.path().join("data"))), ("python_wide.py", wide)];
    for (script, server) in servers {
        let mut python = Command::new(settings::test_tools().join("bin/python"));
        python.arg(Path::new(HOUSE).join("tests/sdk").join(script)).arg(server.base());
        run(python.env("PYTHONPATH", &client), Some(&server));
    }
}

#[test]
fn client_of_openapi_python_client_takes_the_tour() {
    if lacks_generators() {
        return;
    }
    let dir = tempfile::tempdir().expect("there is room for a temporary directory");
    let client = generators::openapi_python_client(dir.path());
    let server = Server::start(&dir.path().join("data"));
    let mut python = Command::new(settings::test_tools().join("bin/python"));
    python.arg(Path::new(HOUSE).join("tests/sdk/python_client.py")).arg(server.base());
    // What it needs is installed beside the generator.
    let needed = settings::test_tools().join("openapi-python-client");
    python.env("PYTHONPATH", format!("{}:{}", client.display(), needed.display()));
    run(&mut python, Some(&server));
}

#[test]
fn go_client_of_openapi_generator_takes_the_tour() {
    if lacks_generators() {
        return;
    }
    let dir = tempfile::tempdir().expect("there is room for a temporary directory");
    let client = dir.path().join("client");
    generators::openapi_generator("go", "packageName=sdk,withGoMod=true", &client);
    copy("tour.go", &client.join("tour/main.go"));
    let program = dir.path().join("tour");
    let mut go = Command::new(settings::test_tools().join("go/go/bin/go"));
    go.args(["build", "-o"]).arg(&program).arg("./tour").current_dir(&client);
    // What was compiled is kept between runs, and nothing is fetched.
    go.env("GOCACHE", Path::new(HOUSE).join("target/go-cache")).env("GOPATH", dir.path().join("go"));
    run(go.env("GOPROXY", "off").env("GOTOOLCHAIN", "local").env("CGO_ENABLED", "0"), None);
    let server = Server::start(&dir.path().join("data"));
    run(Command::new(program).arg(server.base()), Some(&server));
}

#[test]
fn typescript_clients_take_the_tour() {
    if lacks_generators() {
        return;
    }
    let dir = tempfile::tempdir().expect("there is room for a temporary directory");
    let client = dir.path().join("client");
    std::thread::scope(|scope| {
        scope.spawn(|| generators::hey_api(&dir.path().join("hey")));
        generators::openapi_generator("typescript-fetch", "supportsES6=true", &client);
    });
    let scripts = [("typescript.ts", "main"), ("hey_api.ts", "hey_main")];
    let mut compiler = Command::new(settings::test_tools().join("node_modules/.bin/tsc"));
    compiler.args([
        "--strict",
        "--target",
        "es2022",
        "--lib",
        "es2022,dom,dom.iterable",
        "--module",
        "commonjs",
    ]);
    compiler.arg("--outDir").arg(dir.path().join("out"));
    for (script, to) in scripts {
        let to = dir.path().join(to).with_extension("ts");
        copy(script, &to);
        compiler.arg(to);
    }
    run(&mut compiler, None);
    let server = Server::start(&dir.path().join("data"));
    for (_, script) in scripts {
        run(Command::new("node").arg(dir.path().join("out").join(script)).arg(server.base()), Some(&server));
    }
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
fn schemathesis_finds_no_unexplained_difference() {
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
