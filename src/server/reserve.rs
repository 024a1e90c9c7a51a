//! The reserve of connections for probes: when there is no place for another connection, a load balancer and an
//! orchestrator can still check the service, and do not mistake a busy service for a dead one. This module admits and
//! answers the connections in the reserve. `listener` decides when the reserve is needed.
//!
//! ```text
//! connection ──▶ place, and few enough of its address? ──yes──▶ served
//!                          │ no
//!                          ▼
//!                room left for its class and its address? ──no──▶ 503, closed
//!                          │ yes
//!                          ▼
//!       2 s for the handshake, 2 s for the header, 10 s in all; one request
//!                          │
//!             of a probe? ─┴─ no: 503, closed ─┴─ yes: answered, closed
//! ```

use std::convert::Infallible;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Body;
use http::{HeaderValue, Method, Request, Response, StatusCode, Version, header};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tower::Service;

use super::addresses::{Addresses, CountedConnection};
use super::exchange::App;
use super::limits;
use super::listener::ConnectionLimits;
use angarium_core::probe;
use angarium_metrics::Meter;

/// The class of an address, as far as the address itself shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    ThisMachine,
    Private,
    Public,
}

impl Class {
    fn of(address: IpAddr) -> Self {
        let address = address.to_canonical();
        let is_private = match address {
            IpAddr::V4(address) => {
                let [first, second, ..] = address.octets();
                // Providers assign addresses of RFC 6598 to nodes of clusters.
                let is_shared = first == 100 && (64..128).contains(&second);
                address.is_private() || address.is_link_local() || is_shared
            }
            IpAddr::V6(address) => address.is_unique_local() || address.is_unicast_link_local(),
        };
        match address {
            _ if address.is_loopback() => Self::ThisMachine,
            _ if is_private => Self::Private,
            _ => Self::Public,
        }
    }
}

/// The places that are reserved for probes.
#[derive(Debug)]
pub struct Reserve {
    /// In the order of the classes.
    places: [Arc<Semaphore>; 3],
    addresses: Addresses,
}

/// The place of a probe, until this is dropped.
#[derive(Debug)]
pub struct ReservedPlace {
    _place: OwnedSemaphorePermit,
    _counted: CountedConnection,
}

impl Reserve {
    /// Creates a reserve with `places` for each class of addresses.
    pub fn new(places: usize) -> Self {
        let class = || Arc::new(Semaphore::new(places.min(Semaphore::MAX_PERMITS)));
        let addresses = Addresses::new(limits::PROBE_CONNECTIONS_PER_ADDRESS);
        Self { places: [class(), class(), class()], addresses }
    }

    /// Reserves a place for a connection from `address`; none when its class is full or the address has too many.
    pub fn admit(&self, address: IpAddr) -> Option<ReservedPlace> {
        let place = Arc::clone(&self.places[Class::of(address) as usize]).try_acquire_owned().ok()?;
        Some(ReservedPlace { _place: place, _counted: self.addresses.admit(address)? })
    }
}

impl ConnectionLimits {
    /// Returns the bounds of a connection in the reserve.
    pub fn of_probes(self) -> Self {
        let header = limits::PROBE_HEADER;
        Self {
            streams: 1,
            first_byte: self.first_byte.min(header),
            header: self.header.min(header),
            idle: self.idle.min(header),
            body: self.body.min(header),
            drain: limits::PROBE_CONNECTION,
            buffer: self.buffer.min(limits::PROBE_HEADER_BYTES),
            ..self
        }
    }
}

/// An app that answers one request of a connection, if it is a probe, and then ends the connection.
#[derive(Clone, Debug)]
pub struct ProbesOnly<A> {
    app: A,
    meter: Meter,
    /// Cancelled at the first request, so that no further request is read.
    end: CancellationToken,
}

impl<A> ProbesOnly<A> {
    /// Wraps `app`. The first request cancels `end`.
    pub fn new(app: A, meter: Meter, end: CancellationToken) -> Self {
        Self { app, meter, end }
    }
}

/// The future of an answer.
type ResponseFuture = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

impl<A: App> Service<Request<Body>> for ProbesOnly<A> {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = ResponseFuture;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.app.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> ResponseFuture {
        let is_first = !self.end.is_cancelled();
        self.end.cancel();
        let has_close = request.version() <= Version::HTTP_11;
        let answer = if is_first && is_probe(&request) {
            Ok(self.app.call(request))
        } else {
            self.meter.refuse_connection();
            Err(refusal())
        };
        Box::pin(async move {
            let mut answer = match answer {
                Ok(answer) => answer.await?,
                Err(refusal) => refusal,
            };
            if has_close {
                answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            Ok(answer)
        })
    }
}

/// Whether a request only checks the health of the service. None of these requests has a body.
fn is_probe(request: &Request<Body>) -> bool {
    let reads = [Method::GET, Method::HEAD].contains(request.method());
    reads && probe::is_probe(request.uri().path())
}

/// Returns the answer to a request that is not a probe.
fn refusal() -> Response<Body> {
    let mut refusal = Response::new(Body::empty());
    *refusal.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    let headers = refusal.headers_mut();
    headers.insert(header::RETRY_AFTER, HeaderValue::from(limits::CONNECTION_RETRY_SECONDS));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    refusal
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn addresses_have_the_class_of_their_network() {
        for (class, texts) in [
            (Class::ThisMachine, &["127.0.0.1", "127.8.0.1", "::1", "::ffff:127.0.0.1"][..]),
            (
                Class::Private,
                &["10.1.2.3", "172.16.0.1", "192.168.0.1", "169.254.1.1", "100.64.0.1", "fd00::1"],
            ),
            (Class::Private, &["fe80::1", "::ffff:10.0.0.1"]),
            (Class::Public, &["8.8.8.8", "100.128.0.1", "172.32.0.1", "2001:db8::1", "0.0.0.0"]),
        ] {
            texts.iter().for_each(|text| assert_eq!(Class::of(address(text)), class, "{text}"));
        }
    }

    #[test]
    fn classes_take_no_room_from_each_other() {
        let reserve = Reserve::new(6);
        let admit = |text: &str| reserve.admit(address(text));
        let most = limits::PROBE_CONNECTIONS_PER_ADDRESS;
        let one: Vec<_> = (0..most).map(|_| admit("8.8.8.8").expect("there is room")).collect();
        assert!(admit("8.8.8.8").is_none(), "it has enough");
        let others: Vec<_> = (most..6).map(|_| admit("8.8.4.4").expect("there is room")).collect();
        assert!(admit("9.9.9.9").is_none(), "the class is full");
        assert!(admit("10.0.0.1").is_some() && admit("127.0.0.1").is_some());
        drop((one, others));
        assert!(admit("9.9.9.9").is_some());
        assert!(Reserve::new(0).admit(address("127.0.0.1")).is_none());
    }
}
