//! The routes of topics. Most operations are the handler of the queue's under another path, in which
//! [`QueueRequest`](crate::api::extract::QueueRequest) finds the topic. This module derives their part of the document.

use axum::Extension;
use utoipa::IntoParams;
use utoipa::openapi::path::{Operation, ParameterIn, Paths};
use utoipa::openapi::{ContentBuilder, OpenApi, Ref, RefOr, ResponseBuilder};
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouter};
use utoipa_axum::routes;

use super::{
    batch, explain, holds, messages, metadata, purge, queues, subscription_queue, subscriptions, topics,
};
use crate::api::extract::TopicPath;
use crate::api::sqs::ContextLimits;
use angarium_broker::Broker;

const QUEUE: &str = "/v2/queues/{queue_name}";
const TOPIC: &str = "/v2/topics/{topic_name}";
/// Before the operation id of the queue's, in that of the topic's.
pub const PREFIX: &str = "topic_";
/// Operations whose summary does not name the queue.
const SUMMARIES: &[(&str, &str)] = &[
    ("messages_post", "Post messages to a topic"),
    ("messages_batch_post", "Post each of several messages to a topic"),
];

/// Returns the routes of topics; `sqs` are the bounds of SQS, which the explanation of a queue names.
pub fn routes(sqs: ContextLimits) -> OpenApiRouter<Broker> {
    let own = OpenApiRouter::new()
        .routes(routes!(topics::list))
        .routes(routes!(topics::put, topics::get))
        .routes(routes!(topics::stats));
    let as_of_queues = [
        routes!(queues::delete, metadata::patch),
        routes!(explain::queue),
        routes!(holds::put, holds::get, holds::delete),
        routes!(purge::post),
        routes!(messages::post),
        routes!(batch::post),
        routes!(subscriptions::list, subscriptions::post),
        routes!(subscriptions::get, subscriptions::patch, subscriptions::delete),
        routes!(subscriptions::confirm),
    ];
    let below = subscription_queue::below_subscriptions();
    let all = as_of_queues.into_iter().chain(below).map(of_topic);
    all.fold(own, |router, routes| router.routes(routes)).layer(Extension(sqs))
}

/// Returns the routes of a queue as routes of a topic.
fn of_topic((schemas, paths, handlers): UtoipaMethodRouter<Broker>) -> UtoipaMethodRouter<Broker> {
    let mut of_topic = Paths::new();
    for (path, mut item) in paths.paths {
        let rest = path.strip_prefix(QUEUE).expect("only routes of a queue are listed");
        let path = [TOPIC, rest].concat();
        let methods = [&mut item.get, &mut item.put, &mut item.post, &mut item.patch, &mut item.delete];
        methods.into_iter().flatten().for_each(describe);
        of_topic.paths.insert(path, item);
    }
    (schemas, of_topic, handlers)
}

/// Adds the answer to an operation of a queue whose name a topic has, or of a topic that does not exist, where the operation
/// has no other answer of this status.
pub fn describe_missing(document: &mut OpenApi) {
    for (path, item) in &mut document.paths.paths {
        let why = if path.starts_with(QUEUE) {
            "There is no such queue, and a topic has the name."
        } else if path.starts_with(TOPIC) {
            "There is no such topic, or a queue has the name."
        } else {
            continue;
        };
        let is_source = [QUEUE, TOPIC].contains(&path.as_str());
        // A creation of either is 409.
        let put = item.put.as_mut().filter(|_| !is_source);
        let others = [&mut item.get, &mut item.post, &mut item.patch, &mut item.delete];
        for operation in others.into_iter().flatten().chain(put) {
            operation.responses.responses.entry("404".to_owned()).or_insert_with(|| {
                let body = ContentBuilder::new().schema(Some(Ref::from_schema_name("ApiError"))).build();
                RefOr::T(ResponseBuilder::new().description(why).content("application/json", body).build())
            });
        }
    }
}

/// Describes an operation of a queue, or below one of its subscriptions, as one of a topic.
fn describe(operation: &mut Operation) {
    let queue_operation = operation.operation_id.take().expect("each operation has an id");
    let known = SUMMARIES.iter().find(|(id, _)| *id == queue_operation);
    let plain = operation.summary.as_deref().unwrap_or_default();
    let derived = || plain.replace("a queue", "a topic").replace("a subscription", "a topic's subscription");
    operation.summary = Some(known.map_or_else(derived, |(_, summary)| (*summary).to_owned()));
    operation.description = Some(format!(
        "The operation `{queue_operation}`, for a topic in place of a queue. A topic is created by `topic_create` alone."
    ));
    operation.tags = Some(vec!["topics".to_owned()]);
    let own = queue_operation.strip_prefix("queue_").unwrap_or(&queue_operation);
    operation.operation_id = Some([PREFIX, own].concat());
    let parameters = operation.parameters.get_or_insert_default();
    parameters
        .retain(|parameter| !matches!(parameter, RefOr::T(parameter) if parameter.name == "queue_name"));
    let path = TopicPath::into_params(|| Some(ParameterIn::Path));
    parameters.splice(0..0, path.into_iter().map(RefOr::T));
}
