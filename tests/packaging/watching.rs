//! The dashboard and the alert rules: they are well formed, and name nothing that a live service does not show.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::process::{Command, Output, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{path, text};
use crate::support::server::ServerBuilder;
use angarium_testbed::held::wait_until;
use angarium_testbed::settings::test_tools;

const RULES: &str = "packaging/prometheus/angarium.rules.yaml";
const DASHBOARD: &str = "packaging/grafana/angarium.json";

/// The table of all metrics.
const MONITORING: &str = "docs/monitoring.md";

/// The page of a service with a quota that has refused a post for want of room, once its pool was asked how it does: every
/// family has samples.
static PAGE: LazyLock<String> = LazyLock::new(|| {
    let data = tempfile::tempdir().unwrap();
    let quotas = data.path().join("quotas.toml");
    std::fs::write(&quotas, "[[project]]\nname = \"acme\"\nmessages = 10\n").unwrap();
    let server = ServerBuilder::new(data.path()).arg(format!("--reserve={}", u64::MAX));
    let server = server.arg("--quotas").arg(&quotas).start();
    let client = server.client();
    client.post_messages("q", &[json!(1)]).unwrap();
    let start = Instant::now();
    loop {
        let page = client.get("/metrics").unwrap().text();
        let late = ["angarium_pool_latency_seconds{", "angarium_pool_used_bytes{", "angarium_quota_used{"];
        if late.iter().all(|family| page.contains(family)) {
            return page;
        }
        assert!(start.elapsed() < Duration::from_secs(20), "{page}");
        std::thread::sleep(Duration::from_millis(20));
    }
});

/// Families without samples on that page: those of Keystone, which `http::keystone` and the unit test beside them read, of
/// background tasks, which `http::logs` lets fail, of webhooks and of subscriptions, which `http::webhooks` and
/// `http::subscription_bounds` read.
const WITHOUT_SAMPLES: &[(&str, &str)] = &[
    ("angarium_background_failures", "counter"),
    ("angarium_keystone_cache_hits", "counter"),
    ("angarium_keystone_cached_tokens", "gauge"),
    ("angarium_keystone_lookups", "counter"),
    ("angarium_keystone_waiting_requests", "gauge"),
    ("angarium_subscription_omissions", "counter"),
    ("angarium_subscription_requests", "counter"),
    ("angarium_webhook_requests", "counter"),
];

/// Every family, with its type.
fn families() -> Vec<(String, String)> {
    let kinds = PAGE.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let kinds = kinds.chain(WITHOUT_SAMPLES.iter().copied());
    kinds.map(|(name, kind)| (name.to_owned(), kind.to_owned())).collect()
}

/// The metrics of the page, each with the names of its series.
fn shown() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (name, kind) in families() {
        let suffixes: &[&str] = match kind.as_str() {
            "counter" => &["_total"],
            "histogram" => &["_bucket", "_sum", "_count"],
            _ => &[""],
        };
        names.extend(suffixes.iter().map(|suffix| format!("{name}{suffix}")));
    }
    names
}

/// The rows of the tables of metrics: name, type, labels.
fn documented() -> Vec<[String; 3]> {
    let page = text(MONITORING);
    let cells = |line: &str| {
        let mut cells = line.trim_matches('|').split('|').map(|cell| cell.trim().replace('`', ""));
        Some([cells.next()?, cells.next()?, cells.next()?])
    };
    page.lines().filter(|line| line.starts_with("| `")).filter_map(cells).collect()
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

/// Those that the program registers: each has samples on the page.
#[test]
fn every_metric_of_the_program_is_on_the_page() {
    let on_page: BTreeSet<String> = families().into_iter().map(|(name, _)| name).collect();
    let mut registered = BTreeSet::new();
    for file in std::fs::read_dir(path("crates/metrics/src")).unwrap() {
        let source = std::fs::read_to_string(file.unwrap().path()).unwrap();
        let program = source.split("#[cfg(test)]").next().unwrap_or_default();
        let texts = program.split('"').filter(|text| !text.contains(' '));
        registered.extend(texts.filter(|text| named(text) == [*text]).map(ToOwned::to_owned));
    }
    assert_eq!(registered, on_page);
}

#[test]
fn every_metric_is_documented_with_its_type() {
    let name = |name: &str, kind: &str| match kind {
        "counter" => format!("{name}_total"),
        _ => name.to_owned(),
    };
    let real: BTreeMap<String, String> =
        families().into_iter().map(|(family, kind)| (name(&family, &kind), kind)).collect();
    let rows = documented();
    let written: BTreeMap<String, String> =
        rows.iter().map(|[name, kind, _]| (name.clone(), kind.clone())).collect();
    assert_eq!(written, real);
    assert_eq!(rows.len(), written.len(), "a metric has two rows");
}

/// What a page has is a part of what is documented: names, types and labels.
#[test]
fn labels_of_the_page_are_documented() {
    let labels: BTreeMap<String, BTreeSet<String>> = documented()
        .into_iter()
        .map(|[name, _, labels]| {
            let labels = labels.split(", ").filter(|label| !label.is_empty()).map(ToOwned::to_owned);
            (name, labels.collect())
        })
        .collect();
    let mut seen = 0;
    for line in PAGE.lines().filter(|line| !line.starts_with('#')) {
        let (series, rest) = line.split_once(['{', ' ']).unwrap();
        let suffixes = ["", "_bucket", "_sum", "_count"];
        let family = suffixes.iter().find_map(|suffix| labels.get_key_value(series.strip_suffix(suffix)?));
        let (_, documented) = family.unwrap_or_else(|| panic!("{series} has no row"));
        if !line.contains('{') {
            assert!(documented.is_empty(), "{line}");
            continue;
        }
        let names = rest.split("=\"").filter_map(|part| part.rsplit(['"', ',', '{']).next());
        let found: BTreeSet<String> =
            names.filter(|name| !name.is_empty() && *name != "le").map(ToOwned::to_owned).collect();
        let found: BTreeSet<String> = found.into_iter().filter(|name| !name.starts_with('}')).collect();
        assert!(found.is_subset(documented), "{line}: {found:?} and not {documented:?}");
        seen += 1;
    }
    assert!(seen > 50, "{}", *PAGE);
}

/// The queries for a scaler are those of metrics that there are.
#[test]
fn every_metric_of_the_documents_is_shown() {
    let shown = shown();
    let page = text(MONITORING);
    let queries: Vec<&str> = page.lines().filter(|line| line.trim_start().starts_with("query:")).collect();
    assert!(!queries.is_empty());
    for name in queries.into_iter().flat_map(named) {
        assert!(shown.contains(&name), "{name} is none of {shown:?}");
    }
}

/// The project of a client that names none.
const PROJECT: &str = "000000000000";

/// The page of a service that was restarted with a queue that no client uses, once the queue is counted.
fn page_after_a_restart() -> String {
    let data = tempfile::tempdir().unwrap();
    let server = ServerBuilder::new(data.path()).start();
    let posted = server.client().post_messages("idle", &[json!(1), json!(2)]).unwrap();
    assert_eq!(posted.status, 201);
    assert!(server.terminate().success());
    let server = ServerBuilder::new(data.path()).start();
    let mut page = String::new();
    wait_until("all queues are counted", || {
        page = server.client().get("/metrics").unwrap().text();
        page.lines().any(|line| line == "angarium_slots_counted 256")
    });
    page
}

/// Rules are carried out by Prometheus on the page of a restarted service: no queue of it was used since. The page stays as it
/// is, but for the age of the oldest message, which grows by a minute each minute.
#[test]
fn rules_fire_for_idle_queues() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("rules.test.yaml");
    let page = page_after_a_restart();
    let age = "angarium_oldest_message_age_seconds{project=\"000000000000\",queue=\"idle\"}";
    assert!(page.lines().any(|line| line.starts_with(age)), "{page}");
    let series = page.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
        let (series, value) = line.rsplit_once(' ')?;
        let values = if series == age { format!("{value}+60x120") } else { format!("{value}x120") };
        Some(json!({"series": series, "values": values}))
    });
    let series: Vec<Value> = series.collect();
    let seconds = |line: &str| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap();
    let first = page.lines().find(|line| line.starts_with(age)).map(seconds).unwrap();
    let nobody = json!([{
        "exp_labels": {"severity": "warning", "project": PROJECT, "queue": "idle"},
        "exp_annotations": {
            "summary": format!("Nobody claims from queue idle of {PROJECT}"),
            "description": "Messages wait there, and its consumers are gone."
        }
    }]);
    let old = json!([{
        "exp_labels": {"severity": "warning", "project": PROJECT, "queue": "idle"},
        "exp_annotations": {
            "summary": format!("Queue idle of {PROJECT} has a message that is {} s old", first + 90 * 60),
            "description": "Its consumers are too few, or one message is claimed again and again."
        }
    }]);
    let tests = json!({
        "rule_files": [path(RULES)],
        "evaluation_interval": "1m",
        "tests": [{
            "interval": "1m",
            "input_series": series,
            "alert_rule_test": [
                {"eval_time": "30m", "alertname": "AngariumNobodyConsumes", "exp_alerts": nobody},
                {"eval_time": "30m", "alertname": "AngariumOldMessages", "exp_alerts": []},
                {"eval_time": "90m", "alertname": "AngariumOldMessages", "exp_alerts": old},
                {"eval_time": "90m", "alertname": "AngariumNotCounted", "exp_alerts": []}
            ]
        }]
    });
    // YAML is a superset of JSON.
    std::fs::write(&file, tests.to_string()).unwrap();
    let tested = promtool(&["test", "rules", file.to_str().unwrap()], None);
    let said = [tested.stdout, tested.stderr].map(|said| String::from_utf8_lossy(&said).into_owned());
    assert!(tested.status.success(), "{said:?}");
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
