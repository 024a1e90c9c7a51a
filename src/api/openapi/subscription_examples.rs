//! Examples of subscriptions. Those of operations below one are the examples of a queue, with its paths.

use serde_json::{Value, json};

use super::examples::{Bodies, bodies};
use crate::api::v2::subscription_queue::PREFIX;

const ID: &str = "a7c41d52-3c3c-4c6e-9f0e-0b7f8f1d2a34";

/// Returns the bodies of an operation on a subscription or on its queue.
pub(super) fn of_subscriptions(operation: &str) -> Bodies {
    match operation {
        "subscriptions_list" => Bodies::answer(json!({
            "subscriptions": [subscription()],
            "links": [{"rel": "next", "href": format!("/v2/queues/invoices/subscriptions?marker={ID}")}]
        })),
        "subscription_create" => Bodies::both(
            json!({"subscriber": "pull:billing", "ttl": 31_536_000, "options": {"_max_claim_count": 5, "max_messages": 10_000}}),
            json!({"subscription_id": ID}),
        ),
        "subscription_get" => Bodies::answer(subscription()),
        "subscription_update" => Bodies::request(json!({"ttl": 31_536_000})),
        "subscription_confirmation_put" => Bodies::request(json!({"confirmed": true})),
        _ => operation.strip_prefix(PREFIX).map(of_queue).unwrap_or_default(),
    }
}

/// Returns the bodies of an operation on the queue of a subscription.
fn of_queue(operation: &str) -> Bodies {
    let plain = bodies(operation);
    let found = if plain.is_empty() { bodies(&["queue_", operation].concat()) } else { plain };
    found.map(below)
}

/// Puts the paths in an example below the subscription.
fn below(example: Value) -> Value {
    match example {
        Value::String(text) => {
            Value::String(text.replace("/queues/invoices/", &format!("/queues/invoices/subscriptions/{ID}/")))
        }
        Value::Array(items) => Value::Array(items.into_iter().map(below).collect()),
        Value::Object(members) => {
            Value::Object(members.into_iter().map(|(key, value)| (key, below(value))).collect())
        }
        other => other,
    }
}

fn subscription() -> Value {
    json!({
        "id": ID, "source": "invoices", "subscriber": "pull:billing", "ttl": 31_536_000, "age": 86,
        "options": {"_max_claim_count": 5, "max_messages": 10_000}, "confirmed": true,
        "bounds": {"max_messages": 10_000, "max_bytes": 1_073_741_824, "overflow": "suspend"},
        "backlog": {
            "suspended": true, "filling": true, "left_out": 37, "dropped": 0,
            "gap": {
                "since": "2026-11-27T10:15:04Z", "first": "019ac4c0-5f07-7d3e-8a41-3c5d7e9f1b20",
                "last": "019ac4c2-1b07-7d3e-8a41-3c5d7e9f1b77", "messages": 37
            }
        }
    })
}
