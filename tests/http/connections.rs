//! The accept loop over real sockets: its bound, its end, and what a client sees. Short limits, long patience.
//! Never asserts how soon something happens beyond "before the test gives up": exact times are in `deadlines`.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::sleep;
use std::time::{Duration, Instant};

use angarium::server::listener::{ConnectionLimits, run};
use angarium::server::tls::Transport;
use angarium_core::error::Error;
use angarium_metrics::Meter;
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::StatusCode;
use axum::routing::{get, post};
use tokio::runtime::Runtime;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// How long a test waits for what must happen.
const MAX_WAIT: Duration = Duration::from_secs(20);
/// The short limit, and how long a test watches that nothing happens.
const SHORT: Duration = Duration::from_millis(300);
const GET: &str = "GET /quick HTTP/1.1\r\nhost: a\r\n\r\n";
const HELD: &str = "GET /held HTTP/1.1\r\nhost: a\r\n\r\n";

/// What the handler of `/held` reports.
#[derive(Debug, PartialEq)]
enum HeldConnection {
    Begun,
    Dropped,
}

struct Holding(Sender<HeldConnection>);

impl Drop for Holding {
    fn drop(&mut self) {
        let _ = self.0.send(HeldConnection::Dropped);
    }
}

struct Server {
    address: SocketAddr,
    stop: CancellationToken,
    ended: Receiver<()>,
    held: Receiver<HeldConnection>,
    /// Lets `/held` answer.
    release: Arc<Notify>,
    _runtime: Runtime,
}

impl Server {
    fn start(limits: ConnectionLimits) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, release) = (CancellationToken::new(), Arc::new(Notify::new()));
        let (on_held, held) = channel();
        let (on_end, ended) = channel();
        let running = run(
            listener,
            Transport::Plain,
            app(on_held, release.clone()),
            limits,
            Meter::default(),
            stop.clone(),
        );
        runtime.spawn(async move {
            running.await;
            let _ = on_end.send(());
        });
        Self { address, stop, ended, held, release, _runtime: runtime }
    }

    fn connect(&self) -> TcpStream {
        let client = TcpStream::connect(self.address).unwrap();
        client.set_read_timeout(Some(MAX_WAIT)).unwrap();
        client
    }

    fn send(&self, request: &str) -> TcpStream {
        let mut client = self.connect();
        client.write_all(request.as_bytes()).unwrap();
        client
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.cancel();
        self.release.notify_waiters();
    }
}

fn app(held: Sender<HeldConnection>, release: Arc<Notify>) -> Router {
    let hold = async move || {
        let _holding = Holding(held.clone());
        let _ = held.send(HeldConnection::Begun);
        release.notified().await;
        "held"
    };
    Router::new()
        .route("/quick", get(async || "quick"))
        .route("/second", get(async || tokio::time::sleep(Duration::from_secs(1)).await))
        .route("/endless", get(async || Body::new(Endless)))
        .route("/body", post(read_body))
        .route("/held", get(hold))
}

async fn read_body(body: Body) -> StatusCode {
    match to_bytes(body, 1024).await {
        Ok(_) => StatusCode::OK,
        Err(error) if Error::is_late(&error) => StatusCode::REQUEST_TIMEOUT,
        Err(_) => StatusCode::BAD_REQUEST,
    }
}

/// A body that fills any socket buffer.
struct Endless;

impl hyper::body::Body for Endless {
    type Data = bytes::Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<hyper::body::Frame<bytes::Bytes>, Self::Error>>> {
        let chunk = bytes::Bytes::from_static(&[b'x'; 32 * 1024]);
        std::task::Poll::Ready(Some(Ok(hyper::body::Frame::data(chunk))))
    }
}

/// Reads one answer up to and with `end`.
fn read_until(client: &mut TcpStream, end: &str) -> String {
    let mut read = Vec::new();
    let mut byte = [0];
    while !read.ends_with(end.as_bytes()) {
        client.read_exact(&mut byte).unwrap();
        read.push(byte[0]);
    }
    String::from_utf8(read).unwrap()
}

fn read_to_end(client: &mut TcpStream) -> String {
    let mut rest = String::new();
    client.read_to_string(&mut rest).unwrap();
    rest
}

/// Whether the server stays silent, and the connection open, for a while.
fn is_silent(client: &mut TcpStream) -> bool {
    client.set_read_timeout(Some(SHORT)).unwrap();
    let read = client.read(&mut [0]);
    client.set_read_timeout(Some(MAX_WAIT)).unwrap();
    matches!(read, Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut))
}

#[test]
fn silent_client_is_closed() {
    let server = Server::start(ConnectionLimits { first_byte: SHORT, ..Default::default() });
    assert_eq!(read_to_end(&mut server.connect()), "");
}

#[test]
fn idle_connection_is_closed() {
    let server = Server::start(ConnectionLimits { idle: SHORT, ..Default::default() });
    let mut client = server.send(GET);
    read_until(&mut client, "quick");
    assert_eq!(read_to_end(&mut client), "");
}

#[test]
fn slow_header_is_refused_and_closed() {
    let server = Server::start(ConnectionLimits { header: SHORT, ..Default::default() });
    let answer = read_to_end(&mut server.send("GET /quick HTT"));
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
}

#[test]
fn slow_body_is_refused_and_closed() {
    let server = Server::start(ConnectionLimits { body: SHORT, ..Default::default() });
    let answer =
        read_to_end(&mut server.send("POST /body HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\nabc"));
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
}

#[test]
fn handler_longer_than_every_limit_is_answered() {
    let limits =
        ConnectionLimits { header: SHORT, idle: SHORT, body: SHORT, write: SHORT, ..Default::default() };
    let server = Server::start(limits);
    let answer = read_until(&mut server.send("GET /second HTTP/1.1\r\nhost: a\r\n\r\n"), "\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}

#[test]
fn idle_connection_outlives_header_deadline() {
    let server = Server::start(ConnectionLimits { header: SHORT, ..Default::default() });
    let mut client = server.connect();
    for _ in 0..3 {
        client.write_all(GET.as_bytes()).unwrap();
        read_until(&mut client, "quick");
        sleep(SHORT * 2);
    }
}

#[test]
fn unreading_client_is_cut() {
    let server = Server::start(ConnectionLimits { write: SHORT, ..Default::default() });
    let mut client = server.send("GET /endless HTTP/1.1\r\nhost: a\r\n\r\n");
    let given_up = Instant::now() + MAX_WAIT;
    // Nothing is read, so writing is the only way to learn of the end.
    while client.write_all(b"x").is_ok() {
        assert!(Instant::now() < given_up, "the connection is still open");
        sleep(SHORT);
    }
}

#[test]
fn header_beyond_the_buffer_is_refused() {
    let server = Server::start(ConnectionLimits::default());
    let long = "x".repeat(63 * 1024);
    let request = |name: &str| format!("GET /quick HTTP/1.1\r\nhost: a\r\n{name}: {long}\r\n\r\n");
    read_until(&mut server.send(&request("a")), "quick");
    // All of it is there at once, and part of it.
    let whole = request("a").replace(&long, &"x".repeat(100_000));
    let unended = whole.replace("\r\n\r\n", "");
    for too_long in [whole, unended] {
        let answer = read_until(&mut server.send(&too_long), "\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
    }
}

#[test]
fn connections_beyond_the_bound_wait_without_a_reserve() {
    let server = Server::start(ConnectionLimits { connections: 2, reserved: 0, ..Default::default() });
    let mut first = server.send(GET);
    let mut second = server.send(GET);
    read_until(&mut first, "quick");
    read_until(&mut second, "quick");
    let mut third = server.send(GET);
    assert!(is_silent(&mut third));
    drop(first);
    read_until(&mut third, "quick");
    second.write_all(GET.as_bytes()).unwrap();
    read_until(&mut second, "quick");
}

#[test]
fn silent_connection_beyond_the_bound_of_its_address_is_refused() {
    let server = Server::start(ConnectionLimits { per_address: 2, ..Default::default() });
    let mut first = server.send(GET);
    let mut second = server.send(GET);
    read_until(&mut first, "quick");
    read_until(&mut second, "quick");
    let refused = read_to_end(&mut server.connect());
    assert!(refused.starts_with("HTTP/1.1 503 ") && refused.contains("retry-after: "), "{refused}");
    assert!(refused.contains("x-content-type-options: nosniff\r\n"), "{refused}");
    drop(first);
    // Its end counts when the server has seen it.
    let given_up = Instant::now() + MAX_WAIT;
    let asks = || read_until(&mut server.send(GET), "\r\n\r\n");
    while !asks().starts_with("HTTP/1.1 200 ") {
        assert!(Instant::now() < given_up, "the first one still counts");
    }
    second.write_all(GET.as_bytes()).unwrap();
    read_until(&mut second, "quick");
}

#[test]
fn disconnect_drops_the_handler() {
    let server = Server::start(ConnectionLimits::default());
    let mut client = server.send(HELD);
    assert_eq!(server.held.recv_timeout(MAX_WAIT), Ok(HeldConnection::Begun));
    assert!(is_silent(&mut client));
    assert_eq!(server.held.try_recv().ok(), None);
    drop(client);
    assert_eq!(server.held.recv_timeout(MAX_WAIT), Ok(HeldConnection::Dropped));
}

#[test]
fn stop_closes_idle_connections_and_finishes_requests() {
    let server = Server::start(ConnectionLimits::default());
    let mut idle = server.send(GET);
    read_until(&mut idle, "quick");
    let mut fresh = server.connect();
    let mut busy = server.send(HELD);
    assert_eq!(server.held.recv_timeout(MAX_WAIT), Ok(HeldConnection::Begun));

    server.stop.cancel();
    assert_eq!(read_to_end(&mut idle), "");
    assert!(matches!(fresh.read(&mut [0]), Ok(0) | Err(_)));
    assert_eq!(server.ended.recv_timeout(SHORT), Err(RecvTimeoutError::Timeout));
    TcpStream::connect(server.address).expect_err("the listening socket is closed");

    server.release.notify_waiters();
    let answer = read_to_end(&mut busy);
    assert!(answer.contains("connection: close") && answer.ends_with("held"), "{answer}");
    server.ended.recv_timeout(MAX_WAIT).unwrap();
}

#[test]
fn stop_cuts_unfinished_requests() {
    let server = Server::start(ConnectionLimits { drain: SHORT, ..Default::default() });
    let _client = server.send(HELD);
    assert_eq!(server.held.recv_timeout(MAX_WAIT), Ok(HeldConnection::Begun));
    server.stop.cancel();
    assert_eq!(server.held.recv_timeout(MAX_WAIT), Ok(HeldConnection::Dropped));
    server.ended.recv_timeout(MAX_WAIT).unwrap();
}

#[test]
fn stop_ends_loop_waiting_for_a_slot() {
    let server = Server::start(ConnectionLimits { connections: 1, reserved: 0, ..Default::default() });
    let mut client = server.send(GET);
    read_until(&mut client, "quick");
    let _waiting = server.connect();
    server.stop.cancel();
    server.ended.recv_timeout(MAX_WAIT).unwrap();
}
