//! Examples of topics. Those of operations that are as a queue's are the examples of the queue, with the paths of the
//! topic.

use serde_json::{Value, json};

use super::examples::{Bodies, bodies};
use super::subscription_examples::of_subscriptions;
use crate::api::v2::topic_routes::PREFIX;

/// Returns the bodies of an operation on a topic, or on a subscription.
pub(super) fn of_topics(operation: &str) -> Bodies {
    match operation {
        "topics_list" => Bodies::answer(json!({
            "topics": [{"name": "news", "href": "/v2/topics/news", "metadata": metadata(), "stats": {
                "ready": 0, "delayed": 0, "claimed": 0, "in_transfer": 0, "rates": {"posted": 0.5, "removed": 0.0}
            }}],
            "links": [{
                "rel": "next",
                "href": "/v2/topics?detailed=true&with_count=true&with_stats=true&marker=news"
            }],
            "count": 1
        })),
        "topic_create" => Bodies::request(metadata()),
        "topic_get" => Bodies::answer(metadata()),
        "topic_update" => {
            Bodies::both(json!([{"op": "add", "path": "/metadata/team", "value": "billing"}]), metadata())
        }
        "topic_stats_get" => Bodies::answer(json!({
            "subscriptions": 3,
            "messages": {"claimed": 0, "free": 0, "ready": 0, "delayed": 0, "in_transfer": 0, "total": 0}
        })),
        "topic_explanation_get" => Bodies::answer(explanation()),
        "topic_hold_put" => Bodies::both(json!({"reason": "bad deploy 1.4.2", "discard": true}), hold()),
        "topic_hold_get" => Bodies::answer(hold()),
        "topic_purge" => Bodies::request(json!({"resource_types": ["subscriptions"]})),
        _ => operation.strip_prefix(PREFIX).map_or_else(|| of_subscriptions(operation), of_queue),
    }
}

/// Returns the bodies of an operation of a queue, or of a subscription, for a topic.
fn of_queue(operation: &str) -> Bodies {
    bodies(operation).map(of_topic)
}

/// Puts the paths and the source in an example of a queue below the topic.
fn of_topic(example: Value) -> Value {
    match example {
        Value::String(text) if text == "invoices" => Value::String("news".to_owned()),
        Value::String(text) => Value::String(text.replace("/queues/invoices/", "/topics/news/")),
        Value::Array(items) => Value::Array(items.into_iter().map(of_topic).collect()),
        Value::Object(members) => {
            Value::Object(members.into_iter().map(|(key, value)| (key, of_topic(value))).collect())
        }
        other => other,
    }
}

fn metadata() -> Value {
    json!({"_default_message_ttl": 86_400, "team": "billing"})
}

fn hold() -> Value {
    json!({
        "claim": false, "post": false, "discard": true, "reason": "bad deploy 1.4.2", "by": "on call",
        "at": "2026-11-28T06:45:00Z"
    })
}

fn explanation() -> Value {
    let mut explanation = bodies("queue_explanation_get").into_answer();
    explanation["says"] = json!(
        "This is a topic with 3 subscriptions: a message is copied for each one whose filter accepts it, and the topic \
         keeps none."
    );
    explanation["subscriptions"] = json!(3);
    explanation["delayed"] = json!({"messages": 0});
    explanation["claimed"] = json!({"messages": 0, "claims": 0, "by": []});
    explanation
}
