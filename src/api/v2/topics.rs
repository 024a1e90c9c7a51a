//! Topics: a topic is a queue that keeps nothing for itself. A message that is posted to it is copied for each of its
//! subscriptions. Operations that are as those of a queue are in [`super::topic_routes`].

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Serialize;
use utoipa::ToSchema;

use super::attributes::QueueAttributes;
use super::listing::{ListedPage, Queue, QueuesQuery};
use super::page::Link;
use super::queues::{MetadataBody, ShownBody, StatsBody, create};
use crate::api::error::{ApiError, ErrorBody, Errors};
use crate::api::extract::{Caller, CallerHeaders, QueueRequest, TopicPath};
use crate::api::json::{Json, reply};
use crate::api::query::Query;
use angarium_broker::Broker;
use angarium_core::error::{Error, Resource};
use angarium_core::names::{QueueKind, QueueRef};

/// A page of topics.
#[derive(Debug, Serialize, ToSchema)]
pub struct TopicPage {
    /// In order of their names.
    topics: Vec<Queue>,
    /// The next page. Empty when there is nothing on this one and nothing behind it.
    links: Vec<Link>,
    /// How many topics the project has, whatever the filters; with `with_count` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    count: Option<u64>,
}

/// List topics
///
/// The topics of the project are in the order of their names. The list of queues does not have them.
#[utoipa::path(
    get, path = "/v2/topics", operation_id = "topics_list", tag = "topics",
    params(QueuesQuery, CallerHeaders),
    responses((status = 200, description = "A page of them.", body = TopicPage), Errors)
)]
pub async fn list(
    State(broker): State<Broker>,
    caller: Caller,
    Query(query): Query<QueuesQuery>,
) -> Result<Response, ApiError> {
    let page = ListedPage::read(&broker, &caller, &query, QueueKind::Topic).await?;
    let ListedPage { queues, links, count } = page;
    Ok(reply(StatusCode::OK, &TopicPage { topics: queues, links, count }))
}

/// Create a topic
///
/// A topic that exists stays as it is, its metadata too. Queues and topics of a project share their names: while a queue has
/// the name, the answer is 409. Attributes of claims and dead letters are refused: they are options of a subscription.
#[utoipa::path(
    put, path = "/v2/topics/{topic_name}", operation_id = "topic_create", tag = "topics",
    params(TopicPath, CallerHeaders), request_body(content = Option<QueueAttributes>),
    responses(
        (status = 201, description = "It was created.", headers(("Location" = String, description = "Its path."))),
        (status = 204, description = "It existed.", headers(("Location" = String, description = "Its path."))),
        (status = 409, description = "There is a queue of this name.", body = ErrorBody),
        Errors
    )
)]
pub async fn put(
    State(broker): State<Broker>,
    asked: QueueRequest,
    Json(body): Json<MetadataBody>,
) -> Result<Response, ApiError> {
    create(&broker, &asked.queue, body).await
}

/// Get the attributes of a topic
///
/// The answer is the metadata of the topic with the defaults of the attributes.
#[utoipa::path(
    get, path = "/v2/topics/{topic_name}", operation_id = "topic_get", tag = "topics",
    params(TopicPath, CallerHeaders),
    responses(
        (status = 200, description = "The metadata.", body = QueueAttributes),
        (status = 404, description = "There is no such topic.", body = ErrorBody),
        Errors
    )
)]
pub async fn get(State(broker): State<Broker>, asked: QueueRequest) -> Result<Response, ApiError> {
    let metadata = broker.queue_metadata(&asked.queue).await?.ok_or_else(|| no_topic(&asked.queue))?;
    Ok(reply(StatusCode::OK, &ShownBody(metadata.shown(broker.limits()))))
}

/// Figures of a topic.
#[derive(Debug, Serialize, ToSchema)]
pub struct TopicStats {
    /// The subscriptions that get a copy of each message.
    subscriptions: usize,
    /// The figures that a queue has: a topic keeps no messages, so they are zeros.
    #[serde(flatten)]
    figures: StatsBody,
}

/// Get the statistics of a topic
///
/// The answer has the number of its subscriptions. The messages are counted in each of those.
#[utoipa::path(
    get, path = "/v2/topics/{topic_name}/stats", operation_id = "topic_stats_get", tag = "topics",
    params(TopicPath, CallerHeaders),
    responses(
        (status = 200, description = "The figures.", body = TopicStats),
        (status = 404, description = "There is no such topic.", body = ErrorBody),
        Errors
    )
)]
pub async fn stats(State(broker): State<Broker>, asked: QueueRequest) -> Result<Response, ApiError> {
    let stats = broker.topic_stats(&asked.queue).await?;
    let figures = StatsBody::new(&asked.queue, &stats.figures);
    Ok(reply(StatusCode::OK, &TopicStats { subscriptions: stats.subscriptions, figures }))
}

fn no_topic(at: &QueueRef) -> Error {
    Error::NotFound { resource: Resource::Topic, name: at.name.to_string() }
}
