//! What holds for every request: its id, the method rules, what the client accepts, the form of errors.

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use rand::Rng;
use tracing::{Instrument, Span, debug, debug_span, info_span};
use uuid::Builder;

use super::forward::PeerResponseMark;
use super::forward::peer::RequestId;
use super::unread;
use crate::api::accept;
use crate::api::error::{ApiError, plain_body};
use crate::api::{query, trace};
use angarium_core::error::{Error, ErrorCode};
use angarium_core::probe;
use angarium_core::trace::TraceContext;
use angarium_metrics::{Meter, Refusal};

const REQUEST_ID: &str = "x-openstack-request-id";
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// The name of the server, for a search of faults.
pub const SERVER: HeaderValue = HeaderValue::from_static(concat!("angarium/", env!("CARGO_PKG_VERSION")));

/// Gives a request its id, and its answer the headers and, if it is an error, the body.
///
/// HEAD is 405 but on ping and OPTIONS is 200 with `Allow`, as in Zaqar; axum would answer HEAD wherever there
/// is GET, and OPTIONS nowhere. Both are routed as a method that no route has, to learn what it does have.
pub async fn frame<F: Future<Output = Response>>(
    meter: &Meter,
    mut request: Request,
    serve: impl FnOnce(Request) -> F,
) -> Response {
    // Of dice that the thread keeps: asking the system for each request costs more than counting it.
    let id = match request.extensions().get::<RequestId>() {
        Some(RequestId(id)) => id.clone(),
        None => format!("req-{}", Builder::from_random_bytes(rand::rng().random()).into_uuid()),
    };
    request.extensions_mut().insert(RequestId(id.clone()));
    let method = request.method().clone();
    let path = request.uri().path().to_owned();
    let is_ping = path == "/v2/ping";
    if method == Method::OPTIONS || (method == Method::HEAD && !is_ping) {
        *request.method_mut() = Method::TRACE;
    }
    let trace = trace::of_request(request.headers());
    let span = span(&id, trace.as_ref());
    let trace_id = trace.as_ref().map(TraceContext::trace_id);
    if let Some(trace) = trace {
        request.extensions_mut().insert(trace);
    }
    let (request, unread) = unread::watch(request);
    let checked = accept::check(&path, request.headers()).and_then(|()| query::check_length(request.uri()));
    let mut response = match checked {
        Ok(()) if span.is_disabled() => serve(request).await,
        Ok(()) => serve(request).instrument(span).await,
        Err(refused) => refuse(request, refused),
    };
    // A body that is late already is not waited for again.
    if let Some(unread) = unread.filter(|_| response.status() != StatusCode::REQUEST_TIMEOUT) {
        unread.read().await;
    }
    match response.status() {
        // The replica that served it has said all.
        _ if response.extensions().get::<PeerResponseMark>().is_some() => {}
        StatusCode::METHOD_NOT_ALLOWED => response = not_allowed(&response, &method, &path, &id),
        StatusCode::NOT_FOUND if response.extensions().get::<ApiError>().is_none() => {
            let body =
                plain_body(StatusCode::NOT_FOUND, ErrorCode::NoRoute, format!("there is no {path}"), &id);
            response = (StatusCode::NOT_FOUND, [(header::CONTENT_TYPE, JSON)], body).into_response();
        }
        _ => {}
    }
    if let Some(error) = response.extensions_mut().remove::<ApiError>() {
        // Whether it is ready is logged where that changes.
        if !probe::READINESS.contains(&path.as_str()) {
            log(&error.0, &id, trace_id.as_deref());
        }
        count(meter, response.status(), &error.0);
        *response.body_mut() = Body::from(error.body(&id));
        let headers = response.headers_mut();
        headers.remove(header::CONTENT_LENGTH);
        headers.insert(header::CONTENT_TYPE, JSON);
        headers.insert(header::VARY, HeaderValue::from_static("Accept"));
    }
    if let Ok(value) = HeaderValue::from_str(&id) {
        response.headers_mut().insert(REQUEST_ID, value);
    }
    response.headers_mut().insert(header::SERVER, SERVER);
    response
}

/// What is logged while a request is served states which one it is. Requests whose trace is kept are few, and their
/// span is there at the usual level; that of the others is there for who looks closer, and else costs nothing.
fn span(request_id: &str, trace: Option<&TraceContext>) -> Span {
    match trace {
        Some(trace) if trace.is_sampled() => info_span!("request", request_id, trace_id = trace.trace_id()),
        Some(trace) => debug_span!("request", request_id, trace_id = trace.trace_id()),
        None => debug_span!("request", request_id),
    }
}

/// Counts what was refused for want of something, and what failed, by its reason.
pub fn count(meter: &Meter, status: StatusCode, error: &Error) {
    if status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error() {
        meter.refuse(&Refusal { status: status.as_u16(), reason: error.code().to_owned() });
    }
}

/// Takes the request, so that its body is done with.
fn refuse(_: Request, why: Error) -> Response {
    ApiError::from(why).into_response()
}

fn not_allowed(routed: &Response, method: &Method, path: &str, id: &str) -> Response {
    let methods = allowed(routed.headers(), path);
    let allow = HeaderValue::from_str(&methods).unwrap_or(HeaderValue::from_static("OPTIONS"));
    if method == Method::OPTIONS {
        return (StatusCode::OK, [(header::ALLOW, allow)]).into_response();
    }
    let description = format!("{path} has no {method}: it has {methods}");
    let body = plain_body(StatusCode::METHOD_NOT_ALLOWED, ErrorCode::MethodNotAllowed, description, id);
    let headers = [(header::ALLOW, allow), (header::CONTENT_TYPE, JSON)];
    (StatusCode::METHOD_NOT_ALLOWED, headers, body).into_response()
}

/// The methods of a path: what the router states, without the HEAD it adds to every GET, and OPTIONS.
fn allowed(headers: &HeaderMap, path: &str) -> String {
    let routed = headers.get(header::ALLOW).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let methods = routed.split(',').map(str::trim).filter(|method| !method.is_empty());
    let mut methods: Vec<&str> = methods.filter(|method| path == "/v2/ping" || *method != "HEAD").collect();
    methods.push("OPTIONS");
    methods.join(", ")
}

/// An error of a request stops here. It is counted by its code, and told at the level debug: what is wrong with a part
/// of the service is told once, by the watcher of that part.
pub fn log(error: &Error, request_id: &str, trace_id: Option<&str>) {
    debug!(request_id, trace_id, code = error.code(), error = %error.detail(), "request refused");
}
