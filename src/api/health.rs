//! Liveness and readiness, for orchestrators that restart the process and load balancers that send it requests.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Serialize;
use utoipa::ToSchema;

use super::error::{ApiError, Outage};
use super::json::reply;
use angarium_broker::Broker;

/// Check whether the process can serve
///
/// It fails only when a restart is needed. An embedded store that failed is opened again without a restart. HEAD is
/// answered as GET, without a body.
#[utoipa::path(
    get, path = "/livez", operation_id = "liveness_get", tag = "health", security(()),
    responses((status = 200, description = "It can."), Outage)
)]
pub async fn livez(State(broker): State<Broker>) -> Result<StatusCode, ApiError> {
    broker.check_alive()?;
    Ok(StatusCode::OK)
}

/// Check whether the replica accepts requests
///
/// It fails while storage would refuse writes, and when the replica has had no session with its coordination for two
/// session timeouts while another replica has one. HEAD is answered as GET, without a body.
#[utoipa::path(
    get, path = "/readyz", operation_id = "readiness_get", tag = "health", security(()),
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
