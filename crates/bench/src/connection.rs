//! One keep-alive HTTP/1.1 connection to the loaded server: connect, send a request, wait for the whole answer. It
//! knows nothing about the requests, and never repeats one: its user replaces a broken connection.

use std::cell::Cell;
use std::fmt;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use bytes::{Bytes, BytesMut};
use http::{HeaderValue, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, Sleep, sleep, timeout};

/// Max time to connect, and for the whole answer to a request.
pub const DEADLINE: Duration = Duration::from_secs(10);

/// Max bytes of an answer: far above the largest claim, and small enough not to disturb the generator.
const ANSWER_MAX: usize = 64 << 20;

/// Address of the server.
#[derive(Clone, Debug)]
pub struct Target {
    host: String,
    port: u16,
    /// The `Host` header of each request.
    pub authority: HeaderValue,
}

impl Target {
    /// Parses `http://HOST[:PORT]`; the default port is 80. Paths, credentials and TLS are refused.
    pub fn parse(url: &str) -> anyhow::Result<Self> {
        let uri: Uri = url.parse().with_context(|| format!("{url}: not a URL"))?;
        ensure!(uri.scheme_str() == Some("http"), "{url}: only http:// is spoken");
        ensure!(uri.path() == "/" && uri.query().is_none(), "{url}: give the server's root, without a path");
        let Some(authority) = uri.authority() else { bail!("{url}: no host in it") };
        ensure!(!authority.as_str().contains('@'), "{url}: credentials are not sent");
        Ok(Self {
            host: authority.host().trim_matches(['[', ']']).to_owned(),
            port: authority.port_u16().unwrap_or(80),
            authority: HeaderValue::from_str(authority.as_str())?,
        })
    }
}

/// A whole answer.
#[derive(Debug)]
pub struct BenchAnswer {
    pub status: StatusCode,
    pub body: Bytes,
    /// Time from the start of the request to the end of the body.
    pub took: Duration,
}

/// Why a connection can no longer be used.
#[derive(Debug)]
pub enum ConnectionFault {
    /// The server closed it between two requests, which is no error.
    Closed,
    /// A request failed, or the connection could not be opened.
    Failed(String),
}

impl ConnectionFault {
    fn failed(what: &str, why: impl fmt::Display) -> Self {
        Self::Failed(format!("{what}: {why}"))
    }
}

/// Start of the current wait for an answer; none between two requests. It is read at the end of the window, because
/// requests that are still unanswered then are in no latency.
pub type WaitStart = Rc<Cell<Option<Instant>>>;

/// An open connection, used by one task.
pub struct BenchConnection {
    sender: SendRequest<Full<Bytes>>,
    /// One timer for the whole connection. Resetting it is a single atomic write; a new timer per request would take a
    /// lock twice.
    deadline: Pin<Box<Sleep>>,
    answers: u64,
    waiting: WaitStart,
    /// The task that drives the socket. It ends when the connection is dropped.
    _driver: JoinSet<()>,
}

impl BenchConnection {
    /// Connects within [`DEADLINE`]. Must run inside a `LocalSet`. Each request updates `waiting`.
    pub async fn open(target: &Target, waiting: WaitStart) -> Result<Self, ConnectionFault> {
        let connecting = TcpStream::connect((target.host.as_str(), target.port));
        let stream = match timeout(DEADLINE, connecting).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return Err(ConnectionFault::failed("connect", error)),
            Err(_) => return Err(ConnectionFault::failed("connect", "no answer within the deadline")),
        };
        stream.set_nodelay(true).map_err(|error| ConnectionFault::failed("connect", error))?;
        let handshake = http1::handshake(TokioIo::new(stream)).await;
        let (sender, connection) = handshake.map_err(|error| ConnectionFault::failed("connect", error))?;
        let mut driver = JoinSet::new();
        driver.spawn_local(async move {
            // The sender receives the error too, and reports it with the affected request.
            let _ = connection.await;
        });
        Ok(Self { sender, deadline: Box::pin(sleep(DEADLINE)), answers: 0, waiting, _driver: driver })
    }

    /// Sends one request and waits for the whole answer within [`DEADLINE`]. After an `Err` the connection is unusable.
    pub async fn send(&mut self, request: Request<Full<Bytes>>) -> Result<BenchAnswer, ConnectionFault> {
        let started = Instant::now();
        self.waiting.set(Some(started));
        self.deadline.as_mut().reset(started + DEADLINE);
        let (status, body) = tokio::select! {
            biased;
            answer = exchange(&mut self.sender, request, self.answers) => answer?,
            () = self.deadline.as_mut() => return Err(ConnectionFault::failed("request", "no answer within the deadline")),
        };
        self.answers += 1;
        self.waiting.set(None);
        Ok(BenchAnswer { status, body, took: started.elapsed() })
    }
}

async fn exchange(
    sender: &mut SendRequest<Full<Bytes>>,
    request: Request<Full<Bytes>>,
    answers: u64,
) -> Result<(StatusCode, Bytes), ConnectionFault> {
    if let Err(error) = sender.ready().await {
        // Before the first answer, a close means that the server refuses the connection; later it is normal
        // housekeeping.
        return Err(if answers == 0 {
            ConnectionFault::failed("closed at once", error)
        } else {
            ConnectionFault::Closed
        });
    }
    let answer =
        sender.send_request(request).await.map_err(|error| ConnectionFault::failed("request", error))?;
    let status = answer.status();
    Ok((status, drain(answer.into_body()).await?))
}

/// Reads the whole body. A body of one frame, the usual case, is not copied.
async fn drain(mut body: Incoming) -> Result<Bytes, ConnectionFault> {
    let mut first = Bytes::new();
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| ConnectionFault::failed("answer", error))?;
        let Ok(data) = frame.into_data() else { continue };
        if first.is_empty() {
            first = data;
            continue;
        }
        if whole.is_empty() {
            whole.extend_from_slice(&first);
        }
        whole.extend_from_slice(&data);
        if whole.len() > ANSWER_MAX {
            return Err(ConnectionFault::failed("answer", "too long"));
        }
    }
    Ok(if whole.is_empty() { first } else { whole.freeze() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_a_host_and_a_port() {
        let target = Target::parse("http://127.0.0.1:8888/").unwrap();
        assert_eq!((target.host.as_str(), target.port), ("127.0.0.1", 8888));
        assert_eq!(target.authority, "127.0.0.1:8888");
        let target = Target::parse("http://[::1]").unwrap();
        assert_eq!((target.host.as_str(), target.port), ("::1", 80));
    }

    #[test]
    fn unusable_server_is_refused() {
        for url in ["https://a", "127.0.0.1:8888", "http://a/v2", "http://u:p@a", "nonsense with blanks"] {
            assert!(Target::parse(url).is_err(), "{url}");
        }
    }
}
