//! Requests of SQS in its JSON protocol, without credentials. Bodies are the JSON text of those of REST.

use http::Method;
use serde_json::{Value, json};

use super::{ApiRequest, Outcome, body_of};

/// A receive in a FIFO queue, which can be repeated.
#[derive(Clone, Debug)]
pub struct FifoReceive {
    /// Max messages.
    pub limit: u64,
    /// Seconds for which the messages are hidden.
    pub ttl: u64,
    /// Seconds for which it waits for a message.
    pub wait: u64,
    /// The id by which it is recognized when it is repeated.
    pub attempt: String,
}

impl Outcome {
    /// Returns the outcome of an error of SQS, by the table in `docs/reference/errors.md`: only `InternalFailure` may
    /// have been carried out.
    pub(super) fn of_sqs_error(kind: &str) -> Self {
        match kind.rsplit('#').next().unwrap_or(kind) {
            "InternalFailure" => Self::Unknown,
            "QueueDoesNotExist" => Self::Missing,
            name => Self::Refused(name.to_owned()),
        }
    }
}

impl ApiRequest {
    fn sqs(operation: &'static str, queue: &str, mut body: Value) -> Self {
        body["QueueUrl"] = json!(format!("http://localhost/000000000000/{queue}"));
        Self { method: Method::POST, path: "/".into(), body: Some(body), operation: Some(operation), wait: 0 }
    }

    /// Sends a message.
    pub fn send_message(queue: &str, number: u64, delay: u64) -> Self {
        let body = json!({"MessageBody": body_of(number).to_string(), "DelaySeconds": delay});
        Self::sqs("SendMessage", queue, body)
    }

    /// Receives messages for `ttl` seconds, and waits at most `wait` seconds for one.
    pub fn receive_messages(queue: &str, limit: u64, ttl: u64, wait: u64) -> Self {
        let body = json!({"MaxNumberOfMessages": limit, "VisibilityTimeout": ttl, "WaitTimeSeconds": wait});
        Self { wait, ..Self::sqs("ReceiveMessage", queue, body) }
    }

    /// Sends a message of a group to a FIFO queue, with its number as the deduplication id.
    pub fn send_in_group(queue: &str, number: u64, group: &str) -> Self {
        let body = json!({
            "MessageBody": body_of(number).to_string(),
            "MessageGroupId": group,
            "MessageDeduplicationId": number.to_string(),
        });
        Self::sqs("SendMessage", queue, body)
    }

    /// Receives messages of a FIFO queue.
    pub fn receive_in_order(queue: &str, receive: &FifoReceive) -> Self {
        let FifoReceive { limit, ttl, wait, attempt } = receive;
        let mut request = Self::receive_messages(queue, *limit, *ttl, *wait);
        if let Some(body) = &mut request.body {
            body["ReceiveRequestAttemptId"] = json!(attempt);
        }
        request
    }

    /// Deletes the message of a receipt.
    pub fn delete_received(queue: &str, receipt: &str) -> Self {
        Self::sqs("DeleteMessage", queue, json!({"ReceiptHandle": receipt}))
    }

    /// Changes the visibility of the message of a receipt; 0 gives the message back.
    pub fn change_visibility(queue: &str, receipt: &str, ttl: u64) -> Self {
        let body = json!({"ReceiptHandle": receipt, "VisibilityTimeout": ttl});
        Self::sqs("ChangeMessageVisibility", queue, body)
    }
}

/// Returns the queue that a body names.
pub(super) fn queue_of(body: &Value) -> &str {
    body["QueueUrl"].as_str().and_then(|url| url.rsplit('/').next()).unwrap_or_default()
}
