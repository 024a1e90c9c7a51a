//! Queues: create, metadata, stats.

use axum::extract::State;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::{IntoParams, ToSchema};

use super::attributes::QueueAttributes;
use crate::api::error::{ApiError, ErrorBody, Errors};
use crate::api::extract::{CallerHeaders, QueuePath, QueueRequest};
use crate::api::json::{Json, RequestBody, reply};
use crate::api::query::{Query, boolean};
use crate::api::sqs;
use angarium_broker::Broker;
use angarium_core::limits::Limits;
use angarium_core::names::QueueRef;
use angarium_core::patch::Entries;
use angarium_core::queue::{CreateResult, Metadata, Milestone, QueueStats};

/// The header that states whether the queue exists, because the answer for a missing queue looks like that for an empty
/// one.
const EXISTS: HeaderName = HeaderName::from_static("x-queue-exists");

/// Metadata of a queue, as [`QueueAttributes`] describes it.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub struct MetadataBody(pub Box<RawValue>);

impl RequestBody for MetadataBody {
    fn most(limits: &Limits) -> usize {
        limits.metadata_bytes
    }

    fn when_empty() -> Option<Self> {
        Some(Self(Metadata::empty().into_raw()))
    }
}

/// Metadata of a queue as it is in effect: the attributes of Zaqar are always there, with their defaults.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub struct ShownBody(pub Entries);

/// Create a queue
///
/// A queue that exists stays as it is, its metadata too.
#[utoipa::path(
    put, path = "/v2/queues/{queue_name}", operation_id = "queue_create", tag = "queues",
    params(QueuePath, CallerHeaders), request_body(content = Option<QueueAttributes>),
    responses(
        (status = 201, description = "It was created.", headers(("Location" = String, description = "Its path."))),
        (status = 204, description = "It existed.", headers(("Location" = String, description = "Its path."))),
        (status = 409, description = "There is a topic of this name.", body = ErrorBody),
        Errors
    )
)]
pub async fn put(
    State(broker): State<Broker>,
    asked: QueueRequest,
    Json(body): Json<MetadataBody>,
) -> Result<Response, ApiError> {
    asked.queue.name.check_creatable()?;
    create(&broker, &asked.queue, body).await
}

/// Creates a queue or a topic.
pub(super) async fn create(
    broker: &Broker,
    queue: &QueueRef,
    MetadataBody(metadata): MetadataBody,
) -> Result<Response, ApiError> {
    let limits = broker.limits();
    let metadata = Metadata::new(metadata, limits)?.with_message_bytes(limits.rest_message_bytes());
    sqs::check_metadata(&metadata)?;
    let status = match broker.queue_create(queue, metadata).await? {
        CreateResult::New => StatusCode::CREATED,
        CreateResult::Existed => StatusCode::NO_CONTENT,
    };
    Ok((status, [(header::LOCATION, path(queue))]).into_response())
}

/// Get the attributes of a queue
///
/// The answer is the metadata of the queue with the defaults of the attributes. A queue that does not exist has the
/// defaults alone, as in Zaqar.
#[utoipa::path(
    get, path = "/v2/queues/{queue_name}", operation_id = "queue_get", tag = "queues",
    params(QueuePath, CallerHeaders),
    responses(
        (status = 200, description = "The metadata.", body = QueueAttributes,
            headers(("X-Queue-Exists" = bool, description = "Whether there is such a queue."))),
        Errors
    )
)]
pub async fn get(State(broker): State<Broker>, asked: QueueRequest) -> Result<Response, ApiError> {
    let found = broker.queue_metadata(&asked.queue).await?;
    let exists = found.is_some();
    let limits = broker.limits();
    let metadata = found.unwrap_or_else(|| Metadata::empty().with_message_bytes(limits.rest_message_bytes()));
    Ok(telling(exists, reply(StatusCode::OK, &ShownBody(metadata.shown(limits)))))
}

/// Adds the header that states whether the queue of the answer exists: a missing queue has defaults and zeros.
fn telling(exists: bool, mut answer: Response) -> Response {
    let value = HeaderValue::from_static(if exists { "true" } else { "false" });
    answer.headers_mut().insert(EXISTS, value);
    answer
}

/// How a queue is deleted.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct QueueDeleteQuery {
    /// Whether to delete forwarded messages with it that have not left it. False when absent.
    #[param(value_type = Option<bool>, nullable = false)]
    force: Option<String>,
}

/// Delete a queue
///
/// All its messages and claims are deleted too. A queue that does not exist counts as deleted. The answer is sent when
/// no client can see the queue any more; the space of its messages is freed soon after. Messages that a settle has
/// forwarded or moved leave first. While they cannot, because their queue is unavailable, the answer is 503 and the queue
/// stays. With `force` they are deleted with the queue, whose pool need not be reachable.
#[utoipa::path(
    delete, path = "/v2/queues/{queue_name}", operation_id = "queue_delete", tag = "queues",
    params(QueuePath, CallerHeaders, QueueDeleteQuery),
    responses((status = 204, description = "There is no such queue any more."), Errors)
)]
pub async fn delete(
    State(broker): State<Broker>,
    asked: QueueRequest,
    Query(QueueDeleteQuery { force }): Query<QueueDeleteQuery>,
) -> Result<StatusCode, ApiError> {
    if boolean("force", force.as_deref())?.unwrap_or(false) {
        broker.queue_delete_forced(&asked.queue).await?;
    } else {
        broker.queue_delete(&asked.queue).await?;
    }
    Ok(StatusCode::NO_CONTENT)
}

/// Get the statistics of a queue
///
/// The answer counts its messages and names the oldest and the newest.
#[utoipa::path(
    get, path = "/v2/queues/{queue_name}/stats", operation_id = "queue_stats_get", tag = "queues",
    params(QueuePath, CallerHeaders),
    responses(
        (status = 200, description = "The figures; zeros when there is no such queue.", body = StatsBody,
            headers(("X-Queue-Exists" = bool, description = "Whether there is such a queue."))),
        Errors
    )
)]
pub async fn stats(State(broker): State<Broker>, asked: QueueRequest) -> Result<Response, ApiError> {
    let stats = broker.queue_stats(&asked.queue).await?;
    Ok(telling(stats.exists, reply(StatusCode::OK, &StatsBody::new(&asked.queue, &stats))))
}

/// Returns the path of a queue or a topic; that of a subscription for its queue.
pub(super) fn path(queue: &QueueRef) -> String {
    let source = queue.name.source();
    let kind = if queue.name.of_source().is_topic() { "topics" } else { "queues" };
    match queue.name.subscription() {
        None => format!("/v2/{kind}/{source}"),
        Some(id) => format!("/v2/{kind}/{source}/subscriptions/{id}"),
    }
}

/// Figures of a queue.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = QueueStats)]
pub struct StatsBody {
    /// How many messages there are, and which are the oldest and the newest.
    messages: MessageCounts,
}

/// How many messages there are.
#[derive(Debug, Serialize, ToSchema)]
struct MessageCounts {
    /// Under a live claim.
    claimed: u64,
    /// Under no claim: ready and delayed.
    free: u64,
    /// Messages that can be claimed.
    ready: u64,
    /// Messages whose delay has not ended.
    delayed: u64,
    /// Messages on their way to or from another queue.
    in_transfer: u64,
    /// Claimed and free ones and those in transfer together.
    total: u64,
    /// Messages that are done or failed and kept, which are not in the total. Absent when there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    kept: Option<u64>,
    /// Present when there is a message.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    oldest: Option<MessageReference>,
    /// Present when there is a message.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    newest: Option<MessageReference>,
}

/// A message that statistics point to.
#[derive(Debug, Serialize, ToSchema)]
struct MessageReference {
    /// Its path.
    href: String,
    /// Seconds since it was posted.
    age: u64,
    /// When it was posted, as `YYYY-MM-DDTHH:MM:SSZ`.
    created: String,
}

impl StatsBody {
    pub(super) fn new(queue: &QueueRef, stats: &QueueStats) -> Self {
        let milestone = |milestone: &Milestone| MessageReference {
            href: format!("{}/messages/{}", path(queue), milestone.id),
            age: milestone.age,
            created: milestone.created.calendar(),
        };
        let messages = MessageCounts {
            claimed: stats.claimed,
            free: stats.free,
            ready: stats.ready(),
            delayed: stats.delayed,
            in_transfer: stats.in_transfer,
            total: stats.claimed + stats.free + stats.in_transfer,
            kept: (stats.kept > 0).then_some(stats.kept),
            oldest: stats.oldest.as_ref().map(milestone),
            newest: stats.newest.as_ref().map(milestone),
        };
        Self { messages }
    }
}
