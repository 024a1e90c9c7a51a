//! Dead letters: which queue takes those of another, which queues may ask it to, and whose it takes.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::arguments::Whole;
use super::context::Context;
use super::decode::shown;
use super::encode::Answer;
use super::fault::Fault;
use super::fifo::Fifo;
use super::queue_attributes::invalid;
use super::queues::{filter, urls};
use super::resolution::Part;
use crate::broker::QueueFilter;
use crate::domain::attributes as keys;
use crate::domain::limits;
use crate::domain::names::{QueueName, QueueRef};

/// The attribute that names what takes the dead letters of a queue.
pub const NAME: &str = "RedrivePolicy";
/// The attribute that says whose dead letters a queue takes.
pub const ALLOW: &str = "RedriveAllowPolicy";

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
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

/// A redrive policy does not say what it must.
pub fn wrong(value: &str, why: &str) -> Fault {
    Fault::parameter(NAME, value, why)
}

fn read(value: &str) -> Result<Policy, Fault> {
    let why = "It is a JSON object with deadLetterTargetArn and maxReceiveCount, and no other key";
    serde_json::from_str(value).map_err(|_| wrong(value, why))
}

/// The ARN that a policy names.
pub fn target(value: &str) -> Result<String, Fault> {
    read(value).map(|policy| policy.dead_letter_target_arn)
}

/// The queue that the policy of a request names, and how often a message may be received; none when it takes both away. That
/// queue must exist and allow it.
pub async fn policy(
    context: &Context<'_>,
    queue: &QueueRef,
    value: &str,
) -> Result<Option<(QueueName, u32)>, Fault> {
    let Some(target) = context.request.queue(Part::DeadLetters).filter(|_| !value.is_empty()) else {
        return Ok(None);
    };
    let wrong = |why: &str| wrong(value, why);
    let (least, most) = limits::SQS_RECEIVES;
    let count = u32::try_from(read(value)?.max_receive_count.0).ok();
    let count = count.filter(|count| (least..=most).contains(count));
    let count = count.ok_or_else(|| wrong("maxReceiveCount is 1 to 1000"))?;
    if target == queue {
        return Err(wrong("A queue cannot take its own dead letters"));
    }
    if Fifo::of(&target.name) != Fifo::of(&queue.name) {
        return Err(wrong("Both queues must be FIFO queues, or both standard queues"));
    }
    let Some(metadata) = context.broker.queue_metadata_anywhere(target).await? else {
        return Err(wrong("Dead letter target does not exist"));
    };
    let allow =
        metadata.own().get(keys::REDRIVE_ALLOW).and_then(|allow| serde_json::from_str(allow.get()).ok());
    if !is_allowed(allow.as_ref(), &context.places.arn(queue)) {
        return Err(wrong("The dead letter target does not allow this source queue"));
    }
    Ok(Some((target.name.clone(), count)))
}

fn is_allowed(allow: Option<&AllowPolicy>, source: &str) -> bool {
    match allow.map(|allow| (allow.redrive_permission.as_str(), &allow.source_queue_arns)) {
        Some(("denyAll", _)) => false,
        Some(("byQueue", sources)) => sources.iter().any(|arn| arn == source),
        Some(_) | None => true,
    }
}

/// The ARNs of the queues that an allow policy names.
pub fn sources_of(value: &str) -> Result<Vec<String>, Fault> {
    let allow: AllowPolicy = serde_json::from_str(value).map_err(|_| invalid(ALLOW, value))?;
    Ok(allow.source_queue_arns)
}

/// Checks which queues may name this one for their dead letters; their names are those of the request.
pub fn allow_policy(value: &str) -> Result<Value, Fault> {
    if value.is_empty() {
        return Ok(Value::Null);
    }
    lawful_allow(value).map(|allow| json!(allow)).map_err(|_| invalid(ALLOW, value))
}

fn lawful_allow(value: &str) -> Result<AllowPolicy, String> {
    let allow: AllowPolicy = serde_json::from_str(value).map_err(|error| error.to_string())?;
    let sources = allow.source_queue_arns.len();
    match allow.redrive_permission.as_str() {
        "allowAll" | "denyAll" if sources == 0 => Ok(allow),
        "byQueue" if (1..=limits::SQS_SOURCES).contains(&sources) => Ok(allow),
        "allowAll" | "denyAll" => Err("sourceQueueArns goes with the redrivePermission byQueue".to_owned()),
        "byQueue" => Err(format!("sourceQueueArns names 1 to {} queues, not {sources}", limits::SQS_SOURCES)),
        _ => Err("redrivePermission is allowAll, denyAll or byQueue".to_owned()),
    }
}

/// Checks an allow policy that does not come with a request of SQS, whose ARNs nothing has resolved.
///
/// # Errors
///
/// What is wrong with it.
pub fn check_allow(value: &str) -> Result<(), String> {
    let is_arn = |arn: &str| {
        let parts: Vec<&str> = arn.split(':').collect();
        let [arn, partition, "sqs", region, account, name] = parts[..] else { return false };
        let is_named = [region, account].iter().all(|part| !part.is_empty());
        arn == "arn" && partition.starts_with("aws") && is_named && QueueName::new(name).is_ok()
    };
    match lawful_allow(value)?.source_queue_arns.iter().find(|arn| !is_arn(arn)) {
        Some(wrong) => Err(format!("{:?} is no ARN of a queue", shown(wrong))),
        None => Ok(()),
    }
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
    let queue = context.request.subject()?;
    context.broker.queue_metadata(queue).await?.ok_or_else(Fault::no_queue)?;
    let (filter, is_paged) = filter(context, asked.max_results, asked.next_token)?;
    let metadata = vec![(keys::DEAD_LETTER_QUEUE.to_owned(), queue.name.to_string())];
    let (queue_urls, next) = urls(context, &queue.project, QueueFilter { metadata, ..filter }).await?;
    Ok(Answer::new(Sources { queue_urls, next_token: next.filter(|_| is_paged) }))
}
