//! What only another program can judge: the image built and run by a container engine, the unit read by systemd. Where
//! that program is missing, the test states loudly that it did not run; with `ANGARIUM_NEED_CONTAINERS=1` it fails.

use std::io::Write;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use super::path;
use super::started::command;
use crate::support::client::Client;
use angarium_testbed::held::free_port;
use angarium_testbed::settings::number;

use super::launch::assert_usable;

/// Much more than an engine takes to start the container.
const START: Duration = Duration::from_secs(120);

/// States, past the capture of the test harness, what was not tested.
fn skip(what: &str) {
    assert_eq!(number("ANGARIUM_NEED_CONTAINERS", 0), 0, "ANGARIUM_NEED_CONTAINERS is set, and {what}");
    let _ = writeln!(std::io::stderr(), "\nSKIPPED: {what}\n");
}

fn run(program: &str, words: &[&str]) -> Output {
    let ran = Command::new(program).args(words).current_dir(path(".")).output();
    let ended = ran.unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(ended.status.success(), "{program} {words:?}: {}", String::from_utf8_lossy(&ended.stderr));
    ended
}

/// An engine whose server answers.
fn engine() -> Option<&'static str> {
    let answers =
        |program: &&str| Command::new(program).arg("info").output().is_ok_and(|ended| ended.status.success());
    ["docker", "podman"].into_iter().find(answers)
}

/// Removes the container, its volume and the image at the end of the test.
struct Removed<'a> {
    engine: &'a str,
    name: String,
}

impl Drop for Removed<'_> {
    fn drop(&mut self) {
        for words in [["rm", "--force"].as_slice(), &["volume", "rm", "--force"], &["rmi", "--force"]] {
            // Each fails when there is none.
            let _ = Command::new(self.engine).args(words).arg(&self.name).output();
        }
    }
}

#[test]
fn image_is_built_and_run_by_its_own_lines() {
    let Some(engine) = engine() else {
        return skip(
            "the image was neither built nor run: no container engine (docker, podman) answers here",
        );
    };
    let name = format!("angarium-test-{}", std::process::id());
    let removed = Removed { engine, name: name.clone() };
    let named = |words: &[String]| -> Vec<String> {
        words[1..].iter().map(|word| if word == "angarium" { name.clone() } else { word.clone() }).collect()
    };
    let build = named(&command("docker/Dockerfile", "docker build"));
    run(engine, &build.iter().map(String::as_str).collect::<Vec<_>>());
    let port = free_port();
    let line = named(&command("docker/Dockerfile", "docker run"));
    let line: Vec<_> = line
        .iter()
        .map(|word| {
            word.replace(":8888:8888", &format!(":{port}:8888")).replace("angarium:/", &format!("{name}:/"))
        })
        .collect();
    let mut words = vec!["run", "--detach", "--name", &name];
    words.extend(line[1..].iter().map(String::as_str));
    run(engine, &words);
    let client = Client::new(&format!("http://127.0.0.1:{port}"));
    let start = Instant::now();
    while !client.get("/readyz").is_ok_and(|answer| answer.status == 200) {
        assert!(start.elapsed() < START, "{:?}", run(engine, &["logs", &name]));
        std::thread::sleep(Duration::from_millis(200));
    }
    assert_usable(&client);
    drop(removed);
}

#[test]
fn compose_reads_its_files() {
    let is_there = Command::new("docker").args(["compose", "version"]).output();
    if !is_there.is_ok_and(|ended| ended.status.success()) {
        return skip("the compose files were not read by docker compose, which is not here");
    }
    for file in ["docker/compose.yaml", "docker/cluster.yaml"] {
        run("docker", &["compose", "--file", file, "config", "--quiet"]);
    }
}

#[test]
fn systemd_takes_the_unit() {
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        return skip("the unit was not read by systemd-analyze, which is not here");
    }
    // It looks for the programs that a unit names, so it gets one that is there.
    let dir = tempfile::tempdir().unwrap();
    let unit = dir.path().join("angarium.service");
    let text = super::text("packaging/angarium.service");
    std::fs::write(&unit, text.replace("/usr/local/bin/angarium", env!("CARGO_BIN_EXE_angarium"))).unwrap();
    let checked = Command::new("systemd-analyze").arg("verify").arg(&unit).output().unwrap();
    let said = String::from_utf8_lossy(&checked.stderr);
    let about: Vec<_> = said.lines().filter(|line| line.contains("angarium.service")).collect();
    assert!(about.is_empty(), "{about:?}");
}
