//! The content of a request that delivers a message to a webhook.

use bytes::Bytes;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::group::GroupName;
use crate::ids::{MessageId, SubscriptionId};
use crate::names::QueueName;
use crate::subscription::filtered_body;
use crate::webhook::{TEMPLATE_PART, WebhookOptions};

const JSON: &str = "application/json";
const TEXT: &str = "text/plain; charset=utf-8";

/// A message for a webhook.
#[derive(Clone, Debug)]
pub struct Notification<'a> {
    /// The queue to which it was posted.
    pub queue: &'a QueueName,
    /// The subscription.
    pub subscription: SubscriptionId,
    /// Its id in the queue of the subscription, by which the subscriber recognises a repeated delivery.
    pub message: MessageId,
    /// Its life in seconds.
    pub ttl: u32,
    /// Its message group.
    pub group: Option<&'a GroupName>,
    /// Its tags.
    pub tags: &'a [String],
    /// Its body, a JSON text.
    pub body: &'a Bytes,
}

/// The form of a notification: Zaqar's keys, and the ids.
#[derive(Serialize)]
struct NotificationText<'a> {
    #[serde(rename = "Message_Type")]
    kind: &'static str,
    queue_name: &'a str,
    subscription_id: String,
    message_id: String,
    ttl: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<&'a str>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    tags: &'a [String],
    body: &'a RawValue,
}

impl Notification<'_> {
    /// Returns the media type and the body of a request: the notification, a template around it, or the body of the
    /// message alone. None when the body of the message is no JSON text.
    pub fn content(&self, options: &WebhookOptions) -> Option<(&'static str, Bytes)> {
        if options.is_raw {
            let kind = if self.body.starts_with(b"\"") { TEXT } else { JSON };
            return Some((kind, filtered_body(self.body.clone())));
        }
        let text = NotificationText {
            kind: "Notification",
            queue_name: self.queue.source(),
            subscription_id: self.subscription.to_string(),
            message_id: self.message.to_string(),
            ttl: self.ttl,
            group: self.group.map(GroupName::as_str),
            tags: self.tags,
            body: serde_json::from_slice(self.body).ok()?,
        };
        let text = serde_json::to_string(&text).ok()?;
        let text = match &options.template {
            Some(template) => template.replace(TEMPLATE_PART, &text),
            None => text,
        };
        Some((JSON, text.into()))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::ids::QueueId;

    fn content(body: &str, options: &str) -> (&'static str, String) {
        let options = WebhookOptions::read(&RawValue::from_string(options.to_owned()).unwrap()).unwrap();
        let queue = QueueName::new("orders").unwrap();
        let body = Bytes::copy_from_slice(body.as_bytes());
        let notification = Notification {
            queue: &queue,
            subscription: SubscriptionId(QueueId::from_bytes([1; 16])),
            message: MessageId::from_bytes([2; 16]),
            ttl: 300,
            group: None,
            tags: &["eu".to_owned()],
            body: &body,
        };
        let (kind, body) = notification.content(&options).unwrap();
        (kind, String::from_utf8(body.to_vec()).unwrap())
    }

    #[test]
    fn notification_has_the_keys_of_zaqar_and_the_ids() {
        let (kind, text) = content(r#"{"a": 1.0}"#, "{}");
        assert_eq!(kind, "application/json");
        assert!(text.contains(r#""body":{"a": 1.0}"#), "the body is copied as it is: {text}");
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["Message_Type"], json!("Notification"));
        assert_eq!((&value["queue_name"], &value["ttl"]), (&json!("orders"), &json!(300)));
        assert_eq!((&value["tags"], value.get("group")), (&json!(["eu"]), None));
        assert!(value["message_id"].is_string() && value["subscription_id"].is_string());
    }

    #[test]
    fn raw_request_has_the_body_of_the_message() {
        let raw = r#"{"raw": true}"#;
        assert_eq!(content(r#"{"a":1}"#, raw), ("application/json", r#"{"a":1}"#.to_owned()));
        assert_eq!(content(r#""a\nb""#, raw), ("text/plain; charset=utf-8", "a\nb".to_owned()));
    }

    #[test]
    fn template_has_the_notification_in_its_place() {
        let (_, text) = content("7", r#"{"post_data": "{\"payload\": \"$zaqar_message$\", \"n\": 1}"}"#);
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&value["payload"]["body"], &value["n"]), (&json!(7), &json!(1)));
    }
}
