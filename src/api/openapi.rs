//! The frame of the OpenAPI document. Its contents come from the routes and their types.

use utoipa::OpenApi;

use super::error::ErrorBody;

/// What the document says of the service as a whole.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "Angarium",
        description = "A durable message queue with the resources of OpenStack Zaqar's API v2. \
            Every answer carries `X-OpenStack-Request-Id`; every error has the body `ErrorBody`.",
        license(name = "Apache-2.0", identifier = "Apache-2.0")
    ),
    servers((url = "http://127.0.0.1:8888", description = "A service started with its defaults.")),
    components(schemas(ErrorBody)),
    tags(
        (name = "home", description = "Where a client begins."),
        (name = "queues", description = "Named, ordered places for messages. They exist from their first message on."),
        (name = "messages", description = "A message is scheduled, ready, claimed, gone."),
        (name = "claims", description = "Leases on messages: hidden for a time, then deleted or ready again."),
        (name = "pools", description = "Registered pieces of storage, for administrators. A queue lies in one of them."),
        (name = "flavors", description = "Names for sets of pools, of which the metadata of a queue may choose one."),
        (name = "health", description = "Whether the service serves.")
    )
)]
pub struct Frame;

/// The whole document as JSON text, ending with a line break.
pub fn document() -> String {
    let document = super::routes().into_openapi();
    let mut text = document.to_pretty_json().expect("the document has text keys and no failing parts");
    text.push('\n');
    text
}
