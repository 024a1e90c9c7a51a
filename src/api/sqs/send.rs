//! Sending of messages.

use serde::{Deserialize, Serialize};

use super::arguments::{WholeNumber, token, within};
use super::batch::{Entries, Results, check_ids, entries, missing_of};
use super::context::Context;
use super::decode::shown;
use super::encode::OperationResult;
use super::fault::{Fault, Kind, OTHER_TYPE};
use super::fifo::Fifo;
use super::message_attributes::{self, AttributeEntries, AttributeInput, md5_of, written};
use angarium_broker::SendEntry;
use angarium_core::delay::Delay;
use angarium_core::envelope::Envelope;
use angarium_core::error::Error;
use angarium_core::group::{DedupId, GroupName};
use angarium_core::ids::MessageId;
use angarium_core::limits;
use angarium_core::message::NewMessage;
use angarium_core::message_attribute::{MessageAttributes, Value};

const BODY: &str = "MessageBody";
const GROUP: &str = "MessageGroupId";
const DEDUP: &str = "MessageDeduplicationId";
const AWS_TRACE: &str = "AWSTraceHeader";

/// A message: alone, or in a batch beside an id of its own.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct SendMessage {
    id: Option<String>,
    message_body: Option<String>,
    delay_seconds: Option<WholeNumber>,
    #[serde(default)]
    message_attributes: Option<AttributeInput>,
    #[serde(default)]
    message_system_attributes: Option<AttributeInput>,
    message_group_id: Option<String>,
    message_deduplication_id: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct SendMessageBatch {
    #[serde(default)]
    entries: Option<Entries<SendMessage>>,
}

/// What the sender of a message is told.
#[derive(Clone, Debug, Serialize)]
struct SendReply {
    #[serde(rename = "Id", skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    #[serde(rename = "MessageId")]
    message_id: Option<MessageId>,
    #[serde(rename = "MD5OfMessageBody")]
    md5_of_body: String,
    #[serde(rename = "MD5OfMessageAttributes", skip_serializing_if = "Option::is_none")]
    md5_of_attributes: Option<String>,
    #[serde(rename = "MD5OfMessageSystemAttributes", skip_serializing_if = "Option::is_none")]
    md5_of_system_attributes: Option<String>,
    #[serde(rename = "SequenceNumber", skip_serializing_if = "Option::is_none")]
    sequence_number: Option<String>,
}

impl SendReply {
    /// Sets the id of the sent message.
    fn is(&mut self, id: MessageId, fifo: Fifo) {
        self.message_id = Some(id);
        self.sequence_number = (fifo == Fifo::Yes).then(|| id.sequence().to_string());
    }
}

/// A checked message, and its reply before it is sent.
struct CheckedMessage {
    sending: SendEntry,
    sent: SendReply,
}

/// Sends one message.
pub async fn one(context: &Context<'_>, asked: SendMessage) -> Result<OperationResult, Fault> {
    let queue = context.request.subject()?;
    let fifo = Fifo::of(&queue.name);
    if fifo == Fifo::Yes && asked.message_group_id.is_none() {
        return Err(Fault::missing(GROUP));
    }
    let CheckedMessage { sending, mut sent } = checked(context, fifo, asked)?;
    let mut ids = context.broker.messages_send(queue, vec![sending]).await?;
    if let Some(id) = ids.pop().transpose().map_err(|error| told(error, "are invalid"))? {
        sent.is(id, fifo);
    }
    Ok(OperationResult::new(sent))
}

/// Sends several messages; each entry succeeds or fails by itself.
pub async fn batch(context: &Context<'_>, asked: SendMessageBatch) -> Result<OperationResult, Fault> {
    let queue = context.request.subject()?;
    let operation = context.request.operation;
    let entries = entries(operation, asked.entries, context.most.batch)?;
    check_ids(operation, entries.iter().map(|entry| entry.id.as_ref()))?;
    let fifo = Fifo::of(&queue.name);
    if fifo == Fifo::Yes && entries.iter().any(|entry| entry.message_group_id.is_none()) {
        return Err(Fault::value("The request must contain the parameter MessageGroupId."));
    }
    let mut checks = Vec::with_capacity(entries.len());
    for (place, mut message) in (1..).zip(entries) {
        let id = message.id.take().unwrap_or_default();
        let is_empty = message.message_body.as_deref().unwrap_or_default().is_empty();
        let check =
            if is_empty { Err(missing_of(operation, place, BODY)) } else { checked(context, fifo, message) };
        checks.push((id, check));
    }
    check_total(checks.iter().filter_map(|(_, check)| Some(check.as_ref().ok()?.sending.size)).sum())?;
    let (mut sendings, mut waiting) = (Vec::new(), Vec::with_capacity(checks.len()));
    for (id, check) in checks {
        let sent = check.map(|CheckedMessage { sending, sent }| {
            sendings.push(sending);
            SendReply { id: Some(id.clone()), ..sent }
        });
        waiting.push((id, sent));
    }
    let mut outcomes = context.broker.messages_send(queue, sendings).await?.into_iter();
    let results = waiting.into_iter().map(|(id, sent)| {
        let result = sent.and_then(|mut sent| match outcomes.next() {
            Some(outcome) => {
                sent.is(outcome.map_err(|error| told(error, "cannot be validated"))?, fifo);
                Ok(sent)
            }
            None => Err(Fault::new(Kind::InternalFailure, "The outcome for this message is unknown.")),
        });
        (id, result)
    });
    Ok(OperationResult::new(Results::new(results.collect::<Vec<_>>())))
}

/// Converts an error of a message. For a message that is too long, AWS uses other words within a batch.
fn told(error: Error, verdict: &str) -> Fault {
    let message = match &error {
        Error::Invalid { field, why, .. } if field == BODY => {
            Some(format!("One or more parameters {verdict}. Reason: {why}."))
        }
        _ => None,
    };
    let fault = Fault::from(error);
    Fault { message: message.unwrap_or(fault.message), ..fault }
}

fn check_total(size: usize) -> Result<(), Fault> {
    let most = limits::SQS_MESSAGE_BYTES;
    if size <= most {
        return Ok(());
    }
    let why = format!("Batch requests cannot be longer than {most} bytes. You have sent {size} bytes.");
    Err(Fault::new(Kind::BatchRequestTooLong, why))
}

fn checked(context: &Context<'_>, fifo: Fifo, message: SendMessage) -> Result<CheckedMessage, Fault> {
    let group = message.message_group_id;
    let group = group.map(|group| token(GROUP, &group, |text| GroupName::new(text, GROUP))).transpose()?;
    let dedup = message.message_deduplication_id;
    let dedup = dedup.map(|id| token(DEDUP, &id, |text| DedupId::new(text, DEDUP))).transpose()?;
    if let Some(id) = dedup.as_ref().filter(|_| fifo == Fifo::No) {
        return Err(Fault::parameter(DEDUP, id, OTHER_TYPE));
    }
    let body = message.message_body.filter(|body| !body.is_empty());
    let body = body.ok_or_else(|| Fault::missing(BODY))?;
    if !message_attributes::is_allowed(&body) {
        let why = "Invalid characters found. Valid unicode characters are #x9 | #xA | #xD | #x20 to #xD7FF | #xE000 to \
                   #xFFFD | #x10000 to #x10FFFF";
        return Err(Fault::new(Kind::InvalidMessageContents, why));
    }
    let most = i64::try_from(context.broker.limits().message_delay.most()).unwrap_or(i64::MAX);
    let delay = match message.delay_seconds {
        // In a FIFO queue only the queue sets the delay of messages.
        Some(WholeNumber(0)) if fifo == Fifo::Yes => None,
        Some(WholeNumber(seconds)) if fifo == Fifo::Yes => {
            return Err(Fault::parameter("DelaySeconds", seconds, OTHER_TYPE));
        }
        asked => within("DelaySeconds", asked, 0..=most)?,
    };
    let attributes = message_attributes::checked("(user)", written(message.message_attributes)?)?;
    let system = system_attributes(written(message.message_system_attributes)?)?;
    let sent = SendReply {
        id: None,
        message_id: None,
        md5_of_body: md5_of(body.as_bytes()),
        md5_of_attributes: message_attributes::md5(&attributes),
        md5_of_system_attributes: message_attributes::md5(&system),
        sequence_number: None,
    };
    let size = body.len() + attributes.size();
    // The trace attribute of the message has priority over the trace of the request.
    let trace = system.iter().next().and_then(|(_, header)| text(&header.value));
    let envelope = Envelope {
        trace: context.trace.clone(),
        attributes,
        aws_trace: trace.or_else(|| context.aws_trace.clone()),
        sender: Some(context.request.caller.account.clone()),
        dedup: dedup.clone(),
        ..Envelope::default()
    };
    let body = serde_json::to_vec(&body).expect("text is JSON").into();
    let delay = delay.and_then(|delay| u32::try_from(delay).ok()).map(Delay::Seconds);
    let message = NewMessage { body, delay, group, dedup, ..NewMessage::default() }.in_envelope(&envelope);
    Ok(CheckedMessage { sending: SendEntry { message, size }, sent })
}

/// Checks the system attributes of a message; the only one allowed is the trace header.
fn system_attributes(written: AttributeEntries) -> Result<MessageAttributes, Fault> {
    if let Some(other) = written.keys().find(|name| *name != AWS_TRACE) {
        return Err(Fault::value(format!("Message system attribute name '{}' is invalid.", shown(other))));
    }
    let checked = message_attributes::checked("system", written)?;
    if checked.iter().any(|(_, attribute)| attribute.data_type != "String") {
        return Err(Fault::value(format!(
            "The message system attribute '{AWS_TRACE}' must be of the type String."
        )));
    }
    Ok(checked)
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::Text(text) => Some(text.clone()),
        Value::Binary(_) => None,
    }
}
