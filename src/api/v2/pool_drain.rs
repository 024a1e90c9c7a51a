//! Drain of a pool: all its queues migrate to other pools. For administrators.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::pools::PoolPath;
use crate::api::error::{ApiError, ErrorBody, Errors};
use crate::api::extract::{CallerHeaders, Path};
use crate::api::json::{Json, RequestBody, not_null, reply};
use crate::api::roles::{Admin, RoleHeaders};
use angarium_broker::{Broker, Destination, DrainView};
use angarium_core::limits::{self, Limits};

/// How to drain. An empty body bounds nothing.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DrainRequest {
    /// Messages a second that the migration of each queue copies at most; without a bound when it is absent.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(minimum = 1, maximum = 1_000_000, nullable = false)]
    rate: Option<i64>,
}

impl RequestBody for DrainRequest {
    fn most(_: &Limits) -> usize {
        limits::SMALL_BODY_BYTES
    }

    fn when_empty() -> Option<Self> {
        Some(Self::default())
    }
}

/// How far a pool is drained.
#[derive(Debug, Serialize, ToSchema)]
pub struct DrainStatus {
    /// Whether no queue is in it any more: then it can be deleted.
    done: bool,
    /// Queues that wait for their turn. A subscription moves with its queue, and counts as no queue of its own.
    waiting: u64,
    /// Queues that are on their way out.
    moving: u64,
    /// Messages a second that the migration of each queue copies at most, if that is bounded.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    rate: Option<u32>,
}

impl From<DrainView> for DrainStatus {
    fn from(DrainView { terms, waiting, moving, is_whole }: DrainView) -> Self {
        Self { done: is_whole && waiting + moving == 0, waiting, moving, rate: terms.rate }
    }
}

/// Drain a pool
///
/// All queues of the pool migrate to other pools, as placement chooses, while clients use them. The pool takes no new
/// queue. The drain continues by itself, a few queues at a time. A repeated request changes the rate of the migrations
/// that follow.
#[utoipa::path(
    post, path = "/v2/pools/{pool}/drain", operation_id = "pool_drain_start", tag = "pools",
    security(("bearer" = ["admin"]), ("x_auth_token" = ["admin"])),
    params(PoolPath, CallerHeaders, RoleHeaders), request_body(content = Option<DrainRequest>),
    responses(
        (status = 202, description = "It has begun.", body = DrainStatus),
        (status = 403, description = "The caller is no administrator.", body = ErrorBody),
        (status = 404, description = "There is no such pool.", body = ErrorBody),
        (status = 409, description = "No other pool takes queues of its flavor.", body = ErrorBody),
        Errors
    )
)]
pub async fn post(
    State(broker): State<Broker>,
    _: Admin,
    Path(path): Path<PoolPath>,
    Json(DrainRequest { rate }): Json<DrainRequest>,
) -> Result<Response, ApiError> {
    let rate = Destination::check_rate(rate)?;
    let view = broker.pool_drain(&path.name()?, rate).await?;
    Ok(reply(StatusCode::ACCEPTED, &DrainStatus::from(view)))
}

/// Get the progress of a drain
///
/// It costs a read for each queue.
#[utoipa::path(
    get, path = "/v2/pools/{pool}/drain", operation_id = "pool_drain_get", tag = "pools",
    security(("bearer" = ["admin"]), ("x_auth_token" = ["admin"])),
    params(PoolPath, CallerHeaders, RoleHeaders),
    responses(
        (status = 200, description = "It is drained, or is being drained.", body = DrainStatus),
        (status = 403, description = "The caller is no administrator.", body = ErrorBody),
        (status = 404, description = "There is no such pool, or it is not drained.", body = ErrorBody),
        Errors
    )
)]
pub async fn get(
    State(broker): State<Broker>,
    _: Admin,
    Path(path): Path<PoolPath>,
) -> Result<Response, ApiError> {
    let view = broker.pool_drain_get(&path.name()?).await?;
    Ok(reply(StatusCode::OK, &DrainStatus::from(view)))
}

/// Cancel the drain of a pool
///
/// The pool takes new queues again by its weight. Queues that have left stay in their new pools, and migrations in
/// progress continue.
#[utoipa::path(
    delete, path = "/v2/pools/{pool}/drain", operation_id = "pool_drain_cancel", tag = "pools",
    security(("bearer" = ["admin"]), ("x_auth_token" = ["admin"])),
    params(PoolPath, CallerHeaders, RoleHeaders),
    responses(
        (status = 204, description = "It is active."),
        (status = 403, description = "The caller is no administrator.", body = ErrorBody),
        (status = 404, description = "There is no such pool, or it is not drained.", body = ErrorBody),
        Errors
    )
)]
pub async fn delete(
    State(broker): State<Broker>,
    _: Admin,
    Path(path): Path<PoolPath>,
) -> Result<StatusCode, ApiError> {
    broker.pool_drain_stop(&path.name()?).await?;
    Ok(StatusCode::NO_CONTENT)
}
