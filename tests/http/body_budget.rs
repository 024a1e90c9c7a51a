//! Bodies that clients send and do not finish, or send all at once: what they cost in memory, and who is refused for it.
//! Sockets by hand, since a client of HTTP would finish what it begins.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use angarium_clock::Clock;
use serde_json::json;
use tempfile::TempDir;

use crate::support::server::{Server, ServerBuilder};
use angarium_testbed::held::wait_until;

const MIB: usize = 1 << 20;
/// The longest body of an SQS request.
const LONGEST: usize = 6 * MIB + MIB / 4;
/// The least budget that can be set, and what an account may hold of it.
const SMALL_BUDGET: &str = "--max-body-bytes=33554432";
const SHARE: usize = 8 * MIB;
const MAX_WAIT: Duration = Duration::from_secs(20);

fn start(settings: &[&str]) -> (Server, TempDir) {
    let data = tempfile::tempdir().unwrap();
    let builder = ServerBuilder::new(data.path());
    (settings.iter().fold(builder, |builder, setting| builder.arg(*setting)).start(), data)
}

/// The header of a request of SQS by `account`, whose body has so many bytes.
fn head(server: &Server, operation: &str, account: &str, length: usize) -> String {
    let host = server.base().trim_start_matches("http://");
    let credential = format!("{account}/20260101/us-east-1/sqs/aws4_request");
    format!(
        "POST / HTTP/1.1\r\nhost: {host}\r\nx-amz-target: AmazonSQS.{operation}\r\n\
         content-type: application/x-amz-json-1.0\r\nx-amz-date: 20260101T000000Z\r\n\
         authorization: AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders=host;x-amz-date;x-amz-target, \
         Signature={}\r\ncontent-length: {length}\r\n",
        "0".repeat(64)
    )
}

/// A connection that has sent `head` and so many bytes of blanks, as far as the server took them.
fn sending(server: &Server, head: &str, bytes: usize) -> TcpStream {
    let mut socket = TcpStream::connect(server.base().trim_start_matches("http://")).unwrap();
    socket.set_write_timeout(Some(Duration::from_secs(5))).unwrap();
    socket.set_read_timeout(Some(MAX_WAIT)).unwrap();
    // Fails when the server has ended the request by then.
    let _ = write!(socket, "{head}\r\n").and_then(|()| socket.write_all(&vec![b' '; bytes]));
    socket
}

/// The whole answer to a request; empty when there is none.
fn answer(socket: &TcpStream) -> String {
    let mut answer = String::new();
    let mut length = 0;
    let mut reader = BufReader::new(socket);
    while let Ok(1..) = reader.read_line(&mut answer) {
        let line = answer.lines().last().unwrap_or_default().to_ascii_lowercase();
        if let Some(told) = line.strip_prefix("content-length: ") {
            length = told.parse().unwrap();
        }
        if line.is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    let _ = reader.read_exact(&mut body);
    answer + &String::from_utf8_lossy(&body)
}

/// Whether an answer came already, and its status.
fn status_so_far(socket: &TcpStream) -> Option<u16> {
    socket.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    let mut line = [0; 12];
    let read = (&*socket).read(&mut line).ok()?;
    std::str::from_utf8(line.get(..read)?).ok()?.strip_prefix("HTTP/1.1 ")?.parse().ok()
}

/// The answer to a whole request of SQS.
fn call(server: &Server, operation: &str, account: &str, body: &str) -> String {
    let head = head(server, operation, account, body.len());
    let mut socket = sending(server, &head, 0);
    socket.write_all(body.as_bytes()).unwrap();
    answer(&socket)
}

/// The value of a series of a budget on the page of metrics.
fn figure(server: &Server, name: &str) -> usize {
    let page = server.client().get("/metrics").unwrap().text();
    let series = format!("angarium_budget_{name}{{budget=\"bodies\"}} ");
    let value = page.lines().find_map(|line| line.strip_prefix(&series));
    value.unwrap_or_else(|| panic!("{page}")).parse().unwrap()
}

/// Waits until nothing of a body has arrived for longer than a body may take without being slow.
fn until_slow(server: &Server) {
    wait_until("the bodies do not end", || {
        let before = figure(server, "bytes");
        thread::sleep(Duration::from_millis(150));
        figure(server, "bytes") == before
    });
}

fn url(server: &Server, account: &str) -> String {
    format!("{}/{account}/q", server.base())
}

#[test]
fn withheld_bodies_refuse_no_other_tenant() {
    let (server, _data) = start(&[]);
    for account in ["111111111111", "222222222222"] {
        let made = call(&server, "CreateQueue", account, r#"{"QueueName": "q"}"#);
        assert!(made.starts_with("HTTP/1.1 200"), "{made}");
    }
    let before = server.memory_at_rest();
    let withheld = head(&server, "SendMessage", "111111111111", LONGEST);
    let withheld: Vec<_> = (0..41).map(|_| sending(&server, &withheld, LONGEST - 1)).collect();
    let grown = server.memory().saturating_sub(before);
    assert!(grown < 220 * MIB, "256 MiB were sent, of which {} MiB are kept", grown / MIB);

    let message = json!({"QueueUrl": url(&server, "222222222222"), "MessageBody": "x".repeat(MIB - 100)});
    for _ in 0..5 {
        let sent = call(&server, "SendMessage", "222222222222", &message.to_string());
        assert!(sent.starts_with("HTTP/1.1 200"), "{}", sent.get(..400).unwrap_or(&sent));
    }
    let rest = server.client().with_header("X-Project-Id", "other");
    let posted = rest.post("/v2/queues/q/messages", &json!({"messages": [{"body": "y".repeat(200_000)}]}));
    assert_eq!(posted.unwrap().status, 201);
    let late = withheld.iter().filter(|socket| status_so_far(socket) == Some(408)).count();
    // While all of them still come none is slow, and a new one is refused: how many of each there are is a matter of speed.
    assert!(late > 0, "none of 41 was told that it is late");
}

#[test]
fn account_holds_a_quarter_over_all_its_regions() {
    let (server, _data) = start(&[SMALL_BUDGET]);
    let in_region = |region: &str| {
        let head = head(&server, "SendMessage", "111111111111", LONGEST).replace("us-east-1", region);
        // Long enough for the one before to be slow.
        thread::sleep(Duration::from_millis(300));
        sending(&server, &head, 5 * MIB)
    };
    let first = in_region("eu-west-1");
    let other = sending(&server, &head(&server, "SendMessage", "222222222222", LONGEST), 5 * MIB);
    let second = in_region("us-west-2");
    wait_until("the first body makes room for the second", || status_so_far(&first) == Some(408));
    assert_eq!((status_so_far(&second), status_so_far(&other)), (None, None));
    assert_eq!((figure(&server, "ended_total"), figure(&server, "limit_bytes")), (1, 4 * SHARE));
}

#[test]
fn padding_of_small_operations_is_refused() {
    let (server, _data) = start(&[]);
    call(&server, "CreateQueue", "111111111111", r#"{"QueueName": "q"}"#);
    let padded = |operation: &str, bytes: usize| {
        let body =
            json!({"QueueUrl": url(&server, "111111111111"), "WaitTimeSeconds": 0, "Pad": "x".repeat(bytes)});
        call(&server, operation, "111111111111", &body.to_string())
    };
    for (operation, fits, beyond) in [("ReceiveMessage", 16_000, 17_000), ("PurgeQueue", 250_000, 270_000)] {
        assert!(padded(operation, fits).starts_with("HTTP/1.1 200"), "{operation}");
        let refused = padded(operation, beyond);
        assert!(refused.starts_with("HTTP/1.1 400") && refused.contains("too large"), "{refused}");
    }
}

#[test]
fn rest_bodies_of_a_project_count_likewise() {
    let (server, _data) = start(&[SMALL_BUDGET]);
    let head = |project: &str| {
        format!(
            "POST /v2/queues/q/messages HTTP/1.1\r\nhost: 127.0.0.1\r\nx-project-id: {project}\r\n\
             content-length: {}\r\n",
            4 * MIB
        )
    };
    let withheld: Vec<_> = (0..10)
        .map(|_| {
            // The ones before are slow then, whenever the server has read them.
            until_slow(&server);
            sending(&server, &head("a"), 4 * MIB - 1)
        })
        .collect();
    let posted = server.client().with_header("X-Project-Id", "b");
    let bodies = vec![json!("y".repeat(MIB / 4 - 2)); 12];
    assert_eq!(posted.post_messages("q", &bodies).unwrap().status, 201);
    let mut ended = vec![None; withheld.len()];
    let evicted = ended.len() - SHARE / (4 * MIB);
    wait_until("the first ones are told that they are late", || {
        for (status, socket) in ended.iter_mut().zip(&withheld).filter(|(status, _)| status.is_none()) {
            *status = status_so_far(socket);
        }
        ended[..evicted].iter().all(|status| *status == Some(408))
    });
    assert!(figure(&server, "ended_total") >= evicted);
    assert!((MIB..=4 * SHARE).contains(&figure(&server, "bytes")), "{}", figure(&server, "bytes"));
    assert!(ended[evicted..].contains(&None), "{ended:?}");
}

#[test]
fn half_sent_bodies_stay_within_the_budget() {
    let (server, _data) = start(&[SMALL_BUDGET]);
    let before = server.memory_at_rest();
    // Each of a project of its own, so that they share all of the budget.
    let sockets: Vec<_> = (0..200)
        .map(|number| {
            let account = format!("{:012}", 500_000_000_000_u64 + number);
            sending(&server, &head(&server, "SendMessage", &account, LONGEST), MIB)
        })
        .collect();
    let grown = server.memory().saturating_sub(before);
    assert!(grown < 160 * MIB, "200 MiB were sent, of which {} MiB are kept", grown / MIB);
    let next = call(&server, "CreateQueue", "111111111111", r#"{"QueueName": "q"}"#);
    assert!(next.starts_with("HTTP/1.1 200"), "{next}");
    drop(sockets);
}

#[test]
fn headers_are_judged_before_the_body_is_read() {
    let keys = tempfile::tempdir().unwrap();
    let file = keys.path().join("keys");
    let known = "[[key]]\nid = 'AKIDEXAMPLE'\nsecret = 'a secret'\nproject = '111111111111'\n";
    std::fs::write(&file, known).unwrap();
    let (server, _data) = start(&["--sqs-keys", file.to_str().unwrap()]);
    for (key, code) in [("AKIDUNKNOWN", "UnrecognizedClient"), ("AKIDEXAMPLE", "InvalidSignature")] {
        let asks = format!("{}expect: 100-continue\r\n", head(&server, "SendMessage", key, LONGEST));
        let since = Instant::now();
        let answer = answer(&sending(&server, &asks, 0));
        assert!(answer.starts_with("HTTP/1.1 403") && answer.contains(code), "{answer}");
        assert!(since.elapsed() < Duration::from_secs(20), "the body was waited for");
    }
    // Who sends it nevertheless makes no client keep it.
    let before = server.memory_at_rest();
    let unknown = head(&server, "SendMessage", "AKIDUNKNOWN", LONGEST);
    let sockets: Vec<_> = (0..60).map(|_| sending(&server, &unknown, LONGEST - 1)).collect();
    let grown = server.memory().saturating_sub(before);
    assert!(grown < 150 * MIB, "375 MiB were sent, of which {} MiB are kept", grown / MIB);
    drop(sockets);
}

#[test]
fn unproven_requests_of_one_address_take_a_quarter_for_a_moment() {
    let keys = tempfile::tempdir().unwrap();
    let file = keys.path().join("keys");
    std::fs::write(&file, "[[key]]\nid='AKIDEXAMPLE'\nsecret='a secret'\nproject='111111111111'\n").unwrap();
    let (server, _data) = start(&["--sqs-keys", file.to_str().unwrap(), "--max-requests=8"]);
    let now = Clock::system().wall().calendar().replace(['-', ':'], "");
    let (day, _) = now.split_at(8);
    let head = head(&server, "SendMessage", "AKIDEXAMPLE", 1_000)
        .replace("20260101T000000Z", &now)
        .replace("/20260101/", &format!("/{day}/"));
    let asks = format!("{head}expect: 100-continue\r\n");
    let since = Instant::now();
    // The key is known, the date is good, and nothing of the body ever arrives.
    let sockets: Vec<_> = (0..4).map(|_| sending(&server, &asks, 0)).collect();
    let (let_in, refused): (Vec<_>, Vec<_>) =
        sockets.iter().map(|socket| (socket, answer(socket))).partition(|(_, said)| said.contains(" 100 "));
    assert!(
        refused.len() == 2 && refused.iter().all(|(_, said)| said.contains("RequestThrottled")),
        "{refused:?}"
    );
    for (socket, _) in let_in {
        let late = answer(socket);
        assert!(late.starts_with("HTTP/1.1 408"), "{late}");
    }
    assert!(since.elapsed() < Duration::from_secs(25), "as long as a client that is known");
}

#[test]
fn query_is_shorter_than_a_header() {
    let (server, _data) = start(&[]);
    let long = "x".repeat(17_000);
    let listed = server.client().get(&format!("/v2/queues?marker={long}")).unwrap();
    assert_eq!(listed.status, 400);
    assert!(listed.json()["description"].as_str().unwrap().contains("16384"), "{:?}", listed.json());
    let sent = server.client().get(&format!("/?Action=ListQueues&QueueNamePrefix={long}")).unwrap();
    assert_eq!(sent.status, 400);
    assert!(String::from_utf8_lossy(&sent.body).contains("16384"));
}

#[test]
fn waiting_receive_holds_no_body() {
    let (server, _data) = start(&[]);
    let account = "111111111111";
    let made = call(&server, "CreateQueue", account, r#"{"QueueName": "q"}"#);
    assert!(made.starts_with("HTTP/1.1 200"), "{made}");
    let asked = json!({"QueueUrl": url(&server, account), "WaitTimeSeconds": 20}).to_string();
    let body = format!("{asked:15000}");
    let head = head(&server, "ReceiveMessage", account, body.len());
    let mut waiting = sending(&server, &head, 0);
    waiting.write_all(body.as_bytes()).unwrap();
    let is_waiting = || {
        let page = server.client().get("/metrics").unwrap().text();
        page.lines().any(|line| line == "angarium_waiting_claims 1")
    };
    wait_until("it waits", is_waiting);
    assert_eq!(figure(&server, "bytes"), 0, "its body is kept");
    let message = json!({"QueueUrl": url(&server, account), "MessageBody": "m"});
    assert!(call(&server, "SendMessage", account, &message.to_string()).starts_with("HTTP/1.1 200"));
    assert!(answer(&waiting).contains("ReceiptHandle"));
}

/// A client without a token, whose signature may be one of the service, is held to the same bounds.
#[test]
fn forged_confirmations_of_one_address_take_a_quarter() {
    let data = tempfile::tempdir().unwrap();
    let tokens = data.path().join("tokens");
    let admin = Command::new(env!("CARGO_BIN_EXE_angarium"))
        .args(["token", "new", "--project", "operators", "--role", "admin", "--tokens"])
        .arg(&tokens)
        .output()
        .unwrap();
    let admin = String::from_utf8(admin.stdout).unwrap();
    let (server, _data) = start(&["--tokens", tokens.to_str().unwrap(), "--max-requests=8"]);
    let host = server.base().trim_start_matches("http://");
    let forged = |length: usize| {
        format!(
            "PUT /v2/queues/q/subscriptions/00000000-0000-4000-8000-000000000000/confirm?wait=9 HTTP/1.1\r\n\
             host: {host}\r\nurl-signature: {}\r\nurl-expires: 2099-01-01T00:00:00\r\nurl-methods: PUT\r\n\
             url-paths: /\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n",
            "0".repeat(64)
        )
    };
    let asks = format!("{}expect: 100-continue\r\n", forged(100));
    let since = Instant::now();
    let sockets: Vec<_> = (0..4).map(|_| sending(&server, &asks, 0)).collect();
    let (let_in, refused): (Vec<_>, Vec<_>) =
        sockets.iter().map(|socket| (socket, answer(socket))).partition(|(_, said)| said.contains(" 100 "));
    assert!(
        refused.len() == 2 && refused.iter().all(|(_, said)| said.starts_with("HTTP/1.1 503")),
        "{refused:?}"
    );
    for (socket, _) in let_in {
        let late = answer(socket);
        assert!(late.starts_with("HTTP/1.1 408"), "{late}");
    }
    assert!(since.elapsed() < Duration::from_secs(25), "as long as a client that is known");
    let body = r#"{"confirmed": true}"#;
    let mut socket = sending(&server, &forged(body.len()), 0);
    socket.write_all(body.as_bytes()).unwrap();
    let said = answer(&socket);
    assert!(said.starts_with("HTTP/1.1 404"), "{said}");
    let admin = server.client().with_header("Authorization", &format!("Bearer {}", admin.trim()));
    let page = admin.get("/metrics").unwrap().text();
    let counted = "angarium_authentication_failures_total{reason=\"signature_mismatch\"} 1";
    assert!(page.lines().any(|line| line == counted), "{page}");
}
