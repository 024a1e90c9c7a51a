//! What a page of another site can make a browser do to a service without authentication: nothing. Requests as bytes,
//! and a real browser on a page of an attacker.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::json;

use super::service;
use crate::support::server::{Server, ServerBuilder};

/// How long the page may take.
const MAX_WAIT: Duration = Duration::from_secs(60);
const PUT: &str = "PUT /v2/queues/stolen HTTP/1.1\r\nContent-Length: 0\r\n";
const SEND: &str = "GET /000000000000/kept?Action=SendMessage&MessageBody=x HTTP/1.1\r\n";

/// The status and the text of an answer to a head without its last line.
fn asked(server: &Server, head: &str) -> (u16, String) {
    let address = server.base().split("://").nth(1).unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(MAX_WAIT)).unwrap();
    stream.write_all(format!("{head}Connection: close\r\n\r\n").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    (status.unwrap_or_else(|| panic!("no answer: {answer:?}")), answer)
}

#[test]
fn foreign_host_is_refused_and_setting_named() {
    let service = service();
    for host in ["evil.example", "evil.example:8888", "localhost.evil.example"] {
        let (status, said) = asked(&service.server, &format!("{PUT}Host: {host}\r\n"));
        assert_eq!(status, 403, "{said}");
        assert!(said.contains("foreign_host") && said.contains("--allowed-host"), "{said}");
        // Nothing of it is checked, so it proves nothing.
        let signed = format!("{PUT}Host: {host}\r\nAuthorization: Bearer made-up\r\n");
        assert_eq!(asked(&service.server, &signed).0, 403);
        let sqs = format!("GET /?Action=ListQueues HTTP/1.1\r\nHost: {host}\r\n");
        let (status, said) = asked(&service.server, &sqs);
        assert_eq!(status, 403, "{said}");
        assert!(said.contains("--allowed-host"), "{said}");
    }
    assert_eq!(asked(&service.server, "GET /readyz HTTP/1.1\r\nHost: balancer.example\r\n").0, 200);
    for host in ["127.0.0.1", "localhost:1", "[::1]", "a.localhost", "10.0.0.1:80"] {
        assert!(asked(&service.server, &format!("{PUT}Host: {host}\r\n")).0 < 300, "{host}");
    }
}

#[test]
fn allowed_host_is_served() {
    let data = tempfile::tempdir().unwrap();
    let builder = ServerBuilder::new(data.path()).arg("--allowed-host=angarium,queue.example.com");
    let server = builder.arg("--allowed-host").arg("*.below.example").start();
    for host in ["angarium:8888", "Queue.Example.com", "a.below.example"] {
        let (status, said) = asked(&server, &format!("{PUT}Host: {host}\r\n"));
        assert!(status < 300, "{said}");
    }
    assert_eq!(asked(&server, &format!("{PUT}Host: below.example\r\n")).0, 403);
    let wrong = ServerBuilder::new(data.path()).arg("--allowed-host=angarium:8888").start_refused();
    assert!(wrong.contains("without a port"), "{wrong}");
}

#[test]
fn foreign_site_is_refused_without_credentials() {
    let service = service();
    for (site, more, expected) in [
        ("cross-site", "", 403),
        ("same-site", "", 403),
        ("cross-site", "Authorization: Basic eDp5\r\n", 403),
        ("cross-site", "X-Auth-Token: any\r\n", 201),
        ("none", "", 204),
        ("same-origin", "", 204),
    ] {
        let head = format!("{PUT}Host: 127.0.0.1\r\nSec-Fetch-Site: {site}\r\n{more}");
        let (status, said) = asked(&service.server, &head);
        assert_eq!(status, expected, "{site} {more}: {said}");
    }
}

#[test]
fn change_by_get_needs_credentials() {
    let service = service();
    service.client.create_queue("kept").unwrap();
    let ask = |head: &str| asked(&service.server, &format!("{head}Host: 127.0.0.1\r\n"));
    let (status, said) = ask(SEND);
    assert!(status == 403 && said.contains("SendMessage by GET needs credentials"), "{said}");
    for action in ["ReceiveMessage", "DeleteQueue", "PurgeQueue"] {
        let head = format!("GET /000000000000/kept?Action={action} HTTP/1.1\r\n");
        assert_eq!(ask(&head).0, 403, "{action}");
        // No client has checked what a URL states of a signature.
        let presigned = format!("GET /000000000000/kept?Action={action}&X-Amz-Signature=0 HTTP/1.1\r\n");
        assert_eq!(ask(&presigned).0, 403, "{action}");
    }
    assert_eq!(ask("GET /?Action=ListQueues HTTP/1.1\r\n").0, 200);
    let signed = "Authorization: AWS4-HMAC-SHA256 Credential=x/20260101/us-east-1/sqs/aws4_request\r\n";
    assert_eq!(ask(&format!("{SEND}{signed}")).0, 200);
}

#[test]
fn request_without_one_host_is_refused() {
    let service = service();
    let list = "GET /v2/queues HTTP/1.1\r\n";
    for head in [
        list.to_owned(),
        format!("{list}Host: 127.0.0.1\r\nHost: 127.0.0.1\r\n"),
        format!("{list}Host: 127.0.0.1\r\nHost: evil.example\r\n"),
        "GET /?Action=ListQueues HTTP/1.1\r\n".to_owned(),
    ] {
        let (status, said) = asked(&service.server, &head);
        assert!(status == 400 && said.contains("Host"), "{head}: {said}");
    }
    assert_eq!(asked(&service.server, "GET /v2/queues HTTP/1.0\r\n").0, 200);
}

#[test]
fn every_answer_forbids_sniffing() {
    let service = service();
    for head in [
        "GET /v2/queues HTTP/1.1\r\nHost: localhost\r\n",
        "GET /nothing HTTP/1.1\r\nHost: localhost\r\n",
        "GET /livez HTTP/1.1\r\nHost: localhost\r\n",
        "GET /v2/docs HTTP/1.1\r\nHost: localhost\r\n",
        "GET /?Action=ListQueues HTTP/1.1\r\nHost: localhost\r\n",
        "GET /?Action=Nothing HTTP/1.1\r\nHost: localhost\r\n",
        "GET /v2/queues HTTP/1.1\r\nHost: evil.example\r\n",
        "GET /v2/queues HTTP/1.1\r\n",
        "OPTIONS /v2/queues HTTP/1.1\r\nHost: localhost\r\n",
    ] {
        let (_, said) = asked(&service.server, head);
        assert!(said.contains("x-content-type-options: nosniff\r\n"), "{head}: {said}");
    }
}

/// An attacker's server: a page for the browser, and beside it the way to the service under the attacker's own name, as
/// after DNS rebinding.
struct Attacker {
    port: u16,
    /// Requests of the browser that went to the service.
    passed_on: Arc<AtomicUsize>,
    /// What the page states when it has tried everything.
    done: Receiver<String>,
}

impl Attacker {
    fn start(service: String, page: impl Fn(u16) -> String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (page, passed_on) = (page(port), Arc::new(AtomicUsize::new(0)));
        let (on_done, done) = channel();
        let on_done = Arc::new(Mutex::new(Some(on_done)));
        let counted = Arc::clone(&passed_on);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (service, page) = (service.clone(), page.clone());
                let (on_done, counted) = (Arc::clone(&on_done), Arc::clone(&counted));
                thread::spawn(move || drop(serve(stream, &service, &page, &on_done, &counted)));
            }
        });
        Self { port, passed_on, done }
    }

    /// Has a browser show the page under a name that leads to this machine. What the page states at its end.
    fn attack(&self) -> String {
        let profile = tempfile::tempdir().unwrap();
        let mut browser = Command::new("chromium");
        browser.args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]);
        browser.args(["--disable-background-networking", "--disable-component-update", "--disable-sync"]);
        browser.arg("--host-resolver-rules=MAP evil.example 127.0.0.1, EXCLUDE 127.0.0.1, EXCLUDE localhost");
        browser.arg(format!("--user-data-dir={}", profile.path().display()));
        browser.args(["--dump-dom", &format!("http://evil.example:{}/", self.port)]);
        let ended = browser.env("NO_PROXY", "*").output();
        let ended = ended.unwrap_or_else(|error| panic!("chromium: {error}. tests/prepare installs it"));
        let told = String::from_utf8_lossy(&ended.stderr).into_owned();
        self.done.recv_timeout(MAX_WAIT).unwrap_or_else(|_| panic!("the page did not get to its end: {told}"))
    }
}

/// One request of the browser.
fn serve(
    mut stream: TcpStream,
    service: &str,
    page: &str,
    on_done: &Mutex<Option<Sender<String>>>,
    passed_on: &AtomicUsize,
) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        if line.trim().is_empty() {
            break;
        }
        let lower = line.to_ascii_lowercase();
        if let Some(value) = lower.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or(0);
        }
        if !lower.starts_with("connection:") {
            head.push_str(&line);
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let target = head.split(' ').nth(1).unwrap_or_default();
    let answer = |body: &str| {
        let length = body.len();
        format!(
            "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        )
    };
    // A form of the page is sent to the service at the same path.
    if head.starts_with("GET / ") {
        return stream.write_all(answer(page).as_bytes());
    }
    if let Some(said) = target.strip_prefix("/done?") {
        if let Some(done) = on_done.lock().take() {
            let _ = done.send(said.to_owned());
        }
        return stream.write_all(answer("").as_bytes());
    }
    // Keeps the page loading until it has tried everything.
    if target == "/wait" {
        let given_up = Instant::now() + MAX_WAIT;
        while on_done.lock().is_some() && Instant::now() < given_up {
            thread::sleep(Duration::from_millis(20));
        }
        return stream.write_all(answer("").as_bytes());
    }
    passed_on.fetch_add(1, Ordering::Relaxed);
    let mut service = TcpStream::connect(service)?;
    service.write_all(format!("{head}Connection: close\r\n\r\n").as_bytes())?;
    service.write_all(&body)?;
    let mut answer = Vec::new();
    service.read_to_end(&mut answer)?;
    stream.write_all(&answer)
}

/// A page that makes requests with `script`, which tells `tell(text)` of each, and states at the end what it was told.
fn page(elements: &str, script: &str) -> String {
    format!(
        "<!doctype html><body>{elements}<img src='/wait'><script>
        const told = []; const tell = text => told.push(text);
        const tried = promise => promise.then(answer => tell(answer.status), () => tell('failed'));
        (async () => {{ {script}; await fetch('/done?' + told.join(',')); }})();</script></body>"
    )
}

/// The changes that an attacker would like, as URLs and bodies of the query protocol.
const ACTIONS: [&str; 5] = [
    "Action=CreateQueue&QueueName=stolen",
    "Action=SendMessage&QueueUrl=kept&MessageBody=forged",
    "Action=ReceiveMessage&QueueUrl=kept",
    "Action=PurgeQueue&QueueUrl=kept",
    "Action=DeleteQueue&QueueUrl=kept",
];

/// Runs the attack of a page, which is made for the ports of the attacker, against a fresh service. Asserts that nothing
/// changed, and returns how many requests got to the service, and what the page was told.
fn attacked(page: impl Fn(u16) -> String) -> (usize, String) {
    let service = service();
    assert_eq!(service.client.create_queue("kept").unwrap().status, 201);
    service.client.post_messages("kept", &[json!("a")]).unwrap();
    let state = || {
        let queues = service.client.get("/v2/queues").unwrap().json()["queues"].clone();
        let stats = service.client.stats("kept").unwrap().json()["messages"].clone();
        json!([queues, stats["free"], stats["claimed"], stats["total"]])
    };
    let before = state();
    assert_eq!(before[3], 1, "{before}");
    let address = service.server.base().split("://").nth(1).unwrap().to_owned();
    let attacker = Attacker::start(address, page);
    let told = attacker.attack();
    assert_eq!(state(), before, "the page was told {told}");
    (attacker.passed_on.load(Ordering::Relaxed), told)
}

#[test]
fn page_of_another_site_changes_nothing() {
    let (passed_on, told) = attacked(|port| {
        let (mut elements, mut script) = (String::new(), String::new());
        for host in ["127.0.0.1", "localhost"] {
            for action in ACTIONS {
                let pairs: String = action
                    .split('&')
                    .filter_map(|pair| pair.split_once('='))
                    .map(|(name, value)| format!("<input name='{name}' value='{value}'>"))
                    .collect();
                elements.push_str(&format!(
                    "<img src='http://{host}:{port}/?{action}'>\
                     <iframe name='{host}{action}'></iframe><form target='{host}{action}' method='post' action='http://{host}:{port}/'>{pairs}</form>"
                ));
                script.push_str(&format!(
                    "await tried(fetch('http://{host}:{port}/?{action}', {{mode: 'no-cors'}}));
                     await tried(fetch('http://{host}:{port}/?{action}', {{mode: 'no-cors', method: 'POST'}}));"
                ));
            }
            script.push_str(&format!(
                "await tried(fetch('http://{host}:{port}/v2/queues/kept/messages',
                    {{mode: 'no-cors', method: 'POST', body: '{{\"messages\": [{{\"body\": 1}}]}}'}}));
                 await tried(fetch('http://{host}:{port}/v2/queues/stolen', {{method: 'PUT'}}));
                 await tried(fetch('http://{host}:{port}/v2/queues/kept/claims', {{mode: 'no-cors', method: 'POST'}}));"
            ));
        }
        script.push_str("for (const form of document.forms) form.submit();");
        // The forms are on their way, which has no end that the page sees.
        script.push_str("await new Promise(resolve => setTimeout(resolve, 2000));");
        page(&elements, &script)
    });
    // 10 images, 20 fetches and 6 to REST got there, and at least one form.
    assert!(passed_on >= 37, "only {passed_on} requests were made: {told}");
}

#[test]
fn rebound_page_changes_nothing() {
    let (passed_on, told) = attacked(|_| {
        let mut script = String::new();
        for headers in ["{}", "{Authorization: 'Bearer x'}", "{'X-Auth-Token': 'x'}"] {
            for action in ACTIONS {
                script.push_str(&format!(
                    "await tried(fetch('/?{action}', {{headers: {headers}}}));
                     await tried(fetch('/?{action}', {{headers: {headers}, method: 'POST'}}));"
                ));
            }
            script.push_str(&format!(
                "await tried(fetch('/v2/queues/stolen', {{method: 'PUT', headers: {headers}}}));
                 await tried(fetch('/v2/queues/kept', {{method: 'DELETE', headers: {headers}}}));
                 await tried(fetch('/v2/queues/kept/claims', {{method: 'POST', headers: {headers}}}));"
            ));
        }
        page("", &script)
    });
    let statuses: Vec<_> = told.split(',').collect();
    assert!(passed_on >= 39 && statuses.len() == 39, "{passed_on}: {told}");
    assert!(statuses.iter().all(|status| *status == "403"), "{told}");
}
