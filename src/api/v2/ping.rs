//! Ping.

use axum::extract::State;
use axum::http::StatusCode;

use crate::api::error::{ApiError, Errors};
use crate::api::extract::{Caller, CallerHeaders};
use angarium_broker::Broker;

/// Check whether storage can be used
#[utoipa::path(
    get, path = "/v2/ping", operation_id = "ping_get", tag = "health", security(()),
    params(CallerHeaders), responses((status = 204, description = "It can."), Errors)
)]
pub async fn get(State(broker): State<Broker>, _: Caller) -> Result<StatusCode, ApiError> {
    broker.check_ready()?;
    Ok(StatusCode::NO_CONTENT)
}

/// Check whether the service answers
///
/// HEAD does not check the storage, as in Zaqar.
#[utoipa::path(
    head, path = "/v2/ping", operation_id = "ping_head", tag = "health", security(()),
    responses((status = 204, description = "It does."))
)]
pub async fn head() -> StatusCode {
    StatusCode::NO_CONTENT
}
