//! Batches: each message is posted or deleted by itself, so that a refused one does not affect the others. Zaqar's
//! requests for several messages do all of them or none.

use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::attributes::Durability;
use super::bulk::{bounded, known};
use super::holds::discarded;
use super::messages::{MessagePostRequest, traced};
use super::queues;
use crate::api::error::{ApiError, ErrorBody, Errors, NoRoom};
use crate::api::extract::{CallerHeaders, QueuePath, QueueRequest};
use crate::api::json::{Json, reply};
use crate::api::pipeline::forward::earlier::EarlierAttempts;
use crate::api::pipeline::forward::peer::RequestId;
use crate::api::query::{Query, required};
use crate::api::trace::TraceHeaders;
use angarium_broker::{Broker, PostResults};
use angarium_core::claim::Holdings;
use angarium_core::error::Error;
use angarium_core::ids::{ClaimId, MessageId};

/// What became of each entry of a batch.
#[derive(Debug, Serialize, ToSchema)]
pub struct BatchResults {
    /// In the order of the request.
    results: Vec<BatchResult>,
    /// How durable the messages are that were posted, if some were.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Durability>, nullable = false)]
    durability: Option<&'static str>,
}

/// What became of one entry.
#[derive(Debug, Serialize, ToSchema)]
struct BatchResult {
    /// The status that a request with this entry alone is answered with.
    status: u16,
    /// The id of the message; none of one that was not posted.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    id: Option<String>,
    /// The path of a message that was posted.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    href: Option<String>,
    /// Why it was not done.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    error: Option<ErrorBody>,
}

impl BatchResult {
    fn done(status: StatusCode, id: String, href: Option<String>) -> Self {
        Self { status: status.as_u16(), id: Some(id), href, error: None }
    }

    fn failed(error: Error, id: Option<String>, request_id: &str) -> Self {
        let error = ApiError::from(error);
        Self { status: error.status().as_u16(), id, href: None, error: Some(error.error_body(request_id)) }
    }
}

/// Post each of several messages
///
/// A message that is refused does not keep the others from being posted. Posted messages are on disk when the request
/// is answered, unless the queue asks for less. A queue that does not exist is created. While the queue is held with
/// `discard`, the answer is 202 with the header `X-Discarded`, and no message is posted.
#[utoipa::path(
    post, path = "/v2/queues/{queue_name}/messages/batch", operation_id = "messages_batch_post", tag = "messages",
    params(QueuePath, CallerHeaders, TraceHeaders), request_body = MessagePostRequest,
    responses((status = 200, description = "What became of each message.", body = BatchResults), Errors, NoRoom)
)]
pub async fn post(
    State(broker): State<Broker>,
    asked: QueueRequest,
    Extension(RequestId(request_id)): Extension<RequestId>,
    Json(body): Json<MessagePostRequest>,
) -> Result<Response, ApiError> {
    let (mut taken, mut refused) = (Vec::new(), Vec::new());
    for message in body.into_messages(broker.limits())? {
        refused.push(message.map(|message| taken.push(message)).err());
    }
    let posted = if taken.is_empty() {
        PostResults::default()
    } else {
        let count = taken.len();
        match broker.messages_post_each(&asked.queue, traced(&asked, taken), asked.client).await {
            Ok(posted) => posted,
            Err(error) => return discarded(&broker, count, error),
        }
    };
    let (mut outcomes, base) =
        (posted.outcomes.into_iter(), format!("{}/messages", queues::path(&asked.queue)));
    let result = |refused: Option<Error>| {
        let outcome =
            refused.map_or_else(|| outcomes.next().expect("each message that was taken has an outcome"), Err);
        match outcome {
            Ok(id) => BatchResult::done(StatusCode::CREATED, id.to_string(), Some(format!("{base}/{id}"))),
            Err(error) => BatchResult::failed(error, None, &request_id),
        }
    };
    let results = refused.into_iter().map(result).collect();
    let durability = posted.durability.map(|durability| durability.as_str());
    Ok(reply(StatusCode::OK, &BatchResults { results, durability }))
}

/// Which messages to delete.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct BatchDeletionQuery {
    /// The ids of messages, at most 20. An id of no message counts as deleted.
    #[param(value_type = Vec<String>, style = Form, explode = false, required = true)]
    ids: Option<String>,
    /// The claims that messages of `ids` are under, at most 20.
    #[param(value_type = Option<Vec<String>>, style = Form, explode = false, nullable = false)]
    claim_ids: Option<String>,
}

/// Delete each of several messages
///
/// A message is deleted when it is under no claim, under a claim that `claim_ids` names, or under a claim that was
/// made with the `Client-ID` of this request.
#[utoipa::path(
    delete, path = "/v2/queues/{queue_name}/messages/batch", operation_id = "messages_batch_delete", tag = "messages",
    params(QueuePath, BatchDeletionQuery, CallerHeaders),
    responses((status = 200, description = "What became of each message.", body = BatchResults), Errors)
)]
pub async fn delete(
    State(broker): State<Broker>,
    asked: QueueRequest,
    Extension(RequestId(request_id)): Extension<RequestId>,
    earlier: EarlierAttempts,
    Query(query): Query<BatchDeletionQuery>,
) -> Result<Response, ApiError> {
    let texts = bounded("ids", Some(required("ids", query.ids.as_deref())?), broker.limits())?;
    let claims: Vec<ClaimId> = known("claim_ids", query.claim_ids.as_deref(), broker.limits())?;
    // Text that is no valid id belongs to no message, and such a message counts as deleted.
    let ids: Vec<Option<MessageId>> = texts.iter().map(|text| text.parse().ok()).collect();
    let known: Vec<MessageId> = ids.iter().flatten().copied().collect();
    let held = Holdings { claims: &claims, client: asked.client };
    let mut outcomes = broker.messages_delete_each(&asked.queue, &known, held).await?.into_iter();
    let result = |(text, id): (&str, Option<MessageId>)| match id.and_then(|_| outcomes.next()) {
        None | Some(Ok(())) => BatchResult::done(StatusCode::NO_CONTENT, text.to_owned(), None),
        Some(Err(error)) => {
            BatchResult::failed(earlier.judge_error(error), Some(text.to_owned()), &request_id)
        }
    };
    let results = texts.into_iter().zip(ids).map(result).collect();
    Ok(reply(StatusCode::OK, &BatchResults { results, durability: None }))
}
