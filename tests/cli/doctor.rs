//! `angarium doctor`: sound parts are reported as sound, faults with advice.

use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use super::canned::Canned;
use super::{Program, beside_a_server};

/// Verdict and finding of a check.
fn check<'a>(checks: &'a Value, name: &str) -> (&'a str, &'a str) {
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
    for name in ["server", "reach", "ready", "clock", "access", "pool default", "data"] {
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
