//! A message by its id, with a wait for its outcome.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::messages::Message;
use crate::api::error::{ApiError, Errors};
use crate::api::extract::{CallerHeaders, DetailsHeader, MessagePath, Path, QueuePath, QueueRequest};
use crate::api::json::reply;
use crate::api::pipeline::forward::peer::WaitedTime;
use crate::api::query::{Query, integer};
use crate::api::trace;
use angarium_broker::{Broker, MessageStatus as BrokerStatus, MessageView};
use angarium_core::claim::ClaimWait;
use angarium_core::error::{Error, Resource};
use angarium_core::ids::MessageId;

/// How long to wait for the outcome of a message.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct StatusQuery {
    /// Seconds to wait until the message is done, failed or gone. After them the answer has its current state. Not at
    /// all when absent, and a message that is done or failed is not found then.
    #[param(value_type = Option<u32>, minimum = 0, maximum = 20, nullable = false)]
    wait: Option<String>,
}

/// A message; or only where it is, if it was moved to another queue while the request waited.
// The variants have no descriptions: older versions of OpenAPI take none beside a reference, and generators stumble.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub enum MessageStatus {
    Here(Box<Message>),
    Transferred(MessageTransfer),
}

/// A message that was moved to another queue.
#[derive(Debug, Serialize, ToSchema)]
pub struct MessageTransfer {
    /// Its id, which is the same there.
    #[schema(value_type = uuid::Uuid)]
    id: MessageId,
    /// `transferred`.
    #[schema(example = "transferred")]
    state: &'static str,
    /// The queue that has it.
    to: String,
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
        return Ok(answer(&asked, view, Message::new));
    }
    match broker.message_status(&asked.queue, id, wait).await? {
        BrokerStatus::Here(view) => Ok(answer(&asked, *view, Message::with_outcome)),
        BrokerStatus::Transferred { to } => {
            let transfer = MessageTransfer { id, state: "transferred", to: to.to_string() };
            Ok(reply(StatusCode::OK, &MessageStatus::Transferred(transfer)))
        }
    }
}

fn answer(
    asked: &QueueRequest,
    view: MessageView,
    form: fn(&QueueRequest, MessageView) -> Message,
) -> Response {
    let context = view.trace().cloned();
    let message = MessageStatus::Here(Box::new(form(asked, view)));
    let mut answer = reply(StatusCode::OK, &message);
    if let Some(context) = context {
        trace::set(answer.headers_mut(), &context);
    }
    answer
}
