//! One connection from its first byte to its end, in HTTP/1.1 or HTTP/2.
//! Owns how hyper is set up. Never accepts a connection, and knows no route.
//!
//! A client that closes its writing side after the request (as `nc -N` does) is taken for gone and may get no answer:
//! on the wire it looks the same as a client that went away, whose long poll must end at once lest it claims messages
//! for no client; so hyper's `half_close` stays off.
//!
//! HTTP/2 is spoken only to who chose it in the handshake of TLS. In the clear it would have to be guessed from the
//! first bytes, and hyper's guess waits for them for ever.

use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::time::Duration;

use hyper::rt::Executor;
use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::debug;

use super::deadline::{DeadlineIo, Phase};
use super::exchange::{App, Exchange};
use super::limits::HEADER_EXCESS_BYTES;
use super::listener::ConnectionLimits;
use super::unsent::{UnsentAnswers, UnsentBudget};

/// The least read buffer hyper accepts, in bytes.
const MIN_BUFFER: usize = 8 * 1024;

/// Bytes of bodies that a client may send before they are read: of one request, and of all on a connection. A post of
/// the usual greatest size takes two round trips more than without a bound.
const STREAM_WINDOW: u32 = 128 * 1024;
const CONNECTION_WINDOW: u32 = 512 * 1024;

/// Bytes of one answer that wait for an HTTP/2 client to read on, beside the answer itself.
const SEND_BUFFER: usize = 64 * 1024;

/// Who is at the other end of a connection.
#[derive(Clone, Debug)]
pub struct Client {
    pub address: IpAddr,
    /// What its answers count for.
    pub unsent: UnsentBudget,
}

/// Serves one connection of HTTP/1.1 to its end: the client closes, a deadline passes, or `stop` is cancelled and the
/// request in progress is answered, for which it has `limits.drain`.
///
/// # Errors
///
/// What broke the connection: a deadline, a reset, bytes that are not HTTP. Only of interest to a debug log.
pub async fn serve<T, A>(
    stream: T,
    app: A,
    client: Client,
    limits: ConnectionLimits,
    stop: CancellationToken,
) -> hyper::Result<()>
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    A: App,
{
    let phase = Phase::requests();
    let unsent = UnsentAnswers::of_requests(client.unsent, client.address);
    let io = TokioIo::new(DeadlineIo::new(stream, phase.clone(), unsent.clone(), limits));
    let mut http = http1::Builder::new();
    let most = limits.buffer.saturating_add(HEADER_EXCESS_BYTES);
    // Alone, the size of the buffer is no bound of a header: the buffer grows beyond it, by as much as there is to read.
    http.half_close(false).header_read_timeout(None).max_buf_size(most.max(MIN_BUFFER)).max_header_size(most);
    let connection = http.serve_connection(io, Exchange::new(app, phase, unsent, limits));
    drive(connection, http1::Connection::graceful_shutdown, limits.drain, stop).await
}

/// Serves one connection of HTTP/2 likewise. Its requests run in tasks of `tasks`; each ends with its client's interest,
/// with its answer, or with the connection.
///
/// # Errors
///
/// As of [`serve`].
pub async fn serve_h2<T, A>(
    stream: T,
    app: A,
    client: Client,
    limits: ConnectionLimits,
    tasks: TaskTracker,
    stop: CancellationToken,
) -> hyper::Result<()>
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    A: App,
{
    let phase = Phase::streams();
    let unsent = UnsentAnswers::of_streams(client.unsent, client.address);
    let io = TokioIo::new(DeadlineIo::new(stream, phase.clone(), unsent.clone(), limits));
    let most = limits.buffer.saturating_add(HEADER_EXCESS_BYTES);
    let mut http = http2::Builder::new(TrackedExecutor(tasks));
    http.timer(TokioTimer::new())
        .keep_alive_interval(limits.probe)
        .keep_alive_timeout(limits.probe)
        .max_concurrent_streams(limits.streams)
        .max_header_list_size(u32::try_from(most).unwrap_or(u32::MAX))
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(SEND_BUFFER);
    let connection = http.serve_connection(io, Exchange::new(app, phase, unsent, limits));
    drive(connection, http2::Connection::graceful_shutdown, limits.drain, stop).await
}

/// Runs a connection to its end, which `end` asks for once the server stops.
async fn drive<C: Future<Output = hyper::Result<()>>>(
    connection: C,
    end: fn(Pin<&mut C>),
    drain: Duration,
    stop: CancellationToken,
) -> hyper::Result<()> {
    let mut connection = pin!(connection);
    tokio::select! {
        biased;
        ended = connection.as_mut() => return ended,
        () = stop.cancelled() => end(connection.as_mut()),
    }
    match tokio::time::timeout(drain, connection).await {
        Ok(ended) => ended,
        Err(_) => {
            debug!("connection cut: its requests did not finish in time");
            Ok(())
        }
    }
}

/// Spawns what hyper runs beside a connection where the shutdown waits for it.
#[derive(Clone, Debug)]
struct TrackedExecutor(TaskTracker);

impl<F> Executor<F> for TrackedExecutor
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, task: F) {
        self.0.spawn(task);
    }
}
