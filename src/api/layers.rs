//! What holds for every request: its id, the method rules, what the client accepts, the form of errors.

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tracing::{debug, error};
use uuid::Uuid;

use super::accept;
use super::error::{ApiError, plain_body};
use super::unread;
use crate::error::Error;

const REQUEST_ID: &str = "x-openstack-request-id";
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Gives a request its id, and its answer the headers and, if it is an error, the body.
///
/// HEAD is 405 but on ping and OPTIONS is 200 with `Allow`, as in Zaqar; axum would answer HEAD wherever there
/// is GET, and OPTIONS nowhere. Both are routed as a method that no route has, to learn what it does have.
pub async fn frame(mut request: Request, next: Next) -> Response {
    let id = format!("req-{}", Uuid::new_v4());
    let method = request.method().clone();
    let path = request.uri().path().to_owned();
    let is_ping = path == "/v2/ping";
    if method == Method::OPTIONS || (method == Method::HEAD && !is_ping) {
        *request.method_mut() = Method::TRACE;
    }
    let (request, unread) = unread::watch(request);
    let mut response = match accept::check(&path, request.headers()) {
        Ok(()) => next.run(request).await,
        Err(refused) => refuse(request, refused),
    };
    // A body that is late already is not waited for again.
    if let Some(unread) = unread.filter(|_| response.status() != StatusCode::REQUEST_TIMEOUT) {
        unread.read().await;
    }
    match response.status() {
        StatusCode::METHOD_NOT_ALLOWED => response = not_allowed(&response, &method, &path, &id),
        StatusCode::NOT_FOUND if response.extensions().get::<ApiError>().is_none() => {
            let body = plain_body(StatusCode::NOT_FOUND, "no_route", format!("there is no {path}"), &id);
            response = (StatusCode::NOT_FOUND, [(header::CONTENT_TYPE, JSON)], body).into_response();
        }
        _ => {}
    }
    if let Some(error) = response.extensions_mut().remove::<ApiError>() {
        log(&error.0, &id);
        *response.body_mut() = Body::from(error.body(&id));
        let headers = response.headers_mut();
        headers.remove(header::CONTENT_LENGTH);
        headers.insert(header::CONTENT_TYPE, JSON);
        headers.insert(header::VARY, HeaderValue::from_static("Accept"));
    }
    if let Ok(value) = HeaderValue::from_str(&id) {
        response.headers_mut().insert(REQUEST_ID, value);
    }
    response
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
    let body = plain_body(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", description, id);
    let headers = [(header::ALLOW, allow), (header::CONTENT_TYPE, JSON)];
    (StatusCode::METHOD_NOT_ALLOWED, headers, body).into_response()
}

/// The methods of a path: what the router says, without the HEAD it adds to every GET, and OPTIONS.
fn allowed(headers: &HeaderMap, path: &str) -> String {
    let routed = headers.get(header::ALLOW).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let methods = routed.split(',').map(str::trim).filter(|method| !method.is_empty());
    let mut methods: Vec<&str> = methods.filter(|method| path == "/v2/ping" || *method != "HEAD").collect();
    methods.push("OPTIONS");
    methods.join(", ")
}

/// An error stops here, so it is logged here, once: what the service could not do, and why.
fn log(error: &Error, request_id: &str) {
    match error {
        Error::Unavailable { cause, .. } | Error::Unknown { cause, .. } => {
            let cause = cause.as_ref().map(ToString::to_string).unwrap_or_default();
            error!(request_id, cause, "{error}");
        }
        Error::NoPool | Error::NotDurable(_) => error!(request_id, "{error}"),
        Error::Invalid { .. }
        | Error::NotFound { .. }
        | Error::Claimed(_)
        | Error::NotClaimed(_)
        | Error::ClaimEnded(_)
        | Error::Unauthenticated(_)
        | Error::NotAuthorized(_)
        | Error::ForeignProject
        | Error::ForeignOrigin(_)
        | Error::NotAlone(_)
        | Error::InUse { .. }
        | Error::Conflict(_)
        | Error::Full
        | Error::TooMany { .. }
        | Error::TooFast { .. }
        | Error::Overloaded
        | Error::Late => debug!(request_id, "{error}"),
    }
}
