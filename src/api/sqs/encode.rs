//! Encoding of answers in both protocols. JSON is written directly; XML is generated from the same values.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::{Value, json};

use super::decode::Dialect;
use super::fault::{Fault, Kind};
use super::operation::Operation;
use super::xml;
use crate::api::delivery::deliver;
use crate::api::error::RETRY_AFTER;
use angarium_broker::DeliveryGuard;

/// The answer to a request of the query protocol without an action.
const NO_OPERATION: &str = "<UnknownOperationException/>\n";
const REQUEST_ID: &str = "x-amzn-requestid";
const QUERY_ERROR: &str = "x-amzn-query-error";
const JSON: HeaderValue = HeaderValue::from_static("application/x-amz-json-1.0");
const PLAIN_JSON: HeaderValue = HeaderValue::from_static("application/json");
const XML: HeaderValue = HeaderValue::from_static("text/xml");

/// The result of an operation.
pub struct OperationResult {
    body: Box<dyn Render>,
    delivery_guard: Option<DeliveryGuard>,
}

/// A result that can be encoded in both protocols.
trait Render: Send {
    fn json(&self) -> serde_json::Result<Vec<u8>>;
    fn value(&self) -> serde_json::Result<Value>;
}

impl<T: Serialize + Send> Render for T {
    fn json(&self) -> serde_json::Result<Vec<u8>> {
        serde_json::to_vec(self)
    }

    fn value(&self) -> serde_json::Result<Value> {
        serde_json::to_value(self)
    }
}

impl OperationResult {
    /// Creates a result with this content.
    pub fn new(body: impl Serialize + Send + 'static) -> Self {
        Self { body: Box::new(body), delivery_guard: None }
    }

    /// Creates the result of an operation without output.
    pub fn done() -> Self {
        Self::new(json!({}))
    }

    /// Adds the guard of the messages that the first byte of the answer delivers.
    pub fn deliver(self, delivery_guard: Option<DeliveryGuard>) -> Self {
        Self { delivery_guard, ..self }
    }

    /// Encodes the answer to the request with this id.
    pub fn into_response(self, dialect: Dialect, operation: Operation, id: &str) -> Response {
        let written = match dialect {
            Dialect::Json => self.body.json(),
            Dialect::Query => self.body.value().map(|value| xml::answer(operation, &value, id).into_bytes()),
            Dialect::QueryJson => self.body.value().and_then(|value| query_json(operation, value, id)),
        };
        let Ok(written) = written else {
            let fault = Fault::new(Kind::InternalFailure, "The answer cannot be written.");
            return fault.into_response(dialect, id);
        };
        let response = framed(StatusCode::OK, dialect, id, Body::from(written));
        match self.delivery_guard {
            Some(delivery_guard) => deliver(response, delivery_guard),
            None => response,
        }
    }
}

impl Fault {
    /// Encodes the error answer to the request with this id.
    pub fn into_response(self, dialect: Dialect, id: &str) -> Response {
        let form = self.kind.form();
        if self.kind == Kind::UnknownOperation && dialect != Dialect::Json {
            // AWS finds no operation that would define the form of the answer, so it sends one bare element, whatever
            // form the client accepts.
            let mut response = Response::new(Body::from(NO_OPERATION));
            *response.status_mut() = form.status;
            return identified(response, id);
        }
        let message = match dialect {
            Dialect::Json => self.message,
            Dialect::Query | Dialect::QueryJson => self.query_message(),
        };
        let error = json!({"Type": form.side(), "Code": form.code(), "Message": message, "Detail": null});
        let body = match dialect {
            Dialect::Json => json!({"__type": form.shape(), "message": message}).to_string(),
            Dialect::Query => xml::error(&error, id),
            Dialect::QueryJson => json!({"Error": error, "RequestId": id}).to_string(),
        };
        let mut response = framed(form.status, dialect, id, Body::from(body));
        if form.status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(header::RETRY_AFTER, RETRY_AFTER);
        }
        if dialect == Dialect::Json
            && let Ok(told) = HeaderValue::try_from(format!("{};{}", form.code(), form.side()))
        {
            response.headers_mut().insert(QUERY_ERROR, told);
        }
        response
    }
}

fn query_json(operation: Operation, value: Value, id: &str) -> serde_json::Result<Vec<u8>> {
    let name = operation.name();
    let mut content = json!({"ResponseMetadata": {"RequestId": id}});
    if xml::has_result(operation) {
        content[format!("{name}Result")] = in_lists(value);
    }
    serde_json::to_vec(&json!({format!("{name}Response"): content}))
}

/// Converts a value to the form of the query protocol: maps become lists of entries, as in XML, and two members begin
/// with a lower-case letter.
fn in_lists(value: Value) -> Value {
    match value {
        Value::Object(members) => {
            members.into_iter().map(|(name, value)| member_in_lists(name, value)).collect()
        }
        Value::Array(elements) => elements.into_iter().map(in_lists).collect(),
        plain => plain,
    }
}

fn member_in_lists(name: String, value: Value) -> (String, Value) {
    let value = match (xml::entry(&name), value) {
        (Some((key, content)), Value::Object(entries)) => {
            let entry = |(name, value): (String, Value)| json!({key: name, content: in_lists(value)});
            entries.into_iter().map(entry).collect()
        }
        (_, value) => in_lists(value),
    };
    let name = match name.as_str() {
        "Messages" => "messages".to_owned(),
        "QueueUrls" => "queueUrls".to_owned(),
        _ => name,
    };
    (name, value)
}

fn framed(status: StatusCode, dialect: Dialect, id: &str, body: Body) -> Response {
    let media_type = match dialect {
        Dialect::Json => JSON,
        Dialect::Query => XML,
        Dialect::QueryJson => PLAIN_JSON,
    };
    identified((status, [(header::CONTENT_TYPE, media_type)], body).into_response(), id)
}

/// Adds the id of the request to its answer.
fn identified(mut response: Response, id: &str) -> Response {
    if let Ok(id) = HeaderValue::from_str(id) {
        response.headers_mut().insert(REQUEST_ID, id);
    }
    response
}
