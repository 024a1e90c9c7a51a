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
const KEPT: &str = "kept";

/// What to remove; an empty body means messages and subscriptions.
#[derive(Debug, Deserialize, ToSchema)]
pub struct PurgeRequest {
    /// Any of `messages`, `subscriptions` and `kept`.
    #[schema(value_type = Vec<PurgeResource>, example = json!(["messages"]))]
    resource_types: Vec<String>,
}

/// Documents what can be purged.
#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
#[expect(dead_code, reason = "only its description is used: an error names the element of the list")]
enum PurgeResource {
    /// The messages of the queue that have no outcome.
    Messages,
    /// Its subscriptions, with the copies that they have not delivered.
    Subscriptions,
    /// The messages that are done or failed and kept.
    Kept,
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
    fn check(&self) -> Result<(), Error> {
        for (index, name) in self.resource_types.iter().enumerate() {
            if ![MESSAGES, SUBSCRIPTIONS, KEPT].contains(&name.as_str()) {
                let why = format!("it is neither '{MESSAGES}' nor '{SUBSCRIPTIONS}' nor '{KEPT}'");
                return Err(Error::invalid(InvalidPart::Limit, format!("resource_types[{index}]"), why));
            }
        }
        Ok(())
    }

    fn names(&self, resource: &str) -> bool {
        self.resource_types.iter().any(|name| name == resource)
    }
}

/// Purge a queue
///
/// All its messages are removed, claimed or not; the queue and its metadata stay. Messages that are posted meanwhile
/// may stay, and those that are done or failed and kept are removed only with `kept`. With `subscriptions` its
/// subscriptions are deleted first, with the copies of messages that they have not delivered.
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
    body.check()?;
    if body.names(SUBSCRIPTIONS) {
        broker.subscriptions_delete(&asked.queue).await?;
    }
    if body.names(MESSAGES) {
        broker.queue_purge(&asked.queue).await?;
    }
    if body.names(KEPT) {
        broker.queue_purge_kept(&asked.queue).await?;
    }
    Ok(StatusCode::NO_CONTENT)
}
