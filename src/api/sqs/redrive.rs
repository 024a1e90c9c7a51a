//! Dead letters: the target queue of a redrive policy, its permission, and the list of its source queues.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::arguments::WholeNumber;
use super::context::Context;
use super::decode::shown;
use super::encode::OperationResult;
use super::fault::Fault;
use super::fifo::Fifo;
use super::queue_attributes::refused;
use super::queues::{filter, urls};
use super::resolution::Part;
use angarium_broker::QueueFilter;
use angarium_core::attributes as keys;
use angarium_core::limits;
use angarium_core::names::{QueueName, QueueRef};

/// The attribute with the dead-letter target of a queue.
pub const NAME: &str = "RedrivePolicy";
/// The attribute with the queues whose dead letters a queue accepts.
pub const ALLOW: &str = "RedriveAllowPolicy";

/// The reason of AWS for a target that is no queue.
pub const NO_ARN: &str = "Dead-letter target ARN should be fully qualified ARN";
/// The keys of a redrive policy.
const TARGET: &str = "deadLetterTargetArn";
const COUNT: &str = "maxReceiveCount";

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Policy {
    dead_letter_target_arn: String,
    max_receive_count: WholeNumber,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct AllowPolicy {
    redrive_permission: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    source_queue_arns: Vec<String>,
}

/// Returns the error for an invalid redrive policy.
pub fn wrong(value: &str, why: &str) -> Fault {
    Fault::parameter(NAME, value, why)
}

fn read(value: &str) -> Result<Policy, Fault> {
    let no_map = |_: serde_json::Error| wrong(value, "Redrive policy is not a valid JSON map");
    let members: BTreeMap<String, Value> = serde_json::from_str(value).map_err(no_map)?;
    for key in [COUNT, TARGET] {
        if !members.contains_key(key) {
            let why = format!("Redrive policy does not contain mandatory attribute: {key}");
            return Err(wrong(value, &why));
        }
    }
    if members.keys().any(|key| ![COUNT, TARGET].contains(&key.as_str())) {
        let why = format!("Only following attributes are supported: [{COUNT}, {TARGET}]");
        return Err(wrong(value, &why));
    }
    serde_json::from_str(value).map_err(|error| {
        match serde_json::from_value::<WholeNumber>(members[COUNT].clone()) {
            Err(_) => wrong_count(value, &members[COUNT]),
            Ok(_) if !members[TARGET].is_string() => wrong(value, NO_ARN),
            Ok(_) => no_map(error),
        }
    })
}

/// Returns the error for a receive count outside its bounds.
fn wrong_count(policy: &str, count: impl fmt::Display) -> Fault {
    let (least, most) = limits::SQS_RECEIVES;
    let why =
        format!("Invalid value for {COUNT}: {count}, valid values are from {least} to {most} both inclusive");
    wrong(policy, &why)
}

/// Returns the target ARN of a policy.
pub fn target(value: &str) -> Result<String, Fault> {
    read(value).map(|policy| policy.dead_letter_target_arn)
}

/// Returns the target queue and the receive count of a requested policy; none when the policy is removed. The target
/// must exist and allow this queue.
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
    let WholeNumber(asked) = read(value)?.max_receive_count;
    let count = u32::try_from(asked).ok().filter(|count| (least..=most).contains(count));
    let count = count.ok_or_else(|| wrong_count(value, asked))?;
    if target == queue {
        return Err(wrong("A queue cannot take its own dead letters"));
    }
    if Fifo::of(&target.name) != Fifo::of(&queue.name) {
        return Err(wrong("Dead-letter queue must be same type of queue as the source"));
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

/// Returns the ARNs of the source queues in an allow policy.
pub fn sources_of(value: &str) -> Result<Vec<String>, Fault> {
    let allow: AllowPolicy = serde_json::from_str(value).map_err(|_| refused(ALLOW, UNSUPPORTED))?;
    Ok(allow.source_queue_arns)
}

/// Checks an allow policy, which states the queues that may use this one for their dead letters. The request has
/// resolved their names.
pub fn allow_policy(value: &str) -> Result<Value, Fault> {
    if value.is_empty() {
        return Ok(Value::Null);
    }
    match lawful_allow(value) {
        Ok(allow) => Ok(json!(allow)),
        Err(Misfit::Sources(why)) => Err(not_created(value, &why)),
        Err(Misfit::Form(_)) => Err(refused(ALLOW, UNSUPPORTED)),
    }
}

/// Returns the error for an allow policy with a queue of another account or region.
pub fn wrong_source(value: &str, arn: &str) -> Fault {
    let why = format!("{:?} is no ARN of a queue of the same account and region", shown(arn));
    not_created(value, &why)
}

fn not_created(value: &str, why: &str) -> Fault {
    Fault::parameter(ALLOW, value, &format!("Amazon SQS can't create the redrive allow policy. {why}"))
}

/// The reason for refusing an allow policy.
enum Misfit {
    /// It is not JSON of the required form.
    Form(String),
    /// Its list of queues does not fit its permission.
    Sources(String),
}

/// The reason of AWS for an allow policy that it cannot parse.
const UNSUPPORTED: &str =
    "Amazon SQS can't create the redrive allow policy, as it’s in an unsupported format";

fn lawful_allow(value: &str) -> Result<AllowPolicy, Misfit> {
    let allow: AllowPolicy = serde_json::from_str(value).map_err(|error| Misfit::Form(error.to_string()))?;
    let sources = |why: &str| Err(Misfit::Sources(why.to_owned()));
    match (allow.redrive_permission.as_str(), allow.source_queue_arns.len()) {
        ("allowAll" | "denyAll", 0) => Ok(allow),
        ("byQueue", 1..=limits::SQS_SOURCES) => Ok(allow),
        ("allowAll" | "denyAll", _) => sources(
            "To specify one or more source queue ARNs (sourceQueueArns), you must set redrivePermission to byQueue",
        ),
        ("byQueue", 0) => sources(
            "When you specify the byQueue permission type, you must also specify one or more sourceQueueArns values",
        ),
        ("byQueue", _) => {
            let most = limits::SQS_SOURCES;
            sources(&format!("The maximum number of source queue ARNs you can specify is {most}"))
        }
        _ => Err(Misfit::Form("redrivePermission is allowAll, denyAll or byQueue".to_owned())),
    }
}

/// Checks an allow policy that was not set through SQS, so that its ARNs are not resolved.
///
/// # Errors
///
/// The reason, as text.
pub fn check_allow(value: &str) -> Result<(), String> {
    let is_arn = |arn: &str| {
        let parts: Vec<&str> = arn.split(':').collect();
        let [arn, partition, "sqs", region, account, name] = parts[..] else { return false };
        let is_named = [region, account].iter().all(|part| !part.is_empty());
        arn == "arn" && partition.starts_with("aws") && is_named && QueueName::new(name).is_ok()
    };
    let told = |(Misfit::Form(why) | Misfit::Sources(why))| why;
    match lawful_allow(value).map_err(told)?.source_queue_arns.iter().find(|arn| !is_arn(arn)) {
        Some(wrong) => Err(format!("{:?} is no ARN of a queue", shown(wrong))),
        None => Ok(()),
    }
}

/// Whether two policies are equal; the count may be a number or text.
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
    max_results: Option<WholeNumber>,
    next_token: Option<String>,
}

#[derive(Debug, Serialize)]
struct Sources {
    #[serde(rename = "queueUrls")]
    queue_urls: Vec<String>,
    #[serde(rename = "NextToken", skip_serializing_if = "Option::is_none")]
    next_token: Option<String>,
}

/// Lists the queues whose dead letters a queue receives.
pub async fn sources(context: &Context<'_>, asked: ListSources) -> Result<OperationResult, Fault> {
    let queue = context.request.subject()?;
    context.broker.queue_metadata(queue).await?.ok_or_else(Fault::no_queue)?;
    let (filter, is_paged) = filter(context, asked.max_results, asked.next_token)?;
    let metadata = vec![(keys::DEAD_LETTER_QUEUE.to_owned(), queue.name.as_str().to_owned())];
    let (queue_urls, next) = urls(context, &queue.project, QueueFilter { metadata, ..filter }).await?;
    Ok(OperationResult::new(Sources { queue_urls, next_token: next.filter(|_| is_paged) }))
}
