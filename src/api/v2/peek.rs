//! Peeks at the messages of a queue, which Zaqar does not have.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::details::MessageDetails;
use super::page::{Link, links};
use super::queues;
use super::selection::{FilterState, MessageFilter};
use crate::api::error::{ApiError, Errors};
use crate::api::extract::{CallerHeaders, QueuePath, QueueRequest};
use crate::api::json::{RawJson, reply};
use crate::api::query::{Query, integer, list};
use angarium_broker::{self as broker, BodyExtent, Broker, PeekFilter, PeekPosition};
use angarium_core::error::{Error, InvalidPart};
use angarium_core::ids::MessageId;
use angarium_core::limits::Limits;
use angarium_core::page::PageLimit;

/// Which messages to show: those that fulfil each condition. A blank parameter counts as absent, but for `state`.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct PeekQuery {
    /// Only messages in one of these states; in any when absent. An empty list is refused.
    #[param(inline, min_items = 1, value_type = Option<Vec<FilterState>>, style = Form, explode = false, nullable = false)]
    state: Option<String>,
    /// Only messages of this group.
    #[param(max_length = 128, pattern = "^[!-~]*$", nullable = false)]
    group: Option<String>,
    /// Only messages with this tag.
    #[param(max_length = 1_024, nullable = false)]
    tag: Option<String>,
    /// Only messages whose holder gave itself this name: the holder of the claim, or the one that settled a kept message.
    #[param(max_length = 1_024, nullable = false)]
    by: Option<String>,
    /// Only messages that were posted at least so many seconds ago.
    #[param(value_type = Option<u64>, maximum = 4_294_967_295_u64, nullable = false)]
    min_age: Option<String>,
    /// Only messages that were posted at most so many seconds ago.
    #[param(value_type = Option<u64>, maximum = 4_294_967_295_u64, nullable = false)]
    max_age: Option<String>,
    /// Only messages that have been claimed at least so often.
    #[param(value_type = Option<u64>, maximum = 4_294_967_295_u64, nullable = false)]
    min_attempts: Option<String>,
    /// Only messages that have this text in their body, with its case, as in the JSON that was posted.
    #[param(max_length = 1_024, nullable = false)]
    contains: Option<String>,
    /// How much of each body to show; `head` when absent.
    #[param(inline, value_type = Option<PeekBody>, nullable = false)]
    body: Option<String>,
    /// Where the page begins: the marker of a page's link.
    #[param(
        pattern = r"^((kept\.\d{1,15}\.)?[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})?$",
        example = "019ab1c2-5f07-7d3e-8a41-3c5d7e9f1b20",
        nullable = false
    )]
    marker: Option<String>,
    /// At most this many; 10 when absent.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 20, nullable = false)]
    limit: Option<String>,
}

/// How much of a body is shown.
#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
#[expect(dead_code, reason = "only its description is used: the parameter is read by hand")]
enum PeekBody {
    /// Its length alone.
    None,
    /// All of it up to 4,096 bytes; of a longer one the first of them, as text.
    Head,
    /// All of it.
    Whole,
}

impl PeekQuery {
    fn filter(&self, limits: &Limits) -> Result<PeekFilter, Error> {
        let filter = MessageFilter {
            state: list(self.state.as_deref()).into_iter().map(ToOwned::to_owned).collect(),
            group: self.group.clone(),
            tag: self.tag.clone(),
            by: self.by.clone(),
            min_age: integer("min_age", self.min_age.as_deref())?,
            max_age: integer("max_age", self.max_age.as_deref())?,
            min_attempts: integer("min_attempts", self.min_attempts.as_deref())?,
            contains: self.contains.clone(),
        };
        let selection = filter.selection(InvalidPart::Query, "")?;
        let body = self.body.as_deref().map_or(Ok(BodyExtent::default()), extent)?;
        let wrong = |_| wrong("marker", "it is not the marker of a page's link");
        let after = self.marker.as_deref().map_or(Ok(PeekPosition::FIRST), str::parse).map_err(wrong)?;
        let limit = PageLimit::new(integer("limit", self.limit.as_deref())?, limits.messages_page)?;
        Ok(PeekFilter { selection, body, after, limit })
    }

    fn links(&self, asked: &QueueRequest, next: Option<PeekPosition>) -> Vec<Link> {
        let carried = [
            ("state", &self.state),
            ("group", &self.group),
            ("tag", &self.tag),
            ("by", &self.by),
            ("min_age", &self.min_age),
            ("max_age", &self.max_age),
            ("min_attempts", &self.min_attempts),
            ("contains", &self.contains),
            ("body", &self.body),
            ("limit", &self.limit),
        ];
        let path = format!("{}/peek", queues::path(&asked.queue));
        let carried = carried.map(|(name, value)| (name, value.as_deref()));
        links(&path, next.map(|next| next.to_string()), &carried)
    }
}

fn extent(word: &str) -> Result<BodyExtent, Error> {
    match word {
        "none" => Ok(BodyExtent::None),
        "head" => Ok(BodyExtent::Head),
        "whole" => Ok(BodyExtent::Whole),
        _ => Err(wrong("body", "it is neither none nor head nor whole")),
    }
}

fn wrong(field: &'static str, why: impl Into<String>) -> Error {
    Error::invalid(InvalidPart::Query, field, why)
}

/// A page of messages in any state.
#[derive(Debug, Serialize, ToSchema)]
pub struct PeekPage {
    /// In order of posting; behind them the done and failed ones, in the order in which they were settled.
    messages: Vec<PeekedMessage>,
    /// How many messages were compared with the conditions.
    looked_at: usize,
    /// The next page. Empty when there is nothing behind this one. A page may be empty and have a link, because a request
    /// reads at most 16,384 messages and 16 MiB.
    links: Vec<Link>,
}

/// A message as a peek shows it.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct PeekedMessage {
    /// Its id.
    #[schema(value_type = uuid::Uuid)]
    id: MessageId,
    /// `ready`, `delayed`, `claimed`, `in_transfer`, `held`, `done` or `failed`.
    #[schema(example = "ready")]
    state: &'static str,
    /// Seconds since it was posted.
    age: u64,
    /// Seconds that it lives in all. A claim may have raised it.
    ttl: u32,
    /// Seconds until its delay ends; of a delayed message only, and absent if it is parked.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    ready_in: Option<u64>,
    /// The claim that holds it; of a claimed message only.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    claim: Option<PeekedClaim>,
    /// What Zaqar does not know of it.
    details: MessageDetails,
    /// JSON, as it was posted. Absent when it is not shown as a whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    body: Option<RawJson>,
    /// The begin of the JSON as text, if it is longer than what `body=head` shows.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    body_head: Option<String>,
    /// How many bytes the whole JSON has.
    body_bytes: usize,
}

/// The claim of a message as a peek shows it: without its id, which is for its holder.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct PeekedClaim {
    /// The name that its holder gave itself, if it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    by: Option<String>,
    /// Seconds until it expires.
    expires_in: u64,
}

impl PeekedMessage {
    pub(super) fn new(message: broker::PeekedMessage, extent: BodyExtent) -> Self {
        let broker::PeekedMessage { view, claim, body_bytes } = message;
        let details = MessageDetails::of(&view);
        let is_cut = view.body.len() < body_bytes;
        let (body, body_head) = match extent {
            BodyExtent::None => (None, None),
            BodyExtent::Head if is_cut => (None, Some(String::from_utf8_lossy(&view.body).into_owned())),
            BodyExtent::Head | BodyExtent::Whole => (Some(RawJson(view.body)), None),
        };
        let claim = claim.map(|broker::PeekedClaim { by, expires_in }| PeekedClaim {
            by: by.map(|by| by.to_string()),
            expires_in,
        });
        Self {
            id: view.id,
            state: view.state.as_str(),
            age: view.age,
            ttl: view.ttl,
            ready_in: view.delay.map(|delay| delay.seconds),
            claim,
            details,
            body,
            body_head,
            body_bytes,
        }
    }
}

/// Peek at messages
///
/// Messages in any state are shown, and nothing is changed by it: no message is claimed, counted or removed. The ids of
/// claims are not shown.
#[utoipa::path(
    get, path = "/v2/queues/{queue_name}/peek", operation_id = "messages_peek", tag = "messages",
    params(QueuePath, PeekQuery, CallerHeaders),
    responses((status = 200, description = "A page of them; none when there is no such queue.", body = PeekPage), Errors)
)]
pub async fn get(
    State(broker): State<Broker>,
    asked: QueueRequest,
    Query(query): Query<PeekQuery>,
) -> Result<Response, ApiError> {
    let filter = query.filter(broker.limits())?;
    let page = broker.messages_peek(&asked.queue, &filter).await?;
    let links = query.links(&asked, page.next);
    let messages =
        page.messages.into_iter().map(|message| PeekedMessage::new(message, filter.body)).collect();
    Ok(reply(StatusCode::OK, &PeekPage { messages, looked_at: page.looked_at, links }))
}
