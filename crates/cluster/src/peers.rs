//! Requests to other replicas, over kept connections, bounded in number, each with a timeout. This module never
//! inspects a request and never repeats one: a failure tells whether the request may have been carried out.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{Either, Full};
use hyper::body::{Body, Incoming};
use thiserror::Error as ThisError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::connection::{BusyConnection, Connections, described};
use super::peer_response::StreamTail;
use crate::limits;
use crate::tls::PeerTls;
use angarium_core::limits as core_limits;

pub use super::peer_response::PeerResponseBody;

/// The header with the secret of programs without certificates. Requests on connections in TLS do not have it.
pub const SECRET: &str = "x-angarium-secret";

/// The header of an answer by which a replica states that it does not serve the slot, and has done nothing.
pub const MOVED: &str = "x-angarium-moved";

/// Why there is no response of another replica.
#[derive(Debug, ThisError)]
pub enum PeerFailure {
    /// The request was not sent: nothing was done.
    #[error("it was not sent: {0}")]
    NotSent(String),
    /// The request may have been carried out.
    #[error("it has no answer: {0}")]
    Unknown(String),
}

/// The client for requests to other replicas. A process has one, because it owns the connections.
pub struct Peers {
    connections: Connections,
    /// Bounds the requests in flight.
    permits: Arc<Semaphore>,
}

impl fmt::Debug for Peers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peers").finish_non_exhaustive()
    }
}

impl Default for Peers {
    /// In clear text.
    fn default() -> Self {
        Self::new(None)
    }
}

/// The way of requests to other replicas. `request` names a path and no host. Dropping a future tells the other replica
/// that the request was abandoned.
#[async_trait]
pub trait PeerTransport: fmt::Debug + Send + Sync + 'static {
    /// Sends a request to the replica at `address`, and returns the whole response of at most
    /// [`limits::PEER_ANSWER_BYTES`].
    async fn send(
        &self,
        address: &str,
        request: Request<Bytes>,
        max_wait: Duration,
    ) -> Result<Response<Bytes>, PeerFailure>;

    /// Sends a request like [`PeerTransport::send`], for a response that is forwarded. A response of at most
    /// [`limits::PEER_ANSWER_KEPT`] is returned whole; of a longer one the header, and the body is streamed.
    async fn pass_on(
        &self,
        address: &str,
        request: Request<Bytes>,
        max_wait: Duration,
    ) -> Result<Response<PeerResponseBody>, PeerFailure>;
}

/// Dropping a future closes the connection of its request.
#[async_trait]
impl PeerTransport for Peers {
    async fn send(
        &self,
        address: &str,
        request: Request<Bytes>,
        max_wait: Duration,
    ) -> Result<Response<Bytes>, PeerFailure> {
        let _permit = self.permit()?;
        within(max_wait, async {
            let (answer, link) = self.exchange(address, request).await?;
            let (parts, body) = answer.into_parts();
            Ok(Response::from_parts(parts, whole(link, body, limits::PEER_ANSWER_BYTES).await?))
        })
        .await
    }

    async fn pass_on(
        &self,
        address: &str,
        request: Request<Bytes>,
        max_wait: Duration,
    ) -> Result<Response<PeerResponseBody>, PeerFailure> {
        let permit = self.permit()?;
        within(max_wait, async {
            let (answer, link) = self.exchange(address, request).await?;
            let (parts, body) = answer.into_parts();
            let is_short = body.size_hint().upper().is_some_and(|bytes| bytes <= limits::PEER_ANSWER_KEPT);
            if !is_short {
                return Ok(Response::from_parts(parts, Either::Right(StreamTail::new(body, link, permit))));
            }
            let body = whole(link, body, limits::PEER_ANSWER_BYTES).await?;
            Ok(Response::from_parts(parts, Either::Left(Full::new(body))))
        })
        .await
    }
}

impl Peers {
    /// Creates a client that performs these handshakes. Without them, and with replicas whose program knows none, it talks
    /// in clear text, and shows the latter their secret.
    pub fn new(tls: Option<PeerTls>) -> Self {
        let permits = Arc::new(Semaphore::new(core_limits::PEER_REQUESTS));
        Self { connections: Connections::new(tls), permits }
    }

    fn permit(&self) -> Result<OwnedSemaphorePermit, PeerFailure> {
        let busy = |_| PeerFailure::NotSent("too many requests to other replicas are in flight".into());
        Arc::clone(&self.permits).try_acquire_owned().map_err(busy)
    }

    async fn exchange(
        &self,
        address: &str,
        request: Request<Bytes>,
    ) -> Result<(Response<Incoming>, BusyConnection), PeerFailure> {
        self.connections.exchange(address, request.map(Full::new)).await
    }
}

/// Returns the whole body of a response, at most `max` bytes.
async fn whole(link: BusyConnection, body: Incoming, max: usize) -> Result<Bytes, PeerFailure> {
    match link.whole(body, max).await {
        Ok(Some(body)) => Ok(body),
        Ok(None) => Err(PeerFailure::Unknown(format!("its answer has more than {max} bytes"))),
        Err(error) => Err(PeerFailure::Unknown(described(&error))),
    }
}

async fn within<T>(
    max_wait: Duration,
    answer: impl Future<Output = Result<T, PeerFailure>>,
) -> Result<T, PeerFailure> {
    match timeout(max_wait, answer).await {
        Ok(answer) => answer,
        Err(_) => Err(PeerFailure::Unknown(format!("nothing came within {} ms", max_wait.as_millis()))),
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    fn request() -> Request<Bytes> {
        Request::post("/v2/queues/q/messages?a=b").body(Bytes::from_static(b"{}")).unwrap()
    }

    #[tokio::test]
    async fn refused_connection_was_not_sent() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        drop(listener);
        let failure = Peers::default().send(&address, request(), Duration::from_secs(5)).await.unwrap_err();
        assert!(matches!(failure, PeerFailure::NotSent(_)), "{failure}");
        let failure =
            Peers::default().send("no address", request(), Duration::from_secs(5)).await.unwrap_err();
        assert!(matches!(failure, PeerFailure::NotSent(_)), "{failure}");
    }

    #[tokio::test]
    async fn sent_request_without_answer_is_in_doubt() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let serving = async {
            for answers in ["", "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf"] {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut received = vec![0; 1_024];
                let length = stream.read(&mut received).await.unwrap();
                let text = String::from_utf8_lossy(&received[..length]).into_owned();
                assert!(text.starts_with("POST /v2/queues/q/messages?a=b HTTP/1.1"), "{text}");
                stream.write_all(answers.as_bytes()).await.unwrap();
            }
            // The last connection gets no response.
            let (stream, _) = listener.accept().await.unwrap();
            tokio::time::sleep(Duration::from_secs(1)).await;
            drop(stream);
        };
        let asking = async {
            for _ in 0..3 {
                let sent = Peers::default().pass_on(&address, request(), Duration::from_millis(500)).await;
                assert!(matches!(sent, Err(PeerFailure::Unknown(_))), "{sent:?}");
            }
        };
        tokio::join!(serving, asking);
    }

    #[tokio::test]
    async fn open_connection_is_reused_and_closed_one_is_not() {
        const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nbody";
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let serving = async {
            for requests in [2, 1] {
                let (mut stream, _) = listener.accept().await.unwrap();
                for _ in 0..requests {
                    assert!(stream.read(&mut [0; 1_024]).await.unwrap() > 0);
                    stream.write_all(ANSWER).await.unwrap();
                }
            }
        };
        let peers = Peers::default();
        let asking = async {
            for _ in 0..3 {
                let answer = peers.send(&address, request(), Duration::from_secs(5)).await.unwrap();
                assert_eq!(answer.body(), "body");
                // The end of a connection arrives here.
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::join!(serving, asking);
    }

    /// As after the restart of a replica: each of its connections has ended while it was idle.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn links_ended_at_rest_swallow_no_request() {
        const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nbody";
        const LINKS: usize = 4;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let serving = async {
            let mut received = vec![0; 4_096];
            let mut streams = Vec::new();
            for _ in 0..LINKS {
                let (mut stream, _) = listener.accept().await.unwrap();
                assert!(stream.read(&mut received).await.unwrap() > 0);
                streams.push(stream);
            }
            for stream in &mut streams {
                stream.write_all(ANSWER).await.unwrap();
            }
            // All of them are idle now.
            tokio::time::sleep(Duration::from_millis(200)).await;
            for mut stream in streams {
                stream.shutdown().await.unwrap();
            }
            for _ in 0..LINKS {
                let (mut stream, _) = listener.accept().await.unwrap();
                assert!(stream.read(&mut received).await.unwrap() > 0);
                stream.write_all(ANSWER).await.unwrap();
            }
        };
        let peers = Peers::default();
        let send = || peers.send(&address, request(), Duration::from_secs(5));
        let asking = async {
            for _ in 0..2 {
                let responses = tokio::join!(send(), send(), send(), send());
                for answer in [responses.0, responses.1, responses.2, responses.3] {
                    assert_eq!(answer.unwrap().body(), "body");
                }
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
        };
        tokio::join!(serving, asking);
    }

    #[tokio::test]
    async fn abandoned_request_cuts_its_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let peers = Peers::default();
        let asking = peers.pass_on(&address, request(), Duration::from_secs(60));
        let serving = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            assert!(stream.read(&mut [0; 1_024]).await.unwrap() > 0);
            stream
        };
        let mut stream = tokio::select! {
            biased;
            _ = asking => panic!("nobody has answered"),
            stream = serving => stream,
        };
        assert_eq!(stream.read(&mut [0; 1_024]).await.unwrap(), 0);
    }

    /// A long response is not held in memory, so it may break off after its first bytes were forwarded. Then it is no
    /// complete response.
    #[tokio::test]
    async fn long_response_is_streamed() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let long = usize::try_from(limits::PEER_ANSWER_KEPT).unwrap() + 1;
        let (asked, mut answers) = tokio::sync::mpsc::channel(1);
        let serving = async move {
            for rest in [long - 5, 3] {
                let (mut stream, _) = listener.accept().await.unwrap();
                assert!(stream.read(&mut [0; 1_024]).await.unwrap() > 0);
                let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {long}\r\n\r\nbegin");
                stream.write_all(head.as_bytes()).await.unwrap();
                // The beginning is available before the end is sent.
                answers.recv().await.unwrap();
                stream.write_all(&vec![b' '; rest]).await.unwrap();
            }
        };
        let asking = async {
            for is_whole in [true, false] {
                let peers = Peers::default();
                let sent = peers.pass_on(&address, request(), Duration::from_secs(5)).await.unwrap();
                let mut body = sent.into_body();
                let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
                assert!(first.starts_with(b"begin"));
                assert_eq!(peers.permits.available_permits(), core_limits::PEER_REQUESTS - 1);
                asked.send(()).await.unwrap();
                let rest = body.collect().await.map(|rest| rest.to_bytes().len());
                assert_eq!(rest.is_ok_and(|rest| first.len() + rest == long), is_whole);
                assert_eq!(peers.permits.available_permits(), core_limits::PEER_REQUESTS);
            }
        };
        tokio::join!(serving, asking);
    }
}
