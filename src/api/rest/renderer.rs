//! Rendering of REST answers: errors in Zaqar's form, and the rules of methods.
//!
//! HEAD is 405 except on ping and the probes, and OPTIONS is 200 with `Allow`, as in Zaqar; axum would serve HEAD for
//! every GET, and no OPTIONS. Both are routed as a method that no route has, so that the router returns the methods of
//! the path.

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};

use crate::api::error::{ApiError, plain_body};
use angarium_core::error::ErrorCode;
use angarium_core::probe;

const REQUEST_ID: &str = "x-openstack-request-id";
const JSON: HeaderValue = HeaderValue::from_static("application/json");
/// The paths that load balancers check with HEAD.
const HEADS: [&str; 3] = ["/livez", "/readyz", "/v2/ping"];

/// Renders the answer to one request.
#[derive(Debug)]
pub struct RestRenderer {
    /// The method that the client sent.
    method: Method,
    path: String,
}

impl RestRenderer {
    /// Creates the renderer for `request`, and sets the method to the one that routing uses.
    pub fn new(request: &mut Request) -> Self {
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        if method == Method::OPTIONS || (method == Method::HEAD && !has_head(&path)) {
            *request.method_mut() = Method::TRACE;
        }
        Self { method, path }
    }

    /// Whether refusals are logged. For readiness they are not: its changes are logged elsewhere.
    pub fn is_logged(&self) -> bool {
        !probe::READINESS.contains(&self.path.as_str())
    }

    /// Renders the body of an error, with the id of its request.
    pub fn render(&self, mut response: Response, id: &str) -> Response {
        match response.status() {
            StatusCode::METHOD_NOT_ALLOWED => response = self.not_allowed(&response, id),
            StatusCode::NOT_FOUND if response.extensions().get::<ApiError>().is_none() => {
                let why = format!("there is no {}", self.path);
                let body = plain_body(StatusCode::NOT_FOUND, ErrorCode::NoRoute, why, id);
                response = (StatusCode::NOT_FOUND, [(header::CONTENT_TYPE, JSON)], body).into_response();
            }
            _ => {}
        }
        if let Some(error) = response.extensions_mut().remove::<ApiError>() {
            *response.body_mut() = Body::from(error.body(id));
            let headers = response.headers_mut();
            headers.remove(header::CONTENT_LENGTH);
            headers.insert(header::CONTENT_TYPE, JSON);
            headers.insert(header::VARY, HeaderValue::from_static("Accept"));
        }
        response
    }

    /// Sets the headers of every answer, of this replica or of another one.
    pub fn finish(&self, response: &mut Response, id: &str) {
        if self.method == Method::HEAD {
            *response.body_mut() = Body::empty();
        }
        if let Ok(value) = HeaderValue::from_str(id) {
            response.headers_mut().insert(REQUEST_ID, value);
        }
    }

    fn not_allowed(&self, routed: &Response, id: &str) -> Response {
        let (method, path) = (&self.method, self.path.as_str());
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
}

fn has_head(path: &str) -> bool {
    HEADS.contains(&path)
}

/// Returns the methods of a path: those of the router, without the HEAD that it adds to every GET, and OPTIONS.
fn allowed(headers: &HeaderMap, path: &str) -> String {
    let routed = headers.get(header::ALLOW).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let methods = routed.split(',').map(str::trim).filter(|method| !method.is_empty());
    let mut methods: Vec<&str> = methods.filter(|method| *method != "HEAD" || has_head(path)).collect();
    methods.push("OPTIONS");
    methods.join(", ")
}

#[cfg(test)]
mod tests {
    use angarium_core::error::Error;
    use axum::body::HttpBody;

    use super::*;

    /// HTTP/2 would send the body.
    #[test]
    fn answer_to_head_has_no_body() {
        let mut request = Request::head("/readyz").body(Body::empty()).unwrap();
        let renderer = RestRenderer::new(&mut request);
        let mut response = renderer.render(ApiError::from(Error::NoPool).into_response(), "id");
        renderer.finish(&mut response, "id");
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert!(response.body().is_end_stream());
    }
}
