//! Holds of queues, with which an operator stops deliveries or posts for a time. Zaqar has none. Those of pools and
//! projects are in [`super::shared_holds`].

use axum::extract::State;
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::api::error::{ApiError, ErrorBody, Errors};
use crate::api::extract::{CallerHeaders, CallerName, QueuePath, QueueRequest};
use crate::api::json::{Json, RequestBody, not_null, reply};
use angarium_broker::{Broker, HoldTerms};
use angarium_core::error::{Error, InvalidPart};
use angarium_core::hold::{AppliedHold, Hold, HoldEffects, HoldReason, HoldTarget, PostEffect};
use angarium_core::limits::{self, Limits};
use angarium_core::time::Timestamp;

/// On the answer of a claim without messages: the reason of the hold of the queue, or of a group of it.
const HELD: HeaderName = HeaderName::from_static("x-held");

/// On the answer of a post: the reason of the hold that has discarded its messages.
const DISCARDED: HeaderName = HeaderName::from_static("x-discarded");

/// What a hold stops, and why. Unknown keys are refused.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HoldRequest {
    /// Whether no message can be claimed; true when absent, and false for a topic or beside `transfer`.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(nullable = false)]
    claim: Option<bool>,
    /// Whether posts are refused with 503 and the code `held`; false when absent.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(nullable = false)]
    post: Option<bool>,
    /// Whether posts are answered 202 and dropped, with the reason in the header `X-Discarded`; those of SQS are refused.
    /// False when absent.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(nullable = false)]
    discard: Option<bool>,
    /// Whether transfers to other queues and migrations to other pools wait, for copies of the pools; false when absent.
    /// Of pools alone.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(nullable = false)]
    transfer: Option<bool>,
    /// Why it is held: one line for the people who meet the hold.
    #[schema(min_length = 1, max_length = 256, example = "bad deploy 1.4.2")]
    reason: String,
    /// When the hold ends by itself, in the form of RFC 3339. It lasts until it is deleted when absent.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(format = DateTime, nullable = false, example = "2030-01-05T08:00:00Z")]
    until: Option<String>,
}

impl RequestBody for HoldRequest {
    fn most(_: &Limits) -> usize {
        limits::SMALL_BODY_BYTES
    }
}

impl HoldRequest {
    /// The hold of a topic, which has no claims to stop.
    fn of_topic(self) -> Self {
        Self { claim: self.claim.or(Some(false)), ..self }
    }

    pub(super) fn check(self, by: Option<String>) -> Result<HoldTerms, Error> {
        let (post, discard) = (self.post.unwrap_or_default(), self.discard.unwrap_or_default());
        let effects = if self.transfer.unwrap_or_default() {
            HoldEffects::with_transfers(self.claim.unwrap_or_default(), post, discard)?
        } else {
            HoldEffects::new(self.claim.unwrap_or(true), post, discard)?
        };
        let wrong = || {
            let why = "it is a date and a time with an offset, as in 2030-01-05T08:00:00Z";
            Error::invalid(InvalidPart::Limit, "until", why)
        };
        let until = self.until.map(|until| Timestamp::from_calendar(&until).ok_or_else(wrong)).transpose()?;
        Ok(HoldTerms { effects, reason: HoldReason::new(&self.reason)?, by, until })
    }
}

/// A hold.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Hold)]
pub struct HoldView {
    /// Whether no message can be claimed.
    claim: bool,
    /// Whether posts are refused.
    post: bool,
    /// Whether posts are dropped.
    discard: bool,
    /// Whether transfers and migrations out of the pool wait. Absent when they do not.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    transfer: Option<bool>,
    /// Why it is held.
    reason: String,
    /// The name of the token, or of the user in Keystone, that made the hold. Absent when there is none; of a hold of a
    /// pool or a project, for all but administrators.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    by: Option<String>,
    /// When it was made, as `YYYY-MM-DDTHH:MM:SSZ`.
    at: String,
    /// When it ends by itself, likewise. Absent when it lasts until it is deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    until: Option<String>,
    /// The pool, when a pool is held.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pool: Option<String>,
    /// The project, when a project is held.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    project: Option<String>,
}

impl From<Hold> for HoldView {
    fn from(hold: Hold) -> Self {
        Self::from(AppliedHold { target: None, hold })
    }
}

impl From<AppliedHold> for HoldView {
    fn from(AppliedHold { target, hold }: AppliedHold) -> Self {
        let (pool, project) = match target {
            None => (None, None),
            Some(HoldTarget::Pool(pool)) => (Some(pool.to_string()), None),
            Some(HoldTarget::Project(project)) => (None, Some(project.to_string())),
        };
        let posts = hold.effects.posts();
        Self {
            claim: hold.effects.bars_claims(),
            post: posts == Some(PostEffect::Refused),
            discard: posts == Some(PostEffect::Discarded),
            transfer: hold.effects.bars_transfers().then_some(true),
            reason: hold.reason.to_string(),
            by: hold.by,
            at: hold.since.calendar(),
            until: hold.until.map(Timestamp::calendar),
            pool,
            project,
        }
    }
}

/// Hold a queue
///
/// The hold replaces an earlier one. With `claim`, no claim request that begins after the answer gets a message; with
/// `post` or `discard`, no post that begins after it is stored, whatever fails. Claims that exist continue: they are renewed, settled, deleted and
/// released as always. Messages expire while the queue is held. Peeks, requeues, purges, migrations, and messages that
/// arrive from other queues are not held.
#[utoipa::path(
    put, path = "/v2/queues/{queue_name}/hold", operation_id = "queue_hold_put", tag = "queues",
    params(QueuePath, CallerHeaders), request_body = HoldRequest,
    responses(
        (status = 200, description = "The hold, which is in force.", body = HoldView),
        (status = 404, description = "There is no such queue.", body = ErrorBody),
        Errors
    )
)]
pub async fn put(
    State(broker): State<Broker>,
    CallerName(by): CallerName,
    asked: QueueRequest,
    Json(body): Json<HoldRequest>,
) -> Result<Response, ApiError> {
    let body = if asked.queue.name.is_topic() { body.of_topic() } else { body };
    let hold = broker.queue_hold(&asked.queue, body.check(by)?).await?;
    Ok(reply(StatusCode::OK, &HoldView::from(hold)))
}

/// Get the hold of a queue
///
/// The answer has its effects, its reason, and who made it. A hold that has ended by itself is 404.
#[utoipa::path(
    get, path = "/v2/queues/{queue_name}/hold", operation_id = "queue_hold_get", tag = "queues",
    params(QueuePath, CallerHeaders),
    responses(
        (status = 200, description = "The hold.", body = HoldView),
        (status = 404, description = "There is no such queue, or it is not held.", body = ErrorBody),
        Errors
    )
)]
pub async fn get(State(broker): State<Broker>, asked: QueueRequest) -> Result<Response, ApiError> {
    let hold = broker.queue_hold_get(&asked.queue).await?;
    Ok(reply(StatusCode::OK, &HoldView::from(hold)))
}

/// Release a queue
///
/// The hold ends, and messages can be claimed and posted again, in their order. A queue that is not held counts as
/// released.
#[utoipa::path(
    delete, path = "/v2/queues/{queue_name}/hold", operation_id = "queue_hold_delete", tag = "queues",
    params(QueuePath, CallerHeaders),
    responses(
        (status = 204, description = "The queue is not held."),
        (status = 404, description = "There is no such queue.", body = ErrorBody),
        Errors
    )
)]
pub async fn delete(
    State(broker): State<Broker>,
    CallerName(by): CallerName,
    asked: QueueRequest,
) -> Result<StatusCode, ApiError> {
    broker.queue_release(&asked.queue, by).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Returns the answer to a claim that got no message: with the reason when a hold is why.
pub(super) async fn nothing_to_claim(broker: &Broker, asked: &QueueRequest) -> Response {
    match broker.hold_of_claims(&asked.queue).await {
        Some(hold) => (StatusCode::NO_CONTENT, [(HELD, header_text(hold.reason.as_str()))]).into_response(),
        None => StatusCode::NO_CONTENT.into_response(),
    }
}

/// The answer to a post that a hold has discarded.
#[derive(Serialize)]
struct DiscardedPost {
    /// The paths of the posted messages: there are none.
    resources: [String; 0],
}

/// Returns the answer to a post of `messages` whose error is a hold that discards them; the error itself otherwise.
pub(super) fn discarded(broker: &Broker, messages: usize, error: Error) -> Result<Response, ApiError> {
    match error {
        Error::Held { reason, is_discarded: true, .. } => {
            broker.meter().note_discarded(messages);
            let reply = reply(StatusCode::ACCEPTED, &DiscardedPost { resources: [] });
            Ok(([(DISCARDED, header_text(&reason))], reply).into_response())
        }
        error => Err(error.into()),
    }
}

/// Returns a text as the value of a header: each byte that is not visible ASCII, and `%`, is percent-encoded.
fn header_text(text: &str) -> HeaderValue {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b' '..=b'~' if byte != b'%' => encoded.push(char::from(byte)),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    HeaderValue::try_from(encoded).expect("it is visible ASCII")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_has_reason_in_visible_ascii() {
        for (reason, header) in
            [("bad deploy 1.4.2", "bad deploy 1.4.2"), ("100 % für x", "100 %25 f%C3%BCr x")]
        {
            assert_eq!(header_text(reason), header);
        }
    }
}
