//! Whether the process lives, and whether it would serve: for whoever restarts it or sends it requests.

use axum::extract::State;
use axum::http::StatusCode;

use super::error::{ApiError, Errors};
use crate::broker::Broker;

/// Whether the process answers. It does not look at storage: a restart would not mend that.
#[utoipa::path(get, path = "/livez", tag = "health", responses((status = 200, description = "It does.")))]
pub async fn livez() -> StatusCode {
    StatusCode::OK
}

/// Whether posts and claims would be served now: not when storage or coordination would refuse writes.
#[utoipa::path(
    get, path = "/readyz", tag = "health",
    responses((status = 200, description = "They would."), Errors)
)]
pub async fn readyz(State(broker): State<Broker>) -> Result<StatusCode, ApiError> {
    broker.check_ready()?;
    Ok(StatusCode::OK)
}
