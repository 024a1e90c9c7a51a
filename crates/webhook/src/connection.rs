//! One connection to a subscriber. No task drives it: it makes progress within the delivery that uses it.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, Connection, SendRequest};
use hyper_util::rt::TokioIo;

use crate::error::UnreachableCause;
use crate::limits::{ANSWER_BYTES, HEADERS, RECEIVED_BYTES, WEBHOOK_HEADER_BYTES};
use crate::metered::{Allowance, MeteredSocket, Socket};

/// The side of a connection that reads and writes.
type Driver = Connection<TokioIo<MeteredSocket>, Full<Bytes>>;

/// A connection whose peer passed the rules when it was made.
pub struct WebhookConnection {
    sender: SendRequest<Full<Bytes>>,
    /// Absent once the connection has ended.
    connection: Option<Pin<Box<Driver>>>,
    allowance: Allowance,
}

impl WebhookConnection {
    pub async fn new(socket: Box<dyn Socket>) -> Result<Self, UnreachableCause> {
        let allowance = Allowance::default();
        let io = TokioIo::new(MeteredSocket::new(socket, allowance.clone()));
        let mut builder = http1::Builder::new();
        builder.max_buf_size(WEBHOOK_HEADER_BYTES).max_headers(HEADERS);
        let made = builder.handshake(io).await;
        let (sender, connection) = made.map_err(|_| UnreachableCause::ConnectionLost)?;
        Ok(Self { sender, connection: Some(Box::pin(connection)), allowance })
    }

    /// Whether the connection can take a request now. Finds a subscriber's close of an idle connection.
    pub async fn is_usable(&mut self) -> bool {
        self.allowance.set(RECEIVED_BYTES);
        poll_fn(|context| {
            advance(&mut self.connection, context);
            Poll::Ready(matches!(self.sender.poll_ready(context), Poll::Ready(Ok(()))))
        })
        .await
    }

    /// Sends a request and returns the answer as soon as its header is complete.
    pub async fn send(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, UnreachableCause> {
        self.allowance.set(RECEIVED_BYTES);
        let answer = self.sender.send_request(request);
        let answer = self.drive(answer).await;
        answer.map_err(|error| cause(&error, &self.allowance))
    }

    /// Reads the first bytes of an answer into `bytes`. Returns whether these are all, so that the connection can be
    /// used again. A broken connection ends them.
    pub async fn read(&mut self, body: &mut Incoming, bytes: &mut BytesMut) -> bool {
        loop {
            let Some(frame) = self.drive(body.frame()).await else { return true };
            let Ok(frame) = frame else { return false };
            let Some(data) = frame.data_ref() else { continue };
            let room = ANSWER_BYTES - bytes.len();
            bytes.extend_from_slice(&data[..data.len().min(room)]);
            if data.len() > room {
                return false;
            }
        }
    }

    /// Waits for a part of an exchange, while the connection reads and writes.
    async fn drive<F: Future>(&mut self, part: F) -> F::Output {
        let mut part = pin!(part);
        poll_fn(|context| {
            advance(&mut self.connection, context);
            part.as_mut().poll(context)
        })
        .await
    }
}

/// Lets a connection read and write. One that has ended is dropped, so that its waiters learn of it.
fn advance<C: Future + Unpin>(connection: &mut Option<C>, context: &mut Context<'_>) {
    let has_ended = match connection {
        Some(connection) => Pin::new(connection).poll(context).is_ready(),
        None => false,
    };
    if has_ended {
        *connection = None;
    }
}

fn cause(error: &hyper::Error, allowance: &Allowance) -> UnreachableCause {
    if error.is_parse() || allowance.is_spent() {
        UnreachableCause::InvalidAnswer
    } else {
        UnreachableCause::ConnectionLost
    }
}

/// Names the cause of a failed connection.
pub fn connect_cause(error: &io::Error) -> UnreachableCause {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => UnreachableCause::ConnectionRefused,
        io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionAborted => UnreachableCause::ConnectionLost,
        _ => UnreachableCause::NoRoute,
    }
}

/// Names the cause of a failed TLS handshake.
pub fn tls_cause(error: &io::Error) -> UnreachableCause {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match inner {
        Some(rustls::Error::InvalidCertificate(_)) => UnreachableCause::Certificate,
        _ => UnreachableCause::Tls,
    }
}
