//! The accept loop: sockets in, connections served, an orderly end.
//! Owns the bounds of connections, their number, and their shut-down. Never looks into a request, never binds an address,
//! and never lets one bad socket or a full file table end the loop. What a connection does is in `connection`.
//!
//! Not `axum::serve`: it has no bound on connections and installs no timer. Not hyper's `header_read_timeout`: it runs
//! from the end of the request before, so it would end idle connections too.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, info, warn};

use super::addresses::{Addresses, CountedConnection};
use super::connection::{Client, serve, serve_h2};
use super::exchange::App;
use super::limits;
use super::reserve::{ProbesOnly, Reserve};
use super::source::{Proxies, SourcedApp};
use super::tls::{Protocol, Transport, shake_hands};
use super::unsent::{self, UnsentBudget, unsent_budget};
use angarium_core::source::Source;
use angarium_core::time::millis;
use angarium_metrics::Meter;

/// What a client is told for whom there is no place, not even one of probes. The time is that of
/// [`limits::CONNECTION_RETRY_SECONDS`].
const TOO_MANY: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 2\r\ncontent-length: 0\r\n\
      x-content-type-options: nosniff\r\n\r\n";

/// Questions to a client that answers none, after which it is taken for gone.
const PROBES: u32 = 3;

/// The system counts no less.
const SECOND: Duration = Duration::from_secs(1);

/// Every bound of the connections of one listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Connections served at once, at least 1. Default 4096: at about 20 KiB each that is 80 MiB, and it leaves room below
    /// the usual limits on open files.
    pub connections: usize,
    /// Connections of one address, at least 1. Default 1024: a quarter of all, and more than a load balancer keeps. Those of a
    /// trusted proxy count for the address that its PROXY header tells, or for none.
    pub per_address: usize,
    /// What becomes of connections beyond these bounds: so many of each class of addresses are read, and answered if they
    /// probe, else 503; all others are answered 503, or closed before a handshake. With 0 those beyond `connections` wait in
    /// the kernel's backlog instead. Default 16.
    pub reserved: usize,
    /// Requests at once on one connection of HTTP/2. Default 100, the least that RFC 9113 recommends.
    pub streams: u32,
    /// How long a client may be silent while a request of it is in progress before it is asked whether it is still there;
    /// one that does not answer is taken for gone. Default 20 s. So a long poll does not claim messages for a machine that
    /// lost its network.
    pub probe: Duration,
    /// How long a new connection may send nothing. Default 10 s.
    pub first_byte: Duration,
    /// How long a request's header may take from its first byte on. Default 10 s.
    pub header: Duration,
    /// How long a connection may rest between two requests. Default 90 s: load balancers keep theirs for 60 to 75 s,
    /// and the side that closes first must not be us.
    pub idle: Duration,
    /// How long a handler waits for `body_step` bytes of a request's body. Default 30 s.
    pub body: Duration,
    /// What counts as progress of a body, in bytes. Default 1024.
    pub body_step: usize,
    /// How long an answer may wait for its client to read on. Default 30 s.
    pub write: Duration,
    /// Bytes of answers that wait for their clients to read on, in all. Beyond them the slowest connection of the address
    /// that has most of them is cut. Default 256 MiB.
    pub unsent: usize,
    /// How long requests in progress may take to finish once the server stops. Default 25 s: orchestrators kill after 30 s.
    pub drain: Duration,
    /// The longest request header, in bytes, at least 8 KiB; a connection buffers somewhat more. A longer header is marked for
    /// the API, which answers 431, or answered so here when it is much longer. Default 64 KiB.
    pub buffer: usize,
    /// Fields of a request header. One with more is marked or answered likewise. Default 90.
    pub fields: usize,
    /// How long the loop rests when the system has no file or memory for a new connection. Default 100 ms.
    pub accept_pause: Duration,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self {
            connections: 4096,
            per_address: 1024,
            reserved: limits::PROBE_CONNECTIONS,
            streams: 100,
            probe: Duration::from_secs(20),
            first_byte: Duration::from_secs(10),
            header: Duration::from_secs(10),
            idle: Duration::from_secs(90),
            body: Duration::from_secs(30),
            body_step: 1024,
            write: Duration::from_secs(30),
            unsent: 256 << 20,
            drain: Duration::from_secs(25),
            buffer: 64 * 1024,
            fields: limits::HEADER_FIELDS,
            accept_pause: Duration::from_millis(100),
        }
    }
}

/// Serves `app` on `listener` until `stop` is cancelled, then lets the requests in progress finish.
///
/// Returns when every connection has ended, at most `limits.drain` after `stop` unless a handler blocks its thread. Idle
/// connections end at once, the listening socket is closed first. Dropping the future stops accepting and leaves the
/// connections to `stop`.
pub async fn run<A: App>(
    listener: TcpListener,
    transport: Transport,
    app: A,
    limits: ConnectionLimits,
    meter: Meter,
    stop: CancellationToken,
) {
    run_behind(Proxies::default(), listener, transport, app, limits, meter, stop).await;
}

/// As [`run`], behind proxies that may say where a connection or a request is from. Each request carries a
/// [`Source`].
pub async fn run_behind<A: App>(
    proxies: Proxies,
    listener: TcpListener,
    transport: Transport,
    app: A,
    limits: ConnectionLimits,
    meter: Meter,
    stop: CancellationToken,
) {
    let slots = Arc::new(Semaphore::new(limits.connections.clamp(1, Semaphore::MAX_PERMITS)));
    let reserve = Reserve::new(limits.reserved);
    // Holds the tasks of connections and of their requests. Each ends with its client, by a deadline, or by `stop` and
    // `drain`.
    let tasks = TaskTracker::new();
    let addresses = Addresses::new(limits.per_address.max(1));
    let unsent = unsent_budget(limits.unsent);
    if limits.unsent < usize::MAX {
        unsent::watch(&meter, unsent.clone());
    }
    let host = Host { proxies, transport, app, limits, unsent, addresses, tasks: tasks.clone(), meter };
    while let Some((slot, stream, from)) = next(&listener, &slots, &limits, &stop).await {
        // A token of its own, so that connections do not share the lock of the one.
        let (host, stop) = (host.clone(), stop.child_token());
        let place = slot.and_then(|slot| {
            if host.proxies.trust(from.ip()) {
                // It brings many clients: they count by what it states of them.
                Some((slot, None))
            } else {
                Some((slot, Some(host.addresses.admit(from.ip())?)))
            }
        });
        let (place, reserved) = match place {
            Some(place) => (Some(place), None),
            None => (None, reserve.admit(from.ip())),
        };
        if place.is_none() && reserved.is_none() {
            host.refuse(&stream);
            continue;
        }
        let open = host.meter.open_connection();
        tasks.spawn(async move {
            let _held = (place, open);
            match reserved {
                None => host.welcome(stream, from.ip(), stop).await,
                Some(_reserved) => host.welcome_probe(stream, from.ip(), stop).await,
            }
        });
    }
    drop(listener);
    tasks.close();
    tasks.wait().await;
}

/// What every connection needs.
#[derive(Clone)]
struct Host<A> {
    proxies: Proxies,
    transport: Transport,
    app: A,
    limits: ConnectionLimits,
    unsent: UnsentBudget,
    addresses: Addresses,
    tasks: TaskTracker,
    meter: Meter,
}

impl<A: App> Host<A> {
    /// Answers a connection for which there is no place but one of probes. One that states nothing in the clear is told
    /// that there is none.
    async fn welcome_probe(self, stream: TcpStream, from: IpAddr, stop: CancellationToken) {
        if let Transport::Plain = self.transport {
            let mut first = [0];
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                spoken = timeout(limits::PROBE_HEADER, stream.peek(&mut first)) => if spoken.is_err() {
                    return self.refuse(&stream);
                },
            }
        }
        let app = ProbesOnly::new(self.app, self.meter.clone(), stop.clone());
        let Self { proxies, transport, limits, unsent, tasks, meter, .. } = self;
        // Those of one address were counted already.
        let (limits, addresses) = (limits.of_probes(), Addresses::new(usize::MAX));
        let host = Host { proxies, transport, app, limits, unsent, addresses, tasks, meter };
        // Apart, for the room that every connection would need else.
        if timeout(limits::PROBE_CONNECTION, Box::pin(host.welcome(stream, from, stop))).await.is_err() {
            debug!(%from, "connection cut: its probe took too long");
        }
    }

    /// Serves a connection to its end.
    async fn welcome(self, stream: TcpStream, from: IpAddr, stop: CancellationToken) {
        let seen = Source::new(from, matches!(self.transport, Transport::Tls(_)));
        let source = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            source = self.proxies.source(&stream, seen, self.limits.first_byte) => source,
        };
        let connection = match source {
            Ok(connection) => connection,
            Err(error) => return debug!(%from, %error, "connection of a proxy failed"),
        };
        let address = connection.address.unwrap_or(from).to_canonical();
        let _counted = if address == from.to_canonical() {
            None
        } else {
            match self.count(&stream, address) {
                None => return,
                counted => counted,
            }
        };
        let client = Client { address, unsent: self.unsent };
        let app = SourcedApp { app: self.app, connection, proxies: self.proxies };
        let ended = match &self.transport {
            Transport::Plain => serve(stream, app, client, self.limits, stop).await,
            Transport::Tls(current) => {
                let credentials = Arc::clone(&current.borrow());
                let shaken = tokio::select! {
                    biased;
                    () = stop.cancelled() => return,
                    shaken = shake_hands(stream, &credentials, self.limits.first_byte) => shaken,
                };
                match shaken {
                    Ok((stream, Protocol::Http1)) => serve(stream, app, client, self.limits, stop).await,
                    Ok((stream, Protocol::Http2)) => {
                        serve_h2(stream, app, client, self.limits, self.tasks, stop).await
                    }
                    Err(error) => return debug!(%error, "no handshake"),
                }
            }
        };
        if let Err(error) = ended {
            debug!(%error, "connection failed");
        }
    }

    /// Counts a connection of a client at `address`; refuses it, and returns none, when that would be too many.
    fn count(&self, stream: &TcpStream, address: IpAddr) -> Option<CountedConnection> {
        let counted = self.addresses.admit(address);
        if counted.is_none() {
            self.refuse(stream);
        }
        counted
    }

    /// States that there are too many, if that can be said at once and in the clear.
    fn refuse(&self, stream: &TcpStream) {
        self.meter.refuse_connection();
        if let Transport::Plain = self.transport {
            let _ = SockRef::from(stream).send(TOO_MANY);
        }
    }
}

/// The next connection with its slot, if there is one; none once the server stops. Where no room is reserved for probes
/// the slot is first: without one nothing is accepted.
async fn next(
    listener: &TcpListener,
    slots: &Arc<Semaphore>,
    limits: &ConnectionLimits,
    stop: &CancellationToken,
) -> Option<(Option<OwnedSemaphorePermit>, TcpStream, SocketAddr)> {
    let arrival = async {
        let before = match limits.reserved {
            0 => Some(Arc::clone(slots).acquire_owned().await.ok()?),
            _ => None,
        };
        let (stream, from) = accept(listener, limits.accept_pause).await;
        set_up(&stream, limits.probe);
        let slot = before.or_else(|| Arc::clone(slots).try_acquire_owned().ok());
        Some((slot, stream, from))
    };
    tokio::select! {
        biased;
        () = stop.cancelled() => None,
        arrived = arrival => arrived,
    }
}

/// Accepts until it succeeds: a client that gave up in the backlog is skipped, a system short of something gets a rest.
async fn accept(listener: &TcpListener, pause: Duration) -> (TcpStream, SocketAddr) {
    let mut failing: Option<Instant> = None;
    loop {
        let error = match listener.accept().await {
            Ok(arrived) => {
                if let Some(since) = failing {
                    info!(away_ms = millis(since.elapsed()), "connections accepted again");
                }
                return arrived;
            }
            Err(error) => error,
        };
        if gave_up(&error) {
            continue;
        }
        if failing.is_none() {
            warn!(%error, "connections not accepted");
            failing = Some(Instant::now());
        }
        tokio::time::sleep(pause).await;
    }
}

/// Answers leave at once, and a client that vanished without a word is found out by the system.
fn set_up(stream: &TcpStream, probe: Duration) {
    let (time, interval) = (probe.max(SECOND), (probe / PROBES).max(SECOND));
    let keepalive = TcpKeepalive::new().with_time(time).with_interval(interval).with_retries(PROBES);
    let socket = SockRef::from(stream);
    if let Err(error) = stream.set_nodelay(true).and_then(|()| socket.set_tcp_keepalive(&keepalive)) {
        debug!(%error, "cannot set up a connection");
    }
}

/// Errors that are of one connection and not of the system.
fn gave_up(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}
