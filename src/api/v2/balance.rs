//! Balance: the queues to migrate to other pools so that each pool holds its share by weight; shown, and started on
//! demand.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::api::error::{ApiError, Errors, NotAdmin};
use crate::api::extract::CallerHeaders;
use crate::api::json::{Json, RequestBody, not_null, reply};
use crate::api::query::{Query, integer};
use crate::api::roles::{Admin, RoleHeaders};
use angarium_broker::{BalancePlan, Broker, Destination, PlannedMove};
use angarium_core::error::Error;
use angarium_core::limits::{self, Limits};
use angarium_core::page::PageLimit;

/// How long a plan may be.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct BalanceQuery {
    /// At most this many moves; 20 when absent.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 1_000, nullable = false)]
    limit: Option<String>,
}

/// What to begin. An empty body begins what `GET` shows.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BalanceRequest {
    /// At most this many moves; 20 when absent.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(minimum = 1, maximum = 1_000, nullable = false)]
    limit: Option<i64>,
    /// Messages a second that each migration copies at most; without a bound when it is absent.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(minimum = 1, maximum = 1_000_000, nullable = false)]
    rate: Option<i64>,
}

impl RequestBody for BalanceRequest {
    fn most(_: &Limits) -> usize {
        limits::SMALL_BODY_BYTES
    }

    fn when_empty() -> Option<Self> {
        Some(Self::default())
    }
}

/// Moves that bring each pool nearer to its share, by weight among the pools of a flavor, of what they hold and of how much is
/// written to them; both count the same. A queue counts 1,024 bytes and 60 writes a minute beside its own, and each message 256 bytes
/// beside its body. Pools of weight 0 and drained ones neither give nor take.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = BalancePlan)]
pub struct BalanceReply {
    /// Whether every queue was looked at: 100,000 are at most.
    complete: bool,
    /// Queues that move already, or whose pool does not answer.
    left_out: u64,
    /// Addresses of replicas that did not say how much is written to their queues: those count as if it were nothing.
    silent: Vec<String>,
    /// The moves, those first that help most.
    moves: Vec<BalanceMove>,
}

/// A queue that should go to another pool.
#[derive(Debug, Serialize, ToSchema)]
struct BalanceMove {
    /// The project of the queue.
    project: String,
    /// Its name.
    queue: String,
    /// The pool that stores it.
    from: String,
    /// The pool that it should lie in.
    to: String,
    /// Messages that it holds.
    messages: u64,
    /// Bytes of their bodies.
    bytes: u64,
    /// How often something of it is written in a minute (posts, deletions, claims that end): over the last 30 to 60 seconds, or
    /// since its replica took it over.
    load: u64,
    /// Whether its migration was begun. Absent in a plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    begun: Option<bool>,
    /// Why it was not.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    description: Option<String>,
}

impl BalanceMove {
    fn new(planned: PlannedMove, outcome: Option<Result<(), Error>>) -> Self {
        Self {
            project: planned.at.project.to_string(),
            queue: planned.at.name.to_string(),
            from: planned.from.to_string(),
            to: planned.to.to_string(),
            messages: planned.held.messages,
            bytes: planned.held.bytes,
            load: planned.load,
            begun: outcome.as_ref().map(Result::is_ok),
            description: outcome.and_then(|outcome| outcome.err().map(|error| error.to_string())),
        }
    }
}

/// Plan moves between pools
///
/// The plan moves no queue.
#[utoipa::path(
    get, path = "/v2/admin/balance", operation_id = "balance_plan_get", tag = "pools",
    security(("bearer" = ["admin"]), ("x_auth_token" = ["admin"])),
    params(BalanceQuery, CallerHeaders, RoleHeaders),
    responses((status = 200, description = "The plan.", body = BalanceReply), Errors, NotAdmin)
)]
pub async fn get(
    State(broker): State<Broker>,
    _: Admin,
    Query(query): Query<BalanceQuery>,
) -> Result<Response, ApiError> {
    let limit = PageLimit::new(integer("limit", query.limit.as_deref())?, limits::BALANCE_MOVES)?;
    let BalancePlan { moves, left_out, silent, is_whole, .. } = broker.balance_plan(limit.get()).await?;
    let moves = moves.into_iter().map(|planned| BalanceMove::new(planned, None)).collect();
    Ok(reply(StatusCode::OK, &BalanceReply { complete: is_whole, left_out, silent, moves }))
}

/// Start the planned moves between pools
///
/// It makes a plan and starts its migrations, which continue by themselves. Repeat it when they are done, until the
/// plan is empty.
#[utoipa::path(
    post, path = "/v2/admin/balance", operation_id = "balance_start", tag = "pools",
    security(("bearer" = ["admin"]), ("x_auth_token" = ["admin"])),
    params(CallerHeaders, RoleHeaders), request_body(content = Option<BalanceRequest>),
    responses(
        (status = 202, description = "Each move shows whether it was begun.", body = BalanceReply),
        Errors,
        NotAdmin
    )
)]
pub async fn post(
    State(broker): State<Broker>,
    _: Admin,
    Json(BalanceRequest { limit, rate }): Json<BalanceRequest>,
) -> Result<Response, ApiError> {
    let limit = PageLimit::new(limit, limits::BALANCE_MOVES)?;
    let rate = Destination::check_rate(rate)?;
    let BalancePlan { moves, left_out, silent, is_whole, .. } = broker.balance_plan(limit.get()).await?;
    let begun = broker.balance_begin(moves, rate).await;
    let moves =
        begun.into_iter().map(|(planned, outcome)| BalanceMove::new(planned, Some(outcome))).collect();
    Ok(reply(StatusCode::ACCEPTED, &BalanceReply { complete: is_whole, left_out, silent, moves }))
}
