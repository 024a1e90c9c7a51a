//! The page of metrics, for operators.

use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use tower_http::compression::CompressionLayer;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::extract::CallerHeaders;
use super::rest::accept;
use super::roles::{Admin, RoleHeaders};
use crate::api::error::{ApiError, ErrorBody, Errors};
use angarium_broker::Broker;
use angarium_metrics::{MEDIA_TYPE, PLAIN_MEDIA_TYPE, plain};

/// Returns the route of the page. The answer is compressed: a page of ten thousand queues has about ten MiB, and gzip
/// reduces it to a twentieth.
pub fn routes() -> OpenApiRouter<Broker> {
    OpenApiRouter::new().routes(routes!(get)).layer(CompressionLayer::new().gzip(true))
}

/// Read the metrics
///
/// Counters, states and durations in the text form of Prometheus: OpenMetrics 1.0, or 0.0.4 for a client whose `Accept` names
/// `text/plain` and not OpenMetrics; compressed where `Accept-Encoding` takes gzip. They name the queues of all projects, so the
/// caller must be an administrator.
#[utoipa::path(
    get, path = "/metrics", operation_id = "metrics_get", tag = "health",
    security(("bearer" = ["admin"]), ("x_auth_token" = ["admin"])),
    params(CallerHeaders, RoleHeaders),
    responses(
        (status = 200, description = "The metrics as they are now. Reading them changes nothing.", content(
            (String = "application/openmetrics-text"),
            (String = "text/plain")
        )),
        (status = 403, description = "The caller is no administrator.", body = ErrorBody),
        Errors
    )
)]
pub async fn get(State(broker): State<Broker>, _: Admin, headers: HeaderMap) -> Result<Response, ApiError> {
    let page = broker.metrics_page().await;
    let (media_type, page) = if accept::wants_plain_metrics(&headers) {
        (PLAIN_MEDIA_TYPE, plain(&page))
    } else {
        (MEDIA_TYPE, page)
    };
    Ok(([(header::CONTENT_TYPE, media_type)], page).into_response())
}
