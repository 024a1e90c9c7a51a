//! The log: changes of state once each, repetition counted, and in JSON nothing that is no JSON.

use std::process::Command;
use std::time::Duration;

use http::StatusCode;
use serde_json::{Value, json};

use crate::support::server::{Server, ServerBuilder};
use crate::support::terminal::Terminal;
use angarium_testbed::held::wait_until;
use angarium_testbed::redis::Redis;

/// Lines of the log at the levels warn and error.
fn complaints(server: &Server) -> Vec<String> {
    let is_complaint = |line: &&str| line.contains(" WARN ") || line.contains("ERROR ");
    server.last_lines().lines().filter(is_complaint).map(ToOwned::to_owned).collect()
}

fn count(server: &Server, phrase: &str) -> usize {
    server.last_lines().matches(phrase).count()
}

/// A sample of a counter.
fn counted(server: &Server, series: &str) -> f64 {
    let page = server.client().get("/metrics").unwrap().text();
    page.lines().filter_map(|line| line.strip_prefix(series)?.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

#[test]
fn pool_outage_is_logged_once_and_refusals_are_counted() {
    let (mut redis, data) =
        (Redis::start(&["appendonly yes", "appendfsync always"]), tempfile::tempdir().unwrap());
    let server = ServerBuilder::new(data.path()).arg("--pool").arg(redis.uri("")).start();
    let client = server.client();
    assert_eq!(client.post_messages("q", &[json!(1)]).unwrap().status, StatusCode::CREATED);
    redis.kill9();
    wait_until("the pool is told to be away", || count(&server, "pool unreachable") > 0);
    for _ in 0..5 {
        assert_eq!(client.post_messages("q", &[json!(2)]).unwrap().status, StatusCode::SERVICE_UNAVAILABLE);
    }
    let before = complaints(&server);
    for _ in 0..5 {
        assert_eq!(client.post_messages("q", &[json!(2)]).unwrap().status, StatusCode::SERVICE_UNAVAILABLE);
    }
    // Longer than two looks at the pools.
    std::thread::sleep(Duration::from_secs(11));
    let after = complaints(&server);
    assert!(after.len() <= before.len() + 1, "the log grows: {}", after[before.len()..].join("\n"));
    assert!(after.len() < 8, "{}", after.join("\n"));
    assert!(!server.last_lines().contains("request_id"), "a refusal is logged: {}", server.last_lines());
    assert!(counted(&server, "angarium_refusals_total{status=\"503\"") >= 10.0);
    assert!(counted(&server, "angarium_background_failures_total{") >= 1.0);
    redis.restart();
    wait_until("the pool is told to be back", || count(&server, "pool reachable again") > 0);
    wait_until("it serves", || client.post_messages("q", &[json!(3)]).unwrap().status == StatusCode::CREATED);
    assert_eq!((count(&server, "pool unreachable"), count(&server, "pool reachable again")), (1, 1));
    let lines = server.last_lines();
    let line = lines.lines().find(|line| line.contains("pool reachable again")).unwrap();
    let away: u64 =
        line.split("away_ms=").nth(1).unwrap().split_whitespace().next().unwrap().parse().unwrap();
    assert!(away >= 10_000, "{line}");
}

#[test]
fn json_log_has_json_lines_only() {
    let data = tempfile::tempdir().unwrap();
    let builder = ServerBuilder::new(data.path()).arg("--log-format=json").arg("--log=debug");
    let server = builder.env("ANGARIUM_LISTENN", "x").start();
    assert_eq!(server.client().post_messages("q", &[json!(1)]).unwrap().status, StatusCode::CREATED);
    assert_eq!(server.client().get("/nothing").unwrap().status, StatusCode::NOT_FOUND);
    let lines = server.last_lines();
    let mut events = Vec::new();
    for line in lines.lines() {
        let text = line.trim_start().strip_prefix("err: ").unwrap_or_else(|| panic!("on stdout: {line}"));
        events.push(serde_json::from_str::<Value>(text).unwrap_or_else(|_| panic!("no JSON: {text}")));
    }
    let event = |phrase: &str| events.iter().find(|event| event["message"] == phrase).expect(phrase);
    let listening = event("listening");
    assert_eq!(listening["url"], server.base());
    assert_eq!(format!("http://{}", listening["address"].as_str().unwrap()), server.base());
    assert!(event("slots taken")["took_ms"].is_u64(), "{}", event("slots taken"));
    assert_eq!(event("unknown environment variable")["meant"], "ANGARIUM_LISTEN");
}

#[test]
fn text_log_has_colours_on_terminals_only() {
    let drawn = |environment: &[(&str, &str)]| {
        let data = tempfile::tempdir().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_angarium"));
        command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(data.path());
        command.env("TERM", "xterm-256color").envs(environment.iter().copied());
        let terminal = Terminal::start(command, (120, 40));
        terminal.wait_for("try: curl");
        terminal.drawn()
    };
    assert!(drawn(&[]).contains("\u{1b}["));
    assert!(!drawn(&[("NO_COLOR", "1")]).contains("\u{1b}["));
}
