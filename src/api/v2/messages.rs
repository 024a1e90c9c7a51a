//! Messages: post, delete, change of visibility.

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::{IntoParams, ToSchema};

use super::attributes::Durability;
use super::details::MessageDetails;
use super::forwards::{TagList, tags};
use super::holds::discarded;
use super::queues;
use crate::api::error::{ApiError, Errors, NoRoom};
use crate::api::extract::{CallerHeaders, MessagePath, Path, QueuePath, QueueRequest};
use crate::api::json::{Json, Object, RawJson, RequestBody, into_bytes, not_null, reply};
use crate::api::query::{Query, boolean, required};
use crate::api::sqs::BoundedList;
use crate::api::trace::TraceHeaders;
use angarium_broker::{Broker, MessageView, PostResult};
use angarium_core::claim::ClaimTerms;
use angarium_core::delay::Delay;
use angarium_core::envelope::Envelope;
use angarium_core::error::{Error, InvalidPart, Resource};
use angarium_core::group::{DedupId, GroupName};
use angarium_core::ids::{ClaimId, MessageId};
use angarium_core::limits::{self, Limits};
use angarium_core::message::{MessageTtl, NewMessage};
use angarium_core::outcome::Keep;

/// Messages to post: at least one, and at most 24,000, in 6,553,600 bytes of JSON. Each has as many bytes as the attribute
/// `_max_messages_post_size` of the queue allows.
#[derive(Debug, Deserialize, ToSchema)]
pub struct MessagePostRequest {
    /// In the order in which they are to be claimed.
    #[schema(min_items = 1, max_items = 24_000, value_type = Vec<PostedMessage>)]
    messages: BoundedList<Object<PostedMessage>, { limits::POST_MESSAGES }>,
}

/// A message to post. Unknown keys are dropped.
#[derive(Debug, Deserialize, ToSchema)]
struct PostedMessage {
    /// Any JSON. It is kept and given back byte for byte.
    #[schema(value_type = serde_json::Value)]
    body: Box<RawValue>,
    /// Seconds that it lives; the queue's `_default_message_ttl` when absent.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(minimum = 60, maximum = 1_209_600, nullable = false)]
    ttl: Option<i64>,
    /// Seconds until it can be claimed; the queue's `_default_message_delay` when absent. Its life begins then.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(minimum = 0, maximum = 900, nullable = false)]
    delay: Option<i64>,
    /// The date from which it can be claimed, in place of a delay: any, with time and offset from UTC (RFC 3339).
    #[serde(default, deserialize_with = "not_null")]
    #[schema(format = DateTime, nullable = false)]
    not_before: Option<String>,
    /// The group that it belongs to. In a queue with `_fifo` the messages of a group are claimed in order; there it is
    /// `default` when absent.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(min_length = 1, max_length = 128, pattern = "^[!-~]+$", nullable = false)]
    group: Option<String>,
    /// In a queue with `_fifo`: a message that was posted with the same one in the last five minutes is answered in place
    /// of this one, and nothing is kept.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(min_length = 1, max_length = 128, pattern = "^[!-~]+$", nullable = false)]
    dedup_id: Option<String>,
    /// Seconds that it is kept after it was settled: with its result when it is done, and with the reason when it failed
    /// for good. The queue's `_keep` when absent.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(minimum = 0, maximum = 1_209_600, nullable = false)]
    keep: Option<i64>,
    /// Texts that stay with it: at most 8, with 256 bytes together.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(max_items = 8, value_type = Option<Vec<String>>, nullable = false)]
    tags: Option<TagList>,
}

impl PostedMessage {
    /// Checks the message with this index in the request.
    fn into_new(self, index: usize, limits: &Limits) -> Result<NewMessage, Error> {
        let field = |name| format!("messages[{index}].{name}");
        let ttl = self.ttl.map(|ttl| MessageTtl::new(ttl, field("ttl"), limits)).transpose()?;
        let delay = match (self.delay, self.not_before) {
            (None, None) => None,
            (Some(seconds), None) => Some(Delay::seconds(seconds, field("delay"), limits)?),
            (None, Some(date)) => Some(Delay::until(&date, field("not_before"))?),
            (Some(_), Some(_)) => {
                let why = "a message has a delay or a date, not both";
                return Err(Error::invalid(InvalidPart::Limit, field("not_before"), why));
            }
        };
        let group = self.group.map(|group| GroupName::new(&group, field("group"))).transpose()?;
        let dedup = self.dedup_id.map(|id| DedupId::new(&id, field("dedup_id"))).transpose()?;
        let keep = self.keep.map(|keep| Keep::new(keep, field("keep"))).transpose()?;
        let tags = tags(self.tags, field("tags"))?;
        let body = into_bytes(self.body);
        Ok(NewMessage { body, ttl, delay, group, dedup, keep, tags, is_retained: false })
    }
}

impl RequestBody for MessagePostRequest {
    fn most(_: &Limits) -> usize {
        limits::SQS_REQUEST_BYTES
    }
}

impl MessagePostRequest {
    /// Returns each message, or the reason why it is refused.
    pub(super) fn into_messages(
        self,
        limits: &Limits,
    ) -> Result<impl Iterator<Item = Result<NewMessage, Error>> + use<'_>, Error> {
        let messages = self.messages.whole().map_err(|count| {
            let why =
                format!("a request has at most {} messages, and this one has {count}", limits::POST_MESSAGES);
            Error::invalid(InvalidPart::Limit, "messages", why)
        })?;
        if messages.is_empty() {
            return Err(Error::invalid(InvalidPart::Limit, "messages", "no messages to post"));
        }
        let messages = messages.into_iter().enumerate();
        Ok(messages.map(|(index, Object(message))| message.into_new(index, limits)))
    }
}

/// What was posted.
#[derive(Debug, Serialize, ToSchema)]
pub struct MessagePostResult {
    /// The paths of the messages, in the order of the request.
    resources: Vec<String>,
    /// The ids of the messages, in the same order.
    #[schema(value_type = Vec<uuid::Uuid>)]
    ids: Vec<MessageId>,
    /// How durable they are: `sync` when they outlive a power cut, `relaxed` when the last moments may be lost in one
    /// (the queue's attribute `_durability` asks for that).
    #[schema(value_type = Durability)]
    durability: &'static str,
}

/// Post messages
///
/// All messages are posted or none. They are on disk when the request is answered, unless the queue asks for less. A
/// queue that does not exist is created. While the queue is held with `discard`, the answer is 202 with the header
/// `X-Discarded`, and no message is posted.
#[utoipa::path(
    post, path = "/v2/queues/{queue_name}/messages", operation_id = "messages_post", tag = "messages",
    params(QueuePath, CallerHeaders, TraceHeaders), request_body = MessagePostRequest,
    responses(
        (status = 201, description = "They are as durable as the answer states.", body = MessagePostResult,
            headers(("Location" = String, description = "The path of all of them; beyond 20 that of the messages."))),
        Errors,
        NoRoom
    )
)]
pub async fn post(
    State(broker): State<Broker>,
    asked: QueueRequest,
    Json(body): Json<MessagePostRequest>,
) -> Result<Response, ApiError> {
    let messages = body.into_messages(broker.limits())?.collect::<Result<_, _>>()?;
    let messages = traced(&asked, messages);
    let count = messages.len();
    let PostResult { ids, durability } =
        match broker.messages_post(&asked.queue, messages, asked.client).await {
            Ok(posted) => posted,
            Err(error) => return discarded(&broker, count, error),
        };
    let base = format!("{}/messages", queues::path(&asked.queue));
    let texts: Vec<String> = ids.iter().map(ToString::to_string).collect();
    // Clients bound the length of a header, and one request can name at most this many ids.
    let location = match texts.len() {
        0..=limits::PAGE => [&base, "?ids=", &texts.join(",")].concat(),
        _ => base.clone(),
    };
    let resources = texts.iter().map(|id| [&base, "/", id].concat()).collect();
    let posted = MessagePostResult { resources, ids, durability: durability.as_str() };
    Ok(([(header::LOCATION, location)], reply(StatusCode::CREATED, &posted)).into_response())
}

/// Adds the trace of the request to the messages.
pub(super) fn traced(asked: &QueueRequest, messages: Vec<NewMessage>) -> Vec<NewMessage> {
    if asked.trace.is_none() {
        return messages;
    }
    let envelope = Envelope { trace: asked.trace.clone(), ..Envelope::default() };
    messages.into_iter().map(|message| message.in_envelope(&envelope)).collect()
}

/// A message.
#[derive(Debug, Serialize, ToSchema)]
pub struct Message {
    /// Its id.
    #[schema(value_type = uuid::Uuid)]
    pub(super) id: MessageId,
    /// Its path; under a claim with `?claim_id=` and the claim's id at the end, which is what deletes it.
    pub(super) href: String,
    /// Seconds that it lives in all. A claim may have raised it.
    pub(super) ttl: u32,
    /// Seconds since it was posted.
    pub(super) age: u64,
    /// How often it has been claimed, this claim included. Only under a claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(super) claim_count: Option<u32>,
    /// JSON, as it was posted. Absent with `bodies=false`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    pub(super) body: Option<RawJson>,
    /// How many bytes the JSON has. Only with `bodies=false`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(super) body_bytes: Option<usize>,
    /// What Zaqar does not know of. Only with `X-Message-Details` or `bodies=false`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(super) details: Option<MessageDetails>,
}

/// Returns how the parameter `bodies` selects that messages are shown: with their bodies, unless it is false.
pub(super) fn shown(bodies: Option<&str>) -> Result<fn(&QueueRequest, MessageView) -> Message, Error> {
    let has_bodies = boolean("bodies", bodies)?.unwrap_or(true);
    Ok(if has_bodies { Message::new } else { Message::without_body })
}

impl Message {
    pub(super) fn new(asked: &QueueRequest, view: MessageView) -> Self {
        let mut href = format!("{}/messages/{}", queues::path(&asked.queue), view.id);
        if let Some(claim) = view.claim {
            href.push_str(&format!("?claim_id={claim}"));
        }
        let claim_count = view.claim.map(|_| view.attempts);
        let details = asked.is_detailed.then(|| MessageDetails::of(&view));
        Self {
            id: view.id,
            href,
            ttl: view.ttl,
            age: view.age,
            body: Some(RawJson(view.body)),
            body_bytes: None,
            claim_count,
            details,
        }
    }

    /// Returns a message with everything but its body.
    pub(super) fn without_body(asked: &QueueRequest, view: MessageView) -> Self {
        let (details, body_bytes) = (MessageDetails::of(&view), view.body.len());
        let details = Some(details);
        Self { body: None, body_bytes: Some(body_bytes), details, ..Self::new(asked, view) }
    }
}

/// Who deletes a message.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct DeleteQuery {
    /// The claim that the message is under. Needed when it is claimed, and refused when it is not.
    #[param(value_type = Option<uuid::Uuid>, nullable = false)]
    claim_id: Option<String>,
    /// Whether to delete it whatever its state, also under a claim of another client; `claim_id` has no effect then. False
    /// when absent.
    #[param(value_type = Option<bool>, nullable = false)]
    force: Option<String>,
}

/// Delete a message
///
/// A message that does not exist counts as deleted. With `force` a claimed message is recalled: the next settle or
/// delete of it by its holder is 404 with the code `gone`.
#[utoipa::path(
    delete, path = "/v2/queues/{queue_name}/messages/{message_id}", operation_id = "message_delete",
    tag = "messages",
    params(QueuePath, ("message_id" = uuid::Uuid, Path, description = "The message."), DeleteQuery, CallerHeaders),
    responses(
        (status = 204, description = "It is gone."),
        (status = 403, description = "It is under another claim. Or the caller may not do this.",
            body = crate::api::error::ErrorBody),
        (status = 404, description = "It was recalled from this claim.", body = crate::api::error::ErrorBody),
        Errors
    )
)]
pub async fn delete(
    State(broker): State<Broker>,
    asked: QueueRequest,
    Path(MessagePath { message_id }): Path<MessagePath>,
    Query(DeleteQuery { claim_id, force }): Query<DeleteQuery>,
) -> Result<StatusCode, ApiError> {
    let claim_id = claim_id.filter(|text| !text.is_empty());
    let is_forced = boolean("force", force.as_deref())?.unwrap_or(false);
    // Text that is no valid id belongs to no message, and such a message counts as deleted.
    let Ok(id) = message_id.parse() else { return Ok(StatusCode::NO_CONTENT) };
    if is_forced {
        broker.message_recall(&asked.queue, id).await?;
        return Ok(StatusCode::NO_CONTENT);
    }
    let claim = claim_id.map(|text| text.parse().unwrap_or(ClaimId::NONE));
    broker.message_delete(&asked.queue, id, claim).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The claim that a message is under.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct HideQuery {
    /// Its id.
    #[param(value_type = uuid::Uuid, required = true)]
    claim_id: Option<String>,
}

/// For how long a claimed message stays so, from now on. Unknown keys are dropped; absent ones have the defaults of a new claim.
#[derive(Debug, Deserialize, ToSchema)]
pub struct MessageVisibilityUpdate {
    /// Seconds until it can be claimed by others, 60 or more; 0 makes it claimable at once. 300 when absent.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(minimum = 0, maximum = 43_200, nullable = false)]
    ttl: Option<i64>,
    /// Seconds that the message outlives its claim, if it would end before that; 60 when absent.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(minimum = 60, maximum = 43_200, nullable = false)]
    grace: Option<i64>,
}

impl RequestBody for MessageVisibilityUpdate {
    fn most(_: &Limits) -> usize {
        limits::SMALL_BODY_BYTES
    }
}

/// Where a message is now.
#[derive(Debug, Serialize, ToSchema)]
pub struct MessageVisibility {
    /// The claim that it is under from now on: a new one, unless it was the last message of its claim.
    #[schema(value_type = uuid::Uuid)]
    claim_id: ClaimId,
    /// Its path, with that claim.
    href: String,
}

/// Change the visibility of a claimed message
///
/// One message of a claim gets a time of its own, or is released. The other messages of the claim stay as they are.
/// The change is on disk when the request is answered.
#[utoipa::path(
    patch, path = "/v2/queues/{queue_name}/messages/{message_id}", operation_id = "message_visibility_update", tag = "messages",
    params(QueuePath, ("message_id" = uuid::Uuid, Path, description = "The message."), HideQuery, CallerHeaders),
    request_body = MessageVisibilityUpdate,
    responses(
        (status = 200, description = "It is claimed for as long.", body = MessageVisibility),
        (status = 204, description = "It can be claimed again."),
        (status = 404, description = "There is no such message under this claim.", body = crate::api::error::ErrorBody),
        Errors
    )
)]
pub async fn patch(
    State(broker): State<Broker>,
    asked: QueueRequest,
    Path(MessagePath { message_id }): Path<MessagePath>,
    Query(HideQuery { claim_id }): Query<HideQuery>,
    Json(body): Json<MessageVisibilityUpdate>,
) -> Result<Response, ApiError> {
    let terms = ClaimTerms::of_message(body.ttl, body.grace, broker.limits())?;
    let missing = || Error::NotFound { resource: Resource::ClaimedMessage, name: message_id.clone() };
    let id = message_id.parse().map_err(|_| missing())?;
    let claim = required("claim_id", claim_id.as_deref())?.parse().map_err(|_| missing())?;
    let claim_id = broker.message_hide(&asked.queue, claim, id, terms).await?;
    if terms.ttl() == 0 {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let href = format!("{}/messages/{id}?claim_id={claim_id}", queues::path(&asked.queue));
    Ok(reply(StatusCode::OK, &MessageVisibility { claim_id, href }))
}
