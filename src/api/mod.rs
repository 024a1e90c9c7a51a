//! The HTTP layer: routes, extractors, answers, errors, and the document that describes them.
//!
//! A handler extracts its input, makes one call to the broker and wraps the answer. No handler sees a store, a tree or
//! a lock, and nothing below this layer sees a status code.

mod delivery;
mod error;
pub mod error_table;
mod explain;
mod extract;
mod front;
mod health;
mod json;
mod metrics;
pub mod openapi;
mod peer;
mod pipeline;
mod query;
mod rest;
mod roles;
mod sqs;
mod trace;
mod v2;
mod versions;

use axum::Extension;
use axum::routing::get;
use utoipa::OpenApi as _;
use utoipa::openapi::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub use front::{Front, PeerFront};
pub use pipeline::admission::RequestLimits;
pub use pipeline::credentials::Credentials;
pub use pipeline::forward::Relay;
pub use pipeline::identity::{Authentication, RegionalAccess};
pub use sqs::{ContextLimits, Pauses, SqsSettings};

use pipeline::Pipeline;
use pipeline::admission::AdmissionControl;
use pipeline::bodies::BodyBudget;
use pipeline::failures::FailureLog;
use pipeline::protocol::Protocols;
use rest::Rest;

use angarium_broker::Broker;
use angarium_clock::Clock;
use angarium_metrics::{BudgetFigures, ByteBudget, Meter};

/// The meter name of requests that match no operation.
const UNKNOWN: &str = "unknown";

/// Creates the API over `broker`, for callers authenticated by `authentication`, within `limits` by `clock`. `relay`
/// forwards requests for other replicas; a service with one replica has none.
pub fn front(
    broker: Broker,
    authentication: Authentication,
    limits: RequestLimits,
    clock: Clock,
    relay: Option<Relay>,
    sqs: SqsSettings,
) -> Front {
    let (routes, document) = routes(sqs.most).split_for_parts();
    let meter = broker.meter().clone();
    let accounts = sqs.accounts(&authentication);
    let bodies = BodyBudget::new(limits, accounts);
    watch(&meter, bodies.clone());
    if let Authentication::On(credentials) = &authentication
        && let Some(keystone) = credentials.asked().cloned()
    {
        meter.watch_keystone(move || keystone.figures());
    }
    let routes = routes.route(versions::HOME_WITHOUT_SLASH, get(versions::home));
    let regional = sqs.regional_projects();
    let protocols = Protocols {
        unknown: meter.operation(UNKNOWN),
        sqs: sqs::Endpoint::new(broker.clone(), &authentication, sqs, clock.clone()),
        rest: Rest {
            operations: rest::OperationTable::new(&document, &meter),
            routes: routes.fallback(error::no_route).with_state(broker.clone()),
            authentication,
            regional,
            broker,
        },
    };
    Front::new(Pipeline {
        protocols,
        admission: AdmissionControl::new(limits, accounts, clock),
        bodies,
        failures: FailureLog::new(meter.clone()),
        relay,
        meter,
    })
}

/// Shows the budget of bodies on the page of metrics.
fn watch(meter: &Meter, bodies: BodyBudget) {
    meter.watch_budget(ByteBudget::Bodies, move || {
        let usage = bodies.usage();
        BudgetFigures { used: usage.used, total: usage.total, refused: usage.refused, ended: usage.evicted }
    });
}

/// Returns the document of all routes, with the answers of the pipeline.
fn described() -> OpenApi {
    let mut document = routes(ContextLimits::default()).into_openapi();
    rest::describe(&mut document);
    v2::topic_routes::describe_missing(&mut document);
    document
}

/// Returns every route, with its part of the document; `sqs` are the bounds of SQS, which the explanation of a queue names.
fn routes(sqs: ContextLimits) -> OpenApiRouter<Broker> {
    OpenApiRouter::with_openapi(openapi::Frame::openapi())
        .routes(routes!(versions::get))
        .routes(routes!(versions::home))
        .routes(routes!(openapi::json))
        .routes(routes!(openapi::page))
        .routes(routes!(health::livez))
        .routes(routes!(health::readyz))
        .merge(metrics::routes())
        .routes(routes!(v2::ping::get, v2::ping::head))
        .routes(routes!(v2::health::get))
        .routes(routes!(v2::stats::get))
        .routes(routes!(v2::balance::get, v2::balance::post))
        .routes(routes!(v2::map::get))
        .routes(routes!(v2::backup::post))
        .routes(routes!(v2::pool_drain::get, v2::pool_drain::post, v2::pool_drain::delete))
        .routes(routes!(
            v2::shared_holds::pool_put,
            v2::shared_holds::pool_get,
            v2::shared_holds::pool_delete
        ))
        .routes(routes!(
            v2::shared_holds::project_put,
            v2::shared_holds::project_get,
            v2::shared_holds::project_delete
        ))
        .routes(routes!(v2::shared_holds::list))
        .routes(routes!(v2::components::get))
        .routes(routes!(v2::components::drain))
        .routes(routes!(v2::receipts::rotate))
        .routes(routes!(v2::listing::get))
        .routes(routes!(v2::queues::put, v2::queues::get, v2::queues::delete, v2::metadata::patch))
        .routes(routes!(v2::queues::stats))
        .merge(OpenApiRouter::new().routes(routes!(v2::explain::queue)).layer(Extension(sqs)))
        .routes(routes!(v2::explain::message))
        .routes(routes!(v2::holds::put, v2::holds::get, v2::holds::delete))
        .routes(routes!(v2::group_holds::put, v2::group_holds::get, v2::group_holds::delete))
        .routes(routes!(v2::purge::post))
        .routes(routes!(v2::migration::get, v2::migration::post, v2::migration::delete))
        .routes(routes!(v2::messages::post, v2::bulk::get, v2::bulk::delete))
        .routes(routes!(v2::peek::get))
        .routes(routes!(v2::tasks::post, v2::tasks::list))
        .routes(routes!(v2::tasks::get, v2::tasks::delete))
        .routes(routes!(v2::batch::post, v2::batch::delete))
        .routes(routes!(v2::status::get, v2::messages::patch, v2::messages::delete))
        .routes(routes!(v2::requeue::post))
        .routes(routes!(v2::claims::post, v2::claim_list::get))
        .routes(routes!(v2::claims::get, v2::claims::patch, v2::claims::delete))
        .routes(routes!(v2::settle::post))
        .routes(routes!(v2::subscriptions::list, v2::subscriptions::post))
        .routes(routes!(v2::subscriptions::get, v2::subscriptions::patch, v2::subscriptions::delete))
        .routes(routes!(v2::subscriptions::confirm))
        .merge(v2::subscription_queue::routes(sqs))
        .merge(v2::topic_routes::routes(sqs))
        .routes(routes!(v2::quota::get))
        .routes(routes!(v2::pools::list))
        .routes(routes!(v2::pools::get, v2::pools::put, v2::pools::patch, v2::pools::delete))
        .routes(routes!(v2::flavors::list))
        .routes(routes!(v2::flavors::get, v2::flavors::put, v2::flavors::patch, v2::flavors::delete))
}
