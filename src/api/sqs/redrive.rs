//! Dead letters: which queue takes those of another, which queues may ask it to, and whose it takes.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::arguments::Whole;
use super::context::Context;
use super::encode::Answer;
use super::fault::Fault;
use super::fifo::Fifo;
use super::queue_attributes::invalid;
use super::queues::{filter, urls};
use crate::broker::QueueFilter;
use crate::domain::attributes as keys;
use crate::domain::limits;
use crate::domain::names::{QueueName, QueueRef};

const NAME: &str = "RedrivePolicy";
const ALLOW: &str = "RedriveAllowPolicy";

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Policy {
    dead_letter_target_arn: String,
    max_receive_count: Whole,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct AllowPolicy {
    redrive_permission: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    source_queue_arns: Vec<String>,
}

/// The queue that a policy names, and how often a message may be received; none when the policy takes both away. That
/// queue must exist, be of the same account and region, and allow it.
pub async fn policy(
    context: &Context<'_>,
    queue: &QueueRef,
    value: &str,
) -> Result<Option<(QueueName, u32)>, Fault> {
    if value.is_empty() {
        return Ok(None);
    }
    let wrong =
        |why: &str| Fault::value(format!("Value {value} for parameter {NAME} is invalid. Reason: {why}."));
    let policy: Policy = serde_json::from_str(value)
        .map_err(|_| wrong("It is a JSON object with deadLetterTargetArn and maxReceiveCount"))?;
    let (least, most) = limits::SQS_RECEIVES;
    let count = u32::try_from(policy.max_receive_count.0).ok().filter(|count| (least..=most).contains(count));
    let count = count.ok_or_else(|| wrong("maxReceiveCount is 1 to 1000"))?;
    let target = context.places.of_arn(&policy.dead_letter_target_arn);
    let target = target.ok_or_else(|| wrong("deadLetterTargetArn is not the ARN of a queue"))?;
    if target.project != queue.project {
        return Err(wrong("Both queues must be of one account and region"));
    }
    if target == *queue {
        return Err(wrong("A queue cannot take its own dead letters"));
    }
    if Fifo::of(&target.name) != Fifo::of(&queue.name) {
        return Err(wrong("Both queues must be FIFO queues, or both standard queues"));
    }
    let Some(metadata) = context.broker.queue_metadata_anywhere(&target).await? else {
        return Err(wrong("Dead letter target does not exist"));
    };
    let allow =
        metadata.own().get(keys::REDRIVE_ALLOW).and_then(|allow| serde_json::from_str(allow.get()).ok());
    if !is_allowed(allow.as_ref(), &context.places.arn(queue)) {
        return Err(wrong("The dead letter target does not allow this source queue"));
    }
    Ok(Some((target.name, count)))
}

fn is_allowed(allow: Option<&AllowPolicy>, source: &str) -> bool {
    match allow.map(|allow| (allow.redrive_permission.as_str(), &allow.source_queue_arns)) {
        Some(("denyAll", _)) => false,
        Some(("byQueue", sources)) => sources.iter().any(|arn| arn == source),
        Some(_) | None => true,
    }
}

/// Checks which queues may name this one for their dead letters.
pub fn allow_policy(context: &Context<'_>, value: &str) -> Result<Value, Fault> {
    if value.is_empty() {
        return Ok(Value::Null);
    }
    let wrong = || invalid(ALLOW, value);
    let allow: AllowPolicy = serde_json::from_str(value).map_err(|_| wrong())?;
    let sources = &allow.source_queue_arns;
    let is_lawful = match allow.redrive_permission.as_str() {
        "allowAll" | "denyAll" => sources.is_empty(),
        "byQueue" => (1..=limits::SQS_SOURCES).contains(&sources.len()),
        _ => false,
    };
    if !is_lawful || sources.iter().any(|arn| context.places.of_arn(arn).is_none()) {
        return Err(wrong());
    }
    Ok(json!(allow))
}

/// Whether two policies say the same: the number may be written as text.
pub fn is_same(there: &str, asked: &str) -> bool {
    let read = |text: &str| {
        let policy: Policy = serde_json::from_str(text).ok()?;
        Some((policy.dead_letter_target_arn, policy.max_receive_count))
    };
    read(there) == read(asked)
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct ListSources {
    queue_url: Option<String>,
    max_results: Option<Whole>,
    next_token: Option<String>,
}

#[derive(Debug, Serialize)]
struct Sources {
    #[serde(rename = "queueUrls")]
    queue_urls: Vec<String>,
    #[serde(rename = "NextToken", skip_serializing_if = "Option::is_none")]
    next_token: Option<String>,
}

/// The queues whose dead letters a queue takes.
pub async fn sources(context: &Context<'_>, asked: ListSources) -> Result<Answer, Fault> {
    let queue = context.queue(asked.queue_url)?;
    context.broker.queue_metadata(&queue).await?.ok_or_else(Fault::no_queue)?;
    let (filter, is_paged) = filter(asked.max_results, asked.next_token)?;
    let metadata = vec![(keys::DEAD_LETTER_QUEUE.to_owned(), queue.name.to_string())];
    let (queue_urls, next) = urls(context, QueueFilter { metadata, ..filter }).await?;
    Ok(Answer::new(Sources { queue_urls, next_token: next.filter(|_| is_paged) }))
}
