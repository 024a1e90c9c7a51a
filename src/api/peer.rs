//! What replicas ask each other, on their own listener: no client comes here, and no document tells of it. What goes wrong is
//! told by the status alone, and in the log of whoever asked.

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Json, Router};
use serde::Serialize;
use tracing::debug;

use crate::broker::Broker;
use crate::cluster::questions::{
    ARRIVE, Arrival, DEPART, Departure, HOLDINGS, HoldingsAnswer, HoldingsQuestion, STATES, StatesAnswer,
    StatesQuestion,
};
use crate::error::Error;

type Answer<T> = Result<Json<T>, StatusCode>;

/// The questions, beside the routes of clients.
pub fn questions(broker: Broker) -> Router {
    Router::new()
        .route(ARRIVE, post(arrive))
        .route(DEPART, post(depart))
        .route(STATES, post(states))
        .route(HOLDINGS, post(holdings))
        .with_state(broker)
}

async fn arrive(State(broker): State<Broker>, Json(arrival): Json<Arrival>) -> Answer<()> {
    told(broker.moves_arrive(arrival).await)
}

async fn depart(State(broker): State<Broker>, Json(departure): Json<Departure>) -> Answer<()> {
    told(broker.moves_depart(departure).await)
}

async fn states(State(broker): State<Broker>, Json(question): Json<StatesQuestion>) -> Answer<StatesAnswer> {
    told(broker.moves_states(question).await)
}

async fn holdings(
    State(broker): State<Broker>,
    Json(question): Json<HoldingsQuestion>,
) -> Answer<HoldingsAnswer> {
    told(broker.holdings_here(&question).await)
}

fn told<T: Serialize>(outcome: Result<T, Error>) -> Answer<T> {
    outcome.map(Json).map_err(|error| {
        debug!(%error, "a question of another replica is not answered");
        StatusCode::SERVICE_UNAVAILABLE
    })
}
