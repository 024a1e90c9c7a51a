//! The attributes of queues: the reserved metadata key of each, its values, and its representation.
//!
//! | attribute | key |
//! |---|---|
//! | `DelaySeconds` | `_default_message_delay` |
//! | `MaximumMessageSize` | `_max_messages_post_size` |
//! | `MessageRetentionPeriod` | `_default_message_ttl` |
//! | `VisibilityTimeout` | `_default_visibility_timeout` |
//! | `ReceiveMessageWaitTimeSeconds` | `_default_receive_wait` |
//! | `RedrivePolicy` | `_dead_letter_queue` and `_max_claim_count` |
//! | `RedriveAllowPolicy`, `Policy` | `_redrive_allow`, `_policy` |
//! | `FifoQueue`, `ContentBasedDeduplication` | `_fifo`, `_content_based_deduplication` |
//! | `DeduplicationScope`, `FifoThroughputLimit` | `_deduplication_scope`, `_fifo_throughput_limit` |
//! | `KmsMasterKeyId`, `KmsDataKeyReusePeriodSeconds`, `SqsManagedSseEnabled` | `_kms_master_key_id`, `_kms_data_key_reuse_period`, `_sqs_managed_sse` |

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::context::Context;
use super::decode::shown;
use super::encode::OperationResult;
use super::fault::{Fault, Kind};
use super::fifo::{self, Fifo, Throughput};
use super::lists::{Names, names};
use super::{encryption, policy, redrive};
use angarium_broker::QueueDescription;
use angarium_core::attributes as keys;
use angarium_core::claim::ClaimWait;
use angarium_core::limits::{self, Limits};
use angarium_core::message::MessageTtl;
use angarium_core::names::QueueRef;
use angarium_core::patch::{Change, Entries};
use angarium_core::queue::Metadata;

/// Attributes by name, as text.
pub type Attributes = BTreeMap<String, String>;

const ALL: &str = "All";
/// The form of boolean attributes, in any case of letters.
pub const TRUTH: &str = "true or false";
const REDRIVE: &str = redrive::NAME;
const REDRIVE_ALLOW: &str = redrive::ALLOW;
const POLICY: &str = "Policy";

/// Attributes that are read-only.
const FIGURES: [&str; 6] = [
    "ApproximateNumberOfMessages",
    "ApproximateNumberOfMessagesNotVisible",
    "ApproximateNumberOfMessagesDelayed",
    "CreatedTimestamp",
    "LastModifiedTimestamp",
    "QueueArn",
];

/// Attributes that can be set.
const SETTABLE: [&str; 11] = [
    "DelaySeconds",
    "MaximumMessageSize",
    "MessageRetentionPeriod",
    "VisibilityTimeout",
    "ReceiveMessageWaitTimeSeconds",
    REDRIVE,
    REDRIVE_ALLOW,
    POLICY,
    encryption::KEY,
    encryption::REUSE,
    encryption::MANAGED,
];

/// Whether queues have an attribute with this name, or the name selects all.
pub fn is_known(name: &str) -> bool {
    [&SETTABLE[..], &FIGURES, &fifo::NAMES, &[ALL]].iter().any(|known| known.contains(&name))
}

/// Returns the error for an unknown attribute.
pub fn unknown(name: &str) -> Fault {
    Fault::new(Kind::InvalidAttributeName, format!("Unknown Attribute {}.", shown(name)))
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct GetQueueAttributes {
    #[serde(default)]
    attribute_names: Option<Names>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct AttributesReply {
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    attributes: BTreeMap<&'static str, String>,
}

/// Returns the requested attributes.
pub async fn get(context: &Context<'_>, asked: GetQueueAttributes) -> Result<OperationResult, Fault> {
    let queue = context.request.subject()?;
    let names = names(asked.attribute_names, "AttributeNames")?;
    if let Some(name) = names.iter().find(|name| !is_known(name)) {
        return Err(unknown(name));
    }
    let found = context.broker.queue_describe(queue).await?.ok_or_else(Fault::no_queue)?;
    let mut attributes = described(context, queue, &found);
    if !names.iter().any(|name| name == ALL) {
        attributes.retain(|name, _| names.iter().any(|asked| asked == name));
    }
    Ok(OperationResult::new(AttributesReply { attributes }))
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct SetQueueAttributes {
    #[serde(default)]
    attributes: Option<Attributes>,
}

/// Sets all given attributes, or none of them.
pub async fn set(context: &Context<'_>, asked: SetQueueAttributes) -> Result<OperationResult, Fault> {
    let queue = context.request.subject()?;
    let attributes = asked.attributes.ok_or_else(|| Fault::missing("Attributes"))?;
    let changes = checked(context, queue, &attributes).await?;
    let metadata = context.broker.queue_metadata(queue).await?.ok_or_else(Fault::no_queue)?;
    fifo::check_throughput(&attributes, &Throughput::of(&metadata))?;
    context.broker.queue_patch_within(queue, changes, Limits::WIDEST).await?;
    Ok(OperationResult::done())
}

/// Returns the changes of a queue's metadata that setting these attributes makes.
pub async fn checked(
    context: &Context<'_>,
    queue: &QueueRef,
    attributes: &Attributes,
) -> Result<Vec<Change>, Fault> {
    let mut changes = Vec::with_capacity(attributes.len());
    let others = encryption::exclusions(attributes)?;
    changes.extend(others.iter().map(|(key, value)| add(key, &json!(value))));
    for (name, value) in attributes {
        if name == REDRIVE {
            let (target, count) = match redrive::policy(context, queue, value).await? {
                Some((target, count)) => (json!(target.as_str()), json!(count)),
                None => (Value::Null, Value::Null),
            };
            changes.push(add(keys::DEAD_LETTER_QUEUE, &target));
            changes.push(add(keys::MAX_CLAIM_COUNT, &count));
        } else if fifo::NAMES.contains(&name.as_str()) {
            let (key, value) = fifo::attribute(Fifo::of(&queue.name), name, value)?;
            changes.push(add(key, &value));
        } else {
            let (key, value) = one(context, name, value)?;
            changes.push(add(key, &value));
        }
    }
    Ok(changes)
}

/// Returns the metadata of a new queue with these changes and tags.
pub fn of_new_queue(
    limits: &Limits,
    changes: Vec<Change>,
    tags: BTreeMap<String, String>,
) -> Result<Metadata, Fault> {
    let mut all = vec![
        add(keys::MESSAGE_TTL, &json!(limits::SQS_RETENTION_DEFAULT)),
        add(keys::MAX_MESSAGE_BYTES, &json!(limits.sqs_message_bytes())),
    ];
    all.extend(changes);
    if !tags.is_empty() {
        all.push(add(keys::TAGS, &json!(tags)));
    }
    all.retain(|change| !matches!(change, Change::Add(_, value) if value.get() == "null"));
    Ok(Metadata::empty().patched(&all, &Limits::WIDEST)?)
}

fn add(key: &str, value: &Value) -> Change {
    let text = RawValue::from_string(value.to_string()).expect("a value is written as JSON");
    Change::Add(key.to_owned(), text)
}

/// Returns the metadata key and the value of one attribute.
fn one(context: &Context<'_>, name: &str, value: &str) -> Result<(&'static str, Value), Fault> {
    let limits = context.broker.limits();
    let number = |bounds: RangeInclusive<u64>| {
        let is_plain = value.bytes().all(|byte| byte.is_ascii_digit());
        let number: Option<u64> = value.parse().ok().filter(|_| is_plain);
        number.filter(|number| bounds.contains(number)).map(|number| json!(number)).ok_or_else(|| {
            let (least, most) = (bounds.start(), bounds.end());
            invalid(name, value, &format!("a whole number from {least} to {most}"))
        })
    };
    let upto = |span: limits::Span| u64::try_from(span.most()).unwrap_or(u64::MAX);
    Ok(match name {
        "DelaySeconds" => (keys::MESSAGE_DELAY, number(0..=upto(limits.message_delay))?),
        "MaximumMessageSize" => {
            let bounds = limits::SQS_MESSAGE_BYTES_MIN as u64..=limits.message_bytes as u64;
            (keys::MAX_MESSAGE_BYTES, number(bounds)?)
        }
        "MessageRetentionPeriod" => {
            let (least, _) = limits::MESSAGE_TTL;
            (keys::MESSAGE_TTL, number(least.into()..=upto(limits.message_ttl))?)
        }
        "VisibilityTimeout" => {
            let (least, most) = limits::VISIBILITY;
            (keys::VISIBILITY, number(least.into()..=most.into())?)
        }
        "ReceiveMessageWaitTimeSeconds" => {
            let (least, most) = limits::CLAIM_WAIT;
            (keys::RECEIVE_WAIT, number(least.into()..=most.into())?)
        }
        REDRIVE_ALLOW => (keys::REDRIVE_ALLOW, redrive::allow_policy(value)?),
        POLICY => (keys::POLICY, policy(value)?),
        encryption::KEY if value.is_empty() => (keys::KMS_KEY, Value::Null),
        encryption::KEY => (keys::KMS_KEY, json!(value)),
        encryption::REUSE => {
            let (least, most) = limits::SQS_KEY_REUSE;
            let seconds = number(least.into()..=most.into())?;
            let is_default = value.trim() == encryption::REUSE_DEFAULT;
            (keys::KMS_REUSE, if is_default { Value::Null } else { seconds })
        }
        encryption::MANAGED => {
            let is_on = encryption::is_true(value).ok_or_else(|| invalid(name, value, TRUTH))?;
            (keys::MANAGED_SSE, json!(is_on))
        }
        _ => return Err(unknown(name)),
    })
}

/// Returns the error for a value that does not have the required form.
pub fn invalid(name: &str, value: &str, form: &str) -> Fault {
    refused(name, &format!("{:?} is not {form}", shown(value)))
}

/// Returns the error for a refused attribute value, with a message that programs can parse.
pub fn refused(name: &str, why: &str) -> Fault {
    let why = format!("Invalid value for the parameter {}. Reason: {why}.", shown(name));
    Fault::new(Kind::InvalidAttributeValue, why)
}

/// Returns the error for a policy that cannot be evaluated as written.
pub fn unusable_policy(why: &str) -> Fault {
    refused(POLICY, &why.chars().take(400).collect::<String>())
}

fn policy(value: &str) -> Result<Value, Fault> {
    if value.is_empty() {
        return Ok(Value::Null);
    }
    if value.len() > limits::SQS_POLICY_BYTES {
        return Err(unusable_policy(&format!("it has more than {} bytes", limits::SQS_POLICY_BYTES)));
    }
    policy::check(value).map_err(|why| unusable_policy(&why))
}

/// Returns all attributes of a queue, with the defaults of SQS for absent ones.
pub fn described(
    context: &Context<'_>,
    queue: &QueueRef,
    found: &QueueDescription,
) -> BTreeMap<&'static str, String> {
    let (own, attributes) = (found.metadata.own(), found.metadata.attributes());
    let limits = context.broker.limits();
    let seconds = |instant: angarium_core::time::Timestamp| (instant.as_millis() / 1_000).to_string();
    let ttl = attributes.message_ttl.map_or(limits.message_ttl.default_value(), MessageTtl::seconds);
    let delay = attributes.message_delay.unwrap_or(limits.message_delay.default_value());
    let wait = attributes.receive_wait.map_or(0, ClaimWait::seconds);
    let mut shown = BTreeMap::from([
        ("ApproximateNumberOfMessages", found.ready.to_string()),
        ("ApproximateNumberOfMessagesNotVisible", found.claimed.to_string()),
        ("ApproximateNumberOfMessagesDelayed", found.delayed.to_string()),
        ("CreatedTimestamp", seconds(found.created)),
        ("LastModifiedTimestamp", seconds(found.modified)),
        ("QueueArn", context.places.arn(queue)),
        ("DelaySeconds", delay.to_string()),
        ("MaximumMessageSize", attributes.message_bytes(limits).to_string()),
        ("MessageRetentionPeriod", ttl.to_string()),
        ("VisibilityTimeout", attributes.visibility.unwrap_or_default().seconds().to_string()),
        ("ReceiveMessageWaitTimeSeconds", wait.to_string()),
    ]);
    if let Some((target, most)) = attributes.dead_letters() {
        let target = QueueRef { project: queue.project.clone(), name: target.clone() };
        let policy = json!({"deadLetterTargetArn": context.places.arn(&target), "maxReceiveCount": most});
        shown.insert(REDRIVE, policy.to_string());
    }
    fifo::show(attributes, &own, &mut shown);
    let kept = [
        (REDRIVE_ALLOW, keys::REDRIVE_ALLOW),
        (POLICY, keys::POLICY),
        (encryption::KEY, keys::KMS_KEY),
        (encryption::REUSE, keys::KMS_REUSE),
        (encryption::MANAGED, keys::MANAGED_SSE),
    ];
    shown.extend(kept.into_iter().filter_map(|(name, key)| Some((name, text_of(&own, key)?))));
    encryption::complete(&mut shown);
    shown
}

/// Returns the value of a key as an attribute: a string without quotes, or any other value as JSON.
fn text_of(own: &Entries, key: &str) -> Option<String> {
    let value = own.get(key).map(|value| value.get()).filter(|value| *value != "null")?;
    Some(serde_json::from_str::<String>(value).unwrap_or_else(|_| value.to_owned()))
}

/// Whether an attribute of an existing queue equals the value in a request to create it.
pub fn is_same(name: &str, there: &str, asked: &str) -> bool {
    let json = |text: &str| serde_json::from_str::<Value>(text).ok();
    match name {
        REDRIVE => redrive::is_same(there, asked),
        POLICY | REDRIVE_ALLOW => json(there) == json(asked),
        encryption::REUSE if there.is_empty() => asked.trim() == encryption::REUSE_DEFAULT,
        _ => there.eq_ignore_ascii_case(asked.trim()),
    }
}
