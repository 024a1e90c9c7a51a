//! HTTP/2 on one connection: its deadlines and bounds, over a pipe and with a clock that only the test moves.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::net::Ipv4Addr;
use std::time::Duration;

use angarium::server::connection::{Client, serve_h2};
use angarium::server::listener::ConnectionLimits;
use angarium::server::unsent::unsent_budget;
use angarium_core::error::Error;
use angarium_core::hosts::WrongHost;
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::StatusCode;
use axum::routing::{get, post};
use bytes::Bytes;
use h2::client::{Connection, SendRequest};
use http::Request;
use tokio::io::DuplexStream;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// What the handler of `/held` reports.
#[derive(Debug, PartialEq)]
enum HeldStream {
    Begun,
    Dropped,
}

struct Holding(UnboundedSender<HeldStream>);

impl Drop for Holding {
    fn drop(&mut self) {
        let _ = self.0.send(HeldStream::Dropped);
    }
}

fn app(held: UnboundedSender<HeldStream>) -> Router {
    let hold = async move || {
        let _holding = Holding(held.clone());
        let _ = held.send(HeldStream::Begun);
        std::future::pending::<()>().await;
    };
    Router::new()
        .route("/quick", get(async || "quick"))
        .route("/slow", get(async || sleep(secs(600)).await))
        .route("/large", get(async || vec![b'x'; 512 * 1024]))
        .route("/body", post(read_body))
        .route("/unread", post(keep_body))
        .route("/held", get(hold))
        .route("/host", get(check_host))
}

async fn read_body(body: Body) -> StatusCode {
    match to_bytes(body, 1024 * 1024).await {
        Ok(_) => StatusCode::OK,
        Err(error) if Error::is_late(&error) => StatusCode::REQUEST_TIMEOUT,
        Err(_) => StatusCode::BAD_REQUEST,
    }
}

async fn check_host(request: axum::extract::Request) -> StatusCode {
    match request.extensions().get::<WrongHost>() {
        Some(_) => StatusCode::BAD_REQUEST,
        None => StatusCode::OK,
    }
}

/// Neither reads its body nor lets it go.
async fn keep_body(body: Body) {
    let _body = body;
    std::future::pending::<()>().await;
}

/// A connection, with its client's and its server's end.
struct Pair {
    client: SendRequest<Bytes>,
    /// Stops the client's side, which reads, writes and answers pings, as if its network were gone.
    gone: CancellationToken,
    served: JoinHandle<hyper::Result<()>>,
    held: UnboundedReceiver<HeldStream>,
    stop: CancellationToken,
    since: Instant,
}

impl Pair {
    async fn new() -> Self {
        Self::with(ConnectionLimits::default(), h2::client::Builder::new()).await
    }

    async fn with(limits: ConnectionLimits, client: h2::client::Builder) -> Self {
        let (io, socket) = tokio::io::duplex(64 * 1024);
        let (on_held, held) = unbounded_channel();
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        let peer = Client { address: Ipv4Addr::LOCALHOST.into(), unsent: unsent_budget(limits.unsent) };
        let served = tasks.spawn(serve_h2(socket, app(on_held), peer, limits, tasks.clone(), stop.clone()));
        let (client, mut connection): (_, Connection<DuplexStream, Bytes>) =
            client.handshake(io).await.unwrap();
        let gone = CancellationToken::new();
        let is_gone = gone.clone();
        tasks.spawn(async move {
            tokio::select! {
                _ = &mut connection => {}
                // Kept: dropped it would close the pipe, which the server would see.
                () = is_gone.cancelled() => std::future::pending().await,
            }
        });
        Self { client, gone, served, held, stop, since: Instant::now() }
    }

    /// The status of an answer whose body no client looks at.
    async fn get(&mut self, path: &str) -> Result<StatusCode, h2::Error> {
        let (answer, _) = self.client.send_request(request("GET", path), true)?;
        answer.await.map(|answer| answer.status())
    }

    /// When the server ended the connection.
    async fn finish_release(self) -> Duration {
        timeout(secs(3600), self.served).await.expect("the connection is still served").unwrap().ok();
        self.since.elapsed()
    }
}

fn request(method: &str, path: &str) -> Request<()> {
    Request::builder().method(method).uri(format!("http://a{path}")).body(()).unwrap()
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[track_caller]
fn assert_about(actual: Duration, seconds: u64) {
    let (least, most) = (secs(seconds), secs(seconds + 2));
    assert!((least..=most).contains(&actual), "{actual:?} is not about {seconds} s");
}

#[tokio::test(start_paused = true)]
async fn connection_without_requests_ends_after_ninety_seconds() {
    let pair = Pair::new().await;
    assert_about(pair.finish_release().await, 90);
}

#[tokio::test(start_paused = true)]
async fn idle_connection_lives_ninety_seconds_after_each_request() {
    let mut pair = Pair::new().await;
    for _ in 0..5 {
        assert_eq!(pair.get("/quick").await.unwrap(), StatusCode::OK);
        sleep(secs(85)).await;
    }
    pair.since = Instant::now() - secs(85);
    assert_about(pair.finish_release().await, 90);
}

#[tokio::test(start_paused = true)]
async fn handler_of_ten_minutes_is_not_cut() {
    let mut pair = Pair::new().await;
    assert_eq!(pair.get("/slow").await.unwrap(), StatusCode::OK);
    assert_about(pair.since.elapsed(), 600);
    // Its end begins a new rest.
    sleep(secs(60)).await;
    assert_eq!(pair.get("/quick").await.unwrap(), StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn vanished_client_is_detected_during_wait() {
    let mut pair = Pair::new().await;
    let _waiting = pair.client.send_request(request("GET", "/held"), true).unwrap();
    assert_eq!(pair.held.recv().await, Some(HeldStream::Begun));
    pair.gone.cancel();
    assert_eq!(pair.held.recv().await, Some(HeldStream::Dropped));
    // A question after the one time of silence, and another one for its answer.
    let asked = ConnectionLimits::default().probe;
    assert!(pair.since.elapsed() >= asked && pair.since.elapsed() <= asked * 2 + secs(2));
}

#[tokio::test(start_paused = true)]
async fn cancelled_request_drops_handler_and_begins_idle_time() {
    let mut pair = Pair::new().await;
    let (_, mut stream) = pair.client.send_request(request("GET", "/held"), true).unwrap();
    assert_eq!(pair.held.recv().await, Some(HeldStream::Begun));
    stream.send_reset(h2::Reason::CANCEL);
    assert_eq!(pair.held.recv().await, Some(HeldStream::Dropped));
    let most = ConnectionLimits::default().idle * 2 + secs(2);
    assert!(pair.finish_release().await <= most);
}

#[tokio::test(start_paused = true)]
async fn stalled_body_is_the_handlers_408() {
    let mut pair = Pair::new().await;
    let (answer, mut body) = pair.client.send_request(request("POST", "/body"), false).unwrap();
    body.send_data(Bytes::from_static(b"abc"), false).unwrap();
    assert_eq!(answer.await.unwrap().status(), StatusCode::REQUEST_TIMEOUT);
    assert_about(pair.since.elapsed(), 30);
}

#[tokio::test(start_paused = true)]
async fn unread_single_bytes_end_the_connection() {
    let mut pair = Pair::new().await;
    let (_answer, mut body) = pair.client.send_request(request("POST", "/unread"), false).unwrap();
    // As many as the window of a stream lets through, each of which would cost a hundred times its byte while it waits: h2 has
    // a budget for that, and ends the connection.
    let sending = async {
        loop {
            body.reserve_capacity(1);
            let Some(Ok(_)) = std::future::poll_fn(|cx| body.poll_capacity(cx)).await else { return };
            if body.send_data(Bytes::from_static(b"x"), false).is_err() {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    timeout(secs(60), sending).await.expect("the window was filled with single bytes");
    assert!(pair.finish_release().await < secs(60));
}

#[tokio::test(start_paused = true)]
async fn requests_beside_a_stalled_body_are_answered() {
    let mut pair = Pair::new().await;
    let (_answer, _body) = pair.client.send_request(request("POST", "/body"), false).unwrap();
    for _ in 0..10 {
        assert_eq!(pair.get("/quick").await.unwrap(), StatusCode::OK);
    }
}

#[tokio::test(start_paused = true)]
async fn unreading_client_is_cut() {
    let mut silent = h2::client::Builder::new();
    silent.initial_window_size(0);
    for client in [silent, h2::client::Builder::new()] {
        let mut pair = Pair::with(ConnectionLimits::default(), client).await;
        let (answer, _) = pair.client.send_request(request("GET", "/large"), true).unwrap();
        // Not released, so its window stays shut.
        let _answer = answer.await.unwrap();
        assert_about(pair.finish_release().await, 90);
    }
}

#[tokio::test(start_paused = true)]
async fn slow_reader_gets_all() {
    let mut pair = Pair::new().await;
    let (answer, _) = pair.client.send_request(request("GET", "/large"), true).unwrap();
    let mut body = answer.await.unwrap().into_body();
    let mut read = 0;
    while let Some(data) = body.data().await {
        let length = data.unwrap().len();
        read += length;
        sleep(secs(20)).await;
        body.flow_control().release_capacity(length).unwrap();
    }
    assert_eq!(read, 512 * 1024);
    assert!(pair.since.elapsed() > secs(90));
}

#[tokio::test(start_paused = true)]
async fn header_beyond_the_bound_is_refused() {
    let mut pair = Pair::new().await;
    let long = "x".repeat(80 * 1024);
    let request = Request::builder().uri("http://a/quick").header("long", long).body(()).unwrap();
    let (answer, _) = pair.client.send_request(request, true).unwrap();
    assert_eq!(answer.await.unwrap().status(), StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
}

/// Whether the request is marked as one that does not name one host.
async fn has_wrong_host(pair: &mut Pair, target: &str, hosts: &[&str]) -> bool {
    // So the client sends a path alone, without a host.
    let request = Request::builder().version(http::Version::HTTP_11).uri(target);
    let request = hosts.iter().fold(request, |request, host| request.header("host", *host));
    let (answer, _) = pair.client.send_request(request.body(()).unwrap(), true).unwrap();
    answer.await.unwrap().status() == StatusCode::BAD_REQUEST
}

#[tokio::test(start_paused = true)]
async fn request_without_one_host_is_marked() {
    let mut pair = Pair::new().await;
    for (target, hosts) in [
        ("/host", &[][..]),
        ("/host", &["a", "a"]),
        ("http://a/host", &["b"]),
        ("http://a/host", &["a", "a"]),
    ] {
        assert!(has_wrong_host(&mut pair, target, hosts).await, "{target} {hosts:?}");
    }
    for (target, hosts) in [("/host", &["a"][..]), ("http://a/host", &[]), ("http://a/host", &["A"])] {
        assert!(!has_wrong_host(&mut pair, target, hosts).await, "{target} {hosts:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn requests_beyond_the_bound_wait_for_one_to_end() {
    let limits = ConnectionLimits { streams: 1, ..Default::default() };
    let mut pair = Pair::with(limits, h2::client::Builder::new()).await;
    // The bound is known to the client after the first exchange.
    assert_eq!(pair.get("/quick").await.unwrap(), StatusCode::OK);
    let (_, mut first) = pair.client.send_request(request("GET", "/held"), true).unwrap();
    assert_eq!(pair.held.recv().await, Some(HeldStream::Begun));
    let (second, _) = pair.client.send_request(request("GET", "/quick"), true).unwrap();
    let mut second = Box::pin(second);
    timeout(secs(5), second.as_mut()).await.expect_err("there is room for one");
    first.send_reset(h2::Reason::CANCEL);
    assert_eq!(second.await.unwrap().status(), StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn stop_finishes_requests_and_closes() {
    let mut pair = Pair::new().await;
    let limits = ConnectionLimits::default();
    let (answer, _) = pair.client.send_request(request("GET", "/held"), true).unwrap();
    assert_eq!(pair.held.recv().await, Some(HeldStream::Begun));
    pair.stop.cancel();
    assert!(answer.await.is_err(), "it does not finish in time");
    assert_eq!(pair.held.recv().await, Some(HeldStream::Dropped));
    assert_about(pair.since.elapsed(), limits.drain.as_secs());
}

#[tokio::test(start_paused = true)]
async fn stop_closes_an_idle_connection_at_once() {
    let mut pair = Pair::new().await;
    assert_eq!(pair.get("/quick").await.unwrap(), StatusCode::OK);
    pair.stop.cancel();
    assert_about(pair.finish_release().await, 0);
}
