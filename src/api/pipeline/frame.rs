//! The frame of each request: its id, its trace and its log span, and the last steps of its answer.

use std::sync::Arc;

use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use rand::Rng;
use tracing::{Span, debug, debug_span, info_span};
use uuid::Builder;
use uuid::fmt::Hyphenated;

use super::forward::PeerResponseMark;
use super::forward::peer::RequestId;
use super::protocol::{Protocol, Renderer};
use super::unread::{self, UnreadBodies};
use crate::api::error::ApiError;
use crate::api::trace;
use angarium_core::trace::TraceContext;
use angarium_metrics::{Meter, Refusal};

/// The value of the `Server` header, which helps to find the source of a fault.
const SERVER: HeaderValue = HeaderValue::from_static(concat!("angarium/", env!("CARGO_PKG_VERSION")));

/// The frame of one request.
pub struct Frame {
    id: RequestId,
    renderer: Renderer,
    trace_id: Option<String>,
    /// The span of all log lines of this request.
    pub span: Span,
    /// None when the request has no body.
    unread: Option<UnreadBodies>,
}

impl Frame {
    /// Opens the frame of a request, and adds its id and its trace to the request.
    pub fn open(mut request: Request) -> (Self, Request) {
        let renderer = Renderer::of(&mut request);
        let id = match request.extensions().get::<RequestId>() {
            Some(id) => id.clone(),
            None => random_id(renderer.id_prefix()),
        };
        let trace = trace::of_request(request.headers());
        let span = span(&id.0, trace.as_ref());
        let trace_id = trace.as_ref().map(TraceContext::trace_id);
        request.extensions_mut().insert(id.clone());
        if let Some(trace) = trace {
            request.extensions_mut().insert(trace);
        }
        let (request, unread) = unread::watch(request);
        (Self { id, renderer, trace_id, span, unread }, request)
    }

    /// Returns the protocol of the request.
    pub fn protocol(&self) -> Protocol {
        self.renderer.protocol()
    }

    /// Logs and counts an error, drains the request body, and renders the answer.
    pub async fn close(self, mut response: Response, meter: &Meter) -> Response {
        let (id, renderer) = (&self.id.0, &self.renderer);
        // A replica that served the request has logged and counted its error.
        let is_ours = response.extensions().get::<PeerResponseMark>().is_none();
        // Before the body is drained: if the client disconnects, this future is dropped.
        if is_ours {
            if renderer.is_logged() {
                log(renderer, &response, &LoggedRequest { id, trace_id: self.trace_id.as_deref() });
            }
            count(meter, &response);
        }
        // The service does not wait for a late body a second time.
        if let Some(unread) = self.unread.filter(|_| response.status() != StatusCode::REQUEST_TIMEOUT) {
            unread.read().await;
        }
        if is_ours {
            response = renderer.render(response, id);
        }
        renderer.finish(&mut response, id);
        response.headers_mut().insert(header::SERVER, SERVER);
        response
    }
}

/// Creates a random request id. It uses the generator of the thread, because a system call for each request is
/// expensive.
fn random_id(prefix: &str) -> RequestId {
    let id = Builder::from_random_bytes(rand::rng().random()).into_uuid();
    let mut buffer = [0; Hyphenated::LENGTH];
    let text = id.as_hyphenated().encode_lower(&mut buffer);
    RequestId(Arc::from([prefix, text].concat()))
}

/// Creates the span of a request, so that each log line names the request. Sampled requests are few and have a span at
/// level info; the span of other requests is at level debug and else costs nothing.
fn span(request_id: &str, trace: Option<&TraceContext>) -> Span {
    match trace {
        Some(trace) if trace.is_sampled() => info_span!("request", request_id, trace_id = trace.trace_id()),
        Some(trace) => debug_span!("request", request_id, trace_id = trace.trace_id()),
        None => debug_span!("request", request_id),
    }
}

/// Counts errors with a status of 429 or 5xx by their reason. A protocol may answer some of these errors with 400 or
/// 403; they then count with the status of [`ApiError`], so that one alert covers all protocols.
fn count(meter: &Meter, response: &Response) {
    let Some(error) = response.extensions().get::<ApiError>() else { return };
    let is_shortage =
        |status: &StatusCode| *status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error();
    if let Some(status) = [response.status(), error.status()].into_iter().find(is_shortage) {
        meter.refuse(&Refusal { status: status.as_u16(), reason: error.0.code().to_owned() });
    }
}

/// Logs the error of a request, at level debug: it is counted by its code, and the monitor of each part of the service
/// logs a failure of that part once. For an error that only one protocol has, the code is logged without the text,
/// because the text repeats the request.
fn log(renderer: &Renderer, response: &Response, request: &LoggedRequest<'_>) {
    let &LoggedRequest { id: request_id, trace_id } = request;
    if let Some(ApiError(error)) = response.extensions().get() {
        debug!(request_id, trace_id, code = error.code(), error = %error.detail(), "request refused");
    } else if let Some(code) = renderer.own_code(response) {
        debug!(request_id, trace_id, code, "request refused");
    }
}

/// The request of a log line.
struct LoggedRequest<'a> {
    id: &'a str,
    trace_id: Option<&'a str>,
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    use angarium_core::error::Error;
    use angarium_metrics::ServiceState;
    use axum::body::{Body, HttpBody};
    use axum::response::IntoResponse;
    use bytes::Bytes;
    use hyper::body::Frame as BodyFrame;

    use super::*;

    /// A body of which the client sends nothing.
    struct UnsentBody;

    impl HttpBody for UnsentBody {
        type Data = Bytes;
        type Error = axum::Error;

        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<BodyFrame<Bytes>, axum::Error>>> {
            Poll::Pending
        }
    }

    #[tokio::test]
    async fn refusal_counts_before_its_body_is_read() {
        let meter = Meter::default();
        let (frame, request) = Frame::open(Request::new(Body::new(UnsentBody)));
        drop(request);
        let mut closing = Box::pin(frame.close(ApiError::from(Error::Overloaded).into_response(), &meter));
        let polled = closing.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(polled, Poll::Pending), "the client has not sent all");
        drop(closing);
        let page = meter.page(&ServiceState::default());
        assert!(page.contains("reason=\"overloaded\""), "{page}");
    }
}
