//! Connections to other replicas, kept for the next request. The task with a request in flight drives its
//! connection: there is no task between, which would have to be woken twice for each. It never looks into a request.

use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::uri::Scheme;
use http::{HeaderValue, Request, Response, Uri, header};
use http_body_util::Full;
use hyper::body::{Body, Frame, Incoming};
use hyper::client::conn::http1::{self, Connection, SendRequest};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::time::Instant;
use tower::Service;

use super::peers::PeerFailure;
use crate::limits;

/// Connects, and keeps the connections that no replica uses.
pub(super) struct Connections {
    connector: HttpConnector,
    idle: Arc<IdleConnections>,
}

/// Connections without a request, by the address of the replica; the one used last is at the end. The lock is held for single
/// looks.
#[derive(Default)]
struct IdleConnections(Mutex<HashMap<String, Vec<(PeerConnection, Instant)>>>);

struct PeerConnection {
    sender: SendRequest<Full<Bytes>>,
    /// None once it has ended, for whatever reason. It is dropped in that moment: by that hyper gives a request back that it
    /// has taken and not begun to write. One that is kept would hold the request without an answer.
    connection: Option<Connection<TokioIo<TcpStream>, Full<Bytes>>>,
    host: HeaderValue,
}

/// A connection with a request under way. Dropped before [`BusyConnection::give_back`] it is cut, by which the other replica knows.
pub(super) struct BusyConnection {
    link: PeerConnection,
    address: String,
    idle: Arc<IdleConnections>,
}

impl Default for Connections {
    fn default() -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(limits::PEER_CONNECT));
        // A replica whose machine vanished closes nothing: the system finds it out, at rest and under a request.
        connector.set_keepalive(Some(limits::PEER_PROBE));
        connector.set_keepalive_interval(Some(limits::PEER_PROBE));
        connector.set_keepalive_retries(Some(limits::PEER_PROBES));
        #[cfg(target_os = "linux")]
        connector.set_tcp_user_timeout(Some(limits::PEER_UNHEARD));
        Self { connector, idle: Arc::default() }
    }
}

impl Connections {
    /// Sends a request, which names a path and no host, to the replica at `address`, and returns the head of its answer; the
    /// body is read with [`BusyConnection::poll_frame`]. A kept connection that has ended takes no request; one that ends before it has
    /// begun to write the request gives it back, and the request is sent on the next.
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
        let no_place = |why: String| PeerFailure::NotSent(format!("{address:?} is no address: {why}"));
        let uri = Uri::builder().scheme(Scheme::HTTP).authority(address).path_and_query("/").build();
        let uri = uri.map_err(|error| no_place(error.to_string()))?;
        let host = HeaderValue::try_from(address).map_err(|error| no_place(error.to_string()))?;
        let stream = self.open(uri).await?;
        let (sender, connection) =
            http1::handshake(stream).await.map_err(|error| PeerFailure::NotSent(described(&error)))?;
        Ok(PeerConnection { sender, connection: Some(connection), host })
    }

    async fn open(&self, uri: Uri) -> Result<TokioIo<TcpStream>, PeerFailure> {
        let stream = self.connector.clone().call(uri).await;
        stream.map_err(|error| PeerFailure::NotSent(described(&error)))
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
        // Those before it have rested longer.
        idle.remove(address);
        None
    }

    fn put(&self, address: &str, link: PeerConnection) {
        let mut idle = self.0.lock();
        let Some(links) = idle.get_mut(address) else {
            // A replica that has gone leaves some behind.
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
    /// Whether it takes a request still, after a look at what has come since it was last used: the other replica may
    /// have closed it, which no replica has read.
    async fn is_usable(&mut self) -> bool {
        let look = poll_fn(|cx| {
            drive(&mut self.connection, cx);
            Poll::Ready(())
        });
        look.await;
        self.connection.is_some() && self.sender.is_ready()
    }

    /// The head of the answer, or why there is none, with the request if it was not sent.
    async fn send(
        &mut self,
        mut request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, (PeerFailure, Option<Request<Full<Bytes>>>)> {
        request.headers_mut().insert(header::HOST, self.host.clone());
        let Self { sender, connection, .. } = self;
        let mut answer = pin!(sender.try_send_request(request));
        let answered = poll_fn(|cx| {
            drive(connection, cx);
            answer.as_mut().poll(cx)
        });
        answered.await.map_err(|mut refused| {
            let unsent = refused.take_message();
            let why = described(refused.error());
            (if unsent.is_some() { PeerFailure::NotSent(why) } else { PeerFailure::Unknown(why) }, unsent)
        })
    }
}

/// Reads and writes what can be. A failure is told to the waiter for the answer or its body.
fn drive(connection: &mut Option<Connection<TokioIo<TcpStream>, Full<Bytes>>>, cx: &mut Context<'_>) {
    if let Some(driven) = connection
        && Pin::new(driven).poll(cx).is_ready()
    {
        *connection = None;
    }
}

impl BusyConnection {
    /// The next part of the body of its answer.
    pub(super) fn poll_frame(
        &mut self,
        body: &mut Incoming,
        cx: &mut Context<'_>,
    ) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        // What is read next depends on whether a replica asks for it.
        if let Poll::Ready(frame) = Pin::new(&mut *body).poll_frame(cx) {
            return Poll::Ready(frame);
        }
        drive(&mut self.link.connection, cx);
        Pin::new(body).poll_frame(cx)
    }

    /// The whole body of its answer, after which the connection is kept. None if that has more than `most` bytes.
    pub(super) async fn whole(mut self, mut body: Incoming, most: usize) -> hyper::Result<Option<Bytes>> {
        let (mut frames, mut bytes) = (Vec::new(), 0);
        while let Some(frame) = poll_fn(|cx| self.poll_frame(&mut body, cx)).await {
            let Ok(data) = frame?.into_data() else { continue };
            bytes += data.len();
            if bytes > most {
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

    /// Lets the connection find out that its answer has been read.
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

/// An error with its causes.
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

    use super::*;

    /// A machine that vanished sends no end of a connection: the system of this one must look for it.
    #[tokio::test]
    async fn links_are_probed_by_the_system() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let uri = format!("http://{}/", listener.local_addr().unwrap()).parse().unwrap();
        let stream = Connections::default().open(uri).await.unwrap();
        let socket = SockRef::from(stream.inner());
        assert!(socket.keepalive().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap(), limits::PEER_PROBE);
        assert_eq!(socket.tcp_keepalive_interval().unwrap(), limits::PEER_PROBE);
        assert_eq!(socket.tcp_keepalive_retries().unwrap(), limits::PEER_PROBES);
        #[cfg(target_os = "linux")]
        assert_eq!(socket.tcp_user_timeout().unwrap(), Some(limits::PEER_UNHEARD));
    }

    /// Between the look at a kept link and the request: it has an answer in any case, and the request back.
    #[tokio::test]
    async fn link_ended_under_request_gives_it_back() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let mut link = Connections::default().connect(&address).await.unwrap();
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
        // No look is in between.
        let sent = tokio::time::timeout(limits::PEER_CONNECT, link.send(request())).await.unwrap();
        assert!(matches!(sent, Err((PeerFailure::NotSent(_), Some(_)))), "it is given back");
        assert!(!link.is_usable().await);
    }
}
