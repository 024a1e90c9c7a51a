//! `angarium doctor`: sound parts are reported as sound, faults with advice.

use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use super::canned::{Canned, CannedRequest};
use super::{Program, beside_a_server};

/// Verdict and finding of a check.
pub(super) fn check<'a>(checks: &'a Value, name: &str) -> (&'a str, &'a str) {
    let found = checks.as_array().unwrap().iter().find(|check| check["name"] == name);
    let found = found.unwrap_or_else(|| panic!("no check {name} in {checks}"));
    (found["verdict"].as_str().unwrap(), found["found"].as_str().unwrap())
}

#[test]
fn a_server_in_good_health_has_nothing_wrong() {
    let it = beside_a_server();
    let data = it.program.home.path().join("data");
    std::fs::create_dir(&data).unwrap();
    std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o700)).unwrap();
    let checks = it.program.json(&["doctor", "--data", data.to_str().unwrap()]);
    for name in ["server", "reach", "ready", "clock", "access", "pool default", "queues", "data"] {
        assert_eq!(check(&checks, name).0, "ok", "{checks}");
    }
}

#[test]
fn absent_server_is_wrong_with_advice() {
    let ended = Program::new(Some("http://127.0.0.1:1")).run(&["doctor"]);
    assert_eq!(ended.code, 1);
    assert!(ended.out.contains("WRONG  reach"), "{}", ended.out);
    assert!(ended.out.contains("→ is it running (`angarium serve`)"), "{}", ended.out);
}

#[test]
fn other_version_time_and_lost_pool_are_reported() {
    let head = "200 OK\r\nServer: angarium/99.0.0\r\nDate: Mon, 01 Jan 2024 00:00:00 GMT";
    let health = r#"{"catalog_reachable": true, "p1": {"storage_reachable": false}}"#;
    let answers = vec![
        (head, String::new()),
        ("200 OK", r#"{"warnings": ["the file is refused"]}"#.to_owned()),
        ("401 Unauthorized", r#"{"title": "Not authorized"}"#.to_owned()),
        ("200 OK", health.to_owned()),
    ];
    let server = Canned::start(answers);
    let ended = Program::new(Some(&server.url)).run(&["doctor", "-o", "json"]);
    assert_eq!(ended.code, 1);
    let checks: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!(check(&checks, "ready"), ("warning", "the file is refused"));
    assert_eq!(check(&checks, "version").0, "warning");
    assert_eq!(check(&checks, "clock").0, "warning");
    assert_eq!(check(&checks, "access").0, "wrong");
    assert_eq!(check(&checks, "pool p1").0, "wrong");
}

#[test]
fn missing_data_directory_is_wrong() {
    let it = beside_a_server();
    let ended = it.program.run(&["doctor", "--data", "/no/such/directory", "-o", "json"]);
    assert_eq!(ended.code, 1);
    assert_eq!(check(&serde_json::from_str(&ended.out).unwrap(), "data").0, "wrong");
}

#[test]
fn held_queue_is_explained_with_its_release() {
    let it = beside_a_server();
    it.program.say(&["message", "post", "orders", "one"]);
    it.program.say(&["message", "post", "letters", "one"]);
    it.program.say(&["queue", "hold", "orders", "--reason", "bad deploy 1.4.2"]);
    let checks = it.program.json(&["doctor"]);
    let (verdict, found) = check(&checks, "queue orders");
    assert_eq!(verdict, "warning");
    assert!(found.starts_with("A claim gets nothing now, because the queue is held"), "{found}");
    assert!(found.contains("bad deploy 1.4.2"), "{found}");
    let text = it.program.say(&["doctor"]);
    assert!(text.contains("angarium queue release orders"), "{text}");
    assert!(!text.contains("letters"), "its message is new: {text}");
    it.program.say(&["queue", "release", "orders"]);
    assert_eq!(check(&it.program.json(&["doctor"]), "queues").0, "ok");
}

#[test]
fn named_queues_are_explained_and_no_others() {
    let it = beside_a_server();
    it.program.say(&["message", "post", "orders", "one"]);
    it.program.say(&["message", "post", "letters", "one"]);
    it.program.say(&["queue", "hold", "letters", "--reason", "audit"]);
    let checks = it.program.json(&["doctor", "--queue", "orders", "--queue", "absent"]);
    assert_eq!(check(&checks, "queue orders"), ("ok", "1 message is ready: a claim gets the oldest."));
    assert_eq!(check(&checks, "queue absent"), ("warning", "there is no such queue"));
    assert!(!checks.to_string().contains("letters"), "{checks}");
}

/// Answers like a server whose queues have messages of these ages, and removals per second.
fn server_with_queues(queues: Vec<(&'static str, u64, f64)>) -> Canned {
    Canned::answering(move |request: &CannedRequest| {
        let path = request.line.split(' ').nth(1)?.to_owned();
        let entry = |(name, oldest, removed): &(&str, u64, f64)| {
            json!({"name": name, "stats": {"ready": 3, "delayed": 0, "claimed": 0, "in_transfer": 0,
                "oldest_age": oldest, "rates": {"posted": 0.0, "removed": removed}}})
        };
        let body = if path == "/v2/" {
            json!({"resources": {"rel/queues": {"href-template": "/v2/queues{?with_stats}"}}})
        } else if path.ends_with("/explain") {
            json!({"says": format!("Explanation of {path}."), "pool": {"name": "p1", "up": true}})
        } else if path.contains("with_stats=true") {
            json!({"queues": queues.iter().map(entry).collect::<Vec<_>>(), "links": []})
        } else {
            json!({"p1": {"storage_reachable": true}})
        };
        Some(("200 OK".to_owned(), body.to_string()))
    })
}

#[test]
fn queues_with_old_messages_are_explained_if_none_leaves() {
    let server = server_with_queues(vec![
        ("busy", 7_200, 1.5),
        ("new", 5, 0.0),
        ("older", 7_200, 0.0),
        ("old", 60, 0.0),
    ]);
    let checks: Value =
        serde_json::from_str(&Program::new(Some(&server.url)).say(&["doctor", "-o", "json"])).unwrap();
    assert_eq!(check(&checks, "queue older"), ("warning", "Explanation of /v2/queues/older/explain."));
    assert_eq!(check(&checks, "queue old").0, "warning");
    let names: Vec<&str> =
        checks.as_array().unwrap().iter().map(|check| check["name"].as_str().unwrap()).collect();
    assert!(!names.contains(&"queue busy") && !names.contains(&"queue new"), "{names:?}");
    let explained = server.asked().iter().filter(|request| request.line.ends_with("/explain")).count();
    assert_eq!(explained, 3, "a queue of which messages leave is not explained");
}

#[test]
fn explained_queues_are_bounded() {
    let names: Vec<&'static str> = (0..30).map(|number| &*format!("q{number}").leak()).collect();
    let server = server_with_queues(names.iter().map(|name| (*name, 600, 0.0)).collect());
    let text = Program::new(Some(&server.url)).say(&["doctor", "-o", "json"]);
    let explained = server.asked().iter().filter(|request| request.line.ends_with("/explain")).count();
    assert_eq!(explained, 20);
    assert!(text.contains("10 more have ready messages of which none leaves"), "{text}");
}

#[test]
fn full_subscription_is_named_with_its_gap() {
    let it = beside_a_server();
    let options = r#"{"max_messages": 1}"#;
    it.program.say(&["queue", "create", "orders"]);
    it.program.say(&["subscription", "create", "orders", "pull:audit", "--options", options]);
    let checks = it.program.json(&["doctor"]);
    let sound = "looked at 1: none is full, and no webhook fails";
    assert_eq!(check(&checks, "subscriptions"), ("ok", sound));
    for body in ["one", "two", "three"] {
        it.program.say(&["message", "post", "orders", body]);
    }
    let listed = it.program.json(&["subscription", "list", "orders"]);
    let name = format!("subscription orders/{}", listed[0]["id"].as_str().unwrap());
    for args in [&["doctor"][..], &["doctor", "--queue", "orders"]] {
        let checks = it.program.json(args);
        let (verdict, found) = check(&checks, &name);
        assert_eq!(verdict, "warning");
        assert!(found.starts_with("it is full and gets no copies since "), "{found}");
        assert!(found.ends_with(": 2 messages were left out"), "{found}");
    }
}

#[test]
fn failing_webhook_is_named_with_its_reason() {
    let server = Canned::answering(|request: &CannedRequest| {
        let path = request.line.split(' ').nth(1)?.to_owned();
        let backlog =
            |filling: bool| json!({"suspended": false, "filling": filling, "left_out": 0, "dropped": 0});
        let failing = json!({"failures": 6, "since": "2026-11-21T08:00:00Z", "reason": "status 503: closed",
            "paused_until": "2026-11-21T08:09:00Z"});
        let body = if path.contains("/subscriptions") {
            json!({"links": [], "subscriptions": [
                {"id": "s1", "subscriber": "https://a.example/hook", "backlog": backlog(false), "failing": failing},
                {"id": "s2", "subscriber": "pull:audit", "backlog": backlog(true)},
            ]})
        } else if path.starts_with("/v2/topics") {
            json!({"topics": [{"name": "news"}], "links": []})
        } else if path.starts_with("/v2/queues") {
            json!({"queues": [], "links": []})
        } else {
            json!({"p1": {"storage_reachable": true}})
        };
        Some(("200 OK".to_owned(), body.to_string()))
    });
    let checks: Value =
        serde_json::from_str(&Program::new(Some(&server.url)).say(&["doctor", "-o", "json"])).unwrap();
    let (verdict, found) = check(&checks, "subscription topic:news/s1");
    assert_eq!(verdict, "warning");
    assert_eq!(
        found,
        "the webhook https://a.example/hook has failed 6 times since 2026-11-21T08:00:00Z: status 503: closed; nothing \
         is sent to it until 2026-11-21T08:09:00Z"
    );
    let filling = "looked at 2; 1 is still being filled with messages from before it";
    assert_eq!(check(&checks, "subscriptions"), ("ok", filling));
}
