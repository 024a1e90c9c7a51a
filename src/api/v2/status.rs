//! A message by its id, with a wait for its outcome.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::details::{MessageDetails, MessageOutcome};
use super::messages::Message;
use crate::api::error::{ApiError, Errors};
use crate::api::extract::{CallerHeaders, DetailsHeader, MessagePath, Path, QueuePath, QueueRequest};
use crate::api::json::{RawJson, reply};
use crate::api::pipeline::forward::peer::WaitedTime;
use crate::api::query::{Query, integer};
use crate::api::trace;
use angarium_broker::{Broker, MessageStatus as BrokerStatus, MessageView};
use angarium_core::claim::ClaimWait;
use angarium_core::error::{Error, Resource};
use angarium_core::ids::MessageId;
use angarium_core::names::QueueName;

/// How long to wait for the outcome of a message.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct StatusQuery {
    /// Seconds to wait until the message is done, failed or gone. After them the answer has its current state. Not at
    /// all when absent; then a message that is done or failed is found only with `X-Message-Details: true`.
    #[param(value_type = Option<u32>, minimum = 0, maximum = 20, nullable = false)]
    wait: Option<String>,
}

/// A message; or, if it was moved to another queue while the request waited, its id, `state` and `to` alone.
#[derive(Debug, Serialize, ToSchema)]
pub struct MessageStatus {
    /// Its id, which is the same in every queue.
    #[schema(value_type = uuid::Uuid)]
    id: MessageId,
    /// Its path; under a claim with `?claim_id=` and the claim's id at the end, which is what deletes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    href: Option<String>,
    /// Seconds that it lives in all. A claim may have raised it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    ttl: Option<u32>,
    /// Seconds since it was posted.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    age: Option<u64>,
    /// How often it has been claimed, this claim included. Only under a claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    claim_count: Option<u32>,
    /// JSON, as it was posted.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    body: Option<RawJson>,
    /// What Zaqar does not know of. Only for who asks by `X-Message-Details`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    details: Option<MessageDetails>,
    /// `ready`, `delayed`, `claimed`, `in_transfer`, `held`, `done`, `failed` or `transferred`. Only with `wait` or
    /// `X-Message-Details`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "ready")]
    state: Option<&'static str>,
    /// The queue that has it now; of a transferred message only.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    to: Option<String>,
    /// Its outcome, if it is done or failed. Only with `wait` or `X-Message-Details`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    outcome: Option<MessageOutcome>,
}

/// Get a message
///
/// The message may be claimed or not. With `wait` the answer is sent when the message is done, failed or gone, or after
/// the wait; it has the state of the message and its outcome. A message that is moved to another queue meanwhile is
/// answered with the name of that queue, and is not found here afterwards.
#[utoipa::path(
    get, path = "/v2/queues/{queue_name}/messages/{message_id}", operation_id = "message_get", tag = "messages",
    params(
        QueuePath, ("message_id" = uuid::Uuid, Path, description = "The message."), StatusQuery, CallerHeaders,
        DetailsHeader
    ),
    responses(
        (status = 200, description = "The message.", body = MessageStatus, headers(
            ("traceparent" = String, description = "The trace that it was posted in, if it was in one."),
            ("tracestate" = String, description = "Its details, if it has any.")
        )),
        (status = 404, description = "There is no such message.", body = crate::api::error::ErrorBody),
        Errors
    )
)]
pub async fn get(
    State(broker): State<Broker>,
    asked: QueueRequest,
    WaitedTime(waited): WaitedTime,
    Path(MessagePath { message_id }): Path<MessagePath>,
    Query(query): Query<StatusQuery>,
) -> Result<Response, ApiError> {
    let wait = integer("wait", query.wait.as_deref())?;
    let shows_outcome = wait.is_some() || asked.is_detailed;
    let wait = ClaimWait::new(wait)?.less(waited);
    let missing = |_| Error::NotFound { resource: Resource::Message, name: message_id.clone() };
    let id = message_id.parse().map_err(missing)?;
    if !shows_outcome {
        let view = broker.message_get(&asked.queue, id).await?;
        return Ok(answer(view, |view| MessageStatus::of(Message::new(&asked, view))));
    }
    match broker.message_status(&asked.queue, id, wait).await? {
        BrokerStatus::Here(view) => Ok(answer(*view, |view| MessageStatus::with_outcome(&asked, view))),
        BrokerStatus::Transferred { to } => Ok(reply(StatusCode::OK, &MessageStatus::transferred(id, &to))),
    }
}

/// Returns the answer of a message, in the trace of its post.
fn answer(view: MessageView, status: impl FnOnce(MessageView) -> MessageStatus) -> Response {
    let context = view.trace().cloned();
    let mut answer = reply(StatusCode::OK, &status(view));
    if let Some(context) = context {
        trace::set(answer.headers_mut(), &context);
    }
    answer
}

impl MessageStatus {
    fn of(message: Message) -> Self {
        let Message { id, href, ttl, age, claim_count, body, details, .. } = message;
        Self {
            id,
            href: Some(href),
            ttl: Some(ttl),
            age: Some(age),
            claim_count,
            body,
            details,
            state: None,
            to: None,
            outcome: None,
        }
    }

    /// Returns the message for a client that follows it.
    fn with_outcome(asked: &QueueRequest, view: MessageView) -> Self {
        let (state, outcome) = (view.state.as_str(), MessageOutcome::of(&view));
        Self { state: Some(state), outcome, ..Self::of(Message::new(asked, view)) }
    }

    fn transferred(id: MessageId, to: &QueueName) -> Self {
        Self {
            id,
            href: None,
            ttl: None,
            age: None,
            claim_count: None,
            body: None,
            details: None,
            state: Some("transferred"),
            to: Some(to.to_string()),
            outcome: None,
        }
    }
}
