//! Flavors: list, get, create, change, delete. Every client may read; the rest is for administrators.

use axum::extract::State;
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::{IntoParams, ToSchema};

use super::page::{Link, NamesQuery, located};
use crate::api::error::{ApiError, ErrorBody, Errors, NotAdmin};
use crate::api::extract::{Caller, CallerHeaders, Path};
use crate::api::json::{Json, RequestBody, not_null, reply};
use crate::api::query::Query;
use crate::api::roles::{Admin, RoleHeaders};
use angarium_broker::{Broker, FlavorView};
use angarium_core::error::{Error, InvalidPart};
use angarium_core::limits::{self, Limits};
use angarium_core::names::{FlavorName, PoolName};

/// Documents the flavor in a path.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub struct FlavorPath {
    /// 1 to 64 of the ASCII letters, digits, `_`, `-` and `.`, but neither `.` nor `..`.
    #[param(min_length = 1, max_length = 64, pattern = r"^[A-Za-z0-9_.\-]+$", example = "fast")]
    flavor: String,
}

/// A flavor to be. Unknown keys are refused.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"pool_list": ["fast-1", "fast-2"]}))]
pub struct FlavorDefinition {
    /// Its pools, and no others: each must exist, and leaves the flavor that it had.
    #[schema(min_items = 1, max_items = 40)]
    pool_list: Vec<String>,
    /// Accepted for Zaqar's clients and not looked at: what a flavor can do follows from its pools.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(value_type = Option<std::collections::HashMap<String, serde_json::Value>>, nullable = false)]
    capabilities: Option<Box<RawValue>>,
}

impl RequestBody for FlavorDefinition {
    fn most(_: &Limits) -> usize {
        limits::ADMIN_BODY_BYTES
    }
}

/// The pools that a flavor is to have. Unknown keys are left aside, as in Zaqar.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(example = json!({"pool_list": ["fast-1"]}))]
pub struct FlavorUpdate {
    /// Its pools, and no others.
    #[schema(min_items = 1, max_items = 40)]
    pool_list: Vec<String>,
    /// Accepted and not looked at, as when a flavor is made.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(value_type = Option<std::collections::HashMap<String, serde_json::Value>>, nullable = false)]
    capabilities: Option<Box<RawValue>>,
}

impl RequestBody for FlavorUpdate {
    fn most(_: &Limits) -> usize {
        limits::ADMIN_BODY_BYTES
    }
}

/// Returns the pools of a flavor; the capabilities must have the form of an object.
fn pool_list(names: &[String], capabilities: Option<&RawValue>) -> Result<Vec<PoolName>, Error> {
    if capabilities.is_some_and(|text| !text.get().starts_with('{')) {
        return Err(Error::invalid(InvalidPart::Body, "capabilities", "must be a JSON object"));
    }
    if !(1..=limits::FLAVOR_POOLS).contains(&names.len()) {
        let why = format!("it has 1 to {} names of pools", limits::FLAVOR_POOLS);
        return Err(Error::invalid(InvalidPart::Limit, "pool_list", why));
    }
    let checked = names.iter().map(|name| PoolName::new(name)).collect::<Result<_, _>>();
    checked.map_err(|error| Error::invalid(InvalidPart::Body, "pool_list", error.to_string()))
}

/// A flavor.
#[derive(Debug, Serialize, ToSchema)]
pub struct Flavor {
    /// Its path.
    #[schema(example = "/v2/flavors/fast")]
    href: String,
    /// Its name.
    #[schema(example = "fast")]
    name: String,
    /// Its pools, by name.
    pool_list: Vec<String>,
    /// What its queues can rely on, in Zaqar's words: all of them but `DURABILITY` always, and that while each of its pools
    /// keeps what it acknowledged through a power cut. In a listing only with `detailed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = json!(["FIFO", "CLAIMS", "DURABILITY", "AOD", "HIGH_THROUGHPUT"]))]
    capabilities: Option<Vec<&'static str>>,
}

impl Flavor {
    fn brief(view: FlavorView) -> Self {
        let pool_list = view.pools.iter().map(ToString::to_string).collect();
        Self { href: path(&view.name), name: view.name.to_string(), pool_list, capabilities: None }
    }

    fn detailed(view: FlavorView) -> Self {
        let capabilities = view.capabilities.iter().map(|capability| capability.as_str()).collect();
        Self { capabilities: Some(capabilities), ..Self::brief(view) }
    }
}

/// A page of flavors.
#[derive(Debug, Serialize, ToSchema)]
pub struct FlavorPage {
    /// In order of name.
    flavors: Vec<Flavor>,
    /// Where the next page is; none after a page without flavors.
    links: Vec<Link>,
}

/// List flavors
///
/// The flavors are in the order of their names.
#[utoipa::path(
    get, path = "/v2/flavors", operation_id = "flavors_list", tag = "flavors",
    security(("bearer" = ["admin"]), ("x_auth_token" = ["admin"])),
    params(NamesQuery, CallerHeaders),
    responses(
        (status = 200, description = "A page of them.", body = FlavorPage,
            headers(("Content-Location" = String, description = "The path of this page."))),
        Errors
    )
)]
pub async fn list(
    State(broker): State<Broker>,
    _: Caller,
    uri: Uri,
    Query(query): Query<NamesQuery>,
) -> Result<Response, ApiError> {
    let view = query.view(Flavor::brief, Flavor::detailed)?;
    let limit = query.limit(broker.limits().flavors_page)?;
    let flavors = broker.flavors_list(query.marker.as_deref(), limit.get()).await?;
    let links = query.links("/v2/flavors", flavors.last().map(|flavor| flavor.name.to_string()));
    Ok(located(&uri, &FlavorPage { flavors: flavors.into_iter().map(view).collect(), links }))
}

/// Get a flavor
#[utoipa::path(
    get, path = "/v2/flavors/{flavor}", operation_id = "flavor_get", tag = "flavors",
    security(("bearer" = ["admin"]), ("x_auth_token" = ["admin"])),
    params(FlavorPath, CallerHeaders),
    responses(
        (status = 200, description = "The flavor.", body = Flavor),
        (status = 404, description = "There is no such flavor.", body = ErrorBody),
        Errors
    )
)]
pub async fn get(
    State(broker): State<Broker>,
    _: Caller,
    Path(FlavorPath { flavor }): Path<FlavorPath>,
) -> Result<Response, ApiError> {
    let flavor = broker.flavor_get(&FlavorName::new(&flavor)?).await?;
    Ok(reply(StatusCode::OK, &Flavor::detailed(flavor)))
}

/// Create or replace a flavor
///
/// New queues whose metadata names the flavor as `_flavor` are placed in one of its pools.
#[utoipa::path(
    put, path = "/v2/flavors/{flavor}", operation_id = "flavor_put", tag = "flavors",
    security(("bearer" = ["admin"]), ("x_auth_token" = ["admin"])),
    params(FlavorPath, CallerHeaders, RoleHeaders), request_body = FlavorDefinition,
    responses(
        (status = 201, description = "It is as was said.", headers(("Location" = String, description = "Its path."))),
        Errors,
        NotAdmin
    )
)]
pub async fn put(
    State(broker): State<Broker>,
    _: Admin,
    Path(FlavorPath { flavor }): Path<FlavorPath>,
    Json(body): Json<FlavorDefinition>,
) -> Result<Response, ApiError> {
    let name = FlavorName::new(&flavor)?;
    broker.flavor_put(&name, pool_list(&body.pool_list, body.capabilities.as_deref())?).await?;
    Ok((StatusCode::CREATED, [(header::LOCATION, path(&name))]).into_response())
}

/// Change the pools of a flavor
///
/// Queues that the flavor has placed stay in their pools.
#[utoipa::path(
    patch, path = "/v2/flavors/{flavor}", operation_id = "flavor_update", tag = "flavors",
    security(("bearer" = ["admin"]), ("x_auth_token" = ["admin"])),
    params(FlavorPath, CallerHeaders, RoleHeaders), request_body = FlavorUpdate,
    responses(
        (status = 200, description = "The flavor as it is now.", body = Flavor),
        (status = 404, description = "There is no such flavor.", body = ErrorBody),
        Errors,
        NotAdmin
    )
)]
pub async fn patch(
    State(broker): State<Broker>,
    _: Admin,
    Path(FlavorPath { flavor }): Path<FlavorPath>,
    Json(body): Json<FlavorUpdate>,
) -> Result<Response, ApiError> {
    let pools = pool_list(&body.pool_list, body.capabilities.as_deref())?;
    let flavor = broker.flavor_patch(&FlavorName::new(&flavor)?, pools).await?;
    Ok(reply(StatusCode::OK, &Flavor::detailed(flavor)))
}

/// Delete a flavor
///
/// Its pools then have no flavor, and take queues that name none.
#[utoipa::path(
    delete, path = "/v2/flavors/{flavor}", operation_id = "flavor_delete", tag = "flavors",
    security(("bearer" = ["admin"]), ("x_auth_token" = ["admin"])),
    params(FlavorPath, CallerHeaders, RoleHeaders),
    responses(
        (status = 204, description = "There is no such flavor any more."),
        Errors,
        NotAdmin
    )
)]
pub async fn delete(
    State(broker): State<Broker>,
    _: Admin,
    Path(FlavorPath { flavor }): Path<FlavorPath>,
) -> Result<StatusCode, ApiError> {
    broker.flavor_delete(&FlavorName::new(&flavor)?).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn path(name: &FlavorName) -> String {
    format!("/v2/flavors/{name}")
}
