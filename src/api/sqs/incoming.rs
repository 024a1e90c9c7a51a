//! Detection of SQS requests, their dialect, their operation and its arguments.

use axum::extract::Request;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, header};
use bytes::Bytes;
use serde_json::{Map, Value};

use super::account::{self, Address};
use super::context::ContextLimits;
use super::decode::{Arguments, Dialect, pairs, parameters, shown};
use super::fault::{Fault, Kind};
use super::operation::Operation;
use crate::api::json;
use angarium_core::limits;

const TARGET: &str = "x-amz-target";
const SERVICE: &str = "AmazonSQS.";
const FORM: &str = "application/x-www-form-urlencoded";
/// First path segments of REST; `/` alone belongs to both protocols.
const REST: [&str; 4] = ["v2", "livez", "readyz", "metrics"];

/// A request with its operation.
#[derive(Clone, Debug)]
pub struct IncomingRequest {
    /// The operation of the request.
    pub operation: Operation,
    /// The arguments of the operation.
    pub arguments: Arguments,
}

/// Returns the SQS dialect of a request; none if the request is not for SQS.
pub fn dialect(request: &Request) -> Option<Dialect> {
    let path = request.uri().path();
    let first = path.trim_start_matches('/').split('/').next().unwrap_or_default();
    if REST.contains(&first) {
        return None;
    }
    let target = request.headers().get(TARGET).map(HeaderValue::as_bytes).unwrap_or_default();
    if request.method() == Method::POST && target.starts_with(SERVICE.as_bytes()) {
        return Some(Dialect::Json);
    }
    let is_form = header_text(request.headers(), header::CONTENT_TYPE).starts_with(FORM);
    let has_action = || {
        let mut names = form_urlencoded::parse(request.uri().query().unwrap_or_default().as_bytes());
        names.any(|(name, _)| name == "Action")
    };
    let is_query = match *request.method() {
        Method::GET => queue_of_path(path).is_some() || (path == "/" && has_action()),
        Method::POST => queue_of_path(path).is_some() || (path == "/" && (is_form || has_action())),
        _ => false,
    };
    let wants_json = header_text(request.headers(), header::ACCEPT).starts_with("application/json");
    is_query.then_some(if wants_json { Dialect::QueryJson } else { Dialect::Query })
}

pub fn header_text(headers: &HeaderMap, name: header::HeaderName) -> &str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// Whether the content type of a request is `application/json` and not a type of AWS.
pub fn is_plain_json(headers: &HeaderMap) -> bool {
    let given = header_text(headers, header::CONTENT_TYPE).split(';').next().unwrap_or_default();
    given.trim().eq_ignore_ascii_case("application/json")
}

/// Parses a path as a queue URL. The account must be a number, so that no other path is taken for a queue.
pub fn queue_of_path(path: &str) -> Option<Address> {
    let is_numbered = |address: &Address| address.account.as_deref().is_some_and(account::is_account);
    account::of_url(path).filter(is_numbered)
}

/// Returns the operation in the headers of a request, if there is one. A form has its operation in the body.
pub fn named_operation(head: &Parts, dialect: Dialect) -> Option<Operation> {
    if dialect == Dialect::Json { target(head) } else { None }
}

fn target(head: &Parts) -> Option<Operation> {
    let target = head.headers.get(TARGET).and_then(|target| target.to_str().ok())?;
    Operation::named(target.strip_prefix(SERVICE)?)
}

/// Returns the max bytes of a request body, as far as the headers show the operation.
pub fn most_bytes(head: &Parts, dialect: Dialect) -> usize {
    match dialect {
        Dialect::Json => target(head).map_or(limits::SQS_CONTROL_BYTES, Operation::most_bytes),
        // A form has its operation in the body.
        Dialect::Query | Dialect::QueryJson => limits::SQS_REQUEST_BYTES,
    }
}

/// Parses the operation of a request and its arguments.
pub fn incoming(
    head: &Parts,
    dialect: Dialect,
    body: Bytes,
    most: &ContextLimits,
) -> Result<IncomingRequest, Fault> {
    if dialect == Dialect::Json {
        let target = head.headers.get(TARGET).and_then(|target| target.to_str().ok()).unwrap_or_default();
        let name = target.strip_prefix(SERVICE).unwrap_or_default();
        let unknown =
            || Fault::new(Kind::UnknownOperation, format!("There is no operation {:?}.", shown(name)));
        let operation = Operation::named(name).ok_or_else(unknown)?;
        check_length(operation, &body)?;
        return Ok(IncomingRequest { operation, arguments: Arguments::Json(body) });
    }
    let query = head.uri.query().unwrap_or_default();
    let form = if head.method == Method::POST { &body[..] } else { &[] };
    let mut parameters = parameters(pairs(query.as_bytes()).chain(pairs(form)), most.parameters())?;
    let operation = action(&parameters, queue_of_path(head.uri.path()).is_some())?;
    check_length(operation, &body)?;
    complete(operation, &mut parameters)?;
    Ok(IncomingRequest { operation, arguments: Arguments::Query(Value::Object(parameters)) })
}

/// Adds empty lists that a form cannot express: a list without elements has no parameter at all.
fn complete(operation: Operation, parameters: &mut Map<String, Value>) -> Result<(), Fault> {
    match operation {
        Operation::SendMessageBatch
        | Operation::DeleteMessageBatch
        | Operation::ChangeMessageVisibilityBatch => {
            parameters.entry("Entries").or_insert_with(|| Value::Array(Vec::new()));
            Ok(())
        }
        Operation::SetQueueAttributes if !parameters.contains_key("Attributes") => {
            Err(Fault::missing("Attribute.Name"))
        }
        _ => Ok(()),
    }
}

fn check_length(operation: Operation, body: &[u8]) -> Result<(), Fault> {
    let most = operation.most_bytes();
    if body.len() > most { Err(json::too_large(most).into()) } else { Ok(()) }
}

/// Returns the operation that the parameters of a query name. On the URL of a queue, operations without a queue are
/// unknown.
fn action(parameters: &Map<String, Value>, is_queue: bool) -> Result<Operation, Fault> {
    let Some(name) = parameters.get("Action").and_then(Value::as_str) else {
        let kind = if is_queue { Kind::UnknownOperation } else { Kind::InvalidAction };
        return Err(Fault::new(kind, "The request names no action."));
    };
    match Operation::named(name) {
        Some(Operation::ListQueues | Operation::CreateQueue) if is_queue => {}
        Some(operation) => return Ok(operation),
        None => {}
    }
    Err(Fault::new(
        Kind::InvalidAction,
        format!("The action {} is not valid for this endpoint.", shown(name)),
    ))
}

/// Returns the key and the region that a request states for its signature.
pub fn credential(head: &Parts) -> Option<(String, String)> {
    let authorization = header_text(&head.headers, header::AUTHORIZATION);
    let scope = match authorization.split_once("Credential=") {
        Some((_, rest)) => rest.split([',', ' ']).next()?.to_owned(),
        None => {
            let query = head.uri.query().unwrap_or_default();
            let mut pairs = form_urlencoded::parse(query.as_bytes());
            pairs.find(|(name, _)| name == "X-Amz-Credential")?.1.into_owned()
        }
    };
    // KEY/DATE/REGION/sqs/aws4_request, where the key may contain slashes.
    let mut parts = scope.rsplitn(5, '/').skip(2);
    let region = parts.next()?.to_owned();
    Some((parts.nth(1)?.to_owned(), region))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(target: &str) -> Parts {
        let request = Request::builder().method(Method::POST).uri("/").header(TARGET, target);
        request.body(axum::body::Body::empty()).unwrap().into_parts().0
    }

    #[test]
    fn body_is_bounded_by_its_operation() {
        for (target, most) in [
            ("AmazonSQS.SendMessageBatch", limits::SQS_REQUEST_BYTES),
            ("AmazonSQS.ReceiveMessage", limits::SQS_RECEIVE_BYTES),
            ("AmazonSQS.SetQueueAttributes", limits::SQS_CONTROL_BYTES),
            ("AmazonSQS.Nothing", limits::SQS_CONTROL_BYTES),
        ] {
            assert_eq!(most_bytes(&head(target), Dialect::Json), most, "{target}");
        }
    }

    #[test]
    fn form_longer_than_its_operation_takes_is_refused() {
        let read = |action: &str, length: usize| {
            let body = format!("Action={action}&Pad={}", "x".repeat(length));
            incoming(&head(""), Dialect::Query, body.into(), &ContextLimits::default())
        };
        assert!(read("ReceiveMessage", 1_000).is_ok());
        let refused = read("ReceiveMessage", limits::SQS_RECEIVE_BYTES).unwrap_err();
        assert!(refused.message.contains("too large: at most 16384 bytes"), "{}", refused.message);
        assert!(read("SendMessage", limits::SQS_CONTROL_BYTES).is_ok());
        assert!(read("TagQueue", limits::SQS_CONTROL_BYTES).is_err());
    }
}
