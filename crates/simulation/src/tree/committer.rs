//! The committer of a handle. It has one request in flight, with all commits that gathered meanwhile.
//!
//! Requests of a session are numbered, and the leader refuses one that arrives after a later one. So a commit whose
//! outcome was reported as unknown is never applied after a later commit of its session (P15).

use std::sync::Arc;
use std::time::Duration;

use angarium_coordination::TreeError;

use super::FAULTS;
use super::leader::{LeaderAnswer, Outcomes};
use super::link::{Connection, Shared};
use super::pieces::Piece;
use crate::faults::Fault;
use crate::world::Loss;

/// A request without an answer for this time is given up. By then its callers have gone.
const REQUEST: Duration = Duration::from_secs(7);

/// The answer to all commits of a request.
enum RequestAnswer {
    Outcomes(Outcomes),
    NotSent(&'static str),
    Unknown(&'static str),
}

impl Shared {
    /// Sends waiting commits until the tree is closed.
    pub(super) async fn run_committer(self: Arc<Self>) {
        loop {
            let connection = tokio::select! {
                biased;
                () = self.stop.cancelled() => break,
                connection = self.commit_waits() => connection,
            };
            let (request, pieces) = self.take_pieces();
            if !pieces.is_empty() {
                self.commit_pieces(connection, request, pieces).await;
            }
        }
        self.end_committer();
    }

    async fn commit_pieces(&self, connection: Connection, request: u64, pieces: Vec<Piece>) {
        let sent = tokio::time::timeout(REQUEST, self.send(connection, request, &pieces));
        let answer = tokio::select! {
            biased;
            answer = sent => answer.unwrap_or(RequestAnswer::Unknown("the tree did not answer in time")),
            () = self.lost(connection) => RequestAnswer::Unknown("the connection was lost"),
        };
        match answer {
            RequestAnswer::Outcomes(outcomes) => {
                pieces.into_iter().zip(outcomes.commits).for_each(|(piece, outcome)| piece.answer(outcome));
            }
            RequestAnswer::NotSent(cause) => {
                pieces.into_iter().for_each(|piece| piece.answer(Err(TreeError::NotSent(cause.into()))));
            }
            RequestAnswer::Unknown(cause) => {
                pieces.into_iter().for_each(|piece| piece.answer(Err(TreeError::Unknown(cause.into()))));
            }
        }
    }

    /// Sends a request to the leader, and waits until the connected server has applied it.
    async fn send(&self, connection: Connection, request: u64, pieces: &[Piece]) -> RequestAnswer {
        let world = self.ensemble.world();
        if let Some(delay) = self.ensemble.commit_delay() {
            tokio::time::sleep(delay).await;
        }
        if self.ensemble.refuses_commits()
            || self.ensemble.refuses_registration(pieces.iter().map(|piece| &piece.changes))
        {
            world.count(Fault::TreeRefused);
            world.hop().await;
            return RequestAnswer::NotSent("the request was refused");
        }
        let commits: Vec<_> = pieces.iter().map(|piece| piece.changes.clone()).collect();
        let (ensemble, session) = (self.ensemble.clone(), connection.session);
        let serve = move || ensemble.commit(session, request, &commits);
        match world.request(FAULTS, serve).await {
            Ok(LeaderAnswer::Served(outcomes)) => {
                self.ensemble.applied(connection.server, outcomes.zxid).await;
                if !self.is_current(connection) {
                    return RequestAnswer::Unknown("the connection was lost");
                }
                self.see(outcomes.zxid);
                RequestAnswer::Outcomes(outcomes)
            }
            Ok(LeaderAnswer::Ended) => RequestAnswer::NotSent("the session has ended"),
            Ok(LeaderAnswer::Silent) => std::future::pending().await,
            Err(Loss::NotSent) => RequestAnswer::NotSent("the request was refused"),
            Err(Loss::Unknown) => RequestAnswer::Unknown("the answer was lost"),
        }
    }
}
