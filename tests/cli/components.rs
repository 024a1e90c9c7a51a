//! `angarium components` and `angarium drain`: what the server states of its replicas, and one that is told to hand
//! over.

use serde_json::json;

use super::Program;
use super::canned::Canned;

const ONE: &str = "6c1f0a52-3c3c-4c6e-9f0e-0b7f8f1d2a34";

fn replicas(slots: &[u8]) -> (&'static str, String) {
    let one = json!({
        "instance": ONE, "address": "10.0.0.5:8889", "version": "0.1.0", "schema": 1, "state": "running",
        "weight": 100, "started": "2026-01-12T09:30:00Z", "slots": slots
    });
    ("200 OK", json!({"answered_by": ONE, "components": [one], "unowned_slots": []}).to_string())
}

#[test]
fn each_replica_is_a_row() {
    let server = Canned::start(vec![replicas(&[1, 2, 3])]);
    let table = Program::new(Some(&server.url)).say(&["components"]);
    let rows = "INSTANCE                              ADDRESS        STATE    WEIGHT  SLOTS  VERSION\n\
                6c1f0a52-3c3c-4c6e-9f0e-0b7f8f1d2a34  10.0.0.5:8889  running  100     3      0.1.0\n";
    assert_eq!(table, rows);
}

#[test]
fn replica_passed_over_is_shown_as_such() {
    let one = json!({
        "instance": ONE, "address": "10.0.0.5:8889", "version": "0.1.0", "schema": 1, "state": "running",
        "weight": 100, "started": "2026-01-12T09:30:00Z", "slots": [], "passed_over": true
    });
    let body = json!({"answered_by": ONE, "components": [one], "unowned_slots": []}).to_string();
    let server = Canned::start(vec![("200 OK", body)]);
    let table = Program::new(Some(&server.url)).say(&["components"]);
    assert!(table.contains("  running, passed over  100     0  "), "{table}");
}

#[test]
fn answering_replica_is_polled_until_it_has_no_slot() {
    let answers = vec![replicas(&[1, 2]), ("202 Accepted", String::new()), replicas(&[2]), replicas(&[])];
    let server = Canned::start(answers);
    let said = Program::new(Some(&server.url)).say(&["drain"]);
    assert!(said.contains("serves no queue any more"), "{said}");
    let asked: Vec<String> = server.asked().into_iter().map(|asked| asked.line).collect();
    let look = "GET /v2/components".to_owned();
    assert_eq!(asked, [look.clone(), format!("POST /v2/components/{ONE}/drain"), look.clone(), look]);
}
