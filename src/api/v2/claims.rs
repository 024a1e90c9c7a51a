//! Claims: create, get, renew, release.

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::holds::nothing_to_claim;
use super::messages::{Message, shown};
use super::queues;
use crate::api::delivery::deliver;
use crate::api::error::{ApiError, Errors};
use crate::api::extract::{CallerHeaders, ClaimPath, DetailsHeader, Path, QueuePath, QueueRequest};
use crate::api::json::{Json, RequestBody, not_null, reply};
use crate::api::pipeline::forward::peer::WaitedTime;
use crate::api::query::{Query, integer};
use crate::api::trace::{self, TraceBody, Traces};
use angarium_broker::Broker;
use angarium_core::claim::{ClaimLimit, ClaimTerms, ClaimWait, Claimer};
use angarium_core::delay::Delay;
use angarium_core::error::{Error, Resource};
use angarium_core::ids::{ClaimId, MessageId};
use angarium_core::limits::{self, Limits};
use angarium_core::outcome::Holder;

/// The terms of a claim. Unknown keys are dropped; an empty body means the defaults.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[schema(as = ClaimTerms)]
pub struct ClaimBody {
    /// Seconds that the claim lasts; 300 when absent.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(minimum = 60, maximum = 43_200, nullable = false)]
    ttl: Option<i64>,
    /// Seconds that a message which would end before the claim outlives it; 60 when absent.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(minimum = 60, maximum = 43_200, nullable = false)]
    grace: Option<i64>,
    /// A name that the holder gives itself: outcomes and histories of its messages show it. Only a new claim takes it.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(min_length = 1, max_length = 80, nullable = false)]
    by: Option<String>,
}

impl RequestBody for ClaimBody {
    fn most(_: &Limits) -> usize {
        limits::SMALL_BODY_BYTES
    }

    fn when_empty() -> Option<Self> {
        Some(Self::default())
    }
}

/// How much to claim.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ClaimQuery {
    /// At most this many messages; 10 when absent.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 20, nullable = false)]
    limit: Option<String>,
    /// Seconds to wait for messages when there are none, also for a queue that does not exist yet. Clients that wait
    /// are served in the order of coming, as soon as there is something. Not at all when absent.
    #[param(value_type = Option<u32>, minimum = 0, maximum = 20, nullable = false)]
    wait: Option<String>,
    /// Whether to show the bodies; true when absent. Without them each message has `details` and `body_bytes`.
    #[param(value_type = Option<bool>, nullable = false)]
    bodies: Option<String>,
}

/// A claim and its messages.
#[derive(Debug, Serialize, ToSchema)]
pub struct Claim {
    /// The claim's id, which deletes its messages and releases it.
    #[schema(value_type = uuid::Uuid)]
    id: ClaimId,
    /// Its messages, oldest first.
    messages: Vec<Message>,
    /// The traces that messages were posted in, by the ids of those that were in one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<std::collections::BTreeMap<String, TraceBody>>, nullable = false)]
    traces: Option<Traces>,
}

/// Claim messages
///
/// The claim takes the oldest messages. No other claim can take them while it lasts. The claim is on disk when the
/// request is answered.
#[utoipa::path(
    post, path = "/v2/queues/{queue_name}/claims", operation_id = "claim_create", tag = "claims",
    params(QueuePath, ClaimQuery, CallerHeaders, DetailsHeader), request_body(content = Option<ClaimBody>),
    responses(
        (status = 201, description = "The claim.", body = Claim,
            headers(("Location" = String, description = "The path of the claim."))),
        (status = 204, description = "There is nothing to claim, or there was not while it waited.",
            headers(("X-Held" = String, description = "Only when the queue is held, or messages of a held group are left: the reason, percent-encoded."))),
        Errors
    )
)]
pub async fn post(
    State(broker): State<Broker>,
    asked: QueueRequest,
    WaitedTime(waited): WaitedTime,
    Query(query): Query<ClaimQuery>,
    Json(body): Json<ClaimBody>,
) -> Result<Response, ApiError> {
    let limit = ClaimLimit::new(integer("limit", query.limit.as_deref())?, broker.limits())?;
    let wait = ClaimWait::new(integer("wait", query.wait.as_deref())?)?.less(waited);
    let shown = shown(query.bodies.as_deref())?;
    let terms = ClaimTerms::new(body.ttl, body.grace, broker.limits())?;
    let by = body.by.map(|by| Holder::new(&by, "by")).transpose()?;
    let claimer = Claimer { client: asked.client, attempt: None, by };
    let Some((claim, delivery_guard)) = broker.claim_wait(&asked.queue, terms, limit, wait, claimer).await?
    else {
        return Ok(nothing_to_claim(&broker, &asked).await);
    };
    let location = format!("{}/claims/{}", queues::path(&asked.queue), claim.id);
    let traces = trace::of_messages(&claim.messages);
    let messages = claim.messages.into_iter().map(|view| shown(&asked, view)).collect();
    let claim = Claim { id: claim.id, messages, traces };
    let reply = deliver(reply(StatusCode::CREATED, &claim), delivery_guard);
    Ok(([(header::LOCATION, location)], reply).into_response())
}

/// How much of a claim to show.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct HeldMessagesQuery {
    /// Whether to show the bodies; true when absent. Without them each message has `details` and `body_bytes`.
    #[param(value_type = Option<bool>, nullable = false)]
    bodies: Option<String>,
}

/// A claim as it is later.
#[derive(Debug, Serialize, ToSchema)]
pub struct ClaimStatus {
    /// Seconds that it lasts from its creation or last renewal.
    ttl: u32,
    /// Seconds since then.
    age: u64,
    /// Its path.
    href: String,
    /// Its messages that are not deleted yet, oldest first.
    messages: Vec<Message>,
    /// The traces that messages were posted in, by the ids of those that were in one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<std::collections::BTreeMap<String, TraceBody>>, nullable = false)]
    traces: Option<Traces>,
}

/// Get a claim
///
/// The answer has the messages of the claim that are not deleted yet.
#[utoipa::path(
    get, path = "/v2/queues/{queue_name}/claims/{claim_id}", operation_id = "claim_get", tag = "claims",
    params(
        QueuePath, ("claim_id" = uuid::Uuid, Path, description = "The claim."), HeldMessagesQuery, CallerHeaders,
        DetailsHeader
    ),
    responses(
        (status = 200, description = "The claim.", body = ClaimStatus),
        (status = 404, description = "There is no such claim.", body = crate::api::error::ErrorBody),
        Errors
    )
)]
pub async fn get(
    State(broker): State<Broker>,
    asked: QueueRequest,
    Path(ClaimPath { claim_id }): Path<ClaimPath>,
    Query(query): Query<HeldMessagesQuery>,
) -> Result<Response, ApiError> {
    let shown = shown(query.bodies.as_deref())?;
    let id = claim_id.parse().map_err(|_| no_claim(&claim_id))?;
    let status = broker.claim_get(&asked.queue, id).await?;
    let traces = trace::of_messages(&status.view.messages);
    let messages = status.view.messages.into_iter().map(|view| shown(&asked, view)).collect();
    let href = format!("{}/claims/{id}", queues::path(&asked.queue));
    let (ttl, age) = (status.ttl, status.age);
    Ok(reply(StatusCode::OK, &ClaimStatus { ttl, age, href, messages, traces }))
}

/// New terms of a claim. Unknown keys are dropped; absent ones have the defaults of a new claim.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub struct RenewBody(ClaimBody);

impl RequestBody for RenewBody {
    fn most(_: &Limits) -> usize {
        limits::SMALL_BODY_BYTES
    }
}

/// The messages that a claim holds.
#[derive(Debug, Serialize)]
struct ClaimRenewal {
    /// The ids of those that were not settled, deleted or recalled, the oldest first.
    ids: Vec<MessageId>,
}

/// Extend a claim
///
/// The time of the claim starts again, with these terms. They are on disk when the request is answered. With the header
/// `X-Message-Details: true` the answer is 200 with the `ids` of the messages that the claim still holds.
// That answer is not among the responses: generated clients take one success, and lose the other or refuse it.
#[utoipa::path(
    patch, path = "/v2/queues/{queue_name}/claims/{claim_id}", operation_id = "claim_renew", tag = "claims",
    params(QueuePath, ("claim_id" = uuid::Uuid, Path, description = "The claim."), CallerHeaders),
    request_body = ClaimBody,
    responses(
        (status = 204, description = "It is renewed."),
        (status = 404, description = "There is no such claim.", body = crate::api::error::ErrorBody),
        Errors
    )
)]
pub async fn patch(
    State(broker): State<Broker>,
    asked: QueueRequest,
    Path(ClaimPath { claim_id }): Path<ClaimPath>,
    Json(RenewBody(body)): Json<RenewBody>,
) -> Result<Response, ApiError> {
    let terms = ClaimTerms::new(body.ttl, body.grace, broker.limits())?;
    let id = claim_id.parse().map_err(|_| no_claim(&claim_id))?;
    broker.claim_renew(&asked.queue, id, terms).await?;
    if !asked.is_detailed {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let ids = broker.claim_held(&asked.queue, id).await?;
    Ok(reply(StatusCode::OK, &ClaimRenewal { ids }))
}

fn no_claim(name: &str) -> Error {
    Error::NotFound { resource: Resource::Claim, name: name.to_owned() }
}

/// How a claim is released.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ReleaseQuery {
    /// Seconds until its messages can be claimed again; at once when absent. Their life does not become longer by it.
    #[param(value_type = Option<u32>, minimum = 0, maximum = 900, nullable = false)]
    delay: Option<String>,
}

/// Release a claim
///
/// Its messages can be claimed again, at once or after a delay. A claim that has ended counts as released.
#[utoipa::path(
    delete, path = "/v2/queues/{queue_name}/claims/{claim_id}", operation_id = "claim_release", tag = "claims",
    params(
        QueuePath, ("claim_id" = uuid::Uuid, Path, description = "The claim."), ReleaseQuery, CallerHeaders
    ),
    responses((status = 204, description = "The claim has ended."), Errors)
)]
pub async fn delete(
    State(broker): State<Broker>,
    asked: QueueRequest,
    Path(ClaimPath { claim_id }): Path<ClaimPath>,
    Query(query): Query<ReleaseQuery>,
) -> Result<StatusCode, ApiError> {
    let delay = integer("delay", query.delay.as_deref())?;
    let delay = delay.map(|seconds| Delay::seconds(seconds, "delay", broker.limits())).transpose()?;
    // Text that is no valid id belongs to no claim, and such a claim counts as ended.
    let Ok(id) = claim_id.parse() else { return Ok(StatusCode::NO_CONTENT) };
    broker.release_later(&asked.queue, id, delay).await?;
    Ok(StatusCode::NO_CONTENT)
}
