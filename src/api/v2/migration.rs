//! Migration of a queue to another pool: begin, get, cancel. All of it is for administrators.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::api::error::{ApiError, ErrorBody, Errors};
use crate::api::extract::{CallerHeaders, QueuePath, QueueRequest};
use crate::api::json::{Json, RequestBody, not_null, reply};
use crate::api::roles::{Admin, RoleHeaders};
use angarium_broker::{Broker, Destination, MigrationView};
use angarium_core::error::Error;
use angarium_core::limits::{self, Limits};
use angarium_core::names::PoolName;

/// Where a queue shall go. Unknown keys are refused.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MigrationRequest {
    /// The pool. It has the flavor of the queue.
    #[schema(min_length = 1, max_length = 64)]
    pool: String,
    /// Messages a second that are copied at most; without a bound when it is absent.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(minimum = 1, maximum = 1_000_000, nullable = false)]
    rate: Option<i64>,
}

impl RequestBody for MigrationRequest {
    fn most(_: &Limits) -> usize {
        limits::SMALL_BODY_BYTES
    }
}

impl MigrationRequest {
    fn check(self) -> Result<Destination, Error> {
        Destination::new(PoolName::new(&self.pool)?, self.rate)
    }
}

/// A migration that is under way.
#[derive(Debug, Serialize, ToSchema)]
pub struct Migration {
    /// The pool that the queue leaves.
    from: String,
    /// The pool that it moves to, which takes what is posted meanwhile.
    to: String,
    /// `copying`; or `canceled` when it returns to where it came from.
    #[schema(pattern = "^(copying|canceled)$")]
    state: &'static str,
    /// When it began or was canceled, as `YYYY-MM-DDTHH:MM:SSZ`.
    started: String,
    /// Messages a second that are copied at most, if that is bounded.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    rate: Option<u32>,
    /// Messages that went over since then, or since another replica took it up. The copies of its subscriptions count too.
    copied: u64,
    /// Messages that are left in the pool that the queue leaves, with the copies of its subscriptions. Claimed ones go over
    /// when they are given back.
    left: u64,
}

impl From<MigrationView> for Migration {
    fn from(view: MigrationView) -> Self {
        Self {
            from: view.from.to_string(),
            to: view.to.to_string(),
            state: if view.is_canceled { "canceled" } else { "copying" },
            started: view.started.calendar(),
            rate: view.rate,
            copied: view.copied,
            left: view.left,
        }
    }
}

/// Migrate a queue to another pool
///
/// Clients can use the queue meanwhile. Claims are kept, the order stays, and a replica that takes the queue over
/// continues the migration. When the migration is done this path is 404.
#[utoipa::path(
    post, path = "/v2/queues/{queue_name}/migrate", operation_id = "queue_migration_start", tag = "queues",
    security(("bearer" = ["admin"]), ("x_auth_token" = ["admin"])),
    params(QueuePath, CallerHeaders, RoleHeaders), request_body = MigrationRequest,
    responses(
        (status = 202, description = "It has begun.", body = Migration),
        (status = 403, description = "The caller is no administrator.", body = ErrorBody),
        (status = 404, description = "There is no such queue.", body = ErrorBody),
        (status = 409, description = "It moves already, or is in that pool.", body = ErrorBody),
        Errors
    )
)]
pub async fn post(
    State(broker): State<Broker>,
    _: Admin,
    asked: QueueRequest,
    Json(body): Json<MigrationRequest>,
) -> Result<Response, ApiError> {
    let view = broker.queue_migrate(&asked.queue, body.check()?).await?;
    Ok(reply(StatusCode::ACCEPTED, &Migration::from(view)))
}

/// Get the progress of a migration
#[utoipa::path(
    get, path = "/v2/queues/{queue_name}/migrate", operation_id = "queue_migration_get", tag = "queues",
    security(("bearer" = ["admin"]), ("x_auth_token" = ["admin"])),
    params(QueuePath, CallerHeaders, RoleHeaders),
    responses(
        (status = 200, description = "The migration is in progress.", body = Migration),
        (status = 403, description = "The caller is no administrator.", body = ErrorBody),
        (status = 404, description = "There is no such queue, or it does not move.", body = ErrorBody),
        Errors
    )
)]
pub async fn get(State(broker): State<Broker>, _: Admin, asked: QueueRequest) -> Result<Response, ApiError> {
    let view = broker.migration_get(&asked.queue).await?;
    Ok(reply(StatusCode::OK, &Migration::from(view)))
}

/// Cancel the migration of a queue
///
/// The queue migrates back to the pool that it came from, with the messages that were copied. A canceled migration
/// stays canceled.
#[utoipa::path(
    delete, path = "/v2/queues/{queue_name}/migrate", operation_id = "queue_migration_cancel", tag = "queues",
    security(("bearer" = ["admin"]), ("x_auth_token" = ["admin"])),
    params(QueuePath, CallerHeaders, RoleHeaders),
    responses(
        (status = 202, description = "The migration is reversed.", body = Migration),
        (status = 403, description = "The caller is no administrator.", body = ErrorBody),
        (status = 404, description = "There is no such queue, or it does not move.", body = ErrorBody),
        (status = 409, description = "Its source pool does not have its flavor.", body = ErrorBody),
        Errors
    )
)]
pub async fn delete(
    State(broker): State<Broker>,
    _: Admin,
    asked: QueueRequest,
) -> Result<Response, ApiError> {
    let view = broker.migration_cancel(&asked.queue).await?;
    Ok(reply(StatusCode::ACCEPTED, &Migration::from(view)))
}
