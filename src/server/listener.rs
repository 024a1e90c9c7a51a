//! The accept loop: accepts sockets, serves their connections, and shuts them down in order. This module has the
//! bounds, the number and the shutdown of connections. It never reads a request and never binds an address; no bad
//! socket and no full file table ends the loop. `connection` serves a single connection.
//!
//! Not `axum::serve`, which has no bound on connections and installs no timer. Not hyper's `header_read_timeout`, which
//! runs from the end of the previous request and so would close idle connections too.

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
use super::peers::{self, ProvenApp};
use super::reserve::{ProbesOnly, Reserve};
use super::source::{Proxies, SourcedApp};
use super::tls::{Protocol, Transport, shake_hands};
use super::unsent::{self, UnsentBudget, unsent_budget};
use angarium_core::source::Source;
use angarium_core::time::millis;
use angarium_metrics::{AuthenticationFailure, Meter};

/// The answer to a client without a place, not even one of the probe reserve. The time is that of
/// [`limits::CONNECTION_RETRY_SECONDS`].
const TOO_MANY: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 2\r\ncontent-length: 0\r\n\
      x-content-type-options: nosniff\r\n\r\n";

/// Number of unanswered keep-alive probes after which a client counts as disconnected.
const PROBES: u32 = 3;

/// Shortest keep-alive time of the operating system.
const SECOND: Duration = Duration::from_secs(1);

/// Bounds of the connections of one listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Max connections at once, at least 1. Default 4096: at about 20 KiB each that is 80 MiB, and it is below the
    /// usual limits on open files.
    pub connections: usize,
    /// Max connections of one address, at least 1. Default 1024: a quarter of all, and more than a load balancer keeps.
    /// Connections of a trusted proxy count for the address in its PROXY header, or for none.
    pub per_address: usize,
    /// Reserve for probes beyond these bounds, per class of addresses. A connection in the reserve is read, and gets an
    /// answer if it is a probe, else 503. Further connections get 503, or are closed before a TLS handshake. With 0,
    /// connections beyond `connections` wait in the kernel's backlog instead. Default 16.
    pub reserved: usize,
    /// Max concurrent requests on one HTTP/2 connection. Default 100, the minimum that RFC 9113 recommends.
    pub streams: u32,
    /// Silence of a client with a request in progress after which TCP keep-alive probes it; a client that does not
    /// answer counts as disconnected. So a long poll does not claim messages for a machine that lost its network.
    /// Default 20 s.
    pub probe: Duration,
    /// Max time until the first byte of a new connection. Default 10 s.
    pub first_byte: Duration,
    /// Max time of a request header from its first byte. Default 10 s.
    pub header: Duration,
    /// Max idle time of a connection between two requests. Default 90 s: load balancers keep idle connections for 60 to
    /// 75 s, and the load balancer should close first.
    pub idle: Duration,
    /// Max time that a handler waits for `body_step` bytes of a request body. Default 30 s.
    pub body: Duration,
    /// Bytes of a body that count as progress. Default 1024.
    pub body_step: usize,
    /// Max time that a write of an answer waits for a client that does not read. Default 30 s.
    pub write: Duration,
    /// Max bytes of unsent answers of all connections. Above it, the slowest connection of the address with the most
    /// unsent bytes is closed. Default 256 MiB.
    pub unsent: usize,
    /// Max time for requests in progress to finish after the server was told to stop. Default 25 s: orchestrators kill
    /// after 30 s.
    pub drain: Duration,
    /// Max request header in bytes, at least 8 KiB; a connection buffers somewhat more. A longer header is marked for
    /// the API, which answers 431; a much longer one gets 431 here. Default 64 KiB.
    pub buffer: usize,
    /// Max header fields of a request. A header with more is handled likewise. Default 90.
    pub fields: usize,
    /// Pause of the accept loop when the system has no file or memory for a new connection. Default 100 ms.
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
/// Returns when every connection has ended, at most `limits.drain` after `stop` unless a handler blocks its thread. The
/// listening socket is closed first, and idle connections end at once. Dropping the future stops accepting; the open
/// connections continue until `stop`.
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

/// As [`run`], behind proxies that may state the source of a connection or a request. Each request carries a
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
    // Tracks the tasks of connections and of their requests. Each ends when its client disconnects, by a deadline, or
    // by `stop` and `drain`.
    let tasks = TaskTracker::new();
    let addresses = Addresses::new(limits.per_address.max(1));
    let unsent = unsent_budget(limits.unsent);
    if limits.unsent < usize::MAX {
        unsent::watch(&meter, unsent.clone());
    }
    let host = Host { proxies, transport, app, limits, unsent, addresses, tasks: tasks.clone(), meter };
    while let Some((slot, stream, from)) = next(&listener, &slots, &limits, &stop).await {
        // A child token per connection, so that connections do not share the lock of one token.
        let (host, stop) = (host.clone(), stop.child_token());
        let place = slot.and_then(|slot| {
            if host.proxies.trust(from.ip()) {
                // A proxy forwards many clients, which count by the addresses that it states.
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

/// The shared state of all connections of a listener.
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
    /// Serves a connection for which only the probe reserve has a place. On a plain connection, a client that sends
    /// nothing gets the refusal.
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
        // The reserve has counted its connections per address already.
        let (limits, addresses) = (limits.of_probes(), Addresses::new(usize::MAX));
        let host = Host { proxies, transport, app, limits, unsent, addresses, tasks, meter };
        // Boxed, because otherwise every connection would reserve room for this state.
        if timeout(limits::PROBE_CONNECTION, Box::pin(host.welcome(stream, from, stop))).await.is_err() {
            debug!(%from, "connection cut: its probe took too long");
        }
    }

    /// Serves a connection to its end.
    async fn welcome(self, stream: TcpStream, from: IpAddr, stop: CancellationToken) {
        let seen = Source::new(from, !matches!(self.transport, Transport::Plain));
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
            Transport::Peers(gate) => {
                let admitted = tokio::select! {
                    biased;
                    () = stop.cancelled() => return,
                    admitted = peers::admit(stream, gate, from, self.limits.first_byte) => admitted,
                };
                match admitted {
                    Ok((stream, proof)) => {
                        let (until, app) = (stop.child_token(), ProvenApp { app, proof });
                        let serving = serve(stream, app, client, self.limits, until.clone());
                        peers::serve_while_admitted(serving, gate.trust(), proof, until).await
                    }
                    Err(error) => {
                        if error.kind() != io::ErrorKind::UnexpectedEof {
                            self.meter.fail_authentication(AuthenticationFailure::PeerCertificate);
                        }
                        return debug!(%from, %error, "connection of no replica");
                    }
                }
            }
        };
        if let Err(error) = ended {
            debug!(%error, "connection failed");
        }
    }

    /// Counts a connection of a client at `address`. If it is one too many, refuses it and returns none.
    fn count(&self, stream: &TcpStream, address: IpAddr) -> Option<CountedConnection> {
        let counted = self.addresses.admit(address);
        if counted.is_none() {
            self.refuse(stream);
        }
        counted
    }

    /// Sends the refusal, if the connection is plain and the socket accepts it at once.
    fn refuse(&self, stream: &TcpStream) {
        self.meter.refuse_connection();
        if let Transport::Plain = self.transport {
            let _ = SockRef::from(stream).send(TOO_MANY);
        }
    }
}

/// Returns the next connection with its slot, if one is free; none once the server stops. Without a probe reserve, it
/// waits for the slot first and accepts nothing before.
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

/// Accepts until it succeeds: skips a client that gave up in the backlog, and pauses when the system lacks a resource.
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

/// Sets the options of a socket: answers are sent without delay, and keep-alive detects a client that disappeared.
fn set_up(stream: &TcpStream, probe: Duration) {
    let (time, interval) = (probe.max(SECOND), (probe / PROBES).max(SECOND));
    let keepalive = TcpKeepalive::new().with_time(time).with_interval(interval).with_retries(PROBES);
    let socket = SockRef::from(stream);
    if let Err(error) = stream.set_nodelay(true).and_then(|()| socket.set_tcp_keepalive(&keepalive)) {
        debug!(%error, "cannot set up a connection");
    }
}

/// Whether an error concerns one connection and not the system.
fn gave_up(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}
