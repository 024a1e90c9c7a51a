//! The operations of REST as the pipeline knows them: the required permission and the meter of each.
//!
//! The permission of a route is read from its part of the OpenAPI document, so that the document and the check always
//! agree: an operation needs a token unless its `security` has an empty alternative, and an administrator's token if it
//! names that role. A route without `security` needs a token.
//!
//! The query parameters are read from there too, of the operations that Zaqar does not have.

use axum::http::Method;
use axum::http::request::Parts;
use serde_json::Value;
use utoipa::openapi::OpenApi;

use super::parameters::QueryParameters;
use crate::api::error::refusals;
use crate::api::extract::SIGNATURE;
use crate::api::pipeline::identity::Need;
use crate::api::versions;
use angarium_core::access::Role;
use angarium_core::error::Error;
use angarium_metrics::{Meter, OperationMeter};

/// The name of signatures of the service among the schemes of the document.
const SIGNATURE_SCHEME: &str = "url_signature";

/// An operation of a path.
#[derive(Clone, Debug)]
struct RestOperation {
    method: Method,
    need: Need,
    /// Whether a client may send a signature of the service in place of a token. Its handler checks that.
    takes_signature: bool,
    meter: OperationMeter,
    /// None when the operation takes any parameter.
    parameters: Option<QueryParameters>,
}

/// The operations of each path, matched in the same way as axum matches routes.
#[derive(Debug)]
pub struct OperationTable(matchit::Router<Vec<RestOperation>>);

impl OperationTable {
    /// Creates the operations of `document`, measured by `meter`.
    pub fn new(document: &OpenApi, meter: &Meter) -> Self {
        let document = serde_json::to_value(document).expect("a document has text keys and no failing parts");
        Self(operations(&document, meter))
    }

    /// Returns the permission that a request needs, and the meter of its operation; no meter if it matches no
    /// operation.
    pub fn find(&self, head: &Parts) -> (Need, Option<&OperationMeter>) {
        let operations = self.of_path(head);
        match of_method(operations, &head.method) {
            Some(operation) => (operation.need, Some(&operation.meter)),
            // The path has no such method. The answer names the methods that it has, to a client that may use one of
            // them.
            None => {
                let least = operations.iter().map(|operation| operation.need).min();
                (least.unwrap_or(Need::Role(Role::Reader)), None)
            }
        }
    }

    /// Whether a request brings a signature of the service in place of a token, which the handler of its operation checks.
    pub fn is_signed(&self, head: &Parts) -> bool {
        let takes_signature = || {
            let operation = of_method(self.of_path(head), &head.method);
            operation.is_some_and(|operation| operation.takes_signature)
        };
        head.headers.contains_key(SIGNATURE) && takes_signature()
    }

    /// Refuses a query with parameters that the operation of the request does not have.
    pub fn check_query(&self, head: &Parts) -> Result<(), Error> {
        let Some(query) = head.uri.query() else { return Ok(()) };
        let operation = of_method(self.of_path(head), &head.method);
        let Some(parameters) = operation.and_then(|operation| operation.parameters.as_ref()) else {
            return Ok(());
        };
        parameters.check(query)
    }

    fn of_path(&self, head: &Parts) -> &[RestOperation] {
        self.0.at(head.uri.path()).map(|found| found.value.as_slice()).unwrap_or_default()
    }
}

fn of_method<'o>(operations: &'o [RestOperation], method: &Method) -> Option<&'o RestOperation> {
    let has = |method: &Method| operations.iter().find(|operation| operation.method == *method);
    // If HEAD is routed without its own operation, it is a GET without the body.
    let has_get = || (*method == Method::HEAD).then(|| has(&Method::GET)).flatten();
    has(method).or_else(has_get)
}

/// Adds the answers of the pipeline to each operation of the document.
pub fn describe(document: &mut OpenApi) {
    for item in document.paths.paths.values_mut() {
        let operations = [&mut item.get, &mut item.put, &mut item.post, &mut item.patch, &mut item.delete];
        for operation in operations.into_iter().flatten() {
            let security = serde_json::to_value(&operation.security).unwrap_or_default();
            if need(&security) == Need::Nothing {
                continue;
            }
            for (status, response) in refusals() {
                operation.responses.responses.entry(status).or_insert(response);
            }
        }
    }
}

fn operations(document: &Value, meter: &Meter) -> matchit::Router<Vec<RestOperation>> {
    let mut routes = matchit::Router::new();
    for (path, operations) in document["paths"].as_object().into_iter().flatten() {
        let operations = operations.as_object().into_iter().flatten();
        // In addition to its operations, a path may have parameters and a summary, which are no methods.
        let operations = operations.filter_map(|(method, operation)| {
            let method = Method::from_bytes(method.to_ascii_uppercase().as_bytes()).ok()?;
            let meter = meter.operation(operation["operationId"].as_str()?);
            let need = need(&operation["security"]).of_method(&method);
            let parameters = QueryParameters::of(path, operation);
            let takes_signature = takes_signature(&operation["security"]);
            Some(RestOperation { method, need, takes_signature, meter, parameters })
        });
        let operations: Vec<RestOperation> = operations.collect();
        if path == versions::HOME {
            insert(&mut routes, versions::HOME_WITHOUT_SLASH, operations.clone());
        }
        insert(&mut routes, path, operations);
    }
    routes
}

fn insert(routes: &mut matchit::Router<Vec<RestOperation>>, path: &str, operations: Vec<RestOperation>) {
    routes.insert(path, operations).expect("the routes are known by these paths already");
}

/// Whether a signature of the service is one of the alternatives.
fn takes_signature(security: &Value) -> bool {
    let mut alternatives = security.as_array().into_iter().flatten().filter_map(Value::as_object);
    alternatives.any(|schemes| schemes.contains_key(SIGNATURE_SCHEME))
}

/// Returns the permission of one operation: the lowest of its alternatives. An empty alternative admits every client;
/// the names of a scheme are roles (OpenAPI 3.1, Security Requirement Object).
fn need(security: &Value) -> Need {
    // Without `security`, the rule of the whole document holds: any token.
    let Some(alternatives) = security.as_array() else { return Need::Role(Role::Member) };
    let least = alternatives.iter().filter_map(Value::as_object).map(|schemes| {
        let mut roles = schemes.values().filter_map(Value::as_array).flatten();
        if schemes.is_empty() {
            Need::Nothing
        } else if roles.any(|role| role == Role::Admin.as_str()) {
            Need::Role(Role::Admin)
        } else {
            Need::Role(Role::Member)
        }
    });
    least.min().unwrap_or(Need::Nothing)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn signature_is_an_alternative_of_its_operation_alone() {
        assert!(takes_signature(&json!([{"bearer": []}, {"url_signature": []}])));
        assert!(!takes_signature(&json!([{"bearer": []}])) && !takes_signature(&Value::Null));
        assert_eq!(need(&json!([{"bearer": []}, {"url_signature": []}])), Need::Role(Role::Member));
    }

    #[test]
    fn undocumented_route_needs_token() {
        assert_eq!(need(&Value::Null), Need::Role(Role::Member));
        assert_eq!(need(&json!([])), Need::Nothing);
        assert_eq!(need(&json!([{}])), Need::Nothing);
        assert_eq!(need(&json!([{"bearer": []}])), Need::Role(Role::Member));
        assert_eq!(
            need(&json!([{"bearer": ["admin"]}, {"x_auth_token": ["admin"]}])),
            Need::Role(Role::Admin)
        );
    }
}
