//! How answers of SQS are written. An error is carried to here as it is: the forwarding between it and its client needs
//! its form.

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;

use super::decode::Dialect;
use super::fault::Fault;
use super::incoming::is_plain_json;
use crate::api::error::ApiError;
use crate::api::pipeline::refusal::RefusalCause;

const PLAIN_JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Writes the answer to one request.
#[derive(Debug)]
pub struct SqsRenderer {
    dialect: Dialect,
    /// Whether the client names plain JSON. It may read no other; the SDKs of AWS name their own form.
    is_plain: bool,
}

impl SqsRenderer {
    /// For the answer to a request with these headers.
    pub fn new(dialect: Dialect, headers: &HeaderMap) -> Self {
        Self { dialect, is_plain: dialect == Dialect::Json && is_plain_json(headers) }
    }

    /// How the request was written.
    pub fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// Writes an error, with the id of its request.
    pub fn render(&self, mut response: Response, id: &str) -> Response {
        let error = response.extensions_mut().remove::<ApiError>();
        let fault = response.extensions_mut().remove::<Fault>();
        let Some(fault) = fault.or_else(|| error.map(|ApiError(error)| Fault::from(error))) else {
            return response;
        };
        let mut written = fault.into_response(self.dialect, id);
        // A replica that is about to stop has said so.
        if let Some(connection) = response.headers_mut().remove(header::CONNECTION) {
            written.headers_mut().insert(header::CONNECTION, connection);
        }
        written
    }

    /// Sets the headers that each answer has, of this or another replica.
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
    /// An answer of its status, which [`SqsRenderer::render`] writes. What it stems from is there too: a slot may have
    /// moved.
    pub fn unwritten(self) -> Response {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = self.kind.form().status;
        if let Some(cause) = &self.cause {
            response.extensions_mut().insert(ApiError(cause.clone()));
        }
        response.extensions_mut().insert(self);
        response
    }

    /// Its code, as programs know it.
    pub fn code(&self) -> String {
        self.kind.form().code()
    }
}
