//! Queues: create, find, list, purge, delete.

use serde::{Deserialize, Serialize};

use super::arguments::{WholeNumber, within};
use super::context::Context;
use super::encode::OperationResult;
use super::fault::{Fault, Kind, capitalized};
use super::queue_attributes::{self, Attributes};
use super::tags;
use super::{fifo, page_token};
use angarium_broker::QueueFilter;
use angarium_core::error::Error;
use angarium_core::limits::{self, Span};
use angarium_core::names::{ProjectId, QueueKind, QueueName, QueueRef};
use angarium_core::page::PageLimit;
use angarium_core::queue::CreateResult;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct CreateQueue {
    #[serde(default)]
    attributes: Option<Attributes>,
    #[serde(default, alias = "tags")]
    tags: Option<tags::TagsInput>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct QueueUrl {
    queue_url: String,
}

/// Creates a queue. If it exists, the attributes and tags of the request must match.
pub async fn create(context: &Context<'_>, asked: CreateQueue) -> Result<OperationResult, Fault> {
    let queue = context.request.subject()?;
    let (attributes, tags) = (asked.attributes.unwrap_or_default(), tags::asked(asked.tags)?);
    context.pauses.check_creation(context.broker, queue).await?;
    fifo::check_new(&queue.name, &attributes)?;
    let changes = queue_attributes::checked(context, queue, &attributes).await?;
    let metadata = queue_attributes::of_new_queue(context.broker.limits(), changes, tags::checked(tags)?)?;
    match context.broker.queue_create(queue, metadata).await {
        Ok(CreateResult::New) => {}
        Ok(CreateResult::Existed) => check_same(context, queue, &attributes).await?,
        // A topic has the name.
        Err(Error::Conflict(why)) => return Err(Fault::new(Kind::QueueNameExists, capitalized(&why))),
        Err(error) => return Err(error.into()),
    }
    Ok(OperationResult::new(QueueUrl { queue_url: context.url(queue) }))
}

async fn check_same(context: &Context<'_>, queue: &QueueRef, asked: &Attributes) -> Result<(), Fault> {
    let found = context.broker.queue_describe(queue).await?.ok_or_else(Fault::no_queue)?;
    let shown = queue_attributes::described(context, queue, &found);
    let differs = |(name, value): &(&String, &String)| {
        let there = shown.get(name.as_str()).map(String::as_str).unwrap_or_default();
        !queue_attributes::is_same(name, there, value)
    };
    match asked.iter().find(differs) {
        Some((name, _)) => {
            let why = format!(
                "A queue already exists with the same name and a different value for attribute {name}"
            );
            Err(Fault::new(Kind::QueueNameExists, why))
        }
        None => Ok(()),
    }
}

/// Returns the URL of an existing queue.
pub async fn url(context: &Context<'_>) -> Result<OperationResult, Fault> {
    let queue = context.request.subject()?;
    context.broker.queue_metadata(queue).await?.ok_or_else(Fault::no_queue)?;
    Ok(OperationResult::new(QueueUrl { queue_url: context.url(queue) }))
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct ListQueues {
    queue_name_prefix: Option<String>,
    max_results: Option<WholeNumber>,
    next_token: Option<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct QueueUrls {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    queue_urls: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_token: Option<String>,
}

/// Lists a page of the queues of the account, by name.
pub async fn list(context: &Context<'_>, asked: ListQueues) -> Result<OperationResult, Fault> {
    let (filter, is_paged) = filter(context, asked.max_results, asked.next_token)?;
    let prefix = asked.queue_name_prefix.filter(|prefix| !prefix.is_empty());
    let (urls, next) = urls(context, &context.request.project, QueueFilter { prefix, ..filter }).await?;
    Ok(OperationResult::new(QueueUrls { queue_urls: urls, next_token: next.filter(|_| is_paged) }))
}

/// Returns the requested page of a listing, and whether the answer has a token for the next one: only if the client
/// limits the page.
pub fn filter(
    context: &Context<'_>,
    most: Option<WholeNumber>,
    token: Option<String>,
) -> Result<(QueueFilter, bool), Fault> {
    let page = u32::try_from(limits::SQS_PAGE).unwrap_or(u32::MAX);
    let asked = within("MaxResults", most, 1..=page.into())?;
    let span = Span::new(1, page, page).ok_or_else(Fault::no_queue)?;
    let token = token.filter(|token| !token.is_empty());
    let filter = QueueFilter {
        kind: QueueKind::Queue,
        after: token.map(|token| page_token::open(context, &token)).transpose()?,
        limit: PageLimit::new(asked, span)?,
        name_part: None,
        prefix: None,
        metadata: Vec::new(),
        is_detailed: false,
        is_counted: false,
        has_counts: false,
    };
    Ok((filter, asked.is_some()))
}

/// Returns the queue URLs of a page of a project, and the token of the next page if there may be one. The broker bounds
/// its work for one page and may return fewer queues; this function then reads on, because in SQS only the last page
/// may be empty.
pub async fn urls(
    context: &Context<'_>,
    project: &ProjectId,
    mut filter: QueueFilter,
) -> Result<(Vec<String>, Option<String>), Fault> {
    let most = filter.limit.get();
    let mut names: Vec<QueueName> = Vec::new();
    loop {
        let page = context.broker.queues_list(project, &filter).await?;
        names.extend(page.queues.into_iter().map(|queue| queue.name));
        if names.len() >= most || page.next.is_none() {
            break;
        }
        filter.after = page.next.map(|next| next.to_string());
    }
    names.truncate(most);
    let next =
        names.last().filter(|_| names.len() == most).map(|last| page_token::seal(context, last.as_str()));
    let url = |name| context.url(&QueueRef { project: project.clone(), name });
    Ok((names.into_iter().map(url).collect(), next))
}

/// Purges an existing queue.
pub async fn purge(context: &Context<'_>) -> Result<OperationResult, Fault> {
    let queue = context.request.subject()?;
    context.broker.queue_metadata(queue).await?.ok_or_else(Fault::no_queue)?;
    context.pauses.begin_purge(context.broker, queue).await?;
    context.broker.queue_purge(queue).await?;
    Ok(OperationResult::done())
}

/// Deletes an existing queue.
pub async fn delete(context: &Context<'_>) -> Result<OperationResult, Fault> {
    let queue = context.request.subject()?;
    context.broker.queue_metadata(queue).await?.ok_or_else(Fault::no_queue)?;
    context.pauses.begin_deletion(context.broker, queue).await?;
    context.broker.queue_delete(queue).await?;
    Ok(OperationResult::done())
}
