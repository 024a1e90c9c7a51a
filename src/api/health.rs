//! Whether the process lives, and whether it would serve: for whoever restarts it or sends it requests.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Serialize;
use utoipa::ToSchema;

use super::error::{ApiError, Outage};
use super::json::reply;
use crate::broker::Broker;

/// Whether the process can still serve. Not when only a restart can help: an embedded store that failed is opened
/// again without one.
#[utoipa::path(
    get, path = "/livez", tag = "health", security(()),
    responses((status = 200, description = "It can."), Outage)
)]
pub async fn livez(State(broker): State<Broker>) -> Result<StatusCode, ApiError> {
    broker.check_alive()?;
    Ok(StatusCode::OK)
}

/// Whether clients should ask this replica now: not when storage would refuse writes, nor when it has been without a session with
/// its coordination for two session timeouts and another replica has one.
#[utoipa::path(
    get, path = "/readyz", tag = "health", security(()),
    responses((status = 200, description = "They would.", body = Readiness), Outage)
)]
pub async fn readyz(State(broker): State<Broker>) -> Result<Response, ApiError> {
    let warnings = broker.readiness()?;
    Ok(reply(StatusCode::OK, &Readiness { warnings }))
}

/// A service that would serve.
#[derive(Serialize, ToSchema)]
pub struct Readiness {
    /// What an operator should look into all the same.
    pub warnings: Vec<String>,
}
