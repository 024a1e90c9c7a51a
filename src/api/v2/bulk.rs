//! Bulk operations on messages: list them, read and delete them by their ids, pop the oldest.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::messages::{Message, shown};
use super::page::{Link, links, spelled};
use super::queues;
use crate::api::error::{ApiError, Errors};
use crate::api::extract::{CallerHeaders, DetailsHeader, QueuePath, QueueRequest};
use crate::api::json::reply;
use crate::api::query::{Query, boolean, integer, list};
use crate::api::trace::{self, TraceBody, Traces};
use angarium_broker::{Broker, MessageFilter, MessagePage, MessageView};
use angarium_core::claim::Holdings;
use angarium_core::error::{Error, InvalidPart, Resource};
use angarium_core::ids::{ClaimId, MessageId};
use angarium_core::limits::Limits;
use angarium_core::page::{PageLimit, PopCount};

/// Which messages to show: those of `ids`, or a page of all.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct MessagesQuery {
    /// The ids of messages, at most 20. With them every other parameter but `bodies` is left aside.
    #[param(value_type = Option<Vec<String>>, style = Form, explode = false, nullable = false)]
    ids: Option<String>,
    /// Only messages behind this one: the marker of a page's link. One that no page gave is behind all messages.
    #[param(nullable = false)]
    marker: Option<String>,
    /// At most this many; 10 when absent.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 20, nullable = false)]
    limit: Option<String>,
    /// Whether to show messages that were posted under the `Client-ID` of this request; without it they are left out.
    #[param(value_type = Option<bool>, nullable = false)]
    echo: Option<String>,
    /// Whether to show claimed messages too.
    #[param(value_type = Option<bool>, nullable = false)]
    include_claimed: Option<String>,
    /// Whether to show messages too that become ready later.
    #[param(value_type = Option<bool>, nullable = false)]
    include_delayed: Option<String>,
    /// Whether to show the bodies; true when absent. Without them each message has `details` and `body_bytes`.
    #[param(value_type = Option<bool>, nullable = false)]
    bodies: Option<String>,
}

impl MessagesQuery {
    /// Returns the filter of a page; none if no page can begin at the marker.
    fn filter(&self, asked: &QueueRequest, limits: &Limits) -> Result<Option<MessageFilter>, Error> {
        let limit = PageLimit::new(integer("limit", self.limit.as_deref())?, limits.messages_page)?;
        let echoes = boolean("echo", self.echo.as_deref())?.unwrap_or(false);
        let includes_claimed = boolean("include_claimed", self.include_claimed.as_deref())?.unwrap_or(false);
        let includes_delayed = boolean("include_delayed", self.include_delayed.as_deref())?.unwrap_or(false);
        let Ok(after) = self.marker.as_ref().map_or(Ok(MessageId::ZERO), |marker| marker.parse()) else {
            return Ok(None);
        };
        let not_of = asked.client.filter(|_| !echoes);
        Ok(Some(MessageFilter { after, limit, not_of, includes_claimed, includes_delayed }))
    }

    fn links(&self, asked: &QueueRequest, next: Option<MessageId>) -> Vec<Link> {
        let carried = [
            ("limit", self.limit.as_deref()),
            ("echo", spelled(self.echo.as_deref())),
            ("include_claimed", spelled(self.include_claimed.as_deref())),
            ("include_delayed", spelled(self.include_delayed.as_deref())),
            ("bodies", spelled(self.bodies.as_deref())),
        ];
        links(&path(asked), next.map(|id| id.to_string()), &carried)
    }
}

/// Messages.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = MessagePage)]
pub struct MessagesBody {
    /// In order of posting; those of `ids` in the order of `ids`.
    messages: Vec<Message>,
    /// The next page of a list. Empty when there is nothing on this one and nothing behind it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    links: Option<Vec<Link>>,
    /// The traces that messages were posted in, by the ids of those that were in one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<std::collections::BTreeMap<String, TraceBody>>, nullable = false)]
    traces: Option<Traces>,
}

impl MessagesBody {
    /// Returns messages, each as `shown` shows it.
    fn new(
        asked: &QueueRequest,
        found: Vec<MessageView>,
        shown: fn(&QueueRequest, MessageView) -> Message,
    ) -> Self {
        let traces = trace::of_messages(&found);
        let messages = found.into_iter().map(|view| shown(asked, view)).collect();
        Self { messages, links: None, traces }
    }
}

fn path(asked: &QueueRequest) -> String {
    format!("{}/messages", queues::path(&asked.queue))
}

/// Returns the valid ids of a list; invalid ones belong to no message.
pub(super) fn known<T: std::str::FromStr>(
    field: &'static str,
    text: Option<&str>,
    limits: &Limits,
) -> Result<Vec<T>, Error> {
    Ok(bounded(field, text, limits)?.into_iter().filter_map(|text| text.parse().ok()).collect())
}

/// Returns the texts of a list; fails if there are too many.
pub(super) fn bounded<'a>(
    field: &'static str,
    text: Option<&'a str>,
    limits: &Limits,
) -> Result<Vec<&'a str>, Error> {
    let (texts, most) = (list(text), limits.messages_page.most());
    if texts.len() > most {
        let why = format!("{} ids are more than {most}", texts.len());
        return Err(Error::invalid(InvalidPart::Limit, field, why));
    }
    Ok(texts)
}

/// List messages
///
/// The answer has a page of the messages that can be claimed, oldest first, or the messages of `ids`, claimed or not.
#[utoipa::path(
    get, path = "/v2/queues/{queue_name}/messages", operation_id = "messages_list", tag = "messages",
    params(QueuePath, MessagesQuery, CallerHeaders, DetailsHeader),
    responses(
        (status = 200, description = "Messages; none when there is no such queue.", body = MessagesBody),
        (status = 404, description = "None of `ids` exists.", body = crate::api::error::ErrorBody),
        Errors
    )
)]
pub async fn get(
    State(broker): State<Broker>,
    asked: QueueRequest,
    Query(query): Query<MessagesQuery>,
) -> Result<Response, ApiError> {
    let shown = shown(query.bodies.as_deref())?;
    if let Some(ids) = &query.ids {
        let found = by_ids(&broker, &asked, ids).await?;
        return Ok(reply(StatusCode::OK, &MessagesBody::new(&asked, found, shown)));
    }
    let page = match query.filter(&asked, broker.limits())? {
        Some(filter) => broker.messages_list(&asked.queue, &filter).await?,
        None => MessagePage::default(),
    };
    let links = Some(query.links(&asked, page.next));
    let body = MessagesBody::new(&asked, page.messages, shown);
    Ok(reply(StatusCode::OK, &MessagesBody { links, ..body }))
}

async fn by_ids(broker: &Broker, asked: &QueueRequest, ids: &str) -> Result<Vec<MessageView>, Error> {
    let found = broker.messages_get(&asked.queue, &known("ids", Some(ids), broker.limits())?).await?;
    if found.is_empty() {
        return Err(Error::NotFound { resource: Resource::Message, name: ids.to_owned() });
    }
    Ok(found)
}

/// Which messages to delete: those of `ids`, or the oldest. One of the two must be given.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct DeletionQuery {
    /// The ids of messages, at most 20. An id of no message counts as deleted.
    #[param(value_type = Option<Vec<String>>, style = Form, explode = false, nullable = false)]
    ids: Option<String>,
    /// The claims that messages of `ids` are under, at most 20.
    #[param(value_type = Option<Vec<String>>, style = Form, explode = false, nullable = false)]
    claim_ids: Option<String>,
    /// How many of the oldest messages to delete and to answer with. Claimed ones are passed over.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 20, nullable = false)]
    pop: Option<String>,
}

/// Delete or pop messages
///
/// With `ids` all of them are deleted, or none when one is under a claim that `claim_ids` does not name and that was
/// not made under the `Client-ID` of this request. With `pop` the oldest messages that can be claimed are deleted, and
/// the answer has them: they are gone when it is sent.
#[utoipa::path(
    delete, path = "/v2/queues/{queue_name}/messages", operation_id = "messages_delete", tag = "messages",
    params(QueuePath, DeletionQuery, CallerHeaders, DetailsHeader),
    responses(
        (status = 200, description = "The messages that were popped.", body = MessagesBody),
        (status = 204, description = "Those of `ids` are gone."),
        (status = 403, description = "One is under another claim. None was deleted. Or the caller may not do this.",
            body = crate::api::error::ErrorBody),
        Errors
    )
)]
pub async fn delete(
    State(broker): State<Broker>,
    asked: QueueRequest,
    Query(query): Query<DeletionQuery>,
) -> Result<Response, ApiError> {
    match (&query.ids, integer("pop", query.pop.as_deref())?) {
        (Some(ids), None) => {
            let claims: Vec<ClaimId> = known("claim_ids", query.claim_ids.as_deref(), broker.limits())?;
            let held = Holdings { claims: &claims, client: asked.client };
            broker.messages_delete(&asked.queue, known("ids", Some(ids), broker.limits())?, held).await?;
            Ok(StatusCode::NO_CONTENT.into_response())
        }
        (None, Some(count)) => {
            let popped = broker.messages_pop(&asked.queue, PopCount::new(count, broker.limits())?).await?;
            Ok(reply(StatusCode::OK, &MessagesBody::new(&asked, popped, Message::new)))
        }
        (Some(_), Some(_)) => Err(wrong_query("pop and ids cannot be given together")),
        (None, None) => Err(wrong_query("either ids or pop must be given")),
    }
}

fn wrong_query(why: &str) -> ApiError {
    Error::invalid(InvalidPart::Limit, "", why).into()
}
