//! Purge of a queue.

use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;
use utoipa::ToSchema;

use crate::api::error::{ApiError, Errors};
use crate::api::extract::{CallerHeaders, QueuePath, QueueRequest};
use crate::api::json::{Json, RequestBody};
use angarium_broker::Broker;
use angarium_core::error::{Error, InvalidPart};
use angarium_core::limits::{self, Limits};

const MESSAGES: &str = "messages";
const SUBSCRIPTIONS: &str = "subscriptions";

/// What to remove; an empty body means everything.
#[derive(Debug, Deserialize, ToSchema)]
pub struct PurgeRequest {
    /// `messages`, `subscriptions`, or both.
    #[schema(value_type = Vec<PurgeResource>, example = json!(["messages"]))]
    resource_types: Vec<String>,
}

/// Documents what can be purged.
#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
#[expect(dead_code, reason = "only its description is used: an error names the element of the list")]
enum PurgeResource {
    /// The messages of the queue.
    Messages,
    /// Its subscriptions, of which there are none here.
    Subscriptions,
}

impl RequestBody for PurgeRequest {
    fn most(_: &Limits) -> usize {
        limits::SMALL_BODY_BYTES
    }

    fn when_empty() -> Option<Self> {
        Some(Self { resource_types: vec![MESSAGES.to_owned(), SUBSCRIPTIONS.to_owned()] })
    }
}

impl PurgeRequest {
    fn names_messages(&self) -> Result<bool, Error> {
        for (index, name) in self.resource_types.iter().enumerate() {
            if name != MESSAGES && name != SUBSCRIPTIONS {
                let why = format!("it is neither '{MESSAGES}' nor '{SUBSCRIPTIONS}'");
                return Err(Error::invalid(InvalidPart::Limit, format!("resource_types[{index}]"), why));
            }
        }
        Ok(self.resource_types.iter().any(|name| name == MESSAGES))
    }
}

/// Purge a queue
///
/// All its messages are removed, claimed or not; the queue and its metadata stay. Messages that are posted meanwhile
/// may stay. Queues have no subscriptions here, so a purge of those alone does nothing.
#[utoipa::path(
    post, path = "/v2/queues/{queue_name}/purge", operation_id = "queue_purge", tag = "queues",
    params(QueuePath, CallerHeaders), request_body(content = Option<PurgeRequest>),
    responses((status = 204, description = "They are gone."), Errors)
)]
pub async fn post(
    State(broker): State<Broker>,
    asked: QueueRequest,
    Json(body): Json<PurgeRequest>,
) -> Result<StatusCode, ApiError> {
    if body.names_messages()? {
        broker.queue_purge(&asked.queue).await?;
    }
    Ok(StatusCode::NO_CONTENT)
}
