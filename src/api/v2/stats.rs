//! Statistics of the whole installation and its replicas, for administrators.

use std::collections::BTreeMap;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Serialize;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::api::error::{ApiError, ErrorBody, Errors};
use crate::api::extract::CallerHeaders;
use crate::api::json::reply;
use crate::api::roles::{Admin, RoleHeaders};
use crate::api::v2::pools::PoolUsage;
use angarium_broker::{Broker, PartReport, ReplicaReport};

/// What all projects have in all pools, and what each replica serves. For a replica that does not answer it shows the
/// last report, its age, and why there is nothing newer.
#[derive(Debug, Serialize, ToSchema)]
pub struct ServiceStats {
    /// Whether everything was asked and answered: then the sums are whole.
    complete: bool,
    /// Queues of all projects.
    queues: QueueTotal,
    /// Messages in all pools that have ever answered.
    messages: MessageTotals,
    /// Each pool by its name.
    pools: BTreeMap<String, PoolStats>,
    /// Every replica, by address.
    components: Vec<ComponentStatus>,
    /// Why it is not known which replicas there are now. Absent when it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    description: Option<String>,
}

/// How many queues there are.
#[derive(Debug, Serialize, ToSchema)]
struct QueueTotal {
    /// All of them. Absent when it was never known.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    total: Option<u64>,
    /// Whether it has answered.
    answer: ReportStatus,
}

/// How many messages there are.
#[derive(Debug, Serialize, ToSchema)]
struct MessageTotals {
    /// Messages that no claim holds, in any state: kept ones and messages in transfer too.
    free: u64,
    /// Those under a live claim, in queues that their replicas have opened.
    claimed: u64,
    /// All of them.
    total: u64,
    /// Bytes of their bodies.
    bytes: u64,
}

/// What a pool holds.
#[derive(Debug, Serialize, ToSchema)]
struct PoolStats {
    /// What it holds in all its queues. Absent when it has never answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    usage: Option<PoolUsage>,
    /// Whether it has answered.
    answer: ReportStatus,
}

/// Whether a part of the service has answered, and how old is what is shown of it.
#[derive(Debug, Serialize, ToSchema)]
pub struct ReportStatus {
    /// Whether it has answered this time.
    pub(super) given: bool,
    /// Seconds since it said what is shown. Absent when it has never answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    age: Option<f64>,
    /// Why it has not answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    description: Option<String>,
}

impl<T> From<&PartReport<T>> for ReportStatus {
    fn from(said: &PartReport<T>) -> Self {
        let age = said.last.as_ref().map(|(_, age)| age.as_secs_f64());
        Self { given: said.silence.is_none(), age, description: said.silence.clone() }
    }
}

/// A replica and what it serves, as it last said.
#[derive(Debug, Serialize, ToSchema)]
pub struct ComponentStatus {
    /// Which one.
    instance: Uuid,
    /// Where the other replicas reach it.
    #[schema(example = "10.0.0.5:8889")]
    address: String,
    /// Whether it has answered.
    answer: ReportStatus,
    /// What it serves. Absent when it has never answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    serves: Option<ComponentReport>,
}

/// What a replica serves, and how it does.
#[derive(Debug, Serialize, ToSchema)]
struct ComponentReport {
    /// Whether it would serve posts and claims, as its `/readyz` states.
    ready: bool,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    not_ready: Option<String>,
    /// Its session with what holds queues and claims: `connected`, `suspended` or `lost`.
    #[schema(example = "connected")]
    session: String,
    /// Slots that it serves, of 256.
    slots: u64,
    /// Queues that it has opened.
    open_queues: u64,
    /// Claims that wait for messages.
    waiting_claims: u64,
    /// Messages under claims in these queues.
    claimed_messages: u64,
    /// Pools that did not answer it when it last asked, at most 10 seconds before.
    silent_pools: Vec<String>,
}

impl From<ReplicaReport> for ComponentStatus {
    fn from(ReplicaReport { component, said }: ReplicaReport) -> Self {
        let answer = ReportStatus::from(&said);
        let serves = said.last.map(|(report, _)| ComponentReport {
            ready: report.not_ready.is_none(),
            not_ready: report.not_ready,
            session: report.session,
            slots: report.slots,
            open_queues: report.open_queues,
            waiting_claims: report.waiting_claims,
            claimed_messages: report.claimed_messages,
            silent_pools: report.silent_pools,
        });
        Self { instance: component.instance, address: component.address, answer, serves }
    }
}

/// Returns the replicas, and the reason why the list may be incomplete.
pub(super) fn components(replicas: PartReport<Vec<ReplicaReport>>) -> (Vec<ComponentStatus>, Option<String>) {
    let found = replicas.last.map(|(found, _)| found).unwrap_or_default();
    (found.into_iter().map(ComponentStatus::from).collect(), replicas.silence)
}

/// Get the statistics of the service
///
/// Every pool and every replica is asked, and the answer names each that does not respond.
#[utoipa::path(
    get, path = "/v2/stats", operation_id = "service_stats_get", tag = "health",
    security(("bearer" = ["admin"]), ("x_auth_token" = ["admin"])),
    params(CallerHeaders, RoleHeaders),
    responses(
        (status = 200, description = "What was found.", body = ServiceStats),
        (status = 403, description = "The caller is no administrator.", body = ErrorBody),
        Errors
    )
)]
pub async fn get(State(broker): State<Broker>, _: Admin) -> Result<Response, ApiError> {
    let stats = broker.stats_of_all().await;
    let used = || stats.pools.iter().filter_map(|(_, said)| said.last.map(|(usage, _)| usage));
    let (total, bytes) =
        used().fold((0, 0), |(messages, bytes), usage| (messages + usage.messages, bytes + usage.bytes));
    let queues =
        QueueTotal { total: stats.queues.last.map(|(total, _)| total), answer: (&stats.queues).into() };
    let pools = stats.pools.into_iter().map(|(name, said)| {
        let held = said.last.map(|(usage, _)| usage);
        let usage =
            held.map(|held| PoolUsage { queues: held.queues, messages: held.messages, bytes: held.bytes });
        (name.to_string(), PoolStats { usage, answer: (&said).into() })
    });
    let pools: BTreeMap<String, PoolStats> = pools.collect();
    let (components, description) = components(stats.replicas);
    let claimed =
        components.iter().filter_map(|one| one.serves.as_ref()).map(|serves| serves.claimed_messages);
    let claimed = claimed.sum::<u64>().min(total);
    let complete = description.is_none()
        && queues.answer.given
        && pools.values().all(|pool| pool.answer.given)
        && components.iter().all(|one| one.answer.given);
    let messages = MessageTotals { free: total - claimed, claimed, total, bytes };
    Ok(reply(StatusCode::OK, &ServiceStats { complete, queues, messages, pools, components, description }))
}
