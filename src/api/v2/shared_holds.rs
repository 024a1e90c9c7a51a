//! Holds of pools and projects, for administrators: all their queues are held. Zaqar has none.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::holds::{HoldRequest, HoldView};
use super::page::{Link, links};
use super::pools::PoolPath;
use crate::api::error::{ApiError, ErrorBody, Errors, NotAdmin};
use crate::api::extract::{CallerHeaders, CallerName, Path};
use crate::api::json::{Json, reply};
use crate::api::query::{Query, integer};
use crate::api::roles::{Admin, RoleHeaders};
use angarium_broker::Broker;
use angarium_core::error::{Error, InvalidPart};
use angarium_core::hold::{AppliedHold, HoldTarget};
use angarium_core::limits;
use angarium_core::names::{PoolName, ProjectId};
use angarium_core::page::PageLimit;

impl PoolPath {
    fn target(&self) -> Result<HoldTarget, Error> {
        self.name().map(HoldTarget::Pool)
    }
}

/// Documents the project in a path.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub struct ProjectPath {
    /// Its id, as in the header `X-Project-Id`: at most 256 bytes, without blanks at its ends and without control
    /// characters, percent-encoded.
    #[param(min_length = 1, max_length = 256, example = "000000000000")]
    project: String,
}

impl ProjectPath {
    fn target(&self) -> Result<HoldTarget, Error> {
        ProjectId::named(&self.project, "project").map(HoldTarget::Project)
    }
}

/// Which part of the list of holds.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct HoldsQuery {
    /// The hold after which the page begins, as the link of the page before has it.
    #[param(
        pattern = r"^(pool/[A-Za-z0-9_.\-]{1,64}|project/[!-~]{1,256})?$",
        example = "project/acme",
        nullable = false
    )]
    marker: Option<String>,
    /// At most this many; 20 when absent.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 1_000, nullable = false)]
    limit: Option<String>,
}

impl HoldsQuery {
    /// Returns the held resource after which the page begins.
    fn after(&self) -> Result<Option<HoldTarget>, Error> {
        let Some(marker) = self.marker.as_deref().filter(|marker| !marker.is_empty()) else {
            return Ok(None);
        };
        let target = match marker.split_once('/') {
            Some((POOL, name)) => PoolName::new(name).map(HoldTarget::Pool).ok(),
            Some((PROJECT, name)) => ProjectId::new(name).map(HoldTarget::Project).ok(),
            _ => None,
        };
        let why = "it is not the marker of a link";
        target.map(Some).ok_or_else(|| Error::invalid(InvalidPart::Limit, "marker", why))
    }
}

/// The kinds of resources in a marker.
const POOL: &str = "pool";
const PROJECT: &str = "project";

fn marker(target: &HoldTarget) -> String {
    let kind = match target {
        HoldTarget::Pool(_) => POOL,
        HoldTarget::Project(_) => PROJECT,
    };
    format!("{kind}/{}", target.name())
}

/// A page of holds.
#[derive(Debug, Serialize, ToSchema)]
pub struct HoldPage {
    /// Those of pools first, then those of projects, each in order of the names. `pool` or `project` names the resource.
    holds: Vec<HoldView>,
    /// Where the next page is; none after a page without holds.
    links: Vec<Link>,
}

/// List the holds of pools and projects
///
/// Only holds that are in force are listed. It costs a look at memory. A hold whose request was answered is in the
/// answers of every replica that serves queues.
#[utoipa::path(
    get, path = "/v2/admin/holds", operation_id = "holds_list", tag = "pools",
    security(("bearer" = ["admin"]), ("x_auth_token" = ["admin"])),
    params(HoldsQuery, CallerHeaders, RoleHeaders),
    responses((status = 200, description = "A page of them.", body = HoldPage), Errors, NotAdmin)
)]
pub async fn list(
    State(broker): State<Broker>,
    _: Admin,
    Query(query): Query<HoldsQuery>,
) -> Result<Response, ApiError> {
    let limit = PageLimit::new(integer("limit", query.limit.as_deref())?, limits::HOLDS_PAGE)?;
    let holds = broker.holds_list(query.after()?.as_ref(), limit.get());
    let last = holds.last().and_then(|applied| applied.target.as_ref()).map(marker);
    let links = links("/v2/admin/holds", last, &[("limit", query.limit.as_deref())]);
    Ok(reply(StatusCode::OK, &HoldPage { holds: holds.into_iter().map(HoldView::from).collect(), links }))
}

/// Hold a pool
///
/// The hold replaces an earlier one. With `claim`, no claim request that begins after the answer gets a message of the
/// queues in the pool; with `post` or `discard`, no post to them that begins after it is stored, whatever fails. A queue that moves between
/// two pools is held while one of them is. The weight of the pool stays as it is. Claims that exist continue:
/// they are renewed, settled, deleted and released as always. The answer waits until every replica that serves queues
/// knows the hold, and until no former one can act against it, which may take as long as a session of a stopped replica
/// lasts. After an unknown outcome the request can be repeated.
#[utoipa::path(
    put, path = "/v2/pools/{pool}/hold", operation_id = "pool_hold_put", tag = "pools",
    security(("bearer" = ["admin"]), ("x_auth_token" = ["admin"])),
    params(PoolPath, CallerHeaders, RoleHeaders), request_body = HoldRequest,
    responses(
        (status = 200, description = "The hold, which is in force.", body = HoldView),
        (status = 403, description = "The caller is no administrator.", body = ErrorBody),
        (status = 404, description = "There is no such pool.", body = ErrorBody),
        Errors
    )
)]
pub async fn pool_put(
    State(broker): State<Broker>,
    _: Admin,
    CallerName(by): CallerName,
    Path(path): Path<PoolPath>,
    Json(body): Json<HoldRequest>,
) -> Result<Response, ApiError> {
    let target = path.target()?;
    let hold = broker.hold_make(&target, body.check(by)?).await?;
    Ok(reply(StatusCode::OK, &HoldView::from(AppliedHold { target: Some(target), hold })))
}

/// Get the hold of a pool
///
/// The answer has its effects, its reason, and who made it. A hold that has ended by itself is 404.
#[utoipa::path(
    get, path = "/v2/pools/{pool}/hold", operation_id = "pool_hold_get", tag = "pools",
    security(("bearer" = ["admin"]), ("x_auth_token" = ["admin"])),
    params(PoolPath, CallerHeaders, RoleHeaders),
    responses(
        (status = 200, description = "The hold.", body = HoldView),
        (status = 403, description = "The caller is no administrator.", body = ErrorBody),
        (status = 404, description = "There is no such pool, or it is not held.", body = ErrorBody),
        Errors
    )
)]
pub async fn pool_get(
    State(broker): State<Broker>,
    _: Admin,
    Path(path): Path<PoolPath>,
) -> Result<Response, ApiError> {
    let target = path.target()?;
    let hold = broker.hold_get(&target).await?;
    Ok(reply(StatusCode::OK, &HoldView::from(AppliedHold { target: Some(target), hold })))
}

/// Release a pool
///
/// The hold ends. Messages of the queues in the pool can be claimed and posted again, in their order, unless another hold is in
/// force for them. A pool that is not held counts as released.
#[utoipa::path(
    delete, path = "/v2/pools/{pool}/hold", operation_id = "pool_hold_delete", tag = "pools",
    security(("bearer" = ["admin"]), ("x_auth_token" = ["admin"])),
    params(PoolPath, CallerHeaders, RoleHeaders),
    responses(
        (status = 204, description = "The pool is not held."),
        (status = 403, description = "The caller is no administrator.", body = ErrorBody),
        (status = 404, description = "There is no such pool.", body = ErrorBody),
        Errors
    )
)]
pub async fn pool_delete(
    State(broker): State<Broker>,
    _: Admin,
    CallerName(by): CallerName,
    Path(path): Path<PoolPath>,
) -> Result<StatusCode, ApiError> {
    broker.hold_release(&path.target()?, by).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Hold a project
///
/// The hold replaces an earlier one. With `claim`, no claim request that begins after the answer gets a message of the
/// queues of the project; with `post` or `discard`, no post to them that begins after it is stored, whatever fails. Queues that are created later are
/// held too, so the project need not have any. Claims that exist continue:
/// they are renewed, settled, deleted and released as always. The answer waits until every replica that serves queues
/// knows the hold, and until no former one can act against it, which may take as long as a session of a stopped replica
/// lasts. After an unknown outcome the request can be repeated.
#[utoipa::path(
    put, path = "/v2/projects/{project}/hold", operation_id = "project_hold_put", tag = "pools",
    security(("bearer" = ["admin"]), ("x_auth_token" = ["admin"])),
    params(ProjectPath, CallerHeaders, RoleHeaders), request_body = HoldRequest,
    responses(
        (status = 200, description = "The hold, which is in force.", body = HoldView),
        (status = 403, description = "The caller is no administrator.", body = ErrorBody),
        Errors
    )
)]
pub async fn project_put(
    State(broker): State<Broker>,
    _: Admin,
    CallerName(by): CallerName,
    Path(path): Path<ProjectPath>,
    Json(body): Json<HoldRequest>,
) -> Result<Response, ApiError> {
    let target = path.target()?;
    let hold = broker.hold_make(&target, body.check(by)?).await?;
    Ok(reply(StatusCode::OK, &HoldView::from(AppliedHold { target: Some(target), hold })))
}

/// Get the hold of a project
///
/// The answer has its effects, its reason, and who made it. A hold that has ended by itself is 404.
#[utoipa::path(
    get, path = "/v2/projects/{project}/hold", operation_id = "project_hold_get", tag = "pools",
    security(("bearer" = ["admin"]), ("x_auth_token" = ["admin"])),
    params(ProjectPath, CallerHeaders, RoleHeaders),
    responses(
        (status = 200, description = "The hold.", body = HoldView),
        (status = 403, description = "The caller is no administrator.", body = ErrorBody),
        (status = 404, description = "The project is not held.", body = ErrorBody),
        Errors
    )
)]
pub async fn project_get(
    State(broker): State<Broker>,
    _: Admin,
    Path(path): Path<ProjectPath>,
) -> Result<Response, ApiError> {
    let target = path.target()?;
    let hold = broker.hold_get(&target).await?;
    Ok(reply(StatusCode::OK, &HoldView::from(AppliedHold { target: Some(target), hold })))
}

/// Release a project
///
/// The hold ends. Messages of the queues of the project can be claimed and posted again, in their order, unless another hold is in
/// force for them. A project that is not held counts as released.
#[utoipa::path(
    delete, path = "/v2/projects/{project}/hold", operation_id = "project_hold_delete", tag = "pools",
    security(("bearer" = ["admin"]), ("x_auth_token" = ["admin"])),
    params(ProjectPath, CallerHeaders, RoleHeaders),
    responses(
        (status = 204, description = "The project is not held."),
        (status = 403, description = "The caller is no administrator.", body = ErrorBody),
        Errors
    )
)]
pub async fn project_delete(
    State(broker): State<Broker>,
    _: Admin,
    CallerName(by): CallerName,
    Path(path): Path<ProjectPath>,
) -> Result<StatusCode, ApiError> {
    broker.hold_release(&path.target()?, by).await?;
    Ok(StatusCode::NO_CONTENT)
}
