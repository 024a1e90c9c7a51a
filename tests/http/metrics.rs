//! The page of metrics as a scraper gets it.

use std::io::Read;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use http::StatusCode;
use serde_json::json;

use super::service;
use crate::support::client::Client;
use crate::support::server::{Server, ServerBuilder};
use angarium_testbed::held::wait_until;

fn page(client: &Client) -> String {
    let answer = client.get("/metrics").unwrap();
    assert_eq!(answer.status, StatusCode::OK);
    answer.text()
}

fn value(page: &str, series: &str) -> Option<f64> {
    page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
}

#[test]
fn scraper_gets_known_text_format() {
    let service = service();
    let (open, old) = (
        "application/openmetrics-text; version=1.0.0; charset=utf-8",
        "text/plain; version=0.0.4; charset=utf-8",
    );
    for (accept, form) in [
        ("text/plain", old),
        ("text/plain;version=0.0.4;q=1,*/*;q=0.1", old),
        ("application/openmetrics-text;version=1.0.0,text/plain;q=0.5", open),
        ("text/plain;q=0", open),
        ("*/*", open),
    ] {
        let answer = service.client.clone().with_header("Accept", accept).get("/metrics").unwrap();
        assert_eq!(answer.status, StatusCode::OK, "{accept}");
        assert_eq!(answer.headers["content-type"], form);
        let text = answer.text();
        assert_eq!(text.ends_with("# EOF\n"), form == open, "{accept}");
        assert_eq!(text.contains("# TYPE angarium_requests_total counter\n"), form == old, "{accept}");
        let build = format!("angarium_build_info{{version=\"{}\"}}", env!("CARGO_PKG_VERSION"));
        assert_eq!(value(&text, &build), Some(1.0), "{text}");
    }
}

#[test]
fn each_answer_is_counted_by_its_operation_and_timed() {
    let service = service();
    let client = &service.client;
    client.post_messages("q", &[json!(1), json!(2)]).unwrap();
    client.post_messages("q", &[json!(3)]).unwrap();
    assert_eq!(client.post("/v2/queues/q/messages", &json!({})).unwrap().status, StatusCode::BAD_REQUEST);
    assert_eq!(client.get("/v2/nothing").unwrap().status, StatusCode::NOT_FOUND);
    let page = page(client);
    let requests = |operation, code| {
        let series = format!("angarium_requests_total{{operation=\"{operation}\",code=\"{code}\"}}");
        value(&page, &series).unwrap_or_default()
    };
    assert_eq!((requests("messages_post", "2xx"), requests("messages_post", "4xx")), (2.0, 1.0), "{page}");
    assert_eq!((requests("unknown", "4xx"), requests("claim_create", "2xx")), (1.0, 0.0));
    let timed = "angarium_request_duration_seconds_count{operation=\"messages_post\"}";
    assert_eq!(value(&page, timed), Some(3.0));
    let sent = "angarium_messages_sent_total{project=\"000000000000\",queue=\"q\"}";
    assert_eq!(value(&page, sent), Some(3.0));
}

#[test]
fn a_page_itself_needs_no_place_and_creates_nothing() {
    let service = service();
    page(&service.client);
    assert_eq!(service.client.get("/v2/queues").unwrap().json()["queues"], json!([]));
}

#[test]
fn refusals_are_counted_by_their_reason() {
    let data = tempfile::tempdir().unwrap();
    // No disk has so much room that such a reserve is not reached.
    let server = ServerBuilder::new(data.path()).arg(format!("--reserve={}", u64::MAX)).start();
    let client = server.client();
    let refused = client.post_messages("q", &[json!(1)]).unwrap();
    assert_eq!(refused.status, StatusCode::INSUFFICIENT_STORAGE);
    let page = page(&client);
    assert_eq!(value(&page, "angarium_refusals_total{status=\"507\",reason=\"full\"}"), Some(1.0), "{page}");
    assert_eq!(value(&page, "angarium_ready"), Some(0.0));
    assert_eq!(value(&page, "angarium_pool_writable{pool=\"default\"}"), Some(0.0));
}

#[test]
fn service_below_reserve_is_not_ready_with_reason() {
    let data = tempfile::tempdir().unwrap();
    let server = ServerBuilder::new(data.path()).arg(format!("--reserve={}", u64::MAX)).start();
    let client = server.client();
    assert_eq!(client.get("/livez").unwrap().status, StatusCode::OK);
    for path in ["/readyz", "/v2/ping", "/readyz"] {
        let answer = client.get(path).unwrap();
        assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
        let text = answer.json()["description"].as_str().unwrap().to_owned();
        for part in ["pool default", "bytes are free", &u64::MAX.to_string(), "--reserve"] {
            assert!(text.contains(part), "{path}: {text}");
        }
    }
    // Once, however often it is asked.
    wait_until("the service says that it is not ready", || server.last_lines().contains("not ready"));
    let lines = server.last_lines();
    assert_eq!(lines.matches("not ready").count(), 1, "{lines}");
    assert_eq!(lines.matches("no pool accepts new messages").count(), 1, "{lines}");
    let health = client.get("/v2/health").unwrap().json();
    assert_eq!((&health["ready"], &health["session"]), (&json!(false), &json!("connected")));
    assert_eq!(health["not_ready"], "no pool accepts new messages");
    assert_eq!(health["pools"]["default"]["writable"], false);
    assert_eq!(health["pools"]["default"]["storage_reachable"], true);
}

#[test]
fn only_so_many_queues_have_names() {
    let data = tempfile::tempdir().unwrap();
    let server = ServerBuilder::new(data.path()).arg("--metrics-queues=1").start();
    let client = server.client();
    for queue in ["a", "b", "c"] {
        client.post_messages(queue, &[json!(1)]).unwrap();
    }
    let page = page(&client);
    let sent = |labels| value(&page, &format!("angarium_messages_sent_total{{{labels}}}"));
    assert_eq!(sent("project=\"000000000000\",queue=\"a\""), Some(1.0));
    assert_eq!(sent("project=\"_other\",queue=\"_other\""), Some(2.0), "{page}");
}

#[test]
fn open_and_refused_connections_are_counted() {
    let data = tempfile::tempdir().unwrap();
    let server = ServerBuilder::new(data.path()).arg("--max-connections-per-address=2").start();
    let client = server.client();
    let open = |expected: f64| {
        let start = Instant::now();
        while value(&page(&client), "angarium_connections") != Some(expected) {
            assert!(start.elapsed() < Duration::from_secs(20), "{}", page(&client));
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    open(1.0);
    let address = server.base().strip_prefix("http://").unwrap();
    let second = TcpStream::connect(address).unwrap();
    open(2.0);
    let mut third = TcpStream::connect(address).unwrap();
    third.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut told = String::new();
    // A reset after the answer is no news.
    let _ = third.read_to_string(&mut told);
    assert!(told.starts_with("HTTP/1.1 503"), "{told}");
    assert_eq!(value(&page(&client), "angarium_connections_refused_total"), Some(1.0));
    drop(second);
    open(1.0);
}

/// Waits until all queues of a service are counted. The page then.
fn counted(client: &Client) -> String {
    let start = Instant::now();
    loop {
        let page = page(client);
        if value(&page, "angarium_slots_counted") == Some(256.0) {
            return page;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "{page}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn idle_backlog_is_shown_after_kill_9() {
    let service = service();
    for (queue, messages) in [("idle", 3), ("other", 1)] {
        let bodies: Vec<_> = (0..messages).map(|number| json!(number)).collect();
        service.client.post_messages(queue, &bodies).unwrap();
    }
    service.client.claim("idle", 1, 300).unwrap().granted().unwrap();
    let service = service.again(Server::kill9);
    let page = counted(&service.client);
    let of = |name: &str, labels: &str| {
        value(&page, &format!("{name}{{project=\"000000000000\",queue=\"idle\"{labels}}}"))
    };
    assert_eq!(of("angarium_messages", ",state=\"ready\""), Some(2.0), "{page}");
    assert_eq!(of("angarium_messages", ",state=\"claimed\""), Some(1.0), "{page}");
    assert!(of("angarium_oldest_message_age_seconds", "").is_some(), "{page}");
    let gauges = ["angarium_queues", "angarium_queues_counted", "angarium_claims"];
    assert_eq!(gauges.map(|name| value(&page, name)), [Some(2.0), Some(2.0), Some(1.0)]);
    assert_eq!(value(&page, "angarium_requests_total{operation=\"claim_create\",code=\"2xx\"}"), Some(0.0));
    // Pools are asked at the start, and once a minute.
    let pool = |name: &str| value(&page, &format!("angarium_pool_{name}{{pool=\"default\"}}"));
    assert_eq!([pool("messages"), pool("used_bytes")], [Some(4.0), Some(4.0)], "{page}");
}

#[test]
fn page_is_compressed_for_scrapers_with_gzip() {
    let service = service();
    let get =
        |accept: &str| service.client.clone().with_header("Accept-Encoding", accept).get("/metrics").unwrap();
    let plain = get("identity");
    assert_eq!(plain.headers.get("content-encoding"), None);
    for accept in ["gzip", "gzip;q=0.5, identity;q=0.1"] {
        let answer = get(accept);
        assert_eq!(answer.status, StatusCode::OK);
        assert_eq!(answer.headers["content-encoding"], "gzip", "{accept}");
        assert_eq!(answer.body[..2], [0x1f, 0x8b]);
        assert!(answer.body.len() * 4 < plain.body.len(), "{} of {}", answer.body.len(), plain.body.len());
    }
    let queues = service.client.clone().with_header("Accept-Encoding", "gzip").get("/v2/queues").unwrap();
    assert_eq!(queues.headers.get("content-encoding"), None, "of the page alone");
}

#[test]
fn use_of_a_quota_is_shown_before_a_request() {
    let data = tempfile::tempdir().unwrap();
    let file = data.path().join("quotas.toml");
    std::fs::write(&file, "[[project]]\nname = \"acme\"\nmessages = 10\nqueues = 5\n").unwrap();
    let builder = ServerBuilder::new(data.path()).arg("--quotas").arg(&file);
    let server = builder.start();
    let acme = server.client().with_header("X-Project-Id", "acme");
    assert_eq!(acme.post_messages("q", &[json!(1), json!(2)]).unwrap().status, StatusCode::CREATED);
    server.kill9();
    let server = builder.start();
    let quota = |page: &str, name: &str, resource: &str| {
        value(page, &format!("angarium_quota_{name}{{project=\"acme\",resource=\"{resource}\"}}"))
    };
    let start = Instant::now();
    let page = loop {
        let page = page(&server.client());
        if quota(&page, "used", "messages").is_some() {
            break page;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "{page}");
        std::thread::sleep(Duration::from_millis(50));
    };
    assert_eq!(
        [quota(&page, "used", "messages"), quota(&page, "limit", "messages")],
        [Some(2.0), Some(10.0)]
    );
    assert_eq!([quota(&page, "used", "queues"), quota(&page, "limit", "queues")], [Some(1.0), Some(5.0)]);
    assert_eq!(quota(&page, "limit", "bytes"), None);
}

#[test]
fn every_answer_names_the_server_and_its_version() {
    let service = service();
    let named = concat!("angarium/", env!("CARGO_PKG_VERSION"));
    for path in ["/livez", "/v2/queues", "/nothing", "/metrics"] {
        assert_eq!(service.client.get(path).unwrap().headers["server"], named, "{path}");
    }
}
