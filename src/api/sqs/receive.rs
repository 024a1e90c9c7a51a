//! Receiving of messages.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::arguments::{WholeNumber, token, within};
use super::context::Context;
use super::decode::Dialect;
use super::encode::OperationResult;
use super::fault::{Fault, OTHER_TYPE};
use super::fifo::Fifo;
use super::lists::{Names, names};
use super::message_attributes::{self, AttributeEntry, is_wanted, md5_of};
use super::{queue_attributes, xml};
use angarium_broker::{MessageView, Receive};
use angarium_core::claim::{ClaimLimit, ClaimWait, Visibility};
use angarium_core::group::{AttemptId, DedupId};
use angarium_core::ids::MessageId;
use angarium_core::limits::{self, Limits};
use angarium_core::message_attribute::MessageAttributes;
use angarium_core::names::QueueRef;

const ALL: &str = "All";
/// The system attributes of messages.
const SYSTEM: [&str; 9] = [
    "ApproximateFirstReceiveTimestamp",
    "ApproximateReceiveCount",
    "AWSTraceHeader",
    "DeadLetterQueueSourceArn",
    "MessageDeduplicationId",
    "MessageGroupId",
    "SenderId",
    "SentTimestamp",
    "SequenceNumber",
];
const ATTEMPT: &str = "ReceiveRequestAttemptId";

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct ReceiveMessage {
    max_number_of_messages: Option<WholeNumber>,
    visibility_timeout: Option<WholeNumber>,
    wait_time_seconds: Option<WholeNumber>,
    receive_request_attempt_id: Option<String>,
    #[serde(default)]
    attribute_names: Option<Names>,
    #[serde(default)]
    message_system_attribute_names: Option<Names>,
    #[serde(default)]
    message_attribute_names: Option<Names>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct Messages {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    messages: Vec<Message>,
}

#[derive(Debug, Serialize)]
struct Message {
    #[serde(rename = "MessageId")]
    message_id: MessageId,
    #[serde(rename = "ReceiptHandle")]
    receipt_handle: String,
    #[serde(rename = "MD5OfBody")]
    md5_of_body: String,
    #[serde(rename = "Body")]
    body: String,
    #[serde(rename = "Attributes", skip_serializing_if = "BTreeMap::is_empty")]
    attributes: BTreeMap<&'static str, String>,
    #[serde(rename = "MD5OfMessageAttributes", skip_serializing_if = "Option::is_none")]
    md5_of_attributes: Option<String>,
    #[serde(rename = "MessageAttributes", skip_serializing_if = "BTreeMap::is_empty")]
    message_attributes: BTreeMap<String, AttributeEntry>,
}

/// The attributes of messages that a receive returns.
struct AttributeSelection {
    system: Vec<String>,
    own: Vec<String>,
}

/// Receives messages. Waits for the first one as long as the request, or else the queue, prescribes.
pub async fn receive(context: &Context<'_>, asked: ReceiveMessage) -> Result<OperationResult, Fault> {
    let queue = context.request.subject()?;
    let most = i64::try_from(context.most.batch).unwrap_or(i64::MAX);
    let count = within("MaxNumberOfMessages", asked.max_number_of_messages, 1..=most)?.unwrap_or(1);
    let (least, most) = limits::VISIBILITY;
    let visibility = within("VisibilityTimeout", asked.visibility_timeout, least.into()..=most.into())?;
    let (least, most) = limits::CLAIM_WAIT;
    let wait = within("WaitTimeSeconds", asked.wait_time_seconds, least.into()..=most.into())?;
    let receive = Receive {
        limit: ClaimLimit::new(Some(count), &Limits::WIDEST)?,
        visibility: visibility.map(|asked| Visibility::new(asked, "VisibilityTimeout")).transpose()?,
        wait: wait.map(|asked| ClaimWait::named(asked, "WaitTimeSeconds")).transpose()?,
        waited: context.waited,
        in_flight: context.most.in_flight,
        attempt: asked.receive_request_attempt_id.map(|id| attempt(queue, &id)).transpose()?,
    };
    let older = names(asked.attribute_names, "AttributeNames")?;
    let newer = names(asked.message_system_attribute_names, "MessageSystemAttributeNames")?;
    let own = names(asked.message_attribute_names, "MessageAttributeNames")?;
    let wanted = AttributeSelection { system: system_names(older, newer)?, own };
    let Some(received) = context.broker.receive(queue, receive).await? else {
        return Ok(OperationResult::new(Messages { messages: Vec::new() }));
    };
    let message = |(view, handle)| Message::new(context, queue, &wanted, view, handle);
    let messages = received.messages.into_iter().map(message).collect();
    Ok(OperationResult::new(Messages { messages }).deliver(received.delivery_guard))
}

/// Returns the id by which a repeated receive is recognized; only FIFO queues accept one.
fn attempt(queue: &QueueRef, id: &str) -> Result<AttemptId, Fault> {
    match Fifo::of(&queue.name) {
        Fifo::Yes => token(ATTEMPT, id, |text| AttemptId::new(text, ATTEMPT)),
        Fifo::No => Err(Fault::parameter(ATTEMPT, id, OTHER_TYPE)),
    }
}

/// Returns the system attributes that a receive selects by the older or the newer parameter. The older one may also
/// name attributes of queues, as in the model of AWS; messages have none of these.
fn system_names(older: Vec<String>, newer: Vec<String>) -> Result<Vec<String>, Fault> {
    let is_known = |name: &str| name == ALL || SYSTEM.contains(&name);
    let mut unknown = older.iter().filter(|name| !is_known(name) && !queue_attributes::is_known(name));
    if let Some(unknown) = unknown.next().or_else(|| newer.iter().find(|name| !is_known(name))) {
        return Err(queue_attributes::unknown(unknown));
    }
    Ok([older, newer].concat())
}

impl Message {
    fn new(
        context: &Context<'_>,
        queue: &QueueRef,
        wanted: &AttributeSelection,
        view: MessageView,
        receipt_handle: String,
    ) -> Self {
        let own = view.envelope.as_deref().map(|envelope| &envelope.attributes);
        let own = own
            .map_or_else(MessageAttributes::default, |own| own.filtered(|name| is_wanted(&wanted.own, name)));
        let attributes = system_attributes(context, queue, wanted, &view);
        let body = delivered(body(&view.body), context.dialect);
        Self {
            message_id: view.id,
            receipt_handle,
            md5_of_body: md5_of(body.as_bytes()),
            body,
            attributes,
            md5_of_attributes: message_attributes::md5(&own),
            message_attributes: own
                .iter()
                .map(|(name, attribute)| (name.clone(), attribute.into()))
                .collect(),
        }
    }
}

/// Returns a stored body as text. SQS stores a JSON string; REST may store any JSON, which is returned as its text.
fn body(kept: &[u8]) -> String {
    match kept.first() {
        Some(b'"') => serde_json::from_slice(kept).ok(),
        _ => None,
    }
    .unwrap_or_else(|| String::from_utf8_lossy(kept).into_owned())
}

/// Returns a body as an answer of this dialect has it. Its MD5 is computed from this text.
fn delivered(body: String, dialect: Dialect) -> String {
    match dialect {
        Dialect::Query => xml::representable(body),
        Dialect::Json | Dialect::QueryJson => body,
    }
}

fn system_attributes(
    context: &Context<'_>,
    queue: &QueueRef,
    wanted: &AttributeSelection,
    view: &MessageView,
) -> BTreeMap<&'static str, String> {
    let is_wanted = |name: &str| wanted.system.iter().any(|wanted| wanted == name || wanted == ALL);
    let envelope = view.envelope.as_deref();
    let sender = envelope.and_then(|envelope| envelope.sender.clone());
    let (account, _) = context.places.split(&queue.project);
    let source = envelope.and_then(|envelope| envelope.source.clone());
    let source = source.map(|name| context.places.arn(&QueueRef { project: queue.project.clone(), name }));
    let first = view.first_claimed.map(|first| first.as_millis().to_string());
    let is_ordered = Fifo::of(&queue.name) == Fifo::Yes;
    let dedup = is_ordered.then(|| match envelope.and_then(|envelope| envelope.dedup.as_ref()) {
        // As in AWS: dead letters of several source queues may have the same deduplication id.
        _ if source.is_some() => view.id.to_string(),
        Some(id) => id.to_string(),
        None => DedupId::of_body(&view.body).to_string(),
    });
    let before = envelope.map_or(0, |envelope| envelope.attempts);
    let attributes = [
        ("ApproximateReceiveCount", Some(before.saturating_add(view.attempts).to_string())),
        ("ApproximateFirstReceiveTimestamp", first),
        ("SentTimestamp", Some(view.created.as_millis().to_string())),
        ("SenderId", Some(sender.unwrap_or_else(|| account.to_owned()))),
        ("AWSTraceHeader", envelope.and_then(|envelope| envelope.aws_trace.clone())),
        ("DeadLetterQueueSourceArn", source),
        ("MessageGroupId", view.group.as_ref().map(ToString::to_string)),
        ("MessageDeduplicationId", dedup),
        ("SequenceNumber", is_ordered.then(|| view.id.sequence().to_string())),
    ];
    let attributes = attributes.into_iter().filter(|(name, _)| is_wanted(name));
    attributes.filter_map(|(name, value)| Some((name, value?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_leave_without_their_quotes_and_all_else_as_its_text() {
        for (kept, seen) in [
            (r#""a \"b\" \u00e4\n""#, "a \"b\" ä\n"),
            (r#"{"a": [1.50, null]}"#, r#"{"a": [1.50, null]}"#),
            ("null", "null"),
            ("7", "7"),
        ] {
            assert_eq!(body(kept.as_bytes()), seen);
        }
    }
}
