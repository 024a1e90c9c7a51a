//! One connection, in HTTP/1.1 or HTTP/2, from its first byte to its end. This module configures hyper. It never
//! accepts a connection and knows no route.
//!
//! A client that closes its writing side after the request (as `nc -N` does) is treated as disconnected and may get no
//! answer. On the wire it looks the same as a client that disconnected, whose long poll must end at once, because it
//! would otherwise claim messages for no client. So hyper's `half_close` stays off.
//!
//! HTTP/2 is used only if the client chose it in the TLS handshake. Without TLS the protocol would have to be guessed
//! from the first bytes, and hyper waits for them without a limit.

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

/// Min read buffer that hyper accepts, in bytes.
const MIN_BUFFER: usize = 8 * 1024;

/// Max bytes of bodies that a client may send before the service reads them: of one request, and of all requests on a
/// connection. A post of the usual max size takes two round trips more than without a bound.
const STREAM_WINDOW: u32 = 128 * 1024;
const CONNECTION_WINDOW: u32 = 512 * 1024;

/// Max bytes of one answer that are buffered for a slow HTTP/2 client, in addition to the answer itself.
const SEND_BUFFER: usize = 64 * 1024;

/// The client of a connection.
#[derive(Clone, Debug)]
pub struct Client {
    pub address: IpAddr,
    /// The budget of its unsent answers.
    pub unsent: UnsentBudget,
}

/// Serves one HTTP/1.1 connection until the client closes it, a deadline passes, or `stop` is cancelled. After `stop`,
/// the request in progress has `limits.drain` to be answered.
/// # Errors
///
/// The reason why the connection broke: a deadline, a reset, bytes that are not HTTP. It is only of interest for the
/// debug log.
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
    // The buffer size alone does not bound a header: the buffer grows beyond it as long as there is data to read.
    http.half_close(false).header_read_timeout(None).max_buf_size(most.max(MIN_BUFFER)).max_header_size(most);
    let connection = http.serve_connection(io, Exchange::new(app, phase, unsent, limits));
    drive(connection, http1::Connection::graceful_shutdown, limits.drain, stop).await
}

/// Serves one HTTP/2 connection likewise. Its requests run in `tasks`; each ends with its answer, with the connection,
/// or when its client cancels it.
///
/// # Errors
///
/// As for [`serve`].
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

/// Runs a connection to its end. Once the server stops, `end` asks the connection to shut down.
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

/// Spawns hyper's tasks of a connection in a tracker that the shutdown waits for.
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
