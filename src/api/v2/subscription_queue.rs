//! The queue of a subscription, which consumers read below the subscription by the operations of a queue.
//!
//! Each operation is the handler of the queue's under a longer path. [`QueueRequest`](crate::api::extract::QueueRequest)
//! finds the subscription in it; this module derives the routes and their part of the document.

use axum::Extension;
use utoipa::IntoParams;
use utoipa::openapi::path::{Operation, ParameterIn, Paths};
use utoipa::openapi::{ContentBuilder, Ref, RefOr, ResponseBuilder};
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouter};
use utoipa_axum::routes;

use super::{batch, bulk, claim_list, claims, explain, group_holds, holds, messages, peek, purge, queues};
use super::{requeue, settle, status, tasks};
use crate::api::extract::SubscriptionPath;
use crate::api::sqs::ContextLimits;
use angarium_broker::Broker;

const QUEUE: &str = "/v2/queues/{queue_name}/";
const SUBSCRIPTION: &str = "/v2/queues/{queue_name}/subscriptions/{subscription_id}/";
/// Before the operation id of the queue's, in that of the subscription's.
pub const PREFIX: &str = "subscription_";
const SUMMARIES: &[(&str, &str)] = &[
    ("claim_create", "Claim messages of a subscription"),
    ("claim_get", "Get a claim of a subscription"),
    ("claim_release", "Release a claim of a subscription"),
    ("claim_renew", "Extend a claim of a subscription"),
    ("claim_settle", "Settle claimed messages of a subscription"),
    ("claims_list", "List the claims of a subscription"),
    ("group_hold_delete", "Release a group of a subscription"),
    ("group_hold_get", "Get a group's hold in a subscription"),
    ("group_hold_put", "Hold a group of a subscription"),
    ("message_delete", "Delete a message of a subscription"),
    ("message_explanation_get", "Explain a message of a subscription"),
    ("message_get", "Get a message of a subscription"),
    ("message_requeue", "Requeue a message of a subscription"),
    ("message_visibility_update", "Change the visibility of a subscription's message"),
    ("messages_batch_delete", "Delete each of a subscription's messages"),
    ("messages_delete", "Delete or pop messages of a subscription"),
    ("messages_list", "List the messages of a subscription"),
    ("messages_peek", "Peek at messages of a subscription"),
    ("queue_explanation_get", "Explain a subscription"),
    ("queue_hold_delete", "Release a subscription"),
    ("queue_hold_get", "Get the hold of a subscription"),
    ("queue_hold_put", "Hold a subscription"),
    ("queue_purge", "Purge a subscription"),
    ("queue_stats_get", "Get the statistics of a subscription"),
    ("task_cancel", "Cancel a task of a subscription"),
    ("task_get", "Get a task of a subscription"),
    ("task_start", "Start a task over a subscription's messages"),
    ("tasks_list", "List the tasks of a subscription"),
];

/// Returns the routes below a subscription; `sqs` are the bounds of SQS, which the explanation of a queue names.
pub fn routes(sqs: ContextLimits) -> OpenApiRouter<Broker> {
    let add = |router: OpenApiRouter<Broker>, routes| router.routes(routes);
    below_subscriptions().into_iter().fold(OpenApiRouter::new(), add).layer(Extension(sqs))
}

/// Returns the routes below a subscription of a queue.
pub(super) fn below_subscriptions() -> Vec<UtoipaMethodRouter<Broker>> {
    let routes = [
        routes!(bulk::get, bulk::delete),
        routes!(batch::delete),
        routes!(status::get, messages::patch, messages::delete),
        routes!(requeue::post),
        routes!(claims::post, claim_list::get),
        routes!(claims::get, claims::patch, claims::delete),
        routes!(settle::post),
        routes!(peek::get),
        routes!(explain::queue),
        routes!(explain::message),
        routes!(queues::stats),
        routes!(purge::post),
        routes!(holds::put, holds::get, holds::delete),
        routes!(group_holds::put, group_holds::get, group_holds::delete),
        routes!(tasks::post, tasks::list),
        routes!(tasks::get, tasks::delete),
    ];
    routes.into_iter().map(below_subscription).collect()
}

/// Returns the routes of a queue as routes below a subscription.
fn below_subscription((schemas, paths, handlers): UtoipaMethodRouter<Broker>) -> UtoipaMethodRouter<Broker> {
    let mut below = Paths::new();
    for (path, mut item) in paths.paths {
        let rest = path.strip_prefix(QUEUE).expect("only routes below a queue are listed");
        let path = [SUBSCRIPTION, rest].concat();
        let methods = [&mut item.get, &mut item.put, &mut item.post, &mut item.patch, &mut item.delete];
        methods.into_iter().flatten().for_each(describe);
        below.paths.insert(path, item);
    }
    (schemas, below, handlers)
}

/// Describes an operation of a queue as one of a subscription.
fn describe(operation: &mut Operation) {
    let queue_operation = operation.operation_id.take().expect("each operation has an id");
    let known = SUMMARIES.iter().find(|(id, _)| *id == queue_operation);
    let (_, summary) = known.expect("each operation below a subscription has a summary");
    operation.summary = Some((*summary).to_owned());
    operation.description = Some(format!(
        "The operation `{queue_operation}` of a queue, for the copies of a subscription. A subscription that does not exist is 404."
    ));
    operation.tags = Some(vec!["subscriptions".to_owned()]);
    let own = queue_operation.strip_prefix("queue_").unwrap_or(&queue_operation);
    operation.operation_id = Some([PREFIX, own].concat());
    let parameters = operation.parameters.get_or_insert_default();
    parameters
        .retain(|parameter| !matches!(parameter, RefOr::T(parameter) if parameter.name == "queue_name"));
    let path = SubscriptionPath::into_params(|| Some(ParameterIn::Path));
    parameters.splice(0..0, path.into_iter().map(RefOr::T));
    let missing = || {
        let body = ContentBuilder::new().schema(Some(Ref::from_schema_name("ApiError"))).build();
        let response = ResponseBuilder::new().description("There is no such subscription.");
        RefOr::T(response.content("application/json", body).build())
    };
    operation.responses.responses.entry("404".to_owned()).or_insert_with(missing);
}
