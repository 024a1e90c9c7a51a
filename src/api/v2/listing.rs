//! The list of queues.

use std::collections::BTreeMap;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::attributes::QueueAttributes;
use super::page::{Link, links, spelled};
use super::queues::ShownBody;
use crate::api::error::{ApiError, Errors};
use crate::api::extract::{Caller, CallerHeaders};
use crate::api::json::reply;
use crate::api::query::{Query, boolean, integer};
use angarium_broker::{Broker, QueueCounts, QueueFilter};
use angarium_core::limits::Limits;
use angarium_core::names::QueueKind;
use angarium_core::page::PageLimit;

const PATH: &str = "/v2/queues";
const TOPICS: &str = "/v2/topics";

/// Which queues to list. Every other parameter is a filter: the value that the metadata must have under that key.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct QueuesQuery {
    /// Only queues behind this name.
    #[param(nullable = false)]
    marker: Option<String>,
    /// At most this many; 10 when absent.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 20, nullable = false)]
    limit: Option<String>,
    /// Whether to show the metadata.
    #[param(value_type = Option<bool>, nullable = false)]
    detailed: Option<String>,
    /// Whether to say how many queues the project has.
    #[param(value_type = Option<bool>, nullable = false)]
    with_count: Option<String>,
    /// Whether to count the messages of each queue.
    #[param(value_type = Option<bool>, nullable = false)]
    with_stats: Option<String>,
    /// Only queues that have this text in their name.
    #[param(nullable = false)]
    name: Option<String>,
    /// Only queues whose metadata has these values: each is a parameter of its own.
    #[serde(flatten)]
    #[param(style = Form, explode, value_type = Option<HashMap<String, String>>, nullable = false)]
    metadata: BTreeMap<String, String>,
}

impl QueuesQuery {
    fn filter(&self, kind: QueueKind, limits: &Limits) -> Result<QueueFilter, ApiError> {
        Ok(QueueFilter {
            kind,
            after: self.marker.clone(),
            limit: PageLimit::new(integer("limit", self.limit.as_deref())?, limits.queues_page)?,
            name_part: self.name.clone(),
            prefix: None,
            metadata: self.metadata.clone().into_iter().collect(),
            is_detailed: boolean("detailed", self.detailed.as_deref())?.unwrap_or(false),
            is_counted: boolean("with_count", self.with_count.as_deref())?.unwrap_or(false),
            has_counts: boolean("with_stats", self.with_stats.as_deref())?.unwrap_or(false),
        })
    }

    fn links(&self, path: &str, next: Option<String>) -> Vec<Link> {
        let mut carried = vec![
            ("limit", self.limit.as_deref()),
            ("detailed", spelled(self.detailed.as_deref())),
            ("with_count", spelled(self.with_count.as_deref())),
            ("with_stats", spelled(self.with_stats.as_deref())),
            ("name", self.name.as_deref()),
        ];
        carried.extend(self.metadata.iter().map(|(key, value)| (key.as_str(), Some(value.as_str()))));
        links(path, next, &carried)
    }
}

/// A page of queues.
#[derive(Debug, Serialize, ToSchema)]
pub struct QueuePage {
    /// In order of their names.
    queues: Vec<Queue>,
    /// The next page. Empty when there is nothing on this one and nothing behind it.
    links: Vec<Link>,
    /// How many queues the project has, whatever the filters; with `with_count` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    count: Option<u64>,
}

/// A queue or a topic in a list.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Queue {
    /// Its name.
    name: String,
    /// Its path.
    href: String,
    /// Its metadata with the defaults of the reserved keys; with `detailed` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<QueueAttributes>, nullable = false)]
    metadata: Option<ShownBody>,
    /// The numbers of its messages; with `with_stats` only. Absent also when the replica that serves the queue, or its pool,
    /// does not answer within five seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    stats: Option<QueueMessageCounts>,
}

/// The numbers of messages of a queue in a list: each message is counted under one state.
#[derive(Debug, Serialize, ToSchema)]
struct QueueMessageCounts {
    /// Messages that can be claimed.
    ready: u64,
    /// Messages whose delay is not over.
    delayed: u64,
    /// Messages under a live claim.
    claimed: u64,
    /// Messages on their way to or from another queue.
    in_transfer: u64,
    /// Messages that are done or failed and kept. Absent when there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    kept: Option<u64>,
    /// Seconds since the oldest message was posted that is ready or claimed. Absent when there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    oldest_age: Option<u64>,
    /// How fast that changes.
    rates: QueueRates,
}

/// Messages in a second, as the mean of the last 30 to 60 seconds. They begin at 0 when another replica takes the queue over, and after a start.
#[derive(Debug, Serialize, ToSchema)]
struct QueueRates {
    /// Messages that were posted, or moved here from another queue.
    #[schema(example = 0.5)]
    posted: f64,
    /// Messages that were deleted, expired, or moved to another queue.
    #[schema(example = 0.5)]
    removed: f64,
}

impl From<QueueCounts> for QueueMessageCounts {
    fn from(counts: QueueCounts) -> Self {
        let QueueCounts { ready, delayed, claimed, in_transfer, kept, oldest_age, .. } = counts;
        let kept = (kept > 0).then_some(kept);
        // Rounded to a hundredth: the counts are not more precise.
        let per_second = |per_minute: u64| (per_minute as f64 / 0.6).round() / 100.0;
        let rates = QueueRates {
            posted: per_second(counts.posted_per_minute),
            removed: per_second(counts.removed_per_minute),
        };
        Self { ready, delayed, claimed, in_transfer, kept, oldest_age, rates }
    }
}

/// List queues
///
/// The queues of the project are in the order of their names.
#[utoipa::path(
    get, path = "/v2/queues", operation_id = "queues_list", tag = "queues",
    params(QueuesQuery, CallerHeaders),
    responses((status = 200, description = "A page of them.", body = QueuePage), Errors)
)]
pub async fn get(
    State(broker): State<Broker>,
    caller: Caller,
    Query(query): Query<QueuesQuery>,
) -> Result<Response, ApiError> {
    let page = ListedPage::read(&broker, &caller, &query, QueueKind::Queue).await?;
    let ListedPage { queues, links, count } = page;
    Ok(reply(StatusCode::OK, &QueuePage { queues, links, count }))
}

/// A page of queues or topics.
pub(super) struct ListedPage {
    /// In order of their names.
    pub(super) queues: Vec<Queue>,
    /// The next page.
    pub(super) links: Vec<Link>,
    /// How many the project has, if the request wants to know.
    pub(super) count: Option<u64>,
}

impl ListedPage {
    pub(super) async fn read(
        broker: &Broker,
        caller: &Caller,
        query: &QueuesQuery,
        kind: QueueKind,
    ) -> Result<Self, ApiError> {
        let path = if kind == QueueKind::Topic { TOPICS } else { PATH };
        let filter = query.filter(kind, broker.limits())?;
        let page = broker.queues_list(&caller.project, &filter).await?;
        let queue = |view: angarium_broker::QueueView| Queue {
            href: format!("{path}/{}", view.name),
            name: view.name.to_string(),
            metadata: view.metadata.filter(|_| filter.is_detailed).map(ShownBody),
            stats: view.counts.map(QueueMessageCounts::from),
        };
        let queues = page.queues.into_iter().map(queue).collect();
        let links = query.links(path, page.next.map(|name| name.to_string()));
        Ok(Self { queues, links, count: page.count })
    }
}
