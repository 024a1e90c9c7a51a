//! What a client is told that asks for too much at once.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use http::StatusCode;

use crate::support::client::Client;
use crate::support::server::{Server, ServerBuilder};

fn start(setting: &str) -> (Server, tempfile::TempDir) {
    let data = tempfile::tempdir().unwrap();
    (ServerBuilder::new(data.path()).arg(setting).start(), data)
}

/// Of many requests at once: how many were answered 200, and what the first other answer was.
fn burst(client: &Client) -> (usize, Option<crate::support::client::Answer>) {
    let mut answered = 0;
    for _ in 0..200 {
        let answer = client.stats("q").unwrap();
        if answer.status != StatusCode::OK {
            return (answered, Some(answer));
        }
        answered += 1;
    }
    (answered, None)
}

#[test]
fn a_project_beyond_its_rate_gets_429_and_a_time_to_come_again() {
    let (server, _data) = start("--project-requests-per-second=5");
    let client = server.client();
    let (answered, refused) = burst(&client.clone().with_header("X-Project-Id", "fast"));
    let refused = refused.expect("200 requests take less than 39 s");
    assert!(answered >= 5);
    assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
    assert!(refused.headers["retry-after"].to_str().unwrap().parse::<u32>().unwrap() >= 1);
    let body = refused.json();
    assert_eq!(
        (&body["code"], &body["may_retry"], &body["nothing_written"]),
        (&"too_fast".into(), &true.into(), &true.into())
    );
    let other = client.with_header("X-Project-Id", "other");
    assert_eq!(other.stats("q").unwrap().status, StatusCode::OK);
}

#[test]
fn service_without_rate_limit_answers_all() {
    let (server, _data) = start("--log=warn");
    assert!(burst(&server.client()).1.is_none());
}

#[test]
fn full_service_answers_503_and_stays_live() {
    let (server, _data) = start("--max-requests=1");
    // A body that does not come holds its request, and so the one place.
    let address = server.base().strip_prefix("http://").unwrap();
    let mut slow = TcpStream::connect(address).unwrap();
    slow.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    slow.write_all(
        b"PUT /v2/queues/q HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n",
    )
    .unwrap();
    // hyper asks for the body when the handler does.
    let mut asked = [0; 25];
    slow.read_exact(&mut asked).unwrap();
    assert!(asked.starts_with(b"HTTP/1.1 100 "));

    let client = server.client();
    let refused = client.stats("q").unwrap();
    assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE, "{}", refused.text());
    assert!(refused.headers.contains_key("retry-after"));
    assert_eq!(refused.json()["code"], "overloaded");
    assert_eq!(client.get("/livez").unwrap().status, StatusCode::OK);
    assert_eq!(client.get("/readyz").unwrap().status, StatusCode::OK);

    slow.write_all(b"{}").unwrap();
    let mut answered = [0; 12];
    slow.read_exact(&mut answered).unwrap();
    assert_eq!(&answered, b"HTTP/1.1 201");
    assert_eq!(client.stats("q").unwrap().status, StatusCode::OK);
}
