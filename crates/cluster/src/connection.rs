//! Kept connections to other replicas. The task that waits for a response drives the connection itself: a task in
//! between would need two extra wake-ups per request. This module never inspects a request.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::uri::Scheme;
use http::{HeaderName, HeaderValue, Request, Response, Uri, header};
use http_body_util::Full;
use hyper::body::{Body, Frame, Incoming};
use hyper::client::conn::http1::{self, Connection, SendRequest};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};
use tokio_rustls::client::TlsStream;
use tokio_util::either::Either;
use tower::Service;

use super::peers::{self, PeerFailure};

use angarium_core::maps::HashMap;

use crate::limits;
use crate::tls::PeerTls;

const SECRET: HeaderName = HeaderName::from_static(peers::SECRET);

/// A connection: in clear text, or in TLS.
type PeerStream = Either<TcpStream, Box<TlsStream<TcpStream>>>;

/// Opens connections, and keeps the idle ones.
pub(super) struct Connections {
    connector: HttpConnector,
    /// The handshakes; none where all connections are in clear text.
    tls: Option<PeerTls>,
    /// Bounds the handshakes at once.
    handshakes: Semaphore,
    idle: Arc<IdleConnections>,
}

/// Idle connections by the address of the replica, the most recently used last. The lock is held for single operations.
#[derive(Default)]
struct IdleConnections(Mutex<HashMap<String, Vec<(PeerConnection, Instant)>>>);

struct PeerConnection {
    sender: SendRequest<Full<Bytes>>,
    /// None once the connection has ended, for any reason. It is dropped at once, because the drop makes hyper return a
    /// request that it has accepted but not begun to write; otherwise that request would wait forever.
    connection: Option<Connection<TokioIo<PeerStream>, Full<Bytes>>>,
    host: HeaderValue,
    /// The secret of each request, on a connection in clear text to a program without certificates.
    secret: Option<HeaderValue>,
}

/// A connection with a request in flight. Dropping it before [`BusyConnection::give_back`] closes the connection, which
/// tells the other replica that the request was abandoned.
pub(super) struct BusyConnection {
    link: PeerConnection,
    address: String,
    idle: Arc<IdleConnections>,
}

impl Connections {
    pub(super) fn new(tls: Option<PeerTls>) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(limits::PEER_CONNECT));
        // A vanished machine does not close its connections. Keepalive and the user timeout make the operating system
        // detect this, with and without a request in flight.
        connector.set_keepalive(Some(limits::PEER_PROBE));
        connector.set_keepalive_interval(Some(limits::PEER_PROBE));
        connector.set_keepalive_retries(Some(limits::PEER_PROBES));
        #[cfg(target_os = "linux")]
        connector.set_tcp_user_timeout(Some(limits::PEER_UNHEARD));
        let handshakes = Semaphore::new(limits::PEER_HANDSHAKES);
        Self { connector, tls, handshakes, idle: Arc::default() }
    }

    /// Sends a request, which names a path and no host, to the replica at `address`, and returns the head of the
    /// response. The body is read with [`BusyConnection::poll_frame`]. A kept connection that has ended is skipped; one
    /// that ends before the request is written returns the request, which is then sent on the next connection.
    pub(super) async fn exchange(
        &self,
        address: &str,
        mut request: Request<Full<Bytes>>,
    ) -> Result<(Response<Incoming>, BusyConnection), PeerFailure> {
        while let Some(mut link) = self.idle.take(address) {
            if !link.is_usable().await {
                continue;
            }
            match link.send(request).await {
                Ok(answer) => return Ok((answer, self.busy(link, address))),
                Err((_, Some(unsent))) => request = unsent,
                Err((failure, None)) => return Err(failure),
            }
        }
        let mut link = self.connect(address).await?;
        match link.send(request).await {
            Ok(answer) => Ok((answer, self.busy(link, address))),
            Err((failure, _)) => Err(failure),
        }
    }

    async fn connect(&self, address: &str) -> Result<PeerConnection, PeerFailure> {
        let invalid = |why: String| PeerFailure::NotSent(format!("{address:?} is no address: {why}"));
        let uri = Uri::builder().scheme(Scheme::HTTP).authority(address).path_and_query("/").build();
        let uri = uri.map_err(|error| invalid(error.to_string()))?;
        let host = HeaderValue::try_from(address).map_err(|error| invalid(error.to_string()))?;
        let (stream, secret) = {
            let _place = self.handshakes.acquire().await;
            self.secure(address, self.open(uri).await?).await?
        };
        let (sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| PeerFailure::NotSent(described(&error)))?;
        Ok(PeerConnection { sender, connection: Some(connection), host, secret })
    }

    async fn open(&self, uri: Uri) -> Result<TcpStream, PeerFailure> {
        let stream = self.connector.clone().call(uri).await;
        stream.map(TokioIo::into_inner).map_err(|error| PeerFailure::NotSent(described(&error)))
    }

    /// Performs the handshake. If the program of the other replica knows none, returns the secret of its requests
    /// instead.
    async fn secure(
        &self,
        address: &str,
        stream: TcpStream,
    ) -> Result<(PeerStream, Option<HeaderValue>), PeerFailure> {
        let Some(tls) = &self.tls else { return Ok((Either::Left(stream), None)) };
        if tls.trust().is_clear(address) {
            // It would refuse requests without the secret, and its answer would not tell that nothing was done.
            let secret = tls.trust().secret().and_then(|secret| HeaderValue::try_from(secret.as_str()).ok());
            let unknown = || PeerFailure::NotSent("the secret of its program is not known yet".to_owned());
            return Ok((Either::Left(stream), Some(secret.ok_or_else(unknown)?)));
        }
        match timeout(limits::PEER_HANDSHAKE, tls.connect(stream)).await {
            Ok(Ok(stream)) => Ok((Either::Right(Box::new(stream)), None)),
            Ok(Err(error)) => Err(PeerFailure::NotSent(format!("no handshake: {}", described(&error)))),
            Err(_) => Err(PeerFailure::NotSent("the handshake did not end in time".to_owned())),
        }
    }

    fn busy(&self, link: PeerConnection, address: &str) -> BusyConnection {
        BusyConnection { link, address: address.to_owned(), idle: Arc::clone(&self.idle) }
    }
}

impl IdleConnections {
    fn take(&self, address: &str) -> Option<PeerConnection> {
        let mut idle = self.0.lock();
        let (link, since) = idle.get_mut(address)?.pop()?;
        if since.elapsed() < limits::PEER_IDLE {
            return Some(link);
        }
        // The connections before it have been idle for longer.
        idle.remove(address);
        None
    }

    fn put(&self, address: &str, link: PeerConnection) {
        let mut idle = self.0.lock();
        let Some(links) = idle.get_mut(address) else {
            // Idle connections to replicas that have left are dropped here.
            idle.retain(|_, links| {
                links.last().is_some_and(|(_, since)| since.elapsed() < limits::PEER_IDLE)
            });
            idle.insert(address.to_owned(), vec![(link, Instant::now())]);
            return;
        };
        if links.len() < limits::PEER_IDLE_CONNECTIONS {
            links.push((link, Instant::now()));
        }
    }
}

impl PeerConnection {
    /// Returns whether the connection still accepts a request. Reads pending events first, because the other replica
    /// may have closed the connection since its last use.
    async fn is_usable(&mut self) -> bool {
        let polled = poll_fn(|cx| {
            drive(&mut self.connection, cx);
            Poll::Ready(())
        });
        polled.await;
        self.connection.is_some() && self.sender.is_ready()
    }

    /// Returns the head of the response, or the failure, with the request if it was not sent.
    async fn send(
        &mut self,
        mut request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, (PeerFailure, Option<Request<Full<Bytes>>>)> {
        request.headers_mut().insert(header::HOST, self.host.clone());
        // It may come from another connection, which has ended.
        request.headers_mut().remove(SECRET);
        request.headers_mut().extend(self.secret.clone().map(|secret| (SECRET, secret)));
        let Self { sender, connection, .. } = self;
        let mut sent = pin!(sender.try_send_request(request));
        let response = poll_fn(|cx| {
            drive(connection, cx);
            sent.as_mut().poll(cx)
        });
        response.await.map_err(|mut refused| {
            let unsent = refused.take_message();
            let why = described(refused.error());
            (if unsent.is_some() { PeerFailure::NotSent(why) } else { PeerFailure::Unknown(why) }, unsent)
        })
    }
}

/// Reads and writes as far as possible. The waiter for the response or its body receives a failure.
fn drive(connection: &mut Option<Connection<TokioIo<PeerStream>, Full<Bytes>>>, cx: &mut Context<'_>) {
    if let Some(driven) = connection
        && Pin::new(driven).poll(cx).is_ready()
    {
        *connection = None;
    }
}

impl BusyConnection {
    /// Returns the next frame of the response body.
    pub(super) fn poll_frame(
        &mut self,
        body: &mut Incoming,
        cx: &mut Context<'_>,
    ) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        // Polled first, because hyper reads more only after the reader has asked for it.
        if let Poll::Ready(frame) = Pin::new(&mut *body).poll_frame(cx) {
            return Poll::Ready(frame);
        }
        drive(&mut self.link.connection, cx);
        Pin::new(body).poll_frame(cx)
    }

    /// Returns the whole response body and keeps the connection. Returns none if the body has more than `max` bytes.
    pub(super) async fn whole(mut self, mut body: Incoming, max: usize) -> hyper::Result<Option<Bytes>> {
        let (mut frames, mut bytes) = (Vec::new(), 0);
        while let Some(frame) = poll_fn(|cx| self.poll_frame(&mut body, cx)).await {
            let Ok(data) = frame?.into_data() else { continue };
            bytes += data.len();
            if bytes > max {
                return Ok(None);
            }
            frames.push(data);
        }
        let settled = poll_fn(|cx| {
            self.settle(cx);
            Poll::Ready(())
        });
        settled.await;
        self.give_back();
        Ok(Some(match frames.len() {
            1 => frames.swap_remove(0),
            _ => frames.concat().into(),
        }))
    }

    /// Lets the connection notice that its response was read.
    pub(super) fn settle(&mut self, cx: &mut Context<'_>) {
        drive(&mut self.link.connection, cx);
    }

    /// Keeps the connection if it is ready for another request.
    pub(super) fn give_back(self) {
        if self.link.connection.is_some() && self.link.sender.is_ready() {
            self.idle.put(&self.address, self.link);
        }
    }
}

/// Formats an error with its causes.
pub(super) fn described(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use socket2::SockRef;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use uuid::Uuid;

    use angarium_catalogue::ComponentState;
    use angarium_core::access::PeerSecret;
    use angarium_core::time::Timestamp;

    use super::*;
    use crate::identity::PeerIdentity;
    use crate::replicas::Replica;

    /// Returns the bytes of the first request, and answers it.
    async fn first_request(listener: &TcpListener) -> String {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut received = vec![0; 1_024];
        let length = stream.read(&mut received).await.unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
        String::from_utf8_lossy(&received[..length]).into_owned()
    }

    #[tokio::test]
    async fn secret_is_shown_to_programs_without_certificates_only() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let older = Replica::new(Uuid::nil(), "host", address.as_str());
        let identity = PeerIdentity::generate().unwrap();
        let (trust, now) = (older.trust.clone(), Timestamp::from_millis(0));
        trust.learn([older.component(ComponentState::Running, now)].iter());
        let connections = Connections::new(Some(PeerTls::new(&identity, trust.clone()).unwrap()));
        let request = || Request::get("/").body(Full::new(Bytes::new())).unwrap();
        let early = connections.exchange(&address, request()).await.map(|_| ());
        assert!(matches!(early, Err(PeerFailure::NotSent(_))), "the secret is not known: {early:?}");
        drop(listener.accept().await.unwrap());

        trust.learn_secret(PeerSecret::new("shared"));
        let (sent, received) =
            tokio::join!(connections.exchange(&address, request()), first_request(&listener));
        assert!(sent.is_ok() && received.contains("\r\nx-angarium-secret: shared\r\n"), "{received}");
        drop(sent);

        // The same replica after its upgrade.
        let upgraded = Replica { certificate: Some(identity.fingerprint()), ..older };
        trust.learn([upgraded.component(ComponentState::Running, now)].iter());
        let (sent, received) =
            tokio::join!(connections.exchange(&address, request()), first_request(&listener));
        assert!(sent.is_err() && !received.contains("shared"), "{received}");
    }

    /// A vanished machine sends no end of a connection: the operating system must probe for it.
    #[tokio::test]
    async fn links_are_probed_by_the_system() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let uri = format!("http://{}/", listener.local_addr().unwrap()).parse().unwrap();
        let stream = Connections::new(None).open(uri).await.unwrap();
        let socket = SockRef::from(&stream);
        assert!(socket.keepalive().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap(), limits::PEER_PROBE);
        assert_eq!(socket.tcp_keepalive_interval().unwrap(), limits::PEER_PROBE);
        assert_eq!(socket.tcp_keepalive_retries().unwrap(), limits::PEER_PROBES);
        #[cfg(target_os = "linux")]
        assert_eq!(socket.tcp_user_timeout().unwrap(), Some(limits::PEER_UNHEARD));
    }

    /// The connection ends between the check of a kept connection and the request. The caller gets a failure,
    /// and the request back.
    #[tokio::test]
    async fn link_ended_under_request_gives_it_back() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let mut link = Connections::new(None).connect(&address).await.unwrap();
        let (mut stream, _) = listener.accept().await.unwrap();
        let request = || Request::get("/").body(Full::new(Bytes::from_static(b"{}"))).unwrap();
        let answering = async {
            assert!(stream.read(&mut [0; 1_024]).await.unwrap() > 0);
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
            stream.shutdown().await.unwrap();
            tokio::time::sleep(angarium_core::limits::FORWARD_PAUSE).await;
        };
        let (answer, ()) = tokio::join!(link.send(request()), answering);
        assert!(answer.is_ok(), "{:?}", answer.err().map(|(failure, _)| failure));
        // No check happens in between.
        let sent = tokio::time::timeout(limits::PEER_CONNECT, link.send(request())).await.unwrap();
        assert!(matches!(sent, Err((PeerFailure::NotSent(_), Some(_)))), "it is given back");
        assert!(!link.is_usable().await);
    }
}
