//! Failed authentication: counted by reason, logged with the address of the client, and never with a secret. What proxies say of
//! that address counts from those that are trusted only.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use http::{Method, StatusCode};
use serde_json::json;
use socket2::{Domain, Socket, Type};
use tempfile::TempDir;

use crate::support::client::Client;
use crate::support::server::{Server, ServerBuilder};
use angarium_testbed::held::wait_until;

const MAX_WAIT: Duration = Duration::from_secs(20);
const SECRET: &str = "very-secret-words";
/// The header of a PROXY protocol of version 2, without the length and what follows.
const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x21\x11";
/// The server asks for the body.
const GOES_ON: &str = "HTTP/1.1 100";
const REQUEST: &[u8] = b"GET /v2/queues HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";

/// How often a reason was counted.
fn failures(client: &Client, reason: &str) -> f64 {
    let page = client.get("/metrics").unwrap().text();
    let series = format!("angarium_authentication_failures_total{{reason=\"{reason}\"}} ");
    page.lines().find_map(|line| line.strip_prefix(series.as_str())?.parse().ok()).expect("it is there")
}

/// A file of keys or tokens.
fn written(data: &TempDir, text: &str) -> PathBuf {
    let path = data.path().join("secrets");
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
    path
}

/// A file by which a member and an administrator are let in by their names.
pub(super) fn tokens(data: &TempDir) -> PathBuf {
    use sha2::{Digest, Sha256};
    let hash =
        |token: &str| Sha256::digest(token).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let entry =
        |token, role| format!("[[token]]\nsha256='{}'\nproject='{role}'\nrole='{role}'\n", hash(token));
    written(data, &format!("{}{}", entry("member", "member"), entry("admin", "admin")))
}

/// A server that lets in a member and an administrator by their names.
fn with_tokens(data: &TempDir, settings: &[&str]) -> Server {
    let builder = ServerBuilder::new(&data.path().join("data")).arg("--tokens").arg(tokens(data));
    settings.iter().fold(builder, |builder, setting| builder.arg(*setting)).start()
}

fn administrator(server: &Server) -> Client {
    server.client().with_header("authorization", "Bearer admin")
}

/// Whether a line of the log has all of this.
fn logs(server: &Server, parts: &[&str]) -> bool {
    server.last_lines().lines().any(|line| parts.iter().all(|part| line.contains(part)))
}

fn wait_for_log(server: &Server, parts: &[&str]) {
    wait_until(&format!("the log has {parts:?}"), || logs(server, parts));
}

#[test]
fn refused_tokens_are_counted_and_logged_without_them() {
    let data = tempfile::tempdir().unwrap();
    let server = with_tokens(&data, &[]);
    for (headers, status, reason) in [
        (&[][..], StatusCode::UNAUTHORIZED, "missing_token"),
        (&[("authorization", "Basic very-secret-words")], StatusCode::UNAUTHORIZED, "malformed_token"),
        (&[("x-auth-token", SECRET)], StatusCode::UNAUTHORIZED, "unknown_token"),
        (&[("x-auth-token", "member"), ("x-project-id", SECRET)], StatusCode::FORBIDDEN, "foreign_project"),
    ] {
        let path = format!("/v2/queues/{SECRET}/messages");
        for _ in 0..3 {
            assert_eq!(server.client().send(Method::GET, &path, headers, None).unwrap().status, status);
        }
        assert_eq!(failures(&administrator(&server), reason), 3.0, "{reason}");
        let reason = format!("reason=\"{reason}\"");
        let line = ["authentication failed", &reason, "address=\"127.0.0.1\"", "path=\"/v2/queues\""];
        wait_for_log(&server, &line);
        assert_eq!(server.last_lines().matches(&reason).count(), 1, "{}", server.last_lines());
    }
    assert!(!server.last_lines().contains(SECRET), "{}", server.last_lines());
    // Who is known and may not is no failure of authentication.
    let member = server.client().with_header("x-auth-token", "member");
    assert_eq!(member.get("/v2/pools").unwrap().status, StatusCode::FORBIDDEN);
    assert!(server.last_lines().matches("authentication failed").count() == 4, "{}", server.last_lines());
}

#[test]
fn refused_signatures_are_counted_and_logged() {
    let data = tempfile::tempdir().unwrap();
    let keys = written(&data, "[[key]]\nid='AKIDONE'\nsecret='very-secret-words'\nproject='111111111111'\n");
    let server = ServerBuilder::new(&data.path().join("data")).arg("--sqs-keys").arg(keys).start();
    let signed = |key: &str| {
        format!(
            "AWS4-HMAC-SHA256 Credential={key}/20200101/us-east-1/sqs/aws4_request, \
             SignedHeaders=host;x-amz-date;x-amz-target, Signature={}",
            "0".repeat(64)
        )
    };
    for (authorization, reason) in [
        (None, "missing_signature"),
        (Some("AWS4-HMAC-SHA256 very-secret-words".to_owned()), "malformed_signature"),
        (Some(signed("AKIDNOBODY")), "unknown_key"),
        (Some(signed("AKIDONE")), "expired_signature"),
    ] {
        let mut headers = vec![("x-amz-target", "AmazonSQS.ListQueues"), ("x-amz-date", "20200101T000000Z")];
        headers.extend(authorization.as_deref().map(|text| ("authorization", text)));
        let answer = server.client().send(Method::POST, "/", &headers, Some(&json!({}))).unwrap();
        assert!(answer.status.is_client_error(), "{reason}");
        assert_eq!(failures(&server.client(), reason), 1.0, "{reason}");
        wait_for_log(&server, &["authentication failed", &format!("reason=\"{reason}\""), "path=\"sqs\""]);
    }
    let lines = server.last_lines();
    assert!(!lines.contains(SECRET) && !lines.contains("AKID") && !lines.contains("000000"), "{lines}");
}

#[test]
fn page_of_another_site_is_counted() {
    let data = tempfile::tempdir().unwrap();
    let server = ServerBuilder::new(data.path()).start();
    let foreign = server.client().with_header("origin", "http://evil.example");
    assert_eq!(foreign.get("/v2/queues").unwrap().status, StatusCode::FORBIDDEN);
    assert_eq!(foreign.get("/?Action=ListQueues").unwrap().status, StatusCode::FORBIDDEN);
    // What a picture of a page would send.
    let changing = server.client().get("/?Action=CreateQueue&QueueName=q").unwrap();
    assert_eq!(changing.status, StatusCode::FORBIDDEN);
    assert_eq!(failures(&server.client(), "foreign_origin"), 3.0);
    wait_for_log(&server, &["authentication failed", "reason=\"foreign_origin\""]);
}

/// Sends bytes from an address of this machine, and reads the answer to its end.
fn answer_from(server: &Server, from: &str, pieces: &[&[u8]]) -> String {
    let address: SocketAddr = server.base().strip_prefix("http://").unwrap().parse().unwrap();
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&format!("{from}:0").parse::<SocketAddr>().unwrap().into()).unwrap();
    socket.connect(&address.into()).unwrap();
    let mut stream = TcpStream::from(socket);
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(MAX_WAIT)).unwrap();
    for piece in pieces {
        // A server that has closed takes no more.
        let _ = stream.write_all(piece);
        std::thread::sleep(Duration::from_millis(20));
    }
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

fn address(text: &str) -> String {
    format!("address=\"{text}\"")
}

#[test]
fn forwarded_address_counts_from_trusted_proxies_only() {
    let data = tempfile::tempdir().unwrap();
    let server = with_tokens(&data, &["--trusted-proxy", "127.0.0.1/32,10.0.0.0/8"]);
    let request = |last: &str| {
        format!(
            "GET /v2/queues HTTP/1.1\r\nhost: a\r\nconnection: close\r\nx-forwarded-for: 192.0.2.66, {last}\r\n\r\n"
        )
    };
    let said = answer_from(&server, "127.0.0.1", &[request("203.0.113.9, 10.0.0.7").as_bytes()]);
    assert!(said.starts_with("HTTP/1.1 401"), "{said}");
    wait_for_log(&server, &["authentication failed", &address("203.0.113.9")]);
    let said = answer_from(&server, "127.0.0.2", &[request("203.0.113.10").as_bytes()]);
    assert!(said.starts_with("HTTP/1.1 401"), "{said}");
    wait_for_log(&server, &["authentication failed", &address("127.0.0.2")]);
    let lines = server.last_lines();
    assert!(!lines.contains("192.0.2.66") && !lines.contains("203.0.113.10"), "{lines}");
}

/// A header that states that a connection is of this address, with fields.
fn proxy_header(last: u8, fields: &[u8]) -> Vec<u8> {
    let addresses = [203, 0, 113, last, 10, 0, 0, 1, 0x12, 0x67, 0x01, 0xbb];
    let length = u8::try_from(addresses.len() + fields.len()).unwrap();
    [SIGNATURE, &[0, length], &addresses, fields].concat()
}

#[test]
fn proxy_header_counts_from_trusted_proxies_only() {
    let data = tempfile::tempdir().unwrap();
    let server = with_tokens(&data, &["--trusted-proxy", "127.0.0.1", "--first-byte-timeout=2s"]);
    let whole = [proxy_header(21, &[4, 0, 1, 0]), REQUEST.to_vec()].concat();
    for (pieces, found) in [
        (vec![whole.as_slice()], "203.0.113.21"),
        (vec![REQUEST], "127.0.0.1"),
        (proxy_header(22, &[]).chunks(5).chain([REQUEST]).collect(), "203.0.113.22"),
    ] {
        let said = answer_from(&server, "127.0.0.1", &pieces);
        assert!(said.starts_with("HTTP/1.1 401"), "{found}: {said}");
        wait_for_log(&server, &["authentication failed", &address(found)]);
    }
    // From elsewhere it is no HTTP; and one that is wrong or not whole is the end.
    let said = answer_from(&server, "127.0.0.2", &[&proxy_header(23, &[]), REQUEST]);
    assert!(!said.starts_with("HTTP/1.1 401"), "{said}");
    let wrong = proxy_header(24, &[0x20, 0, 9]);
    let late = &SIGNATURE[..8];
    for pieces in [[&wrong[..], REQUEST], [late, b""]] {
        assert_eq!(answer_from(&server, "127.0.0.1", &pieces), "");
    }
    let lines = server.last_lines();
    assert!(!lines.contains("203.0.113.23") && !lines.contains("203.0.113.24"), "{lines}");
}

#[test]
fn clients_of_a_trusted_proxy_count_by_their_own_addresses() {
    let data = tempfile::tempdir().unwrap();
    let settings = ["--trusted-proxy", "127.0.0.1", "--max-connections-per-address=1"];
    let server = with_tokens(&data, &settings);
    let address: SocketAddr = server.base().strip_prefix("http://").unwrap().parse().unwrap();
    let _idle: Vec<_> = (0..2).map(|_| TcpStream::connect(address).unwrap()).collect();
    let mut held = TcpStream::connect(address).unwrap();
    held.write_all(&proxy_header(41, &[])).unwrap();
    held.write_all(b"GET /livez HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
    held.set_read_timeout(Some(MAX_WAIT)).unwrap();
    let mut begun = [0; 12];
    held.read_exact(&mut begun).unwrap();
    assert_eq!(&begun, b"HTTP/1.1 200");
    let said_to = |last: u8| {
        let whole = [&proxy_header(last, &[])[..], REQUEST].concat();
        answer_from(&server, "127.0.0.1", &[whole.as_slice()])
    };
    assert!(said_to(42).starts_with("HTTP/1.1 401"), "{}", said_to(42));
    let refused = said_to(41);
    assert!(refused.starts_with("HTTP/1.1 503") && refused.contains("nosniff"), "{refused}");
}

/// A request of a client at this address, as an HTTP proxy passes it on, whose body does not come.
fn held_request(server: &Server, sqs: bool, client: &str) -> (TcpStream, String) {
    let address: SocketAddr = server.base().strip_prefix("http://").unwrap().parse().unwrap();
    let mut held = TcpStream::connect(address).unwrap();
    held.set_read_timeout(Some(MAX_WAIT)).unwrap();
    let asked = match sqs {
        true => "POST / HTTP/1.1\r\nx-amz-target: AmazonSQS.CreateQueue\r\n",
        false => "PUT /v2/queues/q HTTP/1.1\r\n",
    };
    let head = "host: localhost\r\nexpect: 100-continue\r\ncontent-length: 2\r\n";
    write!(held, "{asked}{head}x-forwarded-for: {client}\r\n\r\n").unwrap();
    let (mut said, mut part) = (String::new(), [0; 4_096]);
    // An interim answer has no body.
    while !said.starts_with(GOES_ON) && !said.contains('}') {
        let read = held.read(&mut part).unwrap();
        assert!(read > 0, "it ended: {said}");
        said.push_str(&String::from_utf8_lossy(&part[..read]));
    }
    (held, said)
}

#[test]
fn client_behind_http_proxy_has_bounded_requests() {
    let data = tempfile::tempdir().unwrap();
    let builder = ServerBuilder::new(data.path()).arg("--max-requests-per-address=2");
    // Each with a server of its own: places are free again a moment after their connections have ended.
    for sqs in [false, true] {
        let server = builder.clone().arg("--trusted-proxy=127.0.0.1").start();
        let code = if sqs { "RequestThrottled" } else { "\"code\":\"overloaded\"" };
        let ask = |client: &str| held_request(&server, sqs, client);
        // What the client writes before the address of the proxy does not count.
        let held = [ask("203.0.113.1"), ask("192.0.2.66, 203.0.113.1")];
        assert!(held.iter().all(|(_, said)| said.starts_with(GOES_ON)), "{held:?}");
        let refused = ask("192.0.2.67, 203.0.113.1").1;
        assert!(refused.contains(code), "{refused}");
        let other = ask("203.0.113.2");
        assert!(other.1.starts_with(GOES_ON), "{other:?}");
        // Addresses that cannot be read count together.
        let unreadable = [ask("what"), ask("unknown")];
        assert!(unreadable.iter().all(|(_, said)| said.starts_with(GOES_ON)), "{unreadable:?}");
        let refused = ask("_hidden").1;
        assert!(refused.contains(code), "{refused}");
        drop((held, other, unreadable));
        wait_until("the places are free", || ask("203.0.113.1").1.starts_with(GOES_ON));
    }
    // Of a client itself the connections are bounded.
    let server = builder.start();
    let held: Vec<_> = (0..4).map(|_| held_request(&server, false, "203.0.113.1")).collect();
    assert!(held.iter().all(|(_, said)| said.starts_with(GOES_ON)), "{held:?}");
}

/// Whether a start with a file of this mode warns of it. A pool that is not reached ends the start after that.
fn warns(setting: &str, text: &str, mode: u32) -> bool {
    let data = tempfile::tempdir().unwrap();
    let file: &Path = &written(&data, text);
    std::fs::set_permissions(file, PermissionsExt::from_mode(mode)).unwrap();
    let flag = format!("--{}", setting.replace('_', "-"));
    let pool = if setting == "config" { [].as_slice() } else { &["--pool=redis://127.0.0.1:1"] };
    let mut program = Command::new(env!("CARGO_BIN_EXE_angarium"));
    program.args(["serve", "--listen=127.0.0.1:0", "--data"]).arg(data.path().join("data"));
    let mut started = program.arg(flag).arg(file).args(pool).stderr(Stdio::piped()).spawn().unwrap();
    wait_until("it ends for its pool", || started.try_wait().unwrap().is_some());
    let ended = started.wait_with_output().unwrap();
    let log = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(!ended.status.success(), "{log}");
    assert!(["@127.0.0.1:1 ", "//127.0.0.1:1 "].iter().any(|pool| log.contains(pool)), "{log}");
    let setting = format!("setting=\"{setting}\"");
    log.lines().any(|line| {
        ["secret file open to others", &setting, "mode=\"0644\""].iter().all(|part| line.contains(part))
    })
}

#[test]
fn secret_file_open_to_others_is_warned_of() {
    let (with_password, without) = ("pool = 'redis://u:s3cret@127.0.0.1:1'", "pool = 'redis://127.0.0.1:1'");
    for (setting, text) in [("tokens", ""), ("sqs_keys", ""), ("config", with_password)] {
        assert!(warns(setting, text, 0o644), "{setting}");
        assert!(!warns(setting, text, 0o600), "{setting}");
    }
    assert!(!warns("config", without, 0o644), "there is no secret in it");
}
