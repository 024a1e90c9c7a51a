//! The deadlines of a connection, to the second: default limits, a pipe for a socket, and a clock that only the test moves.
//! Never opens a socket: that is `connections`.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::net::Ipv4Addr;
use std::time::Duration;

use angarium::server::connection::{Client as Peer, serve};
use angarium::server::listener::ConnectionLimits;
use angarium::server::unsent::unsent_budget;
use angarium_core::error::Error;
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::StatusCode;
use axum::routing::{get, post};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

const GET: &[u8] = b"GET /quick HTTP/1.1\r\nhost: a\r\n\r\n";
const MIB: usize = 1024 * 1024;

async fn read_body(body: Body) -> (StatusCode, String) {
    match to_bytes(body, MIB).await {
        Ok(bytes) => (StatusCode::OK, format!("{} bytes", bytes.len())),
        Err(error) if Error::is_late(&error) => (StatusCode::REQUEST_TIMEOUT, String::new()),
        Err(error) => (StatusCode::BAD_REQUEST, error.to_string()),
    }
}

fn app() -> Router {
    Router::new()
        .route("/quick", get(async || "quick"))
        .route("/slow", get(async || sleep(secs(600)).await))
        .route("/large", get(async || vec![b'x'; 10 * 1024]))
        .route("/body", post(read_body))
        .route(
            "/later",
            post(async |body: Body| {
                sleep(secs(120)).await;
                read_body(body).await
            }),
        )
}

struct Client {
    io: DuplexStream,
    served: JoinHandle<hyper::Result<()>>,
    since: Instant,
}

impl Client {
    /// A connection whose pipe holds `buffer` bytes in each direction.
    fn connect(buffer: usize) -> Self {
        let (io, socket) = tokio::io::duplex(buffer);
        let limits = ConnectionLimits::default();
        let client = Peer { address: Ipv4Addr::LOCALHOST.into(), unsent: unsent_budget(limits.unsent) };
        let served = serve(socket, app(), client, limits, CancellationToken::new());
        Self { io, served: TaskTracker::new().spawn(served), since: Instant::now() }
    }

    async fn send(&mut self, bytes: &[u8]) {
        self.io.write_all(bytes).await.unwrap();
    }

    /// Reads up to and with `end`.
    async fn read_until(&mut self, end: &str) -> String {
        let mut read = Vec::new();
        while !read.ends_with(end.as_bytes()) {
            read.push(self.io.read_u8().await.unwrap());
        }
        String::from_utf8(read).unwrap()
    }

    /// What is left to read until the server closes, and when it closed.
    async fn read_to_end(&mut self) -> (String, Duration) {
        let mut rest = String::new();
        self.io.read_to_string(&mut rest).await.unwrap();
        (rest, self.since.elapsed())
    }
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[track_caller]
fn assert_about(actual: Duration, seconds: u64) {
    let (least, most) = (secs(seconds), secs(seconds) + Duration::from_millis(50));
    assert!((least..=most).contains(&actual), "{actual:?} is not about {seconds} s");
}

#[tokio::test(start_paused = true)]
async fn silent_new_connection_ends_after_ten_seconds() {
    let mut client = Client::connect(1024);
    let (rest, closed) = client.read_to_end().await;
    assert_eq!(rest, "");
    assert_about(closed, 10);
    client.served.await.unwrap().expect("a silent client is no error");
}

#[tokio::test(start_paused = true)]
async fn trickled_header_gets_408_ten_seconds_after_its_first_byte() {
    let mut client = Client::connect(1024);
    sleep(secs(5)).await;
    for byte in &GET[..4] {
        client.send(&[*byte]).await;
        sleep(secs(3)).await;
    }
    let (rest, closed) = client.read_to_end().await;
    assert!(rest.starts_with("HTTP/1.1 408 ") && rest.ends_with("\r\n\r\n"), "{rest}");
    assert_about(closed, 15 + 2);
}

#[tokio::test(start_paused = true)]
async fn slow_header_within_ten_seconds_is_answered() {
    let mut client = Client::connect(1024);
    client.send(&GET[..10]).await;
    sleep(secs(9)).await;
    client.send(&GET[10..]).await;
    client.read_until("quick").await;
}

#[tokio::test(start_paused = true)]
async fn idle_connection_lives_ninety_seconds_after_each_request() {
    let mut client = Client::connect(1024);
    for _ in 0..5 {
        client.send(GET).await;
        client.read_until("quick").await;
        sleep(secs(85)).await;
    }
    client.since = Instant::now() - secs(85);
    let (rest, closed) = client.read_to_end().await;
    assert_eq!(rest, "");
    assert_about(closed, 90);
    client.served.await.unwrap().expect("an idle client is no error");
}

#[tokio::test(start_paused = true)]
async fn header_deadline_holds_after_an_idle_time_too() {
    let mut client = Client::connect(1024);
    client.send(GET).await;
    client.read_until("quick").await;
    sleep(secs(60)).await;
    client.send(b"G").await;
    let (rest, closed) = client.read_to_end().await;
    assert!(rest.starts_with("HTTP/1.1 408 "), "{rest}");
    assert_about(closed, 70);
}

#[tokio::test(start_paused = true)]
async fn pipelined_requests_are_all_answered() {
    let mut client = Client::connect(64 * 1024);
    client.send(&GET.repeat(40)).await;
    for _ in 0..40 {
        client.read_until("quick").await;
    }
}

#[tokio::test(start_paused = true)]
async fn handler_of_ten_minutes_is_not_cut() {
    let mut client = Client::connect(1024);
    client.send(b"GET /slow HTTP/1.1\r\nhost: a\r\n\r\n").await;
    let head = client.read_until("\r\n\r\n").await;
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert_about(client.since.elapsed(), 600);
}

#[tokio::test(start_paused = true)]
async fn stalled_body_is_the_handlers_408_and_closes() {
    let mut client = Client::connect(1024);
    client.send(b"POST /body HTTP/1.1\r\nhost: a\r\ncontent-length: 100\r\n\r\nabc").await;
    let (rest, closed) = client.read_to_end().await;
    assert!(rest.starts_with("HTTP/1.1 408 "), "{rest}");
    assert_about(closed, 30);
}

#[tokio::test(start_paused = true)]
async fn single_bytes_are_no_progress_of_a_body() {
    let mut client = Client::connect(1024);
    client.send(b"POST /body HTTP/1.1\r\nhost: a\r\ncontent-length: 100\r\n\r\n").await;
    for _ in 0..3 {
        client.send(b"x").await;
        sleep(secs(9)).await;
    }
    let (rest, closed) = client.read_to_end().await;
    assert!(rest.starts_with("HTTP/1.1 408 "), "{rest}");
    assert_about(closed, 30);
}

#[tokio::test(start_paused = true)]
async fn slow_but_steady_body_is_read() {
    let mut client = Client::connect(1024);
    client.send(b"POST /body HTTP/1.1\r\nhost: a\r\ncontent-length: 20480\r\n\r\n").await;
    for _ in 0..20 {
        sleep(secs(25)).await;
        client.send(&[b'x'; 1024]).await;
    }
    client.read_until("20480 bytes").await;
}

#[tokio::test(start_paused = true)]
async fn body_read_late_by_handler_is_not_cut() {
    let mut client = Client::connect(1024);
    client.send(b"POST /later HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\n\r\n").await;
    sleep(secs(60)).await;
    client.send(b"abc").await;
    client.read_until("3 bytes").await;
    assert_about(client.since.elapsed(), 120);
}

#[tokio::test(start_paused = true)]
async fn unreading_client_is_cut_after_thirty_seconds() {
    let mut client = Client::connect(1024);
    client.send(b"GET /large HTTP/1.1\r\nhost: a\r\n\r\n").await;
    client.served.await.unwrap().expect_err("the write timed out");
    assert_about(client.since.elapsed(), 30);
}

#[tokio::test(start_paused = true)]
async fn slow_reader_gets_all_and_is_not_idle() {
    let mut client = Client::connect(1024);
    client.send(b"GET /large HTTP/1.1\r\nhost: a\r\n\r\n").await;
    client.read_until("\r\n\r\n").await;
    let mut left: usize = 10 * 1024;
    while left > 0 {
        sleep(secs(25)).await;
        let mut step = vec![0; left.min(1024)];
        client.io.read_exact(&mut step).await.unwrap();
        left -= step.len();
    }
    // The last step went into the pipe 25 s before it was read.
    sleep(secs(60)).await;
    client.send(GET).await;
    client.read_until("quick").await;
}
