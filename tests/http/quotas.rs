//! Quotas of projects as clients and operators meet them.

use std::path::Path;
use std::time::{Duration, Instant};

use http::StatusCode;
use serde_json::json;

use crate::support::client::Client;
use crate::support::server::{Server, ServerBuilder};

fn of(server: &Server, project: &str) -> Client {
    server.client().with_header("X-Project-Id", project)
}

fn write(path: &Path, text: &str) {
    // In one step, as an operator's tools do.
    let beside = path.with_extension("new");
    std::fs::write(&beside, text).unwrap();
    std::fs::rename(beside, path).unwrap();
}

#[test]
fn project_over_quota_gets_429_with_bound_and_retry() {
    let data = tempfile::tempdir().unwrap();
    let server = ServerBuilder::new(data.path()).arg("--project-messages=2").start();
    let client = of(&server, "full");
    assert_eq!(client.post_messages("q", &[json!(1), json!(2)]).unwrap().status, StatusCode::CREATED);
    let refused = client.post_messages("q", &[json!(3)]).unwrap();
    assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
    assert!(refused.headers["retry-after"].to_str().unwrap().parse::<u32>().unwrap() >= 1);
    let body = refused.json();
    assert_eq!(
        (&body["code"], &body["may_retry"], &body["nothing_written"]),
        (&json!("over_quota"), &json!(true), &json!(true))
    );
    assert_eq!(body["description"], "the project may hold 2 messages; it holds 2, and this adds 1");
    let never = client.post_messages("q", &[json!(1), json!(2), json!(3)]).unwrap().json();
    assert_eq!(never["may_retry"], json!(false), "it would not fit into an empty project");
    assert_eq!(of(&server, "other").post_messages("q", &[json!(1)]).unwrap().status, StatusCode::CREATED);
    // What takes nothing in continues.
    let claim = client.claim("q", 1, 60).unwrap().granted().unwrap();
    client.delete_message("q", &claim.messages[0].id, Some(&claim.id)).unwrap();
    assert_eq!(client.post_messages("q", &[json!(3)]).unwrap().status, StatusCode::CREATED);
}

#[test]
fn project_sees_its_usage_and_quota() {
    let data = tempfile::tempdir().unwrap();
    let builder = ServerBuilder::new(data.path()).arg("--project-queues=10").arg("--project-bytes=1000");
    let server = builder.start();
    let client = of(&server, "acme");
    client.post_messages("q", &[json!("x"), json!(12)]).unwrap();
    let expected = json!({
        "project": "acme",
        "queues": {"used": 1, "quota": 10},
        "messages": {"used": 2},
        "bytes": {"used": 5, "quota": 1000}
    });
    assert_eq!(client.get("/v2/quota").unwrap().json(), expected);
    drop(server);
    let server = builder.start();
    assert_eq!(of(&server, "acme").get("/v2/quota").unwrap().json(), expected, "after a restart");
}

#[test]
fn project_without_quota_is_counted_when_it_asks() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path());
    let (client, other) = (of(&server, "acme"), of(&server, "other"));
    client.post_messages("q", &[json!("x"), json!(12)]).unwrap();
    client.create_queue("r").unwrap();
    other.post_messages("q", &[json!(1)]).unwrap();
    let quota = || client.get("/v2/quota").unwrap().json();
    let expected =
        json!({"project": "acme", "queues": {"used": 2}, "messages": {"used": 2}, "bytes": {"used": 5}});
    assert_eq!(quota(), expected);
    client.send(http::Method::DELETE, "/v2/queues/q", &[], None).unwrap();
    let expected =
        json!({"project": "acme", "queues": {"used": 1}, "messages": {"used": 0}, "bytes": {"used": 0}});
    assert_eq!(quota(), expected);
}

#[test]
fn the_file_of_quotas_is_read_again_when_it_changes() {
    let data = tempfile::tempdir().unwrap();
    let file = data.path().join("quotas.toml");
    write(&file, "[[project]]\nname = \"big\"\nmessages = \"unbounded\"\n");
    let server = ServerBuilder::new(&data.path().join("data"))
        .arg("--project-messages=1")
        .arg("--quotas")
        .arg(&file)
        .start();
    let (big, small) = (of(&server, "big"), of(&server, "small"));
    assert_eq!(big.post_messages("q", &[json!(1), json!(2)]).unwrap().status, StatusCode::CREATED);
    assert_eq!(small.post_messages("q", &[json!(1), json!(2)]).unwrap().json()["code"], "over_quota");
    write(&file, "[[project]]\nname = \"big\"\nmessages = 3\n[[project]]\nname = \"small\"\nqueues = 7\n");
    server.hang_up();
    let start = Instant::now();
    while small.get("/v2/quota").unwrap().json()["queues"]["quota"] != 7 {
        assert!(start.elapsed() < Duration::from_secs(30), "{}", server.last_lines());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(big.post_messages("q", &[json!(3)]).unwrap().status, StatusCode::CREATED);
    assert_eq!(big.post_messages("q", &[json!(4)]).unwrap().json()["code"], "over_quota");
}

#[test]
fn a_wrong_file_of_quotas_is_refused_at_the_start() {
    let data = tempfile::tempdir().unwrap();
    let file = data.path().join("quotas.toml");
    write(&file, "[[project]]\nname = \"a\"\nmesages = 3\n");
    let said = ServerBuilder::new(data.path()).arg("--quotas").arg(&file).start_refused();
    assert!(said.contains("quotas.toml") && said.contains("mesages"), "{said}");
}
