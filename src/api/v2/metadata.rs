//! Changes of the metadata of a queue.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::attributes::QueueAttributes;
use super::queues::ShownBody;
use crate::api::error::{ApiError, ErrorBody, Errors};
use crate::api::extract::{CallerHeaders, QueuePath, QueueRequest};
use crate::api::json::{Json, Object, RequestBody, Shape, reply};
use crate::api::sqs;
use angarium_broker::Broker;
use angarium_core::limits::Limits;
use angarium_core::patch::Change;

/// Changes of metadata, made one after the other.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(transparent)]
#[schema(value_type = Vec<QueuePatchOperation>)]
pub struct QueuePatch(Vec<Object<QueuePatchOperation>>);

/// A change of one key.
#[derive(Debug, Deserialize, ToSchema)]
pub struct QueuePatchOperation {
    /// `add` sets a key, `replace` sets one that is there, `remove` takes one away that is there. Reserved keys are
    /// always there.
    #[schema(pattern = "^(add|replace|remove)$", example = "add")]
    op: String,
    /// `/metadata/` and the key, with `~0` for `~` and `~1` for `/`.
    #[schema(pattern = "^/metadata/([^/~]|~[01])+$", example = "/metadata/team")]
    path: String,
    /// Any JSON. Needed but to `remove`.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<serde_json::Value>)]
    value: Option<Box<RawValue>>,
}

/// Reads a field that may be `null`, which is a value like any other.
fn given<'de, D: Deserializer<'de>>(value: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(value).map(Some)
}

/// RFC 6902.
const JSON_PATCH: &str = "application/json-patch+json";

/// Zaqar's name for the same form.
const ZAQAR_PATCH: &str = "application/openstack-messaging-v2.0-json-patch";

impl RequestBody for QueuePatch {
    const SHAPE: Shape = Shape::List;
    const MEDIA_TYPES: &'static [&'static str] = &[JSON_PATCH, ZAQAR_PATCH];

    fn most(limits: &Limits) -> usize {
        limits.metadata_bytes
    }
}

/// Change attributes of a queue
///
/// The request changes metadata key by key, all changes or none. They are on disk when the request is answered. A
/// queue with a new flavor starts to migrate to a pool of that flavor, if its pool does not have it.
///
/// The media type may be `application/openstack-messaging-v2.0-json-patch` too, which Zaqar's clients send.
#[utoipa::path(
    patch, path = "/v2/queues/{queue_name}", operation_id = "queue_update", tag = "queues",
    params(QueuePath, CallerHeaders),
    request_body(content = QueuePatch, content_type = "application/json-patch+json"),
    responses(
        (status = 200, description = "The metadata as it is now.", body = QueueAttributes),
        (status = 404, description = "There is no such queue.", body = ErrorBody),
        (
            status = 409,
            description = "A key that is to be replaced or removed is not there; or the queue is on its way to a pool of another flavor.",
            body = ErrorBody
        ),
        (status = 415, description = "The body is said to be something else.", body = ErrorBody),
        Errors
    )
)]
pub async fn patch(
    State(broker): State<Broker>,
    asked: QueueRequest,
    Json(QueuePatch(changes)): Json<QueuePatch>,
) -> Result<Response, ApiError> {
    let change = |(at, Object(change)): (usize, Object<QueuePatchOperation>)| {
        Change::new(at, &change.op, &change.path, change.value)
    };
    let changes = changes.into_iter().enumerate().map(change).collect::<Result<Vec<_>, _>>()?;
    sqs::check_changes(&changes)?;
    let metadata = broker.queue_patch(&asked.queue, changes).await?;
    Ok(reply(StatusCode::OK, &ShownBody(metadata.shown(broker.limits()))))
}
