//! HTTP, and nothing else: routes, extractors, replies, errors, the document that describes them.
//!
//! A handler extracts, makes one call to the broker and wraps the answer. No handler sees a store, a tree or a
//! lock; nothing below this layer sees a status code.

mod accept;
mod error;
mod explain;
mod extract;
mod handed;
mod health;
mod json;
mod layers;
pub mod openapi;
mod query;
mod roles;
mod v2;
mod versions;

use axum::Router;
use utoipa::OpenApi as _;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::broker::Broker;

/// All routes over `broker`.
pub fn router(broker: Broker) -> Router {
    let (routes, _) = routes().split_for_parts();
    let routes: Router = routes.fallback(error::no_route).with_state(broker);
    // Around the router, not in it: the frame changes the method before a route is chosen.
    Router::new().fallback_service(routes).layer(axum::middleware::from_fn(layers::frame))
}

/// The table of contents: every route, with its part of the document.
fn routes() -> OpenApiRouter<Broker> {
    OpenApiRouter::with_openapi(openapi::Frame::openapi())
        .routes(routes!(versions::get))
        .routes(routes!(versions::home))
        .routes(routes!(openapi::json))
        .routes(routes!(openapi::page))
        .routes(routes!(health::livez))
        .routes(routes!(health::readyz))
        .routes(routes!(v2::ping::get, v2::ping::head))
        .routes(routes!(v2::health::get))
        .routes(routes!(v2::listing::get))
        .routes(routes!(v2::queues::put, v2::queues::get, v2::queues::delete, v2::metadata::patch))
        .routes(routes!(v2::queues::stats))
        .routes(routes!(v2::purge::post))
        .routes(routes!(v2::messages::post, v2::bulk::get, v2::bulk::delete))
        .routes(routes!(v2::messages::get, v2::messages::delete))
        .routes(routes!(v2::claims::post))
        .routes(routes!(v2::claims::get, v2::claims::patch, v2::claims::delete))
        .routes(routes!(v2::pools::list))
        .routes(routes!(v2::pools::get, v2::pools::put, v2::pools::patch, v2::pools::delete))
        .routes(routes!(v2::flavors::list))
        .routes(routes!(v2::flavors::get, v2::flavors::put, v2::flavors::patch, v2::flavors::delete))
}
