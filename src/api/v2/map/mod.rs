//! The map of the pools: as a picture, or as its figures.

mod picture;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::pools::PoolUsage;
use super::stats::ReportStatus;
use crate::api::error::{ApiError, Errors, NotAdmin};
use crate::api::extract::CallerHeaders;
use crate::api::json::reply;
use crate::api::query::Query;
use crate::api::roles::{Admin, RoleHeaders};
use angarium_broker::{BalanceRecord, Broker, MappedPool, PoolMap};
use angarium_core::error::{Error, InvalidPart};
use angarium_core::pool::PoolState;
use angarium_core::time::Timestamp;

/// How the map is shown.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct MapQuery {
    /// `svg`, a picture, when absent; or `json`.
    #[param(pattern = "^(svg|json)?$", nullable = false)]
    format: Option<String>,
}

/// The pools with their shares, what they hold, and which queues are on their way.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = PoolMap)]
pub struct MapReply {
    /// Whether every queue was looked at: 100,000 are at most.
    complete: bool,
    /// Each pool, by name.
    pools: Vec<PoolMapEntry>,
    /// Queues that go from one pool to another now.
    moves: Vec<PoolMapMove>,
    /// The last round of automatic balance. Absent when there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    balance: Option<PoolMapBalance>,
}

/// A pool on the map.
#[derive(Debug, Serialize, ToSchema)]
struct PoolMapEntry {
    /// Its name.
    name: String,
    /// The flavor whose queues it takes, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    flavor: Option<String>,
    /// Its weight.
    weight: u32,
    /// Its part of the weights of all pools of its flavor that take new queues, from 0 to 1.
    share: f64,
    /// Its part of what all pools of its flavor hold in bytes, from 0 to 1.
    held: f64,
    /// `active`, or `draining`.
    state: &'static str,
    /// Queues whose new messages it takes, those of subscriptions included.
    queues: u64,
    /// How many of these `queues` are of subscriptions.
    subscription_queues: u64,
    /// What it holds. Absent when it has never answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    usage: Option<PoolUsage>,
    /// Whether it has answered.
    answer: ReportStatus,
}

/// Queues on one way.
#[derive(Debug, Serialize, ToSchema)]
struct PoolMapMove {
    /// The pool that they leave.
    from: String,
    /// The pool that they go to.
    to: String,
    /// How many.
    queues: u64,
}

/// A round of automatic balance.
#[derive(Debug, Serialize, ToSchema)]
struct PoolMapBalance {
    /// Its time.
    #[schema(format = DateTime)]
    at: String,
    /// Address of the replica that made it.
    replica: String,
    /// What it began, or why nothing.
    description: String,
    /// The last moves that it and earlier rounds decided, the newest first: 100 at most.
    moves: Vec<PoolMapQueueMove>,
}

/// A move that automatic balance has decided.
#[derive(Debug, Serialize, ToSchema)]
struct PoolMapQueueMove {
    /// The project of the queue.
    project: String,
    /// Its name.
    queue: String,
    /// The pool that it leaves.
    from: String,
    /// The pool that it moves to.
    to: String,
    /// Time of the decision.
    #[schema(format = DateTime)]
    at: String,
    /// Why it moves.
    reason: String,
    /// Why its migration was not begun. Absent when it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    description: Option<String>,
}

impl From<BalanceRecord> for PoolMapBalance {
    fn from(round: BalanceRecord) -> Self {
        let date = |millis| Timestamp::from_millis(millis).calendar();
        let moves = round.moves.into_iter().map(|one| PoolMapQueueMove {
            project: one.at.project.to_string(),
            queue: one.at.name.to_string(),
            from: one.from,
            to: one.to,
            at: date(one.since),
            reason: one.reason,
            description: one.refused,
        });
        Self {
            at: date(round.at),
            replica: round.replica,
            description: round.outcome,
            moves: moves.collect(),
        }
    }
}

impl From<PoolMap> for MapReply {
    fn from(map: PoolMap) -> Self {
        let weight = |one: &MappedPool| match one.pool.state {
            PoolState::Active => u64::from(one.pool.weight),
            PoolState::Draining => 0,
        };
        let bytes = |one: &MappedPool| one.usage.last.map_or(0, |(usage, _)| usage.bytes);
        let part = |of: &MappedPool, measure: &dyn Fn(&MappedPool) -> u64| {
            let set = map.pools.iter().filter(|other| other.pool.flavor == of.pool.flavor);
            let whole: u64 = set.map(measure).sum();
            if whole == 0 { 0.0 } else { measure(of) as f64 / whole as f64 }
        };
        let pools = map.pools.iter().map(|one| PoolMapEntry {
            name: one.name.to_string(),
            flavor: one.pool.flavor.as_ref().map(ToString::to_string),
            weight: one.pool.weight,
            share: part(one, &weight),
            held: part(one, &bytes),
            state: one.pool.state.as_str(),
            queues: one.queues.all,
            subscription_queues: one.queues.of_subscriptions,
            usage: one.usage.last.map(|(usage, _)| PoolUsage {
                queues: usage.queues,
                messages: usage.messages,
                bytes: usage.bytes,
            }),
            answer: (&one.usage).into(),
        });
        let moves = map.moves.iter().map(|((from, to), queues)| PoolMapMove {
            from: from.to_string(),
            to: to.to_string(),
            queues: *queues,
        });
        let (pools, moves) = (pools.collect(), moves.collect());
        let balance = map.balance.map(PoolMapBalance::from);
        Self { complete: map.is_whole, pools, moves, balance }
    }
}

/// Get a map of the pools
///
/// The map shows the share of each pool by weight, what the pool holds, and which queues migrate. It costs a read for
/// each queue.
#[utoipa::path(
    get, path = "/v2/admin/map", operation_id = "pool_map_get", tag = "pools",
    security(("bearer" = ["admin"]), ("x_auth_token" = ["admin"])),
    params(MapQuery, CallerHeaders, RoleHeaders),
    responses(
        (status = 200, description = "The map.", content(
            (String = "image/svg+xml"),
            (MapReply = "application/json")
        )),
        Errors,
        NotAdmin
    )
)]
pub async fn get(
    State(broker): State<Broker>,
    _: Admin,
    Query(MapQuery { format }): Query<MapQuery>,
) -> Result<Response, ApiError> {
    let is_picture = match format.as_deref() {
        None | Some("svg") => true,
        Some("json") => false,
        Some(_) => {
            let why = "it is neither 'svg' nor 'json'";
            return Err(Error::invalid(InvalidPart::Query, "format", why).into());
        }
    };
    let map = MapReply::from(broker.pool_map().await?);
    if !is_picture {
        return Ok(reply(StatusCode::OK, &map));
    }
    Ok(([(header::CONTENT_TYPE, "image/svg+xml")], picture::draw(&map)).into_response())
}
