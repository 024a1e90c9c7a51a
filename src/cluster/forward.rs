//! Requests to other replicas: over connections that are kept, bounded in number, each with a deadline. It never looks into
//! a request and never repeats one: a failure says whether the request can have been carried out.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Request, Response, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use thiserror::Error as ThisError;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::domain::limits;

/// Why there is no answer of another replica.
#[derive(Debug, ThisError)]
pub enum Failure {
    /// The request was not sent: nothing was done.
    #[error("it was not sent: {0}")]
    NotSent(String),
    /// It may have been carried out.
    #[error("it has no answer: {0}")]
    Unknown(String),
}

/// The way to the other replicas. Clones would share connections; there is one for a process.
pub struct Peers {
    client: Client<HttpConnector, Full<Bytes>>,
    /// Requests that may be under way at once.
    places: Semaphore,
}

impl fmt::Debug for Peers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peers").finish_non_exhaustive()
    }
}

impl Default for Peers {
    fn default() -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(limits::PEER_CONNECT));
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(limits::PEER_IDLE)
            .pool_max_idle_per_host(limits::PEER_IDLE_CONNECTIONS)
            .build(connector);
        Self { client, places: Semaphore::new(limits::PEER_REQUESTS) }
    }
}

impl Peers {
    /// Sends a request to the replica at `address`, and returns its whole answer. `request` names a path and no host. Dropped
    /// before it is done, it cuts the connection, by which the other replica knows.
    pub async fn send(
        &self,
        address: &str,
        request: Request<Bytes>,
        patience: Duration,
    ) -> Result<Response<Bytes>, Failure> {
        let busy = |_| Failure::NotSent("too many requests to other replicas are under way".into());
        let _place = self.places.try_acquire().map_err(busy)?;
        let request = to(address, request)?;
        match timeout(patience, self.exchange(request)).await {
            Ok(answer) => answer,
            Err(_) => Err(Failure::Unknown(format!("nothing came within {} ms", patience.as_millis()))),
        }
    }

    async fn exchange(&self, request: Request<Bytes>) -> Result<Response<Bytes>, Failure> {
        let answer = self.client.request(request.map(Full::new)).await.map_err(|error| {
            let why = described(&error);
            if error.is_connect() { Failure::NotSent(why) } else { Failure::Unknown(why) }
        })?;
        let (parts, body) = answer.into_parts();
        let body = Limited::new(body, limits::PEER_ANSWER_BYTES).collect().await;
        let body = body.map_err(|error| Failure::Unknown(described(&*error)))?;
        Ok(Response::from_parts(parts, body.to_bytes()))
    }
}

/// The request with its host.
fn to(address: &str, request: Request<Bytes>) -> Result<Request<Bytes>, Failure> {
    let (mut parts, body) = request.into_parts();
    let no_place = |why: String| Failure::NotSent(format!("{address:?} is no address: {why}"));
    let authority: Authority =
        address.parse().map_err(|error: http::uri::InvalidUri| no_place(error.to_string()))?;
    let mut uri = parts.uri.into_parts();
    uri.scheme = Some(Scheme::HTTP);
    uri.authority = Some(authority);
    uri.path_and_query.get_or_insert(PathAndQuery::from_static("/"));
    parts.uri = Uri::from_parts(uri).map_err(|error| no_place(error.to_string()))?;
    Ok(Request::from_parts(parts, body))
}

/// An error with its causes.
fn described(error: &(dyn std::error::Error + 'static)) -> String {
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
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    fn request() -> Request<Bytes> {
        Request::post("/v2/queues/q/messages?a=b").body(Bytes::from_static(b"{}")).unwrap()
    }

    #[tokio::test]
    async fn what_nobody_listens_for_was_not_sent() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        drop(listener);
        let failure = Peers::default().send(&address, request(), Duration::from_secs(5)).await.unwrap_err();
        assert!(matches!(failure, Failure::NotSent(_)), "{failure}");
        let failure =
            Peers::default().send("no address", request(), Duration::from_secs(5)).await.unwrap_err();
        assert!(matches!(failure, Failure::NotSent(_)), "{failure}");
    }

    #[tokio::test]
    async fn what_was_sent_and_has_no_answer_may_have_been_done() {
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
            // Nothing is said on the last one.
            let (stream, _) = listener.accept().await.unwrap();
            tokio::time::sleep(Duration::from_secs(1)).await;
            drop(stream);
        };
        let asking = async {
            for _ in 0..3 {
                let sent = Peers::default().send(&address, request(), Duration::from_millis(500)).await;
                assert!(matches!(sent, Err(Failure::Unknown(_))), "{sent:?}");
            }
        };
        tokio::join!(serving, asking);
    }
}
