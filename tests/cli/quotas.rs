//! `angarium quota`: what the server states, as a table and as bare values.

use serde_json::json;

use super::canned::Canned;
use super::{Program, beside_a_server};

fn shown(answer: &serde_json::Value, args: &[&str]) -> String {
    let server = Canned::start(vec![("200 OK", answer.to_string())]);
    let out = Program::new(Some(&server.url)).say(args);
    assert_eq!(server.asked().remove(0).line, "GET /v2/quota");
    out
}

#[test]
fn quota_is_shown_beside_usage() {
    let answer = json!({
        "project": "acme",
        "queues": {"used": 3, "quota": 12},
        "messages": {"used": 17},
        "bytes": {"used": 0, "quota": 0}
    });
    let table = "WHAT      USED  QUOTA  SHARE\n\
                 queues    3     12     25%\n\
                 messages  17    -      -\n\
                 bytes     0B    0B     -\n";
    assert_eq!(shown(&answer, &["quota"]), table);
    let plain = "queues.used=3\nqueues.quota=12\nmessages.used=17\nbytes.used=0\nbytes.quota=0\n";
    assert_eq!(shown(&answer, &["quota", "-o", "plain"]), plain);
    assert_eq!(
        serde_json::from_str::<serde_json::Value>(&shown(&answer, &["quota", "-o", "json"])).unwrap(),
        answer
    );
}

#[test]
fn a_project_without_a_quota_has_dashes() {
    let answer = json!({"project": "acme", "queues": {}, "messages": {}, "bytes": {}});
    let table = "WHAT      USED  QUOTA  SHARE\n\
                 queues    -     -      -\n\
                 messages  -     -      -\n\
                 bytes     -     -      -\n";
    assert_eq!(shown(&answer, &["quota"]), table);
}

/// The used amounts were dashes: no user counted a project without a quota.
#[test]
fn used_amounts_are_shown_without_a_quota() {
    let it = beside_a_server();
    it.program.say(&["message", "post", "q", "hello"]);
    let table = it.program.say(&["quota"]);
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(
        rows[1..],
        [["queues", "1", "-", "-"], ["messages", "1", "-", "-"], ["bytes", "7B", "-", "-"]]
    );
}
