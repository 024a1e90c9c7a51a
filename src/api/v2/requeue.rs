//! Requeue of a message: it is made available again under its id.

use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;
use utoipa::ToSchema;

use crate::api::error::{ApiError, Errors};
use crate::api::extract::{CallerHeaders, MessagePath, Path, QueuePath, QueueRequest};
use crate::api::json::{Json, RequestBody, not_null};
use angarium_broker::Broker;
use angarium_core::delay::Delay;
use angarium_core::error::{Error, InvalidPart, Resource};
use angarium_core::limits::{self, Limits};
use angarium_core::settle::Requeue;

/// The date of a message that is parked.
const NEVER: &str = "never";

/// When the message can be claimed again: at once, after a delay, or at a date. Unknown keys are refused.
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
}

impl RequestBody for RequeueBody {
    fn most(_: &Limits) -> usize {
        limits::SMALL_BODY_BYTES
    }

    fn when_empty() -> Option<Self> {
        Some(Self::default())
    }
}

impl RequeueBody {
    fn requeue(self, limits: &Limits) -> Result<Requeue, Error> {
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
/// FIFO queue it keeps its place. The change is on disk when the request is answered.
#[utoipa::path(
    post, path = "/v2/queues/{queue_name}/messages/{message_id}/requeue", operation_id = "message_requeue",
    tag = "messages",
    params(QueuePath, ("message_id" = uuid::Uuid, Path, description = "The message."), CallerHeaders),
    request_body(content = Option<RequeueBody>),
    responses(
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
) -> Result<StatusCode, ApiError> {
    let when = body.requeue(broker.limits())?;
    let missing = |_| Error::NotFound { resource: Resource::Message, name: message_id.clone() };
    let id = message_id.parse().map_err(missing)?;
    broker.message_requeue(&asked.queue, id, when).await?;
    Ok(StatusCode::NO_CONTENT)
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
