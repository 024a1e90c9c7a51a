//! The list of the claims of a queue, which Zaqar does not have.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::page::{Link, links};
use super::queues;
use crate::api::error::{ApiError, Errors};
use crate::api::extract::{CallerHeaders, QueuePath, QueueRequest};
use crate::api::json::reply;
use crate::api::query::{Query, integer};
use angarium_broker::{Broker, ClaimFilter, ListedClaim};
use angarium_core::ids::ClaimId;
use angarium_core::page::PageLimit;

/// Which claims to list.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ClaimsQuery {
    /// Only claims behind this one: the marker of a page's link. One that no page gave is behind all claims.
    #[param(nullable = false)]
    marker: Option<String>,
    /// At most this many; 10 when absent.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 20, nullable = false)]
    limit: Option<String>,
}

/// A page of claims.
#[derive(Debug, Serialize, ToSchema)]
pub struct ClaimPage {
    /// In order of their ids.
    claims: Vec<ClaimEntry>,
    /// The next page. Empty when there is nothing on this one.
    links: Vec<Link>,
}

/// A claim in a list.
#[derive(Debug, Serialize, ToSchema)]
struct ClaimEntry {
    /// Its id.
    #[schema(value_type = uuid::Uuid)]
    id: ClaimId,
    /// Its path.
    href: String,
    /// Seconds that it lasts from its creation or last renewal.
    ttl: u32,
    /// Seconds since then.
    age: u64,
    /// How many of its messages are not deleted yet.
    messages: usize,
}

/// List claims
///
/// The page has the claims of the queue that have not ended, in order of their ids.
#[utoipa::path(
    get, path = "/v2/queues/{queue_name}/claims", operation_id = "claims_list", tag = "claims",
    params(QueuePath, ClaimsQuery, CallerHeaders),
    responses((status = 200, description = "A page of them; none when there is no such queue.", body = ClaimPage), Errors)
)]
pub async fn get(
    State(broker): State<Broker>,
    asked: QueueRequest,
    Query(query): Query<ClaimsQuery>,
) -> Result<Response, ApiError> {
    let limit = PageLimit::new(integer("limit", query.limit.as_deref())?, broker.limits().messages_page)?;
    let path = format!("{}/claims", queues::path(&asked.queue));
    let Ok(after) = query.marker.as_deref().map(str::parse).transpose() else {
        return Ok(reply(StatusCode::OK, &ClaimPage { claims: Vec::new(), links: Vec::new() }));
    };
    let page = broker.claims_list(&asked.queue, ClaimFilter { after, limit }).await?;
    let summary = |ListedClaim { id, ttl, age, messages }: ListedClaim| ClaimEntry {
        href: format!("{path}/{id}"),
        id,
        ttl,
        age,
        messages,
    };
    let claims = page.claims.into_iter().map(summary).collect();
    let links = links(&path, page.next.map(|id| id.to_string()), &[("limit", query.limit.as_deref())]);
    Ok(reply(StatusCode::OK, &ClaimPage { claims, links }))
}
