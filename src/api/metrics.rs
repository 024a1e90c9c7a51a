//! The page of metrics, for whoever watches the service.

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};

use super::extract::CallerHeaders;
use super::roles::{Admin, RoleHeaders};
use crate::api::error::{ApiError, ErrorBody, Errors};
use crate::broker::Broker;
use crate::metrics::MEDIA_TYPE;

/// Counters, states and durations in the text form of Prometheus (OpenMetrics 1.0). It names the queues of all projects, so
/// it is for administrators.
#[utoipa::path(
    get, path = "/metrics", operation_id = "metrics", tag = "health",
    security(("bearer" = ["admin"]), ("x_auth_token" = ["admin"])),
    params(CallerHeaders, RoleHeaders),
    responses(
        (status = 200, description = "The metrics as they are now. Reading them changes nothing.", body = String,
            content_type = "application/openmetrics-text"),
        (status = 403, description = "The caller is no administrator.", body = ErrorBody),
        Errors
    )
)]
pub async fn get(State(broker): State<Broker>, _: Admin) -> Result<Response, ApiError> {
    Ok(([(header::CONTENT_TYPE, MEDIA_TYPE)], broker.metrics_page().await).into_response())
}
