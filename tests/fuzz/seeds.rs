//! Requests that are right, in the form of HTTP/1.1: one of each operation of the OpenAPI document, with its example and all
//! its parameters. So a new operation is among them without being named here.

use serde_json::{Map, Value};

const DOCUMENT: &str = include_str!("../../openapi/angarium.json");
const ID: &str = "019ab1c2-5f07-7d3e-8a41-3c5d7e9f1b20";

/// A queue with a subscription, which no request deletes.
pub const SUBSCRIBED: &str = "subscribed";

/// A topic with a subscription, which no request deletes.
pub const TOPIC: &str = "subscribed-topic";

/// A request of each operation, with parameters and without. `subscription` is the id of one of [`SUBSCRIBED`], and
/// `of_topic` that of one of [`TOPIC`].
pub fn requests(subscription: &str, of_topic: &str) -> Vec<Vec<u8>> {
    let document: Value = serde_json::from_str(DOCUMENT).expect("the document is JSON");
    let mut requests = Vec::new();
    // Requests of SQS have seeds of their own.
    for (path, item) in members(&document["paths"]).filter(|(path, _)| !path.contains('#')) {
        for (method, operation) in members(item) {
            let id = if path.contains("{topic_name}") { of_topic } else { subscription };
            let path = of_subscription(method, path, id);
            requests.push(request(method, &path, operation, |_| false));
            // The subscription is in the project of requests that name none.
            let is_elsewhere = path.contains(SUBSCRIBED);
            requests.push(request(method, &path, operation, |name| !is_elsewhere || name != "X-Project-Id"));
        }
    }
    requests
}

/// The path of an operation of a subscription, of the one that exists unless it is deleted by it.
fn of_subscription(method: &str, path: &str, subscription: &str) -> String {
    if !path.contains("{subscription_id}") {
        return path.to_owned();
    }
    let is_deletion = method == "delete" && path.ends_with("{subscription_id}");
    path.replace("{queue_name}", SUBSCRIBED)
        .replace("{topic_name}", TOPIC)
        .replace("{subscription_id}", if is_deletion { ID } else { subscription })
}

fn members(value: &Value) -> impl Iterator<Item = (&str, &Value)> {
    value.as_object().into_iter().flat_map(Map::iter).map(|(key, value)| (key.as_str(), value))
}

fn request(method: &str, path: &str, operation: &Value, takes: impl Fn(&str) -> bool) -> Vec<u8> {
    // The pool that the queues lie in stays as it is.
    let mut target =
        path.replace("{queue_name}", "invoices").replace("{pool}", "spare").replace("{flavor}", "fast");
    target = target.replace("{topic_name}", "news");
    target = target.replace("{message_id}", ID).replace("{claim_id}", ID);
    let (mut query, mut headers) = (Vec::new(), String::new());
    for parameter in operation["parameters"].as_array().into_iter().flatten() {
        let name = parameter["name"].as_str().unwrap_or_default();
        let value = value_of(name, &parameter["schema"]);
        match parameter["in"].as_str() {
            Some("query") if takes(name) => query.push(format!("{name}={value}")),
            Some("header") if takes(name) => headers.push_str(&format!("{name}: {value}\n")),
            _ => {}
        }
    }
    if !query.is_empty() {
        target = format!("{target}?{}", query.join("&"));
    }
    let mut body = String::new();
    for (media_type, content) in members(&operation["requestBody"]["content"]) {
        headers.push_str(&format!("Content-Type: {media_type}\n"));
        body = content["example"].to_string();
    }
    // Servers that are named in a pool would be called.
    body = body.replace("redis://", "embedded:");
    format!("{} {target}\n{headers}\n{body}", method.to_uppercase()).into_bytes()
}

fn value_of(name: &str, schema: &Value) -> String {
    match (name, schema["type"].as_str()) {
        ("X-Roles", _) => "admin".to_owned(),
        ("X-Project-Id", _) => "acme".to_owned(),
        ("Client-ID" | "claim_id" | "ids" | "claim_ids", _) => ID.to_owned(),
        (_, Some("integer")) => schema["minimum"].as_i64().unwrap_or(1).to_string(),
        (_, Some("boolean")) => "true".to_owned(),
        _ => "invoices".to_owned(),
    }
}
