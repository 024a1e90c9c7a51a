//! `angarium claim`, against a real server.

use serde_json::{Value, json};

use super::canned::Canned;
use super::{Program, beside_a_server};

#[test]
fn a_claim_is_created_shown_renewed_and_released() {
    let it = beside_a_server();
    it.program.say(&["message", "post", "q", "one"]);
    it.program.say(&["message", "post", "q", "two"]);
    let claim = it.program.json(&["claim", "create", "q", "--limit", "1", "--ttl", "120"]);
    assert_eq!(claim["messages"][0]["body"], json!("one"));
    let id = claim["id"].as_str().unwrap();
    assert_eq!(it.program.json(&["claim", "show", "q", id])["ttl"], json!(120));
    it.program.say(&["claim", "renew", "q", id, "--ttl", "700"]);
    assert_eq!(it.program.json(&["claim", "show", "q", id])["ttl"], json!(700));
    it.program.say(&["claim", "release", "q", id]);
    assert_eq!(it.program.run(&["claim", "show", "q", id]).code, 1);
    assert_eq!(it.program.plain(&["message", "list", "q"]), ["one", "two"]);
}

#[test]
fn plain_lines_of_a_claim_name_claim_message_and_body() {
    let it = beside_a_server();
    let id = it.program.plain(&["message", "post", "q", "a\tb"]);
    let lines = it.program.plain(&["claim", "create", "q"]);
    let parts: Vec<&str> = lines[0].split('\t').collect();
    assert_eq!(parts[1..], [id[0].as_str(), "\"a\\tb\""]);
    // That is what deletes it.
    it.program.say(&["message", "delete", "q", parts[1], "--claim", parts[0]]);
    assert_eq!(it.program.plain(&["queue", "stats", "q"]), ["0"]);
}

#[test]
fn nothing_to_claim_is_no_error() {
    let it = beside_a_server();
    it.program.say(&["queue", "create", "q"]);
    assert_eq!(it.program.say(&["claim", "create", "q"]), "there is nothing to claim\n");
    assert_eq!(it.program.json(&["claim", "create", "q"]), json!({"messages": []}));
}

#[test]
fn a_claimed_message_is_not_deleted_without_its_claim() {
    let it = beside_a_server();
    let id = it.program.plain(&["message", "post", "q", "one"]);
    it.program.say(&["claim", "create", "q"]);
    let refused = it.program.run(&["message", "delete", "q", &id[0]]);
    assert_eq!(refused.code, 1);
    assert!(refused.err.contains("status 403, code claimed"), "{}", refused.err);
}

#[test]
fn waiting_claim_sends_its_wait() {
    let server = Canned::start(vec![("204 No Content", String::new())]);
    Program::new(Some(&server.url)).say(&["claim", "create", "q", "--wait", "5", "--limit", "3"]);
    assert_eq!(server.asked()[0].line, "POST /v2/queues/q/claims?limit=3&wait=5");
}

#[test]
fn claim_is_known_by_its_location_alone() {
    // As in Zaqar, where messages have no id of their own either.
    let message =
        r#"{"messages": [{"href": "/v2/queues/q/messages/m1?claim_id=c1", "ttl": 60, "age": 0, "body": 1}]}"#;
    let head = "201 Created\r\nLocation: /v2/queues/q/claims/c1";
    let server = Canned::start(vec![(head, message.to_owned())]);
    assert_eq!(Program::new(Some(&server.url)).plain(&["claim", "create", "q"]), ["c1\tm1\t1"]);
}

#[test]
fn claims_of_a_queue_are_listed() {
    let it = beside_a_server();
    it.program.say(&["queue", "create", "q"]);
    assert_eq!(it.program.say(&["claim", "list", "q"]), "there are no claims\n");
    let bodies = ["x"; 25].join("\n");
    it.program.feed(&["message", "post", "q", "-", "--lines"], bodies.as_bytes());
    let claim = || it.program.json(&["claim", "create", "q", "--limit", "1", "--ttl", "1m30s"])["id"].clone();
    let mut ids: Vec<String> = (0..25).map(|_| claim().as_str().unwrap().to_owned()).collect();
    ids.sort_unstable();
    assert_eq!(it.program.plain(&["claim", "list", "q"]), ids);
    assert_eq!(it.program.plain(&["claim", "list", "q", "--limit", "3"]), ids[..3]);
    let table = it.program.say(&["claim", "list", "q"]);
    let row: Vec<&str> = table.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(row[..3], [ids[0].as_str(), "1", "1m30s"]);
}

#[test]
fn claim_without_bodies_shows_tags_and_lengths() {
    let it = beside_a_server();
    let id = it.program.plain(&["message", "post", "q", "confidential", "--tag", "eu"]);
    let claim = it.program.json(&["claim", "create", "q", "--no-bodies"]);
    assert_eq!(
        (&claim["messages"][0]["body"], &claim["messages"][0]["body_bytes"]),
        (&Value::Null, &json!(14))
    );
    let show = ["claim", "show", "q", claim["id"].as_str().unwrap(), "--no-bodies"];
    assert_eq!(it.program.plain(&show), [format!("{}\t{}", claim["id"].as_str().unwrap(), id[0])]);
    let table = it.program.say(&show);
    let row: Vec<&str> = table.lines().nth(3).unwrap().split_whitespace().collect();
    assert_eq!((row[0], row[1], &row[4..]), (id[0].as_str(), "claimed", &["-", "eu", "14"][..]), "{table}");
    assert!(!table.contains("confidential"), "{table}");
    assert_eq!(it.program.plain(&["message", "get", "q", &id[0]]), ["confidential"]);
}
