//! The quota of the caller's project, and its use.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Serialize;
use utoipa::ToSchema;

use crate::api::error::{ApiError, Errors};
use crate::api::extract::{Caller, CallerHeaders};
use crate::api::json::reply;
use angarium_broker::{Broker, QuotaView};

/// What a project holds beside what it may. What is on its way in counts already, and what is on its way out still
/// does; a message whose life has ended counts until a sweep removes it: half a minute later, and up to a thirty-second
/// part of its ttl more.
#[derive(Debug, Serialize, ToSchema)]
pub struct Quota {
    /// The project.
    project: String,
    /// Its queues.
    queues: QuotaUsage,
    /// Messages in all its queues, in any state.
    messages: QuotaUsage,
    /// Bytes of the bodies of those messages.
    bytes: QuotaUsage,
}

/// How much there is of something, and how much there may be.
#[derive(Debug, Serialize, ToSchema)]
struct QuotaUsage {
    /// How much there is. Absent when the project has no quota at all, and more than 10,000 queues or a pool that does not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    used: Option<u64>,
    /// The most there may be. Absent when that is not bounded.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    quota: Option<u64>,
}

/// Get the quota of the project
///
/// The answer shows the amounts that the project may hold and the amounts that it holds. The projects `ACCOUNT@REGION` of an
/// account count together, with a quota or without. A request beyond a quota is
/// answered 429 with the code `over_quota`, and nothing of it is done.
#[utoipa::path(
    get, path = "/v2/quota", operation_id = "quota_get", tag = "queues",
    params(CallerHeaders),
    responses((status = 200, description = "What there is, and what there may be.", body = Quota), Errors)
)]
pub async fn get(State(broker): State<Broker>, caller: Caller) -> Result<Response, ApiError> {
    let QuotaView { quota, used } = broker.quota(&caller.project).await?;
    let bounded = |used, quota| QuotaUsage { used, quota };
    let body = Quota {
        project: caller.project.as_str().to_owned(),
        queues: bounded(used.map(|used| used.queues), quota.queues),
        messages: bounded(used.map(|used| used.amount.messages), quota.messages),
        bytes: bounded(used.map(|used| used.amount.bytes), quota.bytes),
    };
    Ok(reply(StatusCode::OK, &body))
}
