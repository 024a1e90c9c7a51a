//! The dashboard and the alert rules: they are well formed, and name nothing that a live service does not show.

use std::collections::BTreeSet;
use std::io::Write;
use std::process::{Command, Output, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{path, text};
use crate::support::server::ServerBuilder;
use crate::support::settings::test_tools;

const RULES: &str = "packaging/prometheus/angarium.rules.yaml";
const DASHBOARD: &str = "packaging/grafana/angarium.json";

/// The page of a service that has refused a post for want of room, once its pool was asked how it does.
static PAGE: LazyLock<String> = LazyLock::new(|| {
    let data = tempfile::tempdir().unwrap();
    let server = ServerBuilder::new(data.path()).arg(format!("--reserve={}", u64::MAX)).start();
    let client = server.client();
    client.post_messages("q", &[json!(1)]).unwrap();
    let start = Instant::now();
    loop {
        let page = client.get("/metrics").unwrap().text();
        if page.contains("angarium_pool_latency_seconds{") {
            return page;
        }
        assert!(start.elapsed() < Duration::from_secs(20), "{page}");
        std::thread::sleep(Duration::from_millis(20));
    }
});

/// The metrics of the page, each with the names of its series.
fn shown() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for line in PAGE.lines() {
        let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) else {
            continue;
        };
        let suffixes: &[&str] = match kind {
            "counter" => &["_total"],
            "histogram" => &["_bucket", "_sum", "_count"],
            _ => &[""],
        };
        names.extend(suffixes.iter().map(|suffix| format!("{name}{suffix}")));
    }
    names
}

/// The names of ours in an expression.
fn named(expression: &str) -> Vec<String> {
    let words = expression.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    let is_ours = |word: &&str| word.starts_with("angarium_") || word.starts_with("process_");
    words.filter(is_ours).map(ToOwned::to_owned).collect()
}

fn promtool(arguments: &[&str], input: Option<&str>) -> Output {
    let promtool = test_tools().join("bin/promtool");
    let mut command = Command::new(&promtool);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|error| {
        panic!("{}: {error}. tests/prepare installs it", promtool.display());
    });
    child.stdin.take().unwrap().write_all(input.unwrap_or_default().as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

fn strings<'a>(value: &'a Value, key: &str, found: &mut Vec<&'a str>) {
    match value {
        Value::Object(fields) => {
            found.extend(fields.get(key).and_then(Value::as_str));
            fields.values().for_each(|field| strings(field, key, found));
        }
        Value::Array(elements) => elements.iter().for_each(|element| strings(element, key, found)),
        _ => {}
    }
}

#[test]
fn prometheus_takes_the_rules() {
    let checked = promtool(&["check", "rules", path(RULES).to_str().unwrap()], None);
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
}

#[test]
fn prometheus_reads_the_page() {
    let checked = promtool(&["check", "metrics"], Some(&PAGE));
    let said = String::from_utf8_lossy(&checked.stderr).into_owned();
    // Its lints want the older form, in which the type of a counter has the name of its series.
    let is_unread = said.contains("error while linting") || said.contains("text format parsing error");
    assert!(!is_unread, "{said}\n{}", *PAGE);
}

#[test]
fn every_metric_of_a_rule_is_shown() {
    let shown = shown();
    let rules = text(RULES);
    let names = named(
        &rules
            .lines()
            .filter(|line| !line.trim_start().starts_with(['#', 'd', 's']))
            .fold(String::new(), |all, line| all + line + "\n"),
    );
    assert!(names.len() > 15, "{names:?}");
    for name in names {
        assert!(shown.contains(&name), "{name} is none of {shown:?}");
    }
}

#[test]
fn every_metric_of_the_dashboard_is_shown() {
    let shown = shown();
    let dashboard: Value = serde_json::from_str(&text(DASHBOARD)).unwrap();
    let mut expressions = Vec::new();
    strings(&dashboard, "expr", &mut expressions);
    strings(&dashboard["templating"], "definition", &mut expressions);
    assert!(expressions.len() > 30, "{expressions:?}");
    for expression in expressions {
        let names = named(expression);
        assert!(!names.is_empty(), "{expression}");
        for name in names {
            assert!(shown.contains(&name), "{name} is none of {shown:?}");
        }
    }
}

#[test]
fn panels_of_the_dashboard_differ_by_id_and_do_not_overlap() {
    let dashboard: Value = serde_json::from_str(&text(DASHBOARD)).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let ids: BTreeSet<u64> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    assert_eq!(ids.len(), panels.len());
    let mut taken = BTreeSet::new();
    for panel in panels {
        let at = |key: &str| panel["gridPos"][key].as_u64().unwrap();
        for place in
            (at("y")..at("y") + at("h")).flat_map(|y| (at("x")..at("x") + at("w")).map(move |x| (x, y)))
        {
            assert!(place.0 < 24 && taken.insert(place), "{} lies on another", panel["title"]);
        }
    }
}
