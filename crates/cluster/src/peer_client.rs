//! What replicas ask each other of their own accord, beside the requests of clients that they pass on: about messages
//! that move between queues which two of them serve, about claims that no replica got, and what a project holds. Only
//! the wire is known here, not what it means.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, StatusCode, header};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::peers::{PeerFailure, Peers};
use crate::limits;
use angarium_core::access::PeerSecret;
use angarium_core::error::{Error, Part};
use angarium_core::ids::{ClaimId, MessageId, QueueId};
use angarium_core::names::{ProjectId, QueueName, QueueRef};

/// The header by which a replica shows that it is one.
pub const SECRET: &str = "x-angarium-secret";

/// Where a question leaves. These paths are on the listener for replicas only.
pub const ARRIVE: &str = "/peer/moves/arrive";
/// See [`ARRIVE`].
pub const DEPART: &str = "/peer/moves/depart";
/// See [`ARRIVE`].
pub const STATES: &str = "/peer/moves/states";
/// See [`ARRIVE`].
pub const HOLDINGS: &str = "/peer/holdings";
/// See [`ARRIVE`].
pub const REPORT: &str = "/peer/report";
/// See [`ARRIVE`].
pub const UNHELD: &str = "/peer/claims/unheld";
/// See [`ARRIVE`].
pub const MIGRATE: &str = "/peer/migrate";
/// See [`ARRIVE`].
pub const SESSION: &str = "/peer/session";
/// See [`ARRIVE`].
pub const LOADS: &str = "/peer/loads";
/// See [`ARRIVE`].
pub const COUNTS: &str = "/peer/counts";

/// A queue by its names.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct QueueAddress {
    project: String,
    name: String,
}

impl From<&QueueRef> for QueueAddress {
    fn from(at: &QueueRef) -> Self {
        Self { project: at.project.to_string(), name: at.name.to_string() }
    }
}

impl QueueAddress {
    pub fn queue(&self) -> Result<QueueRef, Error> {
        Ok(QueueRef { project: ProjectId::new(&self.project)?, name: QueueName::new(&self.name)? })
    }
}

/// As what an owner of a slot speaks: the parts of its epoch.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct OwnerEpoch {
    pub slot: u8,
    /// See [`angarium_storage::Epoch`].
    pub generation: u32,
    /// See [`angarium_storage::Epoch`].
    pub transaction: u64,
}

/// To the owner of the target: messages that are set aside at their source are to be taken over.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ArrivalRequest {
    /// Where they go.
    pub target: QueueAddress,
    /// Where they are.
    pub source: QueueAddress,
    /// The incarnation of that queue.
    pub source_id: QueueId,
    /// The pool that they lie in.
    pub pool: String,
    /// Which ones.
    pub ids: Vec<MessageId>,
    /// Seconds that they live from now on, if their life begins again.
    pub ttl: Option<u32>,
    /// Whether they are in order of groups there, and so in a target that is made for them.
    pub is_ordered: bool,
    /// Seconds of the retention of a target that is made for them, if they live by that of their queue. Replicas of before do not
    /// say it.
    #[serde(default)]
    pub retention: Option<u32>,
}

/// To the owner of the source: the target has these messages, prepared, and they are to be removed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DepartureRequest {
    /// Where they are.
    pub source: QueueAddress,
    /// The incarnation of that queue.
    pub source_id: QueueId,
    /// Which ones.
    pub ids: Vec<MessageId>,
    /// Who reports it. One that was replaced is not heard any more, once its successor has spoken.
    pub owner: OwnerEpoch,
}

/// To the owner of the source: what it has of these messages.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StatesRequest {
    /// Where they are, or were.
    pub source: QueueAddress,
    /// The incarnation of that queue; any when absent.
    pub source_id: Option<QueueId>,
    /// Which ones.
    pub ids: Vec<MessageId>,
    /// Who asks.
    pub owner: OwnerEpoch,
}

/// The answer to [`StatesRequest`]. Those that are in neither list are gone.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct StatesResponse {
    /// Those that are set aside to be moved.
    pub moving: Vec<MessageId>,
    /// Those that stay.
    pub kept: Vec<MessageId>,
}

/// To the replica that has granted a claim: its holder left before the answer was handed over.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct UndeliveredClaim {
    pub queue: QueueAddress,
    pub claim: ClaimId,
}

/// How much of a project is counted by a replica.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HoldingsRequest {
    /// Of which one.
    pub project: String,
}

/// The answer to [`HoldingsRequest`].
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct HoldingsResponse {
    pub queues: u64,
    pub messages: u64,
    /// The bytes of those.
    pub bytes: u64,
}

/// What a replica serves and how it does. Everything is asked.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ReportRequest {}

/// The answer to [`ReportRequest`].
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ReportResponse {
    /// Why it is not ready, if it is not.
    pub not_ready: Option<String>,
    /// Its session with the tree: `connected`, `suspended` or `lost`.
    pub session: String,
    /// Slots that it serves.
    pub slots: u64,
    /// Queues that it has opened.
    pub open_queues: u64,
    /// Claims that wait for messages.
    pub waiting_claims: u64,
    /// Messages under claims in the queues that are open.
    pub claimed_messages: u64,
    /// Pools that did not answer when it last asked.
    pub silent_pools: Vec<String>,
}

/// How much is written to the queues that a replica serves.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct LoadsRequest {}

/// The answer to [`LoadsRequest`].
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct LoadsResponse {
    /// The busiest queues, at most [`core_limits::LOADS`].
    pub queues: Vec<QueueLoad>,
}

/// How much is written to a queue.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct QueueLoad {
    /// Which one.
    pub queue: QueueId,
    /// How often its pools change something of it in a minute: posts, deletions, ends of claims.
    pub per_minute: u64,
}

/// To the owner of queues: how much is in each of them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CountsRequest {
    /// Which ones, at most [`core_limits::PAGE_MAX`].
    pub queues: Vec<QueueAddress>,
}

/// The answer to [`CountsRequest`].
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct CountsResponse {
    /// Of each queue in the order of the question; none of one that is not there, or whose pool does not say.
    pub queues: Vec<Option<QueueCounts>>,
}

/// How much is in a queue, and how fast that changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueCounts {
    /// Messages that can be claimed.
    pub ready: u64,
    /// Messages whose delay is not over.
    pub delayed: u64,
    /// Messages under a live claim.
    pub claimed: u64,
    /// Messages on their way to or from another queue.
    pub in_transfer: u64,
    /// Seconds since the oldest message was posted that is ready or claimed.
    pub oldest_age: Option<u64>,
    /// Messages that came in a minute: posted, or moved from another queue.
    pub posted_per_minute: u64,
    /// Messages that went in a minute: deleted, expired, or moved to another queue.
    pub removed_per_minute: u64,
}

/// Whether it has a session with the tree.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct SessionRequest {}

/// The answer to [`SessionRequest`].
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct SessionResponse {
    /// Whether it is registered in a session that has a connection.
    pub has_session: bool,
}

/// What is known of a replica that was reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerStatus {
    /// Whether it has a session. None when it did not say, as programs that do not know the question.
    pub has_session: Option<bool>,
}

/// To the owner of a queue: it is to go to another pool.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PeerMigrationRequest {
    /// Which queue.
    pub queue: QueueAddress,
    /// Which pool.
    pub pool: String,
    /// Messages a second that are copied at most.
    pub rate: Option<u32>,
}

/// A replica that can ask others.
#[derive(Clone, Debug)]
pub struct PeerClient {
    peers: Arc<Peers>,
    secret: PeerSecret,
}

impl PeerClient {
    /// Over these connections, showing this secret.
    pub fn new(peers: Arc<Peers>, secret: PeerSecret) -> Self {
        Self { peers, secret }
    }

    /// Asks the replica at `address`, and waits no longer than [`limits::PEER_RPC_TIMEOUT`]. What it may have done without an
    /// answer is unknown.
    pub async fn ask<A: DeserializeOwned>(
        &self,
        address: &str,
        path: &'static str,
        question: &impl Serialize,
    ) -> Result<A, Error> {
        let request = self.request(path, question);
        let unknown = |why: String| Error::unknown(Part::Coordination, format!("replica {address}: {why}"));
        let answer = self.peers.send(address, request, limits::PEER_RPC_TIMEOUT).await;
        let answer = answer.map_err(|failure| match failure {
            PeerFailure::NotSent(why) => {
                Error::unavailable(Part::Coordination, format!("replica {address}: {why}"))
            }
            PeerFailure::Unknown(why) => unknown(why),
        })?;
        if answer.status() != StatusCode::OK {
            return Err(unknown(format!("it answers {}", answer.status())));
        }
        serde_json::from_slice(answer.body()).map_err(|error| unknown(error.to_string()))
    }

    /// Asks the replica at `address` whether it has a session; none when it does not answer within `max_wait`. Any answer shows
    /// that it is reached.
    pub async fn reach(&self, address: &str, max_wait: Duration) -> Option<PeerStatus> {
        let request = self.request(SESSION, &SessionRequest {});
        let answer = self.peers.send(address, request, max_wait).await.ok()?;
        let said = serde_json::from_slice(answer.body()).ok().filter(|_| answer.status() == StatusCode::OK);
        Some(PeerStatus { has_session: said.map(|SessionResponse { has_session }| has_session) })
    }

    fn request(&self, path: &'static str, question: &impl Serialize) -> Request<Bytes> {
        let body = serde_json::to_vec(question).expect("questions have text keys and no failing parts");
        let mut request = Request::new(Bytes::from(body));
        *request.method_mut() = http::Method::POST;
        *request.uri_mut() = http::Uri::from_static(path);
        let secret = HeaderValue::try_from(self.secret.as_str()).expect("it is made of visible ASCII");
        request.headers_mut().insert(SECRET, secret);
        request.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        request
    }
}
