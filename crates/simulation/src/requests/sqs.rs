//! Requests of SQS in its JSON protocol, without credentials. Bodies are the JSON text of those of REST.

use http::Method;
use serde_json::{Value, json};

use super::{ApiRequest, Outcome, body_of};

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
