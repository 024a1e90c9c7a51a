//! The OpenAPI document: its frame, its versions and its routes. Its contents are generated from the routes of the API
//! and their types.

mod examples;
mod hold_examples;
mod older;
mod optional;
mod reference;
mod sqs;
mod subscription_examples;
mod topic_examples;

use std::sync::LazyLock;

use axum::http::header;
use axum::response::{Html, IntoResponse};
use serde_json::Value;
use utoipa::openapi::OpenApi as Document;
use utoipa::openapi::security::{ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::{Modify, OpenApi};

use super::error::ErrorBody;

/// The frame of the document: the service as a whole.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "Angarium",
        description = "A durable message queue with the resources of OpenStack Zaqar's API v2. \
            Every answer carries `X-OpenStack-Request-Id`; every error has the body `ApiError`. Bounds and defaults are \
            those of a service whose operator has set no others.",
        license(name = "Apache-2.0", identifier = "Apache-2.0")
    ),
    servers((url = "http://127.0.0.1:8888", description = "A service started with its defaults.")),
    components(schemas(ErrorBody)),
    modifiers(&Schemes),
    security(("bearer" = []), ("x_auth_token" = [])),
    tags(
        (name = "home", description = "Where a client begins."),
        (name = "queues", description = "Named, ordered places for messages. They exist from their first message on."),
        (name = "messages", description = "A message is delayed, ready, claimed or in transfer to another queue, and then gone, or kept for a \
            time as done or failed."),
        (name = "claims", description = "Leases on messages: hidden for a time, then deleted or ready again."),
        (name = "subscriptions", description = "Readers of a queue that each get a copy of every message that is posted to it."),
        (name = "topics", description = "Queues that keep nothing for themselves: a message that is posted to one is copied for its subscriptions."),
        (name = "pools", description = "Registered storages, for administrators. Each queue is stored in one of them."),
        (name = "flavors", description = "Names for sets of pools, of which the metadata of a queue may choose one."),
        (name = "health", description = "Whether the service serves."),
        (name = "sqs", description = "Amazon SQS over the same queues. Programs use an SDK of AWS; these are its operations in \
            AWS's JSON protocol, each a `POST` of `/` with the header `X-Amz-Target`. What follows `#` in their paths only tells \
            them apart and is not sent. The older query protocol has the same operations by the parameter `Action`. The media \
            type may be `application/x-amz-json-1.0` too. Signatures (version 4) are needed while the service has keys.")
    )
)]
pub struct Frame;

/// The two ways to send a token, which matter only with authentication on, and the signature of SQS.
struct Schemes;

impl Modify for Schemes {
    fn modify(&self, document: &mut Document) {
        let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer);
        let bearer = bearer
            .description(Some(
                "A token of the service or of OpenStack's Keystone, while authentication is on.",
            ))
            .build();
        let header =
            ApiKeyValue::with_description("X-Auth-Token", "The same, as OpenStack's clients send it.");
        let components = document.components.get_or_insert_default();
        components.add_security_scheme("bearer", SecurityScheme::Http(bearer));
        let signature = ApiKeyValue::with_description(
            "Authorization",
            "A signature of AWS, version 4, over the request. Operations of SQS need it while the service has keys.",
        );
        components.add_security_scheme("aws_signature", SecurityScheme::ApiKey(ApiKey::Header(signature)));
        let signed = ApiKeyValue::with_description(
            "URL-Signature",
            "The signature that the service has sent to a webhook, for the confirmation of its subscription.",
        );
        components.add_security_scheme("url_signature", SecurityScheme::ApiKey(ApiKey::Header(signed)));
        components.add_security_scheme("x_auth_token", SecurityScheme::ApiKey(ApiKey::Header(header)));
    }
}

/// The OpenAPI versions of the document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// The version that the routes and types generate.
    V31,
    /// For generators that do not support the newer version.
    V30,
}

/// Returns the whole document as JSON text with a line break at the end.
pub fn document(version: Version) -> String {
    let document = whole();
    let text = match version {
        Version::V31 => document.to_pretty_json(),
        Version::V30 => {
            let mut document = value(&document);
            older::rewrite(&mut document);
            serde_json::to_string_pretty(&document)
        }
    };
    text.expect("the document has text keys and no failing parts") + "\n"
}

/// Returns the document of the routes and the pipeline, with the examples.
fn whole() -> Document {
    let mut document = super::described();
    examples::fill_in(&mut document);
    optional::narrow(&mut document);
    optional::lift_descriptions(&mut document);
    sqs::describe(&mut document);
    document
}

fn value(document: &Document) -> Value {
    serde_json::to_value(document).expect("the document has text keys and no failing parts")
}

/// Created at the first request: the document does not change while the process lives.
static DOCUMENT: LazyLock<String> = LazyLock::new(|| document(Version::V31));
static REFERENCE: LazyLock<String> = LazyLock::new(|| reference::page(&value(&whole())));

/// Get this OpenAPI document
#[utoipa::path(
    get, path = "/v2/openapi.json", operation_id = "openapi_document_get", tag = "home", security(()),
    responses((status = 200, description = "It, in version 3.1 of OpenAPI.", body = serde_json::Value))
)]
pub async fn json() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], DOCUMENT.as_str())
}

/// The page contains its style; the browser loads no other resource.
const LOADS_NOTHING: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:";

/// Get the API reference as a page
///
/// The page shows this document for people. It loads nothing from other places.
#[utoipa::path(
    get, path = "/v2/docs", operation_id = "reference_get", tag = "home", security(()),
    responses((status = 200, description = "The page.", body = String, content_type = "text/html"))
)]
pub async fn page() -> impl IntoResponse {
    ([(header::CONTENT_SECURITY_POLICY, LOADS_NOTHING)], Html(REFERENCE.as_str()))
}
