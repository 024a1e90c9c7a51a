//! The accept loop: sockets in, connections served, an orderly end.
//! Owns the bounds of connections, their number, and their shut-down. Never looks into a request, never binds an address,
//! and never lets one bad socket or a full file table end the loop. Deadlines are in `deadline` and `exchange`.
//!
//! Not `axum::serve`: it has no bound on connections and installs no timer. Not hyper's `header_read_timeout`: it runs
//! from the end of the request before, so it would end idle connections too.
//!
//! A client that closes its writing side after the request (as `nc -N` does) is taken for gone and may get no answer:
//! on the wire it looks the same as a client that went away, whose long poll must end at once lest it claims messages
//! for nobody; so hyper's `half_close` stays off.
//!
//! Room is left for TLS ([`serve`] takes any stream; the handshake gets `first_byte`) and for HTTP/2 (another
//! `serve_connection` in [`serve`], with the phase counting streams).

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};

use super::deadline::{DeadlineIo, Phase};
use super::exchange::Exchange;

/// The least read buffer hyper accepts, in bytes.
const LEAST_BUFFER: usize = 8 * 1024;

/// Every bound of the connections of one listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Connections served at once, at least 1. More wait in the kernel's backlog, where they cost us nothing. Default 4096: at
    /// about 20 KiB each that is 80 MiB, and it leaves room below the usual limits on open files.
    pub connections: usize,
    /// How long a new connection may send nothing. Default 10 s.
    pub first_byte: Duration,
    /// How long a request's header may take from its first byte on. Default 10 s.
    pub header: Duration,
    /// How long a connection may rest between two requests. Default 90 s: load balancers keep theirs for 60 to 75 s, and
    /// whoever closes first must not be us.
    pub idle: Duration,
    /// How long a handler waits for `body_step` bytes of a request's body. Default 30 s.
    pub body: Duration,
    /// What counts as progress of a body, in bytes. Default 1024.
    pub body_step: usize,
    /// How long an answer may wait for its client to read on. Default 30 s.
    pub write: Duration,
    /// How long requests in progress may take to finish once the server stops. Default 25 s: orchestrators kill after 30 s.
    pub drain: Duration,
    /// The most a connection buffers, and with it the longest request header, in bytes, at least 8 KiB. A longer header
    /// is answered 431. Default 64 KiB. The number of headers is hyper's: 100.
    pub buffer: usize,
    /// How long the loop rests when the system has no file or memory for a new connection. Default 100 ms.
    pub accept_pause: Duration,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self {
            connections: 4096,
            first_byte: Duration::from_secs(10),
            header: Duration::from_secs(10),
            idle: Duration::from_secs(90),
            body: Duration::from_secs(30),
            body_step: 1024,
            write: Duration::from_secs(30),
            drain: Duration::from_secs(25),
            buffer: 64 * 1024,
            accept_pause: Duration::from_millis(100),
        }
    }
}

/// Serves `app` on `listener` until `stop` is cancelled, then lets the requests in progress finish.
///
/// Returns when every connection has ended, at most `limits.drain` after `stop` unless a handler blocks its thread. Idle
/// connections end at once, the listening socket is closed first. Dropping the future stops accepting and leaves the
/// connections to `stop`.
pub async fn run(listener: TcpListener, app: Router, limits: ConnectionLimits, stop: CancellationToken) {
    // Resolves the routes once instead of per connection.
    let app = app.with_state(());
    let slots = Arc::new(Semaphore::new(limits.connections.clamp(1, Semaphore::MAX_PERMITS)));
    // Holds the connections' tasks. Each ends with its client, by a deadline, or by `stop` and `drain`.
    let connections = TaskTracker::new();
    while let Some((slot, stream)) = next(&listener, &slots, limits.accept_pause, &stop).await {
        // A token of its own, so that connections do not share the lock of the one.
        let stop = stop.child_token();
        let app = app.clone();
        connections.spawn(async move {
            let _slot = slot;
            if let Err(error) = serve(stream, app, limits, stop).await {
                debug!(?error, "connection failed");
            }
        });
    }
    drop(listener);
    connections.close();
    connections.wait().await;
}

/// The next connection with its slot; none once the server stops. The slot comes first: without one nothing is accepted.
async fn next(
    listener: &TcpListener,
    slots: &Arc<Semaphore>,
    pause: Duration,
    stop: &CancellationToken,
) -> Option<(OwnedSemaphorePermit, TcpStream)> {
    let arrival = async {
        let slot = Arc::clone(slots).acquire_owned().await.ok()?;
        Some((slot, accept(listener, pause).await))
    };
    tokio::select! {
        biased;
        () = stop.cancelled() => None,
        arrived = arrival => arrived,
    }
}

/// Accepts until it succeeds: a client that gave up in the backlog is skipped, a system short of something gets a rest.
async fn accept(listener: &TcpListener, pause: Duration) -> TcpStream {
    let mut said = false;
    loop {
        let error = match listener.accept().await {
            Ok((stream, _)) => {
                if let Err(error) = stream.set_nodelay(true) {
                    debug!(%error, "cannot set TCP_NODELAY");
                }
                return stream;
            }
            Err(error) => error,
        };
        if gave_up(&error) {
            continue;
        }
        if !said {
            warn!(%error, "cannot accept connections for now");
            said = true;
        }
        tokio::time::sleep(pause).await;
    }
}

/// Errors that are of one connection and not of the system.
fn gave_up(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

/// Serves one connection to its end: the client closes, a deadline passes, or `stop` is cancelled and the request in
/// progress is answered, for which it has `limits.drain`.
///
/// # Errors
///
/// What broke the connection: a deadline, a reset, bytes that are not HTTP. Only of interest to a debug log.
pub async fn serve<T>(
    stream: T,
    app: Router,
    limits: ConnectionLimits,
    stop: CancellationToken,
) -> hyper::Result<()>
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let phase = Phase::fresh();
    let io = TokioIo::new(DeadlineIo::new(stream, phase.clone(), limits));
    let exchange = Exchange::new(app, phase, limits);
    let mut http = http1::Builder::new();
    http.half_close(false).header_read_timeout(None).max_buf_size(limits.buffer.max(LEAST_BUFFER));
    let mut connection = pin!(http.serve_connection(io, exchange));
    tokio::select! {
        biased;
        ended = connection.as_mut() => return ended,
        () = stop.cancelled() => connection.as_mut().graceful_shutdown(),
    }
    match tokio::time::timeout(limits.drain, connection).await {
        Ok(ended) => ended,
        Err(_) => {
            debug!("connection cut: its request did not finish in time");
            Ok(())
        }
    }
}
