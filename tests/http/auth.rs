//! Who may do what. The rules that hold for every route are tried on every operation of the OpenAPI document, so that a
//! new route is tried without being named here.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use http::{Method, StatusCode};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::service;
use crate::support::client::{Answer, Client};
use crate::support::server::{Server, ServerBuilder};
use angarium_testbed::held::wait_until;

const FOREIGN: &str = "somebody-else";
const MINE: &str = "mine";

/// A service with authentication, and a token of each kind.
struct Guarded {
    server: Server,
    member: String,
    reader: String,
    admin: String,
    data: TempDir,
}

fn guarded() -> Guarded {
    let data = tempfile::tempdir().unwrap();
    let tokens = data.path().join("tokens.toml");
    let member = new_token(&tokens, MINE, "member");
    let reader = new_token(&tokens, MINE, "reader");
    let admin = new_token(&tokens, "operators", "admin");
    let server = ServerBuilder::new(&data.path().join("data")).arg("--tokens").arg(&tokens).start();
    Guarded { server, member, reader, admin, data }
}

/// Makes a token with the program, as an operator does.
fn new_token(file: &Path, project: &str, role: &str) -> String {
    let made = Command::new(env!("CARGO_BIN_EXE_angarium"))
        .args(["token", "new", "--project", project, "--role", role, "--tokens"])
        .arg(file)
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    String::from_utf8(made.stdout).unwrap().trim().to_owned()
}

impl Guarded {
    fn client(&self, token: &str) -> Client {
        self.server.client().with_header("Authorization", &format!("Bearer {token}"))
    }
}

/// An operation of the document, with a path that can be asked for.
struct Operation {
    method: Method,
    path: String,
    /// None when any client may; else whether the role admin is needed.
    needs_admin: Option<bool>,
}

fn operations() -> Vec<Operation> {
    let document: Value = serde_json::from_str(include_str!("../../openapi/angarium.json")).unwrap();
    let mut operations = Vec::new();
    // The operations of SQS are no routes, and have authentication of their own.
    let routes = document["paths"].as_object().unwrap().iter().filter(|(path, _)| !path.contains('#'));
    for (path, item) in routes {
        for (method, operation) in item.as_object().unwrap() {
            let Ok(method) = method.to_uppercase().parse::<Method>() else { continue };
            if operation["responses"].is_null() {
                continue;
            }
            let needs_admin = match operation["security"].as_array() {
                Some(alternatives) if alternatives.iter().all(|schemes| *schemes == json!({})) => None,
                Some(alternatives) => Some(alternatives.iter().all(|s| s.to_string().contains("admin"))),
                None => Some(false),
            };
            operations.push(Operation { method, path: filled(path), needs_admin });
        }
    }
    assert!(operations.iter().any(|operation| operation.needs_admin.is_some()));
    operations
}

/// A path whose parameters have values.
fn filled(path: &str) -> String {
    let parts = path.split('/').map(|part| if part.starts_with('{') { "x1" } else { part });
    parts.collect::<Vec<_>>().join("/")
}

/// Sends each operation that `wanted` picks, and tells of those that are not answered as `expected` states.
#[track_caller]
fn assert_each(
    client: &Client,
    headers: &[(&str, &str)],
    wanted: impl Fn(&Operation) -> bool,
    expected: (StatusCode, &str),
) {
    let mut wrong = Vec::new();
    for operation in operations().iter().filter(|operation| wanted(operation)) {
        let answer = client.send(operation.method.clone(), &operation.path, headers, None).unwrap();
        // A HEAD has no body to look into.
        if answer.status != expected.0 || (operation.method != Method::HEAD && code(&answer) != expected.1) {
            wrong.push(format!(
                "{} {}: {} {}",
                operation.method,
                operation.path,
                answer.status,
                answer.text()
            ));
        }
    }
    assert!(wrong.is_empty(), "not {expected:?}: {wrong:#?}");
}

fn code(answer: &Answer) -> String {
    let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    body["code"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn every_route_refuses_unknown_callers() {
    let guarded = guarded();
    let closed = |operation: &Operation| operation.needs_admin.is_some();
    let unknown = (StatusCode::UNAUTHORIZED, "unauthenticated");
    let nobody = guarded.server.client();
    assert_each(&nobody, &[], closed, unknown);
    assert_each(&nobody, &[("X-Roles", "admin"), ("X-Project-Id", MINE)], closed, unknown);
    let stranger = format!("angarium_{}", "0".repeat(64));
    assert_each(&guarded.client(&stranger), &[], closed, unknown);
    assert_each(&guarded.client(""), &[], closed, unknown);
}

#[test]
fn every_route_refuses_a_foreign_project() {
    let guarded = guarded();
    let closed = |operation: &Operation| operation.needs_admin.is_some();
    let foreign = [("X-Project-Id", FOREIGN)];
    assert_each(
        &guarded.client(&guarded.member),
        &foreign,
        closed,
        (StatusCode::FORBIDDEN, "foreign_project"),
    );
}

#[test]
fn every_route_of_administrators_refuses_members() {
    let refused = (StatusCode::FORBIDDEN, "not_authorized");
    let admins = |operation: &Operation| operation.needs_admin == Some(true);
    let guarded = guarded();
    // What a caller states of itself counts for nothing while it is known by a token.
    assert_each(&guarded.client(&guarded.member), &[("X-Roles", "admin")], admins, refused);
    let open = service();
    assert_each(&open.client, &[("X-Roles", "member")], admins, refused);
}

#[test]
fn changing_routes_refuse_readers() {
    let guarded = guarded();
    let reader = guarded.client(&guarded.reader);
    let refused = (StatusCode::FORBIDDEN, "not_authorized");
    let closed = |operation: &Operation| operation.needs_admin.is_some();
    let is_read =
        |operation: &Operation| operation.method == Method::GET && operation.needs_admin == Some(false);
    assert_each(&reader, &[], |operation| closed(operation) && !is_read(operation), refused);
    for operation in operations().iter().filter(|operation| is_read(operation)) {
        let answer = reader.send(operation.method.clone(), &operation.path, &[], None).unwrap();
        assert_ne!(answer.status, StatusCode::FORBIDDEN, "{}: {}", operation.path, answer.text());
    }
    // Without authentication the role is that of the header.
    let open = service();
    let roles = [("X-Roles", "reader")];
    assert_each(&open.client, &roles, |operation| closed(operation) && !is_read(operation), refused);
    assert_eq!(open.client.send(Method::GET, "/v2/queues", &roles, None).unwrap().status, StatusCode::OK);
}

#[test]
fn no_route_refuses_permitted_callers() {
    let guarded = guarded();
    for (token, may_all) in [(&guarded.member, false), (&guarded.admin, true)] {
        let client = guarded.client(token);
        for operation in operations() {
            if operation.needs_admin == Some(true) && !may_all {
                continue;
            }
            let answer = client.send(operation.method.clone(), &operation.path, &[], None).unwrap();
            let code = code(&answer);
            let refused = ["unauthenticated", "not_authorized", "foreign_project"].contains(&code.as_str());
            assert!(!refused, "{} {}: {}", operation.method, operation.path, answer.text());
        }
    }
}

#[test]
fn unknown_path_reveals_nothing_to_unknown_caller() {
    let guarded = guarded();
    let answer = guarded.server.client().get("/v2/nothing/here").unwrap();
    assert_eq!((answer.status, code(&answer).as_str()), (StatusCode::UNAUTHORIZED, "unauthenticated"));
    assert_eq!(
        guarded.client(&guarded.member).get("/v2/nothing/here").unwrap().status,
        StatusCode::NOT_FOUND
    );
}

#[test]
fn health_needs_no_token() {
    let guarded = guarded();
    for path in ["/livez", "/readyz", "/v2/ping", "/"] {
        let status = guarded.server.client().get(path).unwrap().status;
        assert!(status.as_u16() < 400, "{path}: {status}");
    }
}

#[test]
fn unknown_caller_learns_how_to_authenticate() {
    let guarded = guarded();
    let answer = guarded.server.client().stats("q").unwrap();
    assert_eq!(answer.status, StatusCode::UNAUTHORIZED);
    assert_eq!(answer.headers["www-authenticate"], "Bearer realm=\"angarium\"");
    let body = answer.json();
    assert_eq!(body["title"], "Unauthorized");
    assert_eq!(body["may_retry"], false);
}

#[test]
fn a_token_is_of_one_project() {
    let guarded = guarded();
    let mine = guarded.client(&guarded.member);
    assert_eq!(mine.create_queue("q").unwrap().status, StatusCode::CREATED);
    let named = mine.clone().with_header("X-Project-Id", MINE);
    assert_eq!(named.create_queue("q").unwrap().status, StatusCode::NO_CONTENT);
    let openstack = guarded.server.client().with_header("X-Auth-Token", &guarded.member);
    assert_eq!(openstack.create_queue("q").unwrap().status, StatusCode::NO_CONTENT);
}

#[test]
fn an_administrator_may_name_any_project() {
    let guarded = guarded();
    assert_eq!(guarded.client(&guarded.member).create_queue("q").unwrap().status, StatusCode::CREATED);
    let admin = guarded.client(&guarded.admin);
    let elsewhere = admin.clone().with_header("X-Project-Id", MINE);
    assert_eq!(elsewhere.create_queue("q").unwrap().status, StatusCode::NO_CONTENT);
    assert_eq!(admin.create_queue("q").unwrap().status, StatusCode::CREATED, "its own project is another");
}

/// Sends until the answer is `expected`.
#[track_caller]
fn assert_becomes(client: &Client, expected: StatusCode) {
    let given_up = Instant::now() + Duration::from_secs(20);
    loop {
        let status = client.stats("q").unwrap().status;
        if status == expected {
            return;
        }
        assert!(Instant::now() < given_up, "still {status}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn tokens_come_and_go_with_their_file() {
    let guarded = guarded();
    let file = guarded.data.path().join("tokens.toml");
    let before = std::fs::read_to_string(&file).unwrap();
    let later = guarded.client(&new_token(&file, MINE, "member"));
    assert_becomes(&later, StatusCode::OK);
    std::fs::write(&file, "this is no list of tokens").unwrap();
    // Nothing to wait for: that a wrong file changes nothing is seen by what follows it.
    std::fs::write(&file, before).unwrap();
    assert_becomes(&later, StatusCode::UNAUTHORIZED);
    assert_becomes(&guarded.client(&guarded.member), StatusCode::OK);
}

#[test]
fn refused_token_file_is_shown_until_it_is_mended() {
    let guarded = guarded();
    let file = guarded.data.path().join("tokens.toml");
    let admin = guarded.client(&guarded.admin);
    let shown = || {
        let page = admin.get("/metrics").unwrap().text();
        let metric = "angarium_settings_file_refused{setting=\"--tokens\"}";
        let value =
            page.lines().find_map(|line| line.strip_prefix(metric)).map(|value| value.trim().to_owned());
        (value, admin.get("/readyz").unwrap().json()["warnings"].to_string().contains("--tokens"))
    };
    wait_until("the file that was read is shown", || shown() == (Some("0".to_owned()), false));
    let before = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, "this is no list of tokens").unwrap();
    wait_until("the refused file is shown", || shown() == (Some("1".to_owned()), true));
    std::fs::write(&file, before).unwrap();
    wait_until("the mended file is shown", || shown() == (Some("0".to_owned()), false));
}

#[test]
fn sighup_reads_the_tokens_again() {
    let guarded = guarded();
    let file = guarded.data.path().join("tokens.toml");
    let later = guarded.client(&new_token(&file, MINE, "member"));
    guarded.server.hang_up();
    assert_becomes(&later, StatusCode::OK);
}

#[test]
fn sighup_does_not_end_a_service_without_files() {
    let service = service();
    service.server.hang_up();
    assert_eq!(service.client.get("/livez").unwrap().status, StatusCode::OK);
}

#[test]
fn foreign_page_is_refused_without_authentication() {
    let service = service();
    let host = service.server.base().to_owned();
    for (origin, status) in [
        ("http://evil.example", StatusCode::FORBIDDEN),
        ("null", StatusCode::FORBIDDEN),
        (host.as_str(), StatusCode::CREATED),
    ] {
        let headers = [("Origin", origin)];
        let answer = service.client.send(Method::PUT, "/v2/queues/q", &headers, None).unwrap();
        assert_eq!(answer.status, status, "{origin}: {}", answer.text());
    }
}

#[test]
fn unauthenticated_service_listens_only_locally() {
    let data = tempfile::tempdir().unwrap();
    let refused = Command::new(env!("CARGO_BIN_EXE_angarium"))
        .args(["serve", "--listen", "0.0.0.0:0", "--data"])
        .arg(data.path().join("data"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success());
    assert!(said.contains("--tokens") && said.contains("--insecure-no-auth"), "{said}");
    assert!(!data.path().join("data").exists(), "it touches nothing");
}

#[test]
fn a_wrong_file_of_tokens_is_named_at_the_start() {
    let data = tempfile::tempdir().unwrap();
    let file = data.path().join("tokens.toml");
    std::fs::write(&file, "[[token]]\nsha256 = 'short'\nproject = 'p'\nrole = 'admin'\n").unwrap();
    let refused = Command::new(env!("CARGO_BIN_EXE_angarium"))
        .args(["serve", "--listen", "127.0.0.1:0", "--tokens"])
        .arg(&file)
        .arg("--data")
        .arg(data.path().join("data"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success());
    assert!(said.contains("tokens.toml") && said.contains("64 hexadecimal digits"), "{said}");
}

#[test]
fn caller_without_token_cannot_use_up_project_rate() {
    let data = tempfile::tempdir().unwrap();
    let tokens = data.path().join("tokens.toml");
    let member = new_token(&tokens, MINE, "member");
    let server = ServerBuilder::new(&data.path().join("data"))
        .arg("--project-requests-per-second=1")
        .arg("--tokens")
        .arg(&tokens)
        .start();
    let stranger = server.client().with_header("X-Project-Id", MINE);
    for _ in 0..20 {
        assert_eq!(stranger.get("/v2/ping").unwrap().status, StatusCode::NO_CONTENT);
    }
    let known = server.client().with_header("Authorization", &format!("Bearer {member}"));
    assert_eq!(known.stats("q").unwrap().status, StatusCode::OK);
}
