//! A proxy in front that identifies callers, with the settings of `docs/authentication.md`.

use std::ffi::OsString;
use std::net::{Ipv4Addr, TcpStream};

use http::{Method, StatusCode};
use serde_json::json;

use crate::support::client::Client;
use crate::support::server::ServerBuilder;
use angarium_testbed::held::{LastWill, ShellServer, free_port, wait_until};
use angarium_testbed::settings::test_tools;

/// The settings of the proxy that the page shows.
fn settings() -> String {
    let page = include_str!("../../docs/authentication.md");
    let block = page.split("```haproxy\n").nth(1).expect("the page shows a proxy");
    block.split("```").next().unwrap().to_owned()
}

#[test]
fn proxy_of_the_page_names_the_project_of_a_request() {
    let dir = tempfile::tempdir().unwrap();
    let server =
        ServerBuilder::new(&dir.path().join("data")).arg("--allowed-host=queues.example.com").start();
    let (port, projects) = (free_port(), dir.path().join("projects.map"));
    std::fs::write(&projects, "token-of-acme acme\ntoken-of-other other\n").unwrap();
    let file = dir.path().join("haproxy.cfg");
    std::fs::write(&file, settings()).unwrap();
    let mut command: Vec<OsString> = vec!["env".into(), format!("PROXY_LISTEN=127.0.0.1:{port}").into()];
    command.push(format!("PROXY_PROJECTS={}", projects.display()).into());
    command.push(format!("ANGARIUM_ADDRESS={}", server.base().trim_start_matches("http://")).into());
    command.extend([test_tools().join("bin/haproxy").into(), "-db".into(), "-f".into(), file.into()]);
    let _proxy = ShellServer::start(dir.path(), &command, LastWill::KeepData);
    wait_until("the proxy listens", || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok());
    let client = |token: &str| {
        let client = Client::new(&format!("http://127.0.0.1:{port}"));
        client.with_header("Authorization", &format!("Bearer {token}"))
    };
    let (acme, other) = (client("token-of-acme"), client("token-of-other"));
    assert_eq!(acme.create_queue("q").unwrap().status, StatusCode::CREATED);
    assert_eq!(acme.post_messages("q", &[json!(1)]).unwrap().status, StatusCode::CREATED);
    // Headers of identity that a client sends do not count.
    let forged = [("X-Project-Id", "acme"), ("X-Roles", "admin"), ("X-Auth-Token", "any")];
    let theirs = other.send(Method::GET, "/v2/queues", &forged, None).unwrap();
    assert_eq!(theirs.json()["queues"], json!([]));
    let pools = other.send(Method::GET, "/v2/pools", &forged, None).unwrap();
    assert_eq!(pools.status, StatusCode::FORBIDDEN, "{}", pools.text());
    assert_eq!(client("unknown").get("/v2/queues").unwrap().status, StatusCode::UNAUTHORIZED);
    let named = acme.send(Method::GET, "/v2/queues", &[("Host", "queues.example.com")], None).unwrap();
    assert_eq!(named.json()["queues"][0]["name"], "q");
}
