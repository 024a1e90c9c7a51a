//! The OpenAPI document: its frame, its versions, and where it is served. Its contents come from the routes and their
//! types.

mod examples;
mod older;
mod optional;
mod reference;

use std::sync::LazyLock;

use axum::http::header;
use axum::response::{Html, IntoResponse};
use serde_json::Value;
use utoipa::openapi::OpenApi as Document;
use utoipa::openapi::security::{ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::{Modify, OpenApi};

use super::error::ErrorBody;

/// What the document says of the service as a whole.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "Angarium",
        description = "A durable message queue with the resources of OpenStack Zaqar's API v2. \
            Every answer carries `X-OpenStack-Request-Id`; every error has the body `ErrorBody`. Bounds and defaults are \
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
        (name = "messages", description = "A message is delayed, ready, claimed or in transfer to another queue, and then gone."),
        (name = "claims", description = "Leases on messages: hidden for a time, then deleted or ready again."),
        (name = "pools", description = "Registered pieces of storage, for administrators. A queue lies in one of them."),
        (name = "flavors", description = "Names for sets of pools, of which the metadata of a queue may choose one."),
        (name = "health", description = "Whether the service serves.")
    )
)]
pub struct Frame;

/// The two ways to bring a token. They matter while authentication is on.
struct Schemes;

impl Modify for Schemes {
    fn modify(&self, document: &mut Document) {
        let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer);
        let bearer = bearer.description(Some("A token of the service, while authentication is on.")).build();
        let header =
            ApiKeyValue::with_description("X-Auth-Token", "The same, as OpenStack's clients send it.");
        let components = document.components.get_or_insert_default();
        components.add_security_scheme("bearer", SecurityScheme::Http(bearer));
        components.add_security_scheme("x_auth_token", SecurityScheme::ApiKey(ApiKey::Header(header)));
    }
}

/// The versions of OpenAPI that the document is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// What the routes and types say.
    V31,
    /// For generators that know no later one.
    V30,
}

/// The whole document as JSON text, ending with a line break.
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

/// What the routes say, and the gate before them, with the examples.
fn whole() -> Document {
    let mut document = super::described();
    examples::fill_in(&mut document);
    optional::narrow(&mut document);
    document
}

fn value(document: &Document) -> Value {
    serde_json::to_value(document).expect("the document has text keys and no failing parts")
}

/// Made once, when it is first asked for: it is the same for the life of the process.
static DOCUMENT: LazyLock<String> = LazyLock::new(|| document(Version::V31));
static REFERENCE: LazyLock<String> = LazyLock::new(|| reference::page(&value(&whole())));

/// This document.
#[utoipa::path(
    get, path = "/v2/openapi.json", operation_id = "openapi", tag = "home", security(()),
    responses((status = 200, description = "It, in version 3.1 of OpenAPI.", body = serde_json::Value))
)]
pub async fn json() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], DOCUMENT.as_str())
}

/// The page has its style in it, and whatever else it would name is not loaded.
const LOADS_NOTHING: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:";

/// The reference: this document as a page for people. It needs nothing from anywhere else.
#[utoipa::path(
    get, path = "/v2/docs", operation_id = "reference", tag = "home", security(()),
    responses((status = 200, description = "The page.", body = String, content_type = "text/html"))
)]
pub async fn page() -> impl IntoResponse {
    ([(header::CONTENT_SECURITY_POLICY, LOADS_NOTHING)], Html(REFERENCE.as_str()))
}
