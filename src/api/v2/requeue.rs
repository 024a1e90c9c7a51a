//! Requeue of a message: it is made available again under its id.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::api::error::{ApiError, Errors};
use crate::api::extract::{CallerHeaders, MessagePath, Path, QueuePath, QueueRequest};
use crate::api::json::{Json, RequestBody, into_bytes, not_null, reply};
use angarium_broker::Broker;
use angarium_core::delay::Delay;
use angarium_core::error::{Error, InvalidPart, Resource};
use angarium_core::ids::MessageId;
use angarium_core::limits::{self, Limits};
use angarium_core::settle::Requeue;

/// The date of a message that is parked.
const NEVER: &str = "never";

/// When the message can be claimed again: at once, after a delay, or at a date; and its new body, if it gets one. Unknown
/// keys are refused.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = RequeueRequest)]
pub struct RequeueBody {
    /// Seconds until it can be claimed.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(minimum = 0, maximum = 900, nullable = false)]
    delay: Option<i64>,
    /// The date from which it can be claimed, in place of a delay: any, with time and offset from UTC (RFC 3339). `never`
    /// parks the message until its next requeue.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(nullable = false)]
    not_before: Option<String>,
    /// Any JSON. With it a new message takes the place of this one: with its group, tags, SQS attributes and history, a new
    /// id and a new life.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<serde_json::Value>)]
    body: Option<Box<RawValue>>,
}

/// Reads a body that is there, also `null`.
fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(deserializer).map(Some)
}

/// The message that took the place of another one.
#[derive(Debug, Serialize, ToSchema)]
pub struct RequeuedMessage {
    /// Its id.
    #[schema(value_type = uuid::Uuid)]
    id: MessageId,
}

impl RequestBody for RequeueBody {
    fn most(_: &Limits) -> usize {
        limits::SQS_REQUEST_BYTES
    }

    fn when_empty() -> Option<Self> {
        Some(Self::default())
    }
}

impl RequeueBody {
    fn requeue(&self, limits: &Limits) -> Result<Requeue, Error> {
        match (self.delay, self.not_before.as_deref()) {
            (None, None) => Ok(Requeue::At(Delay::Seconds(0))),
            (Some(seconds), None) => Delay::seconds(seconds, "delay", limits).map(Requeue::At),
            (None, Some(NEVER)) => Ok(Requeue::Never),
            (None, Some(date)) => Delay::until(date, "not_before").map(Requeue::At),
            (Some(_), Some(_)) => {
                let why = "a message has a delay or a date, not both";
                Err(Error::invalid(InvalidPart::Limit, "not_before", why))
            }
        }
    }
}

/// Requeue a message
///
/// A ready, delayed, done or failed message can be claimed again under its id, with no attempts and a new life. In a
/// FIFO queue it keeps its place. With a `body` a new message replaces it, in one step, behind the others of its group.
/// The change is on disk when the request is answered.
#[utoipa::path(
    post, path = "/v2/queues/{queue_name}/messages/{message_id}/requeue", operation_id = "message_requeue",
    tag = "messages",
    params(QueuePath, ("message_id" = uuid::Uuid, Path, description = "The message."), CallerHeaders),
    request_body(content = Option<RequeueBody>),
    responses(
        (status = 200, description = "A new message has replaced it.", body = RequeuedMessage),
        (status = 204, description = "It is available again, or will be."),
        (status = 404, description = "There is no such message.", body = crate::api::error::ErrorBody),
        (status = 409, description = "It is claimed.", body = crate::api::error::ErrorBody),
        Errors
    )
)]
pub async fn post(
    State(broker): State<Broker>,
    asked: QueueRequest,
    Path(MessagePath { message_id }): Path<MessagePath>,
    Json(body): Json<RequeueBody>,
) -> Result<Response, ApiError> {
    let when = body.requeue(broker.limits())?;
    let missing = |_| Error::NotFound { resource: Resource::Message, name: message_id.clone() };
    let id = message_id.parse().map_err(missing)?;
    let Some(body) = body.body else {
        broker.message_requeue(&asked.queue, id, when).await?;
        return Ok(StatusCode::NO_CONTENT.into_response());
    };
    let id = broker.message_replace(&asked.queue, id, when, into_bytes(body)).await?;
    Ok(reply(StatusCode::OK, &RequeuedMessage { id }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requeue(text: &str) -> Result<Requeue, Error> {
        serde_json::from_str::<RequeueBody>(text).unwrap().requeue(&Limits::ZAQAR)
    }

    #[test]
    fn requeue_has_a_delay_or_a_date_or_neither() {
        assert_eq!(requeue("{}").unwrap(), Requeue::At(Delay::Seconds(0)));
        assert_eq!(requeue(r#"{"delay": 9}"#).unwrap(), Requeue::At(Delay::Seconds(9)));
        assert_eq!(requeue(r#"{"not_before": "never"}"#).unwrap(), Requeue::Never);
        let date = requeue(r#"{"not_before": "2030-01-01T00:00:00Z"}"#).unwrap();
        assert!(matches!(date, Requeue::At(Delay::Until(_))), "{date:?}");
    }

    #[test]
    fn wrong_requeue_is_refused_and_named() {
        for (text, field) in [
            (r#"{"delay": 901}"#, "delay"),
            (r#"{"not_before": "soon"}"#, "not_before"),
            (r#"{"delay": 1, "not_before": "never"}"#, "not_before"),
        ] {
            let error = requeue(text).unwrap_err().to_string();
            assert!(error.starts_with(field), "{text}: {error}");
        }
    }
}
