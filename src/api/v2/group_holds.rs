//! Holds of single groups of a queue.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Deserialize;
use utoipa::IntoParams;

use super::holds::{HoldRequest, HoldView};
use crate::api::error::{ApiError, ErrorBody, Errors};
use crate::api::extract::{CallerHeaders, CallerName, Path, QueuePath, QueueRequest};
use crate::api::json::{Json, reply};
use angarium_broker::Broker;
use angarium_core::error::Error;
use angarium_core::group::GroupName;

/// Documents the group in a path.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub struct GroupPath {
    /// The group, as messages name it: 1 to 128 of the ASCII letters, digits and ASCII punctuation, percent-encoded.
    #[param(min_length = 1, max_length = 128, pattern = r"^[!-~]+$")]
    group: String,
}

impl GroupPath {
    fn check(&self) -> Result<GroupName, Error> {
        GroupName::new(&self.group, "group")
    }
}

/// Hold a group
///
/// After the answer no claim request that begins later gets a message of the group, whatever fails; the other messages of
/// the queue are delivered. In a FIFO queue the group waits in its place. In other queues a message of the group that a
/// claim meets is put aside, and not counted; it keeps its ttl. At most 100 groups of a queue are held.
#[utoipa::path(
    put, path = "/v2/queues/{queue_name}/groups/{group}/hold", operation_id = "group_hold_put", tag = "queues",
    params(QueuePath, GroupPath, CallerHeaders), request_body = HoldRequest,
    responses(
        (status = 200, description = "The hold, which is in force.", body = HoldView),
        (status = 404, description = "There is no such queue.", body = ErrorBody),
        (status = 409, description = "Messages may be aside, and the new hold has no `claim`: release the group first.", body = ErrorBody),
        Errors
    )
)]
pub async fn put(
    State(broker): State<Broker>,
    CallerName(by): CallerName,
    asked: QueueRequest,
    Path(of): Path<GroupPath>,
    Json(body): Json<HoldRequest>,
) -> Result<Response, ApiError> {
    let hold = broker.group_hold(&asked.queue, &of.check()?, body.check(by)?).await?;
    Ok(reply(StatusCode::OK, &HoldView::from(hold)))
}

/// Get the hold of a group
///
/// A hold that has ended is 404, also while messages that it has put aside become ready.
#[utoipa::path(
    get, path = "/v2/queues/{queue_name}/groups/{group}/hold", operation_id = "group_hold_get", tag = "queues",
    params(QueuePath, GroupPath, CallerHeaders),
    responses(
        (status = 200, description = "The hold.", body = HoldView),
        (status = 404, description = "There is no such queue, or the group is not held.", body = ErrorBody),
        Errors
    )
)]
pub async fn get(
    State(broker): State<Broker>,
    asked: QueueRequest,
    Path(of): Path<GroupPath>,
) -> Result<Response, ApiError> {
    let hold = broker.group_hold_get(&asked.queue, &of.check()?).await?;
    Ok(reply(StatusCode::OK, &HoldView::from(hold)))
}

/// Release a group
///
/// The hold ends. Messages that it has put aside become ready soon after the answer, in the order of their posts. A group
/// that is not held counts as released.
#[utoipa::path(
    delete, path = "/v2/queues/{queue_name}/groups/{group}/hold", operation_id = "group_hold_delete", tag = "queues",
    params(QueuePath, GroupPath, CallerHeaders),
    responses(
        (status = 204, description = "The group is not held."),
        (status = 404, description = "There is no such queue.", body = ErrorBody),
        Errors
    )
)]
pub async fn delete(
    State(broker): State<Broker>,
    CallerName(by): CallerName,
    asked: QueueRequest,
    Path(of): Path<GroupPath>,
) -> Result<StatusCode, ApiError> {
    broker.group_release(&asked.queue, &of.check()?, by).await?;
    Ok(StatusCode::NO_CONTENT)
}
