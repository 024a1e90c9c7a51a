//! One request and its answer on a connection. This module marks the begin and the end of a request for the socket,
//! marks a request with a wrong host or a too long header, and watches the progress of a request body. It never reads a
//! path, the value of another header or a byte of a body, and never answers: the router does.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::BoxError;
use axum::body::Body;
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request, Response, Version, header};
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use pin_project_lite::pin_project;
use tokio::time::Instant;
use tower::Service;

use super::deadline::{Alarm, InRequest, Phase};
use super::listener::ConnectionLimits;
use super::unsent::{AnswerCharge, UnsentAnswers};
use angarium_core::error::Error;
use angarium_core::hosts::WrongHost;
use angarium_core::request_header::HeaderExcess;

/// The service that answers the requests of a listener, such as a router of axum.
pub trait App:
    Service<Request<Body>, Response = Response<Body>, Error = Infallible, Future: Send + 'static>
    + Clone
    + Send
    + Sync
    + 'static
{
}

impl<T> App for T where
    T: Service<Request<Body>, Response = Response<Body>, Error = Infallible, Future: Send + 'static>
        + Clone
        + Send
        + Sync
        + 'static
{
}

/// Adapts an app to hyper, which calls it once per request; in HTTP/1.1 one request at a time.
#[derive(Debug)]
pub struct Exchange<A> {
    app: A,
    phase: Phase,
    unsent: UnsentAnswers,
    limits: ConnectionLimits,
}

impl<A: App> Exchange<A> {
    /// Answers the requests of one connection by `app`, marks them in `phase` and counts their answers in `unsent`.
    pub fn new(app: A, phase: Phase, unsent: UnsentAnswers, limits: ConnectionLimits) -> Self {
        Self { app, phase, unsent, limits }
    }
}

impl<A: App> hyper::service::Service<Request<Incoming>> for Exchange<A> {
    type Response = Response<AnswerBody>;
    type Error = Infallible;
    type Future = HandlerFuture<A::Future>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let mark = self.phase.request();
        let mut request =
            request.map(|body| Body::new(RequestBody::new(body, self.limits.body, self.limits.body_step)));
        if has_wrong_host(&request) {
            request.extensions_mut().insert(WrongHost);
        }
        if let Some(excess) = header_excess(&request, &self.limits) {
            request.extensions_mut().insert(excess);
        }
        let unsent = self.unsent.clone();
        HandlerFuture { answer: self.app.clone().call(request), mark: Some(mark), unsent }
    }
}

/// Whether a request names several hosts, or no host, which only HTTP/1.0 allows. In HTTP/2 the host is a part of the
/// URI, and a `Host` header must name the same host.
fn has_wrong_host(request: &Request<Body>) -> bool {
    let mut named = request.headers().get_all(header::HOST).iter();
    let authority = request.uri().authority().filter(|_| request.version() == Version::HTTP_2);
    match (named.next(), named.next(), authority) {
        (_, Some(_), _) => true,
        (Some(host), None, Some(authority)) => {
            !host.as_bytes().eq_ignore_ascii_case(authority.as_str().as_bytes())
        }
        (None, None, None) => request.version() >= Version::HTTP_11,
        _ => false,
    }
}

/// Returns how the header of a request exceeds its bounds. The size is that in HTTP/1.1, with one blank before each
/// value.
fn header_excess(request: &Request<Body>, limits: &ConnectionLimits) -> Option<HeaderExcess> {
    let headers = request.headers();
    if headers.len() > limits.fields {
        return Some(HeaderExcess::Fields { found: headers.len(), bound: limits.fields });
    }
    let uri = request.uri();
    let target = uri.path_and_query().map_or(0, |target| target.as_str().len());
    let host = uri.authority().map_or(0, |host| "host: \r\n".len() + host.as_str().len());
    let first = request.method().as_str().len() + target + "  HTTP/1.1\r\n".len();
    let field =
        |(name, value): (&HeaderName, &HeaderValue)| name.as_str().len() + value.len() + ": \r\n".len();
    let found = first + host + headers.iter().map(field).sum::<usize>() + "\r\n".len();
    (found > limits.buffer).then_some(HeaderExcess::Bytes { found, bound: limits.buffer })
}

pin_project! {
    /// The running handler. hyper drops it when the client disconnects.
    pub struct HandlerFuture<F> {
        #[pin]
        answer: F,
        mark: Option<InRequest>,
        unsent: UnsentAnswers,
    }
}

impl<F: Future<Output = Result<Response<Body>, Infallible>>> Future for HandlerFuture<F> {
    type Output = Result<Response<AnswerBody>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let me = self.project();
        let Ok(answer) = ready!(me.answer.poll(cx));
        let mark = me.mark.take().and_then(InRequest::answered);
        let charge = me.unsent.charge(answer.body().size_hint().lower());
        Poll::Ready(Ok(answer.map(|inner| AnswerBody { inner, charge, _mark: mark })))
    }
}

/// The body of an answer. hyper drops it when its last byte is in the write buffer, which ends the request. Its bytes
/// remain charged until they are written.
#[derive(Debug)]
pub struct AnswerBody {
    inner: Body,
    charge: Option<AnswerCharge>,
    _mark: Option<InRequest>,
}

impl HttpBody for AnswerBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let me = &mut *self;
        let polled = Pin::new(&mut me.inner).poll_frame(cx);
        match (&mut me.charge, polled) {
            (Some(charge), Poll::Ready(Some(Ok(frame)))) => {
                Poll::Ready(Some(Ok(frame.map_data(|bytes| charge.carried_by(bytes)))))
            }
            (_, polled) => polled,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// The body of a request; it fails with [`Error::Late`] when it makes no progress. The extractor that reads it answers
/// 408. hyper then closes the connection, because the body was not read completely.
///
/// Only time in which the handler waits for the body counts, so a handler that does other work first is not affected.
/// Progress is `step` bytes or the end of the body: single bytes from time to time do not keep a connection open. The
/// timer is created only if the body was not available when the handler first read it, which is rare.
#[derive(Debug)]
pub struct RequestBody<B = Incoming> {
    inner: B,
    max_wait: Duration,
    step: usize,
    /// Bytes received in the current step.
    received: usize,
    /// Waiting time left for the current step.
    left: Duration,
    /// The deadline while the handler waits for the body; else none.
    deadline: Option<Instant>,
    alarm: Alarm,
}

impl<B> RequestBody<B> {
    /// Wraps `inner`. The handler waits at most `max_wait` for each `step` bytes.
    pub fn new(inner: B, max_wait: Duration, step: usize) -> Self {
        Self { inner, max_wait, step, received: 0, left: max_wait, deadline: None, alarm: Alarm::default() }
    }

    fn progress(&mut self, bytes: usize) {
        if let Some(deadline) = self.deadline.take() {
            self.left = deadline.saturating_duration_since(Instant::now());
        }
        self.received = self.received.saturating_add(bytes);
        if self.received >= self.step {
            self.received = 0;
            self.left = self.max_wait;
        }
    }
}

impl<B> HttpBody for RequestBody<B>
where
    B: HttpBody<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let me = &mut *self;
        if let Poll::Ready(frame) = Pin::new(&mut me.inner).poll_frame(cx) {
            if let Some(Ok(frame)) = &frame {
                me.progress(frame.data_ref().map_or(0, Bytes::len));
            }
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        let deadline = *me.deadline.get_or_insert_with(|| Instant::now() + me.left);
        if me.alarm.passed(cx, deadline) { Poll::Ready(Some(Err(Error::Late.into()))) } else { Poll::Pending }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
