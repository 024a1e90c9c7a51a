//! Rendering of SQS answers. An error is rendered last, because forwarding, between its source and the client, needs
//! the unrendered error.

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;

use super::decode::Dialect;
use super::fault::Fault;
use super::incoming::is_plain_json;
use crate::api::error::ApiError;
use crate::api::pipeline::refusal::RefusalCause;

const PLAIN_JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Renders the answer to one request.
#[derive(Debug)]
pub struct SqsRenderer {
    dialect: Dialect,
    /// Whether the client uses plain JSON. It may accept nothing else; the SDKs of AWS name their own type.
    is_plain: bool,
}

impl SqsRenderer {
    /// Creates the renderer for a request with these headers.
    pub fn new(dialect: Dialect, headers: &HeaderMap) -> Self {
        Self { dialect, is_plain: dialect == Dialect::Json && is_plain_json(headers) }
    }

    /// Returns the dialect of the request.
    pub fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// Renders an error, with the id of its request.
    pub fn render(&self, mut response: Response, id: &str) -> Response {
        let error = response.extensions_mut().remove::<ApiError>();
        let fault = response.extensions_mut().remove::<Fault>();
        let Some(fault) = fault.or_else(|| error.map(|ApiError(error)| Fault::from(error))) else {
            return response;
        };
        let mut written = fault.into_response(self.dialect, id);
        // A replica that is about to stop has closed the connection with this header.
        if let Some(connection) = response.headers_mut().remove(header::CONNECTION) {
            written.headers_mut().insert(header::CONNECTION, connection);
        }
        written
    }

    /// Sets the headers of every answer, of this replica or of another one.
    pub fn finish(&self, response: &mut Response) {
        if self.is_plain {
            response.headers_mut().insert(header::CONTENT_TYPE, PLAIN_JSON);
        }
    }
}

impl From<Fault> for RefusalCause {
    fn from(fault: Fault) -> Self {
        Self::Answer(Box::new(fault.unwritten()))
    }
}

impl Fault {
    /// Returns a response with the status of the error, which [`SqsRenderer::render`] completes. It keeps the error of
    /// the core, because forwarding looks for a moved slot.
    pub fn unwritten(self) -> Response {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = self.kind.form().status;
        if let Some(cause) = &self.cause {
            response.extensions_mut().insert(ApiError(cause.clone()));
        }
        response.extensions_mut().insert(self);
        response
    }

    /// Returns the code that programs use.
    pub fn code(&self) -> String {
        self.kind.form().code()
    }
}
