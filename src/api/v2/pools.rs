//! Pools: list, get, add, change, delete. All of it is for administrators.

use axum::extract::State;
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use utoipa::{IntoParams, ToSchema};

use super::health::PoolHealthBody;
use super::holds::HoldView;
use super::page::{Link, NamesQuery, located, view};
use crate::api::error::{ApiError, ErrorBody, Errors, NotAdmin};
use crate::api::extract::{CallerHeaders, Path};
use crate::api::json::{Json, RequestBody, not_null, reply};
use crate::api::query::{Query, boolean};
use crate::api::roles::{Admin, RoleHeaders};
use angarium_broker::{Broker, PoolReport, PoolView};
use angarium_core::error::{Error, InvalidPart};
use angarium_core::hold::{AppliedHold, HoldTarget};
use angarium_core::limits::{self, Limits};
use angarium_core::names::{FlavorName, PoolName};
use angarium_core::pool::{PoolChange, PoolOptions, PoolState, PoolUri, weight};

/// Documents the pool in a path.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub struct PoolPath {
    /// 1 to 64 of the ASCII letters, digits, `_`, `-` and `.`, but neither `.` nor `..`.
    #[param(min_length = 1, max_length = 64, pattern = r"^[A-Za-z0-9_.\-]+$", example = "default")]
    pool: String,
}

impl PoolPath {
    pub(super) fn name(&self) -> Result<PoolName, Error> {
        PoolName::new(&self.pool)
    }
}

/// Whether everything is shown.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct DetailQuery {
    /// Whether options and state are shown too; false when absent.
    #[param(value_type = Option<bool>, nullable = false)]
    pub detailed: Option<String>,
}

/// A pool to be. Unknown keys are refused.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"uri": "embedded:pools/fast", "weight": 100, "flavor": "fast", "options": {}}))]
pub struct PoolDefinition {
    /// Where its storage is: `embedded:PATH`, a path below the data directory; or `postgres://`, `redis://`, `rediss://`,
    /// `redis-cluster://` or `redis-sentinel://` with servers. No other pool may have it.
    #[schema(min_length = 1, max_length = 255)]
    uri: String,
    /// Its share of new queues: the chance of each pool is its weight divided by the weights of all. 0 takes none.
    #[schema(minimum = 0, maximum = 4_294_967_295_u32)]
    weight: i64,
    /// The flavor whose queues it takes. Without one it takes the queues that name no flavor.
    #[serde(default)]
    flavor: Option<String>,
    /// What its driver is told.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(value_type = Option<std::collections::HashMap<String, serde_json::Value>>, nullable = false)]
    options: Option<Box<RawValue>>,
}

impl RequestBody for PoolDefinition {
    fn most(_: &Limits) -> usize {
        limits::ADMIN_BODY_BYTES
    }
}

impl PoolDefinition {
    fn check(self) -> Result<PoolChange, Error> {
        Ok(PoolChange {
            uri: Some(PoolUri::new(&self.uri)?),
            weight: Some(weight(self.weight)?),
            flavor: Some(flavor(self.flavor)?),
            options: Some(self.options.map(PoolOptions::new).transpose()?.unwrap_or_default()),
            state: None,
            drain: None,
        })
    }
}

/// What to change of a pool: at least one of these. Unknown keys are left aside, as in Zaqar.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[schema(example = json!({"weight": 0}))]
pub struct PoolUpdate {
    /// Another way to the same storage; another storage only while no queue is in the pool.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(min_length = 1, max_length = 255, nullable = false)]
    uri: Option<String>,
    /// Its share of new queues; 0 takes none.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(minimum = 0, maximum = 4_294_967_295_u32, nullable = false)]
    weight: Option<i64>,
    /// Its flavor; empty or null takes it away.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<String>)]
    flavor: Option<Option<String>>,
    /// What its driver is told.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(value_type = Option<std::collections::HashMap<String, serde_json::Value>>, nullable = false)]
    options: Option<Box<RawValue>>,
    /// `active`, or `draining`, which takes no new queues whatever its weight.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(nullable = false, pattern = "^(active|draining)$")]
    state: Option<String>,
}

/// Distinguishes a field that is null from an absent one.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<String>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

impl RequestBody for PoolUpdate {
    fn most(_: &Limits) -> usize {
        limits::ADMIN_BODY_BYTES
    }
}

impl PoolUpdate {
    fn check(self) -> Result<PoolChange, Error> {
        let change = PoolChange {
            uri: self.uri.map(|uri| PoolUri::new(&uri)).transpose()?,
            weight: self.weight.map(weight).transpose()?,
            flavor: self.flavor.map(flavor).transpose()?,
            options: self.options.map(PoolOptions::new).transpose()?,
            state: self.state.map(|state| PoolState::parse(&state)).transpose()?,
            drain: None,
        };
        if change.is_empty() {
            let why = "one of uri, weight, flavor, options, state must be given";
            return Err(Error::invalid(InvalidPart::Body, "", why));
        }
        Ok(change)
    }
}

/// Returns the flavor of a pool; an empty name is none, as in Zaqar.
fn flavor(name: Option<String>) -> Result<Option<FlavorName>, Error> {
    let name = name.filter(|name| !name.is_empty());
    let checked = name.map(|name| FlavorName::new(&name)).transpose();
    checked.map_err(|error| Error::invalid(InvalidPart::Body, "flavor", error.to_string()))
}

/// A pool.
#[derive(Debug, Serialize, ToSchema)]
pub struct Pool {
    /// Its path.
    #[schema(example = "/v2/pools/default")]
    href: String,
    /// Its name.
    #[schema(example = "default")]
    name: String,
    /// Where its storage is. Passwords are shown as `***`.
    #[schema(example = "embedded:journal")]
    uri: String,
    /// Its share of new queues.
    #[schema(value_type = i64, minimum = 0, maximum = 4_294_967_295_u32)]
    weight: u32,
    /// Its flavor; null when it has none.
    flavor: Option<String>,
    /// What its driver is told; shown with `detailed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<std::collections::HashMap<String, serde_json::Value>>, nullable = false)]
    options: Option<Box<RawValue>>,
    /// `active`, or `draining`; shown with `detailed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    state: Option<&'static str>,
    /// How it does; shown of a pool that is asked for by its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    health: Option<PoolHealthBody>,
    /// What it holds; likewise, if it reports it in time.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    usage: Option<PoolUsage>,
    /// The queues that are in it, with messages or without; a queue that migrates is in two pools. A pool with
    /// queues cannot be deleted. Only of a single pool, if they can be counted in time.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    queues: Option<u64>,
    /// How many of these `queues` are of subscriptions: they are removed with their subscriptions.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    subscription_queues: Option<u64>,
    /// Its hold. Absent when it is not held.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    held: Option<HoldView>,
}

/// What all queues of a pool hold together.
#[derive(Debug, Serialize, ToSchema)]
pub struct PoolUsage {
    /// Queues that have a message, those of subscriptions included. The `queues` of a pool are all queues in it.
    pub(super) queues: u64,
    /// Messages, claimed or not.
    pub(super) messages: u64,
    /// Bytes of their bodies.
    pub(super) bytes: u64,
}

impl Pool {
    fn brief(view: PoolView) -> Self {
        let PoolView { name, pool, hold } = view;
        let held = hold.map(|hold| AppliedHold { target: Some(HoldTarget::Pool(name.clone())), hold });
        Self {
            href: path(&name),
            name: name.to_string(),
            uri: pool.uri.without_password(),
            weight: pool.weight,
            flavor: pool.flavor.map(|flavor| flavor.to_string()),
            options: None,
            state: None,
            health: None,
            usage: None,
            queues: None,
            subscription_queues: None,
            held: held.map(HoldView::from),
        }
    }

    fn detailed(view: PoolView) -> Self {
        let (options, state) = (view.pool.options.as_raw().to_owned(), view.pool.state.as_str());
        Self { options: Some(options), state: Some(state), ..Self::brief(view) }
    }
}

/// A page of pools.
#[derive(Debug, Serialize, ToSchema)]
pub struct PoolPage {
    /// In order of name.
    pools: Vec<Pool>,
    /// Where the next page is; none after a page without pools.
    links: Vec<Link>,
}

/// List pools
///
/// The pools are in the order of their names.
#[utoipa::path(
    get, path = "/v2/pools", operation_id = "pools_list", tag = "pools",
    security(("bearer" = ["admin"]), ("x_auth_token" = ["admin"])),
    params(NamesQuery, CallerHeaders, RoleHeaders),
    responses(
        (status = 200, description = "A page of them.", body = PoolPage,
            headers(("Content-Location" = String, description = "The path of this page."))),
        Errors,
        NotAdmin
    )
)]
pub async fn list(
    State(broker): State<Broker>,
    _: Admin,
    uri: Uri,
    Query(query): Query<NamesQuery>,
) -> Result<Response, ApiError> {
    let view = query.view(Pool::brief, Pool::detailed)?;
    let limit = query.limit(broker.limits().pools_page)?;
    let pools = broker.pools_list(query.marker.as_deref(), limit.get()).await?;
    let links = query.links("/v2/pools", pools.last().map(|pool| pool.name.to_string()));
    Ok(located(&uri, &PoolPage { pools: pools.into_iter().map(view).collect(), links }))
}

/// Get a pool
///
/// The answer has its health and its usage.
#[utoipa::path(
    get, path = "/v2/pools/{pool}", operation_id = "pool_get", tag = "pools",
    security(("bearer" = ["admin"]), ("x_auth_token" = ["admin"])),
    params(PoolPath, DetailQuery, CallerHeaders, RoleHeaders),
    responses(
        (status = 200, description = "The pool.", body = Pool),
        (status = 404, description = "There is no such pool.", body = ErrorBody),
        Errors,
        NotAdmin
    )
)]
pub async fn get(
    State(broker): State<Broker>,
    _: Admin,
    Path(PoolPath { pool }): Path<PoolPath>,
    Query(query): Query<DetailQuery>,
) -> Result<Response, ApiError> {
    let view = view(query.detailed.as_deref(), Pool::brief, Pool::detailed)?;
    let PoolReport { health, usage, queues, hold } = broker.pool_report(&PoolName::new(&pool)?).await?;
    let shown = view(PoolView { name: health.name.clone(), pool: health.pool.clone(), hold });
    let usage =
        usage.map(|held| PoolUsage { queues: held.queues, messages: held.messages, bytes: held.bytes });
    let subscription_queues = queues.map(|queues| queues.of_subscriptions);
    let queues = queues.map(|queues| queues.all);
    Ok(reply(
        StatusCode::OK,
        &Pool { health: Some(health.into()), usage, queues, subscription_queues, ..shown },
    ))
}

/// Create or replace a pool
///
/// A new pool takes new queues at once. Its storage is opened first, and stamped as the storage of this pool.
#[utoipa::path(
    put, path = "/v2/pools/{pool}", operation_id = "pool_put", tag = "pools",
    security(("bearer" = ["admin"]), ("x_auth_token" = ["admin"])),
    params(PoolPath, CallerHeaders, RoleHeaders), request_body = PoolDefinition,
    responses(
        (status = 201, description = "It is as was said.", headers(("Location" = String, description = "Its path."))),
        (status = 403, description = "The caller is no administrator; or the pool is used and would get another storage.",
            body = ErrorBody),
        (status = 409, description = "Another pool, or another installation, has the storage.", body = ErrorBody),
        Errors
    )
)]
pub async fn put(
    State(broker): State<Broker>,
    _: Admin,
    Path(PoolPath { pool }): Path<PoolPath>,
    Json(body): Json<PoolDefinition>,
) -> Result<Response, ApiError> {
    let name = PoolName::new(&pool)?;
    broker.pool_put(&name, body.check()?).await?;
    Ok((StatusCode::CREATED, [(header::LOCATION, path(&name))]).into_response())
}

/// Change a pool
#[utoipa::path(
    patch, path = "/v2/pools/{pool}", operation_id = "pool_update", tag = "pools",
    security(("bearer" = ["admin"]), ("x_auth_token" = ["admin"])),
    params(PoolPath, CallerHeaders, RoleHeaders), request_body = PoolUpdate,
    responses(
        (status = 200, description = "The pool as it is now.", body = Pool),
        (status = 403, description = "The caller is no administrator; or the pool is used and would get another storage.",
            body = ErrorBody),
        (status = 404, description = "There is no such pool.", body = ErrorBody),
        (status = 409, description = "Another pool, or another installation, has the storage.", body = ErrorBody),
        Errors
    )
)]
pub async fn patch(
    State(broker): State<Broker>,
    _: Admin,
    Path(PoolPath { pool }): Path<PoolPath>,
    Json(body): Json<PoolUpdate>,
) -> Result<Response, ApiError> {
    let changed = broker.pool_patch(&PoolName::new(&pool)?, body.check()?).await?;
    Ok(reply(StatusCode::OK, &Pool::brief(changed)))
}

/// How a pool is deleted.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct PoolDeleteQuery {
    /// Whether to delete a pool that is used, with the messages in it. False when absent.
    #[param(value_type = Option<bool>, nullable = false)]
    force: Option<String>,
}

/// Delete a pool
///
/// A pool with queues is refused. The content of its storage stays, and belongs to no pool.
///
/// With `force` a used pool is deleted, which need not be reachable: **the messages in it are lost**. Its queues keep
/// their metadata and continue empty in other pools of their flavor; their subscriptions are deleted. A queue that is being migrated keeps its
/// messages in the other pool. Discarded messages are counted in the log while the pool answers. When a queue finds no
/// other pool, nothing is changed (409). After an answer with an unknown outcome the request can be repeated.
#[utoipa::path(
    delete, path = "/v2/pools/{pool}", operation_id = "pool_delete", tag = "pools",
    security(("bearer" = ["admin"]), ("x_auth_token" = ["admin"])),
    params(PoolPath, CallerHeaders, RoleHeaders, PoolDeleteQuery),
    responses(
        (status = 204, description = "There is no such pool any more."),
        (status = 403, description = "The caller is no administrator; or the pool is in use: a queue is in it, one that \
            was deleted is still being cleaned away after some seconds (`may_retry`), or it is the last pool of a flavor.", body = ErrorBody),
        (status = 409, description = "With `force`: a queue in the pool finds no other pool.", body = ErrorBody),
        Errors
    )
)]
pub async fn delete(
    State(broker): State<Broker>,
    _: Admin,
    Path(PoolPath { pool }): Path<PoolPath>,
    Query(PoolDeleteQuery { force }): Query<PoolDeleteQuery>,
) -> Result<StatusCode, ApiError> {
    let name = PoolName::new(&pool)?;
    if boolean("force", force.as_deref())?.unwrap_or(false) {
        broker.pool_delete_forced(&name).await?;
    } else {
        broker.pool_delete(&name).await?;
    }
    Ok(StatusCode::NO_CONTENT)
}

fn path(name: &PoolName) -> String {
    format!("/v2/pools/{name}")
}
