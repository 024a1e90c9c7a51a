//! Requests between replicas, on their own listener: clients cannot reach it, and no document describes it. A failure
//! is reported by the status alone, and in the log of the requesting replica.

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Json, Router};
use serde::Serialize;
use tracing::debug;

use angarium_broker::Broker;
use angarium_cluster::peer_client::{
    ARRIVE, ArrivalRequest, COUNTS, CountsRequest, CountsResponse, DEPART, DepartureRequest, HOLD, HOLDINGS,
    HoldRequest, HoldResponse, HoldingsRequest, HoldingsResponse, LEAVE, LOADS, LeaveRequest, LeaveResponse,
    LoadsRequest, LoadsResponse, MIGRATE, PeerMigrationRequest, REPORT, ReportRequest, ReportResponse,
    SESSION, STATES, SessionRequest, SessionResponse, StatesRequest, StatesResponse, UNHELD,
    UndeliveredClaim,
};
use angarium_core::error::Error;

type PeerReply<T> = Result<Json<T>, StatusCode>;

/// Prefix of the peer paths; no client path has it.
const QUESTIONS: &str = "/peer/";

/// Whether a path is that of a peer request.
pub fn is_peer_request(path: &str) -> bool {
    path.starts_with(QUESTIONS)
}

pub fn peer_routes(broker: Broker) -> Router {
    Router::new()
        .route(ARRIVE, post(arrive))
        .route(DEPART, post(depart))
        .route(STATES, post(states))
        .route(HOLDINGS, post(holdings))
        .route(REPORT, post(report))
        .route(UNHELD, post(unheld))
        .route(MIGRATE, post(migrate))
        .route(LEAVE, post(leave))
        .route(LOADS, post(loads))
        .route(COUNTS, post(counts))
        .route(HOLD, post(hold))
        .route(SESSION, post(session))
        .with_state(broker)
}

async fn arrive(State(broker): State<Broker>, Json(arrival): Json<ArrivalRequest>) -> PeerReply<()> {
    told(broker.accept_transfers(arrival).await)
}

async fn depart(State(broker): State<Broker>, Json(departure): Json<DepartureRequest>) -> PeerReply<()> {
    told(broker.remove_departed(departure).await)
}

async fn states(
    State(broker): State<Broker>,
    Json(question): Json<StatesRequest>,
) -> PeerReply<StatesResponse> {
    told(broker.read_transfer_states(question).await)
}

async fn holdings(
    State(broker): State<Broker>,
    Json(question): Json<HoldingsRequest>,
) -> PeerReply<HoldingsResponse> {
    told(broker.local_holdings(&question).await)
}

async fn migrate(State(broker): State<Broker>, Json(question): Json<PeerMigrationRequest>) -> PeerReply<()> {
    told(broker.migrate_local(question).await)
}

async fn leave(State(broker): State<Broker>, Json(question): Json<LeaveRequest>) -> PeerReply<LeaveResponse> {
    told(broker.leave_pool_local(question).await)
}

async fn report(
    State(broker): State<Broker>,
    Json(ReportRequest {}): Json<ReportRequest>,
) -> Json<ReportResponse> {
    Json(broker.local_report())
}

async fn loads(
    State(broker): State<Broker>,
    Json(LoadsRequest {}): Json<LoadsRequest>,
) -> Json<LoadsResponse> {
    Json(broker.local_loads())
}

async fn counts(
    State(broker): State<Broker>,
    Json(question): Json<CountsRequest>,
) -> PeerReply<CountsResponse> {
    told(broker.local_counts(question).await)
}

async fn hold(State(broker): State<Broker>, Json(question): Json<HoldRequest>) -> PeerReply<HoldResponse> {
    told(broker.confirm_hold(question).await)
}

async fn session(
    State(broker): State<Broker>,
    Json(SessionRequest {}): Json<SessionRequest>,
) -> Json<SessionResponse> {
    Json(SessionResponse { has_session: broker.has_session(), instance: Some(broker.instance()) })
}

async fn unheld(
    State(broker): State<Broker>,
    Json(UndeliveredClaim { queue, claim }): Json<UndeliveredClaim>,
) -> PeerReply<()> {
    told(async { broker.claim_unheld(queue.queue()?, claim).await }.await)
}

fn told<T: Serialize>(outcome: Result<T, Error>) -> PeerReply<T> {
    outcome.map(Json).map_err(|error| {
        debug!(%error, "peer request failed");
        StatusCode::SERVICE_UNAVAILABLE
    })
}
