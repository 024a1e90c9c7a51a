//! Health: the state of coordination and of each pool, for administrators.

use std::collections::BTreeMap;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Serialize;
use utoipa::ToSchema;

use crate::api::error::{ApiError, ErrorBody, Errors};
use crate::api::extract::CallerHeaders;
use crate::api::json::reply;
use crate::api::roles::{Admin, RoleHeaders};
use crate::api::v2::stats::{self, ComponentStatus};
use angarium_broker::{Broker, HealthReport, PoolHealth};
use angarium_metrics::SessionState;

/// How everything does. Unlike Zaqar, which creates a queue and posts to it to find out, nothing is written.
#[derive(Debug, Serialize, ToSchema)]
pub struct Health {
    /// Whether queues, claims and pools can be looked up.
    catalog_reachable: bool,
    /// Whether every pool can be reached.
    storage_reachable: bool,
    /// Whether posts and claims would be served now, as `/readyz` states.
    ready: bool,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    not_ready: Option<String>,
    /// The session with what holds queues and claims: `connected`, `suspended` or `lost`.
    #[schema(example = "connected")]
    session: &'static str,
    /// How many messages all queues have; absent while a pool or a replica does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    message_volume: Option<MessageVolume>,
    /// Each of Zaqar's operations by its name, and whether it would be served now, as far as this request has found out.
    operation_status: BTreeMap<&'static str, OperationStatus>,
    /// Each pool by its name, as the replica finds it that answers.
    pools: BTreeMap<String, PoolHealthBody>,
    /// Every replica, by address, with its own report.
    components: Vec<ComponentStatus>,
}

/// How many messages all queues of all projects have.
#[derive(Debug, Serialize, ToSchema)]
struct MessageVolume {
    /// Under no claim.
    free: u64,
    /// Under live claims, in the queues that are open.
    claimed: u64,
    /// Both together.
    total: u64,
}

impl MessageVolume {
    /// Returns the counts; none while a pool or a replica does not report its own.
    fn new(health: &HealthReport) -> Option<Self> {
        let told = |silence: &Option<String>| silence.is_none().then_some(());
        let mut total = 0;
        for (_, said) in &health.usages {
            told(&said.silence)?;
            total += said.last.as_ref()?.0.messages;
        }
        told(&health.replicas.silence)?;
        let mut claimed = 0;
        for replica in &health.replicas.last.as_ref()?.0 {
            told(&replica.said.silence)?;
            claimed += replica.said.last.as_ref()?.0.claimed_messages;
        }
        // The two numbers are not counted at the same instant.
        let claimed = claimed.min(total);
        Some(Self { free: total - claimed, claimed, total })
    }
}

/// Whether an operation would be served.
#[derive(Clone, Debug, Serialize, ToSchema)]
struct OperationStatus {
    /// Whether it would.
    succeeded: bool,
    /// Seconds that the slowest pool took for a small read.
    seconds: f64,
    /// Always null: nothing was carried out that a log could tell of.
    #[serde(rename = "ref")]
    reference: Option<String>,
}

/// The operations in the form of Zaqar's health check, and whether each needs a pool with free space.
const OPERATIONS: [(&str, bool); 8] = [
    ("create_queue", false),
    ("post_messages", true),
    ("list_messages", false),
    ("claim_messages", false),
    ("delete_messages", false),
    ("delete_claim", false),
    ("bulk_delete_messages", false),
    ("delete_queue", false),
];

fn operation_status(health: &HealthReport) -> BTreeMap<&'static str, OperationStatus> {
    let is_served = health.is_catalogue_reachable
        && health.not_ready.is_none()
        && health.session == SessionState::Connected
        && health.pools.iter().all(|pool| pool.health.is_ok());
    let has_room = health.pools.iter().all(|pool| pool.writable);
    let took = health.pools.iter().flat_map(|pool| &pool.health).map(|health| health.took);
    let seconds = took.max().unwrap_or_default().as_secs_f64();
    let status = |needs_room: bool| {
        let succeeded = is_served && (has_room || !needs_room);
        OperationStatus { succeeded, seconds, reference: None }
    };
    OPERATIONS.into_iter().map(|(name, needs_room)| (name, status(needs_room))).collect()
}

/// How a pool does.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = PoolHealth)]
pub struct PoolHealthBody {
    /// Whether it can be reached.
    storage_reachable: bool,
    /// Whether it accepts new messages now.
    writable: bool,
    /// `active`, or `draining`.
    state: &'static str,
    /// Its share of new queues.
    weight: u32,
    /// Seconds that a small read took.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    seconds: Option<f64>,
    /// The most durable class it can reach: `sync`, or `relaxed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    class: Option<&'static str>,
    /// How full it is, if it knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    bytes: Option<StorageSpace>,
    /// Why it cannot be reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    description: Option<String>,
}

/// How full a pool is.
#[derive(Debug, Serialize, ToSchema)]
struct StorageSpace {
    /// Free bytes of its disk or database.
    free: u64,
    /// Size of its disk or database in bytes, whatever else is there.
    total: u64,
}

impl From<PoolHealth> for PoolHealthBody {
    fn from(found: PoolHealth) -> Self {
        let (health, description) = match found.health {
            Ok(health) => (Some(health), None),
            Err(why) => (None, Some(why)),
        };
        let bytes = health.and_then(|health| Some(StorageSpace { free: health.free?, total: health.total? }));
        Self {
            storage_reachable: health.is_some(),
            writable: found.writable,
            state: found.pool.state.as_str(),
            weight: found.pool.weight,
            seconds: health.map(|health| health.took.as_secs_f64()),
            class: health.map(|health| health.class.as_str()),
            bytes,
            description,
        }
    }
}

/// Get the health of the service
///
/// The answer shows the state of coordination, of each pool and of each replica.
#[utoipa::path(
    get, path = "/v2/health", operation_id = "health_get", tag = "health",
    security(("bearer" = ["admin"]), ("x_auth_token" = ["admin"])),
    params(CallerHeaders, RoleHeaders),
    responses(
        (status = 200, description = "What was found, good or bad.", body = Health),
        (status = 403, description = "The caller is no administrator.", body = ErrorBody),
        Errors
    )
)]
pub async fn get(State(broker): State<Broker>, _: Admin) -> Result<Response, ApiError> {
    let health = broker.health().await;
    let (message_volume, operation_status) = (MessageVolume::new(&health), operation_status(&health));
    let body = |pool: PoolHealth| (pool.name.to_string(), PoolHealthBody::from(pool));
    let pools: BTreeMap<_, _> = health.pools.into_iter().map(body).collect();
    let storage_reachable = pools.values().all(|pool| pool.storage_reachable);
    // If the list may be incomplete, the cause is the same that makes the catalogue unreachable.
    let (components, _) = stats::components(health.replicas);
    let reply_body = Health {
        catalog_reachable: health.is_catalogue_reachable,
        storage_reachable,
        ready: health.not_ready.is_none(),
        not_ready: health.not_ready,
        session: health.session.as_str(),
        message_volume,
        operation_status,
        pools,
        components,
    };
    Ok(reply(StatusCode::OK, &reply_body))
}
