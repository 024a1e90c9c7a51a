//! Peer RPCs: requests that a replica sends on its own, beside forwarded requests of clients. They concern message
//! transfers between queues of two replicas, undelivered claims, and the holdings of a project. This module knows only
//! the wire format, not the meaning.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, StatusCode, header};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::peers::{PeerFailure, PeerTransport};
use crate::limits;
use angarium_core::error::{Error, Part};
use angarium_core::ids::{ClaimId, MessageId, QueueId};
use angarium_core::names::{ProjectId, QueueName, QueueRef};

/// Paths of the peer RPCs. Only the listener for replicas serves them.
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
pub const LEAVE: &str = "/peer/pools/leave";
/// See [`ARRIVE`].
pub const SESSION: &str = "/peer/session";
/// See [`ARRIVE`].
pub const LOADS: &str = "/peer/loads";
/// See [`ARRIVE`].
pub const COUNTS: &str = "/peer/counts";

/// See [`ARRIVE`].
pub const HOLD: &str = "/peer/hold";

/// Project and name of a queue.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct QueueAddress {
    project: String,
    name: String,
}

impl From<&QueueRef> for QueueAddress {
    fn from(at: &QueueRef) -> Self {
        Self { project: at.project.to_string(), name: at.name.as_str().to_owned() }
    }
}

impl QueueAddress {
    pub fn queue(&self) -> Result<QueueRef, Error> {
        Ok(QueueRef { project: ProjectId::new(&self.project)?, name: QueueName::stored(&self.name)? })
    }
}

/// The epoch of the calling owner of a slot, in parts.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct OwnerEpoch {
    pub slot: u8,
    /// See [`angarium_storage::Epoch`].
    pub generation: u32,
    /// See [`angarium_storage::Epoch`].
    pub transaction: u64,
}

/// Asks the owner of the target to take over messages that are marked for transfer at their source.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ArrivalRequest {
    /// The target queue.
    pub target: QueueAddress,
    /// The source queue.
    pub source: QueueAddress,
    /// Incarnation of the source queue.
    pub source_id: QueueId,
    /// The pool that holds them.
    pub pool: String,
    /// Ids of the messages.
    pub ids: Vec<MessageId>,
    /// New time to live in seconds, if their lifetime restarts.
    pub ttl: Option<u32>,
    /// Whether the source is ordered by message groups, so that a target created for them must be too.
    pub is_ordered: bool,
    /// Retention in seconds of a target created for them, if they have the retention of their queue. Older replicas do
    /// not send it.
    #[serde(default)]
    pub retention: Option<u32>,
    /// Whether a target created for them needs room in the quota of its project. Older replicas do not send it.
    #[serde(default)]
    pub needs_quota: bool,
}

/// Tells the owner of the source that the target has prepared these messages, so that the source may remove them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DepartureRequest {
    /// The source queue.
    pub source: QueueAddress,
    /// Incarnation of the source queue.
    pub source_id: QueueId,
    /// Ids of the messages.
    pub ids: Vec<MessageId>,
    /// For each id the number of its last claim at the source; empty from a program that does not send them. A later
    /// transfer of the same message has another number.
    #[serde(default)]
    pub grants: Vec<u32>,
    /// The calling owner. After a call of its successor, calls of a replaced owner are refused.
    pub owner: OwnerEpoch,
}

/// Asks the owner of the source for the states of these messages.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StatesRequest {
    /// The source queue, which may be deleted.
    pub source: QueueAddress,
    /// Incarnation of the source queue; any when absent.
    pub source_id: Option<QueueId>,
    /// Ids of the messages.
    pub ids: Vec<MessageId>,
    /// The calling owner.
    pub owner: OwnerEpoch,
}

/// The response to [`StatesRequest`]. Messages in neither list are gone.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct StatesResponse {
    /// Messages marked for transfer.
    pub moving: Vec<MessageId>,
    /// Messages that stay in the source.
    pub kept: Vec<MessageId>,
}

/// Tells the replica that granted a claim that its client left before the response was delivered.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct UndeliveredClaim {
    pub queue: QueueAddress,
    pub claim: ClaimId,
}

/// Asks a replica how much of a project it counts.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HoldingsRequest {
    /// The project.
    pub project: String,
}

/// The response to [`HoldingsRequest`].
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct HoldingsResponse {
    pub queues: u64,
    pub messages: u64,
    /// Bytes of these messages.
    pub bytes: u64,
}

/// Asks a replica for a report of its state and its work.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ReportRequest {}

/// The response to [`ReportRequest`].
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ReportResponse {
    /// Why the replica is not ready; none when it is.
    pub not_ready: Option<String>,
    /// State of its session with the tree: `connected`, `suspended` or `lost`.
    pub session: String,
    /// Number of slots that it serves.
    pub slots: u64,
    /// Number of queues that it has opened.
    pub open_queues: u64,
    /// Number of claims that wait for messages.
    pub waiting_claims: u64,
    /// Number of claimed messages in its open queues.
    pub claimed_messages: u64,
    /// Pools that did not answer the last check.
    pub silent_pools: Vec<String>,
}

/// Asks a replica for the write load of its queues.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct LoadsRequest {}

/// The response to [`LoadsRequest`].
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct LoadsResponse {
    /// The busiest queues, at most [`core_limits::LOADS`].
    pub queues: Vec<QueueLoad>,
}

/// The write load of a queue.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct QueueLoad {
    /// Id of the queue.
    pub queue: QueueId,
    /// Number of changes in its pools per minute: posts, deletes, ends of claims.
    pub per_minute: u64,
}

/// Asks the owner of queues for the counts of each queue.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CountsRequest {
    /// The queues, at most [`core_limits::PAGE_MAX`].
    pub queues: Vec<QueueAddress>,
}

/// The response to [`CountsRequest`].
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct CountsResponse {
    /// Counts in the order of the request; none for a queue that does not exist, or whose pool does not answer.
    pub queues: Vec<Option<QueueCounts>>,
}

/// Counts of a queue, and their rates of change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueCounts {
    /// Number of claimable messages.
    pub ready: u64,
    /// Number of delayed messages.
    pub delayed: u64,
    /// Number of messages under a live claim.
    pub claimed: u64,
    /// Number of messages in transfer to or from another queue.
    pub in_transfer: u64,
    /// Number of messages that are done or failed. An earlier version does not name them.
    #[serde(default)]
    pub kept: u64,
    /// Seconds since the post of the oldest message that is ready or claimed.
    pub oldest_age: Option<u64>,
    /// Messages added per minute: posted, or transferred from another queue.
    pub posted_per_minute: u64,
    /// Messages removed per minute: deleted, expired, or transferred to another queue.
    pub removed_per_minute: u64,
}

/// Asks a replica whether it has a session with the tree.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct SessionRequest {}

/// The response to [`SessionRequest`].
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct SessionResponse {
    /// Whether it is registered in a session that is connected.
    pub has_session: bool,
    /// The replica that responds. None from programs that do not tell.
    #[serde(default)]
    pub instance: Option<Uuid>,
}

/// Status of a replica that was reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerStatus {
    /// Whether it has a session. None when the response does not tell, as with programs that do not know this RPC.
    pub has_session: Option<bool>,
}

/// Asks the owner of a queue to migrate it to another pool.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PeerMigrationRequest {
    /// The queue.
    pub queue: QueueAddress,
    /// The target pool.
    pub pool: String,
    /// Max messages copied per second.
    pub rate: Option<u32>,
}

/// Asks the owner of a slot to move queues of the slot out of a pool that is removed with the messages in it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LeaveRequest {
    /// The number of the slot.
    pub slot: u8,
    /// The pool.
    pub pool: String,
    /// Its record as the removal has closed it. An owner whose tree has another record moves nothing. Older replicas send
    /// none, and are refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closed: Option<ClosedPool>,
}

/// The record of a pool that takes no queues any more.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ClosedPool {
    /// The id of the pool.
    pub id: Uuid,
    /// The version of its record.
    pub version: u32,
}

/// The response to [`LeaveRequest`].
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct LeaveResponse {
    /// Whether further queues of the slot are in the pool.
    pub is_more: bool,
}

/// Asks a replica for the slots in which the hold of a pool or of a project is in force.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HoldRequest {
    /// The held pool; none when it is a project.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// The held project; none when it is a pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// Numbers of the slots that the caller asks about.
    pub slots: Vec<u8>,
}

/// The response to [`HoldRequest`].
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct HoldResponse {
    /// The slots of the request that the replica serves, and in which the hold is in force.
    pub slots: Vec<HeldSlot>,
}

/// A slot in which a hold is in force: its owner knows the hold, and no earlier owner can write to a held queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldSlot {
    /// Its number.
    pub slot: u8,
    /// The version of its node by which the replica owns it.
    pub version: u32,
}

/// A client for peer RPCs.
#[derive(Clone, Debug)]
pub struct PeerClient {
    peers: Arc<dyn PeerTransport>,
}

impl PeerClient {
    /// Creates a client that uses `peers`.
    pub fn new(peers: Arc<dyn PeerTransport>) -> Self {
        Self { peers }
    }

    /// Calls the replica at `address`, and waits at most [`limits::PEER_RPC_TIMEOUT`]. After a call without a response
    /// it is unknown whether the replica acted on it.
    pub async fn ask<A: DeserializeOwned>(
        &self,
        address: &str,
        path: &'static str,
        message: &impl Serialize,
    ) -> Result<A, Error> {
        let request = request(path, message);
        let unknown = |why: String| Error::unknown(Part::Coordination, format!("replica {address}: {why}"));
        let answer = self.peers.send(address, request, limits::PEER_RPC_TIMEOUT).await;
        let answer = answer.map_err(|failure| match failure {
            PeerFailure::NotSent(why) => {
                Error::unavailable(Part::Coordination, format!("replica {address}: {why}"))
            }
            PeerFailure::Unknown(why) => unknown(why),
        })?;
        if answer.status() == StatusCode::MISDIRECTED_REQUEST {
            let why = format!("replica {address} takes no request of this one yet");
            return Err(Error::unavailable(Part::Coordination, why));
        }
        if answer.status() != StatusCode::OK {
            return Err(unknown(format!("it answers {}", answer.status())));
        }
        serde_json::from_slice(answer.body()).map_err(|error| unknown(error.to_string()))
    }

    /// Asks the replica `instance` at `address` whether it has a session. Any response of it within `max_wait` shows that it
    /// was reached.
    ///
    /// # Errors
    ///
    /// The reason why it was not reached: also that another replica responds there.
    pub async fn reach(
        &self,
        address: &str,
        instance: Uuid,
        max_wait: Duration,
    ) -> Result<PeerStatus, String> {
        let request = request(SESSION, &SessionRequest {});
        let answer = self.peers.send(address, request, max_wait).await.map_err(|error| error.to_string())?;
        let response: Option<SessionResponse> =
            serde_json::from_slice(answer.body()).ok().filter(|_| answer.status() == StatusCode::OK);
        match response.and_then(|response| response.instance).filter(|other| *other != instance) {
            Some(other) => Err(format!("the replica {other} responds at its address")),
            None => Ok(PeerStatus { has_session: response.map(|response| response.has_session) }),
        }
    }
}

fn request(path: &'static str, message: &impl Serialize) -> Request<Bytes> {
    let body = serde_json::to_vec(message).expect("messages have text keys and no failing parts");
    let mut request = Request::new(Bytes::from(body));
    *request.method_mut() = http::Method::POST;
    *request.uri_mut() = http::Uri::from_static(path);
    request.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    request
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use http::Response;

    use super::*;
    use crate::peers::PeerResponseBody;

    /// The replica that [`Answering`] is.
    const RESPONDING: Uuid = Uuid::from_u128(7);

    /// Another replica that answers each request with this status.
    #[derive(Debug)]
    struct Answering(StatusCode);

    #[async_trait]
    impl PeerTransport for Answering {
        async fn send(
            &self,
            _: &str,
            _: Request<Bytes>,
            _: Duration,
        ) -> Result<Response<Bytes>, PeerFailure> {
            let body = SessionResponse { has_session: true, instance: Some(RESPONDING) };
            let body = Bytes::from(serde_json::to_vec(&body).expect("it has text keys"));
            Ok(Response::builder().status(self.0).body(body).expect("it is a response"))
        }

        async fn pass_on(
            &self,
            _: &str,
            _: Request<Bytes>,
            _: Duration,
        ) -> Result<Response<PeerResponseBody>, PeerFailure> {
            Err(PeerFailure::NotSent("not used".into()))
        }
    }

    #[tokio::test]
    async fn replica_at_address_of_another_is_not_reached() {
        let (client, here) = (PeerClient::new(Arc::new(Answering(StatusCode::OK))), RESPONDING);
        let reached = client.reach("a:1", here, Duration::from_secs(1)).await;
        assert_eq!(reached, Ok(PeerStatus { has_session: Some(true) }));
        let refused = client.reach("a:1", Uuid::nil(), Duration::from_secs(1)).await.unwrap_err();
        assert!(refused.contains(&here.to_string()), "{refused}");
        // An older program responds with another body, or not with success.
        let older = PeerClient::new(Arc::new(Answering(StatusCode::NOT_FOUND)));
        let reached = older.reach("a:1", Uuid::nil(), Duration::from_secs(1)).await;
        assert_eq!(reached, Ok(PeerStatus { has_session: None }));
    }

    #[tokio::test]
    async fn misdirected_request_is_certainly_not_done() {
        for (status, is_certain) in [
            (StatusCode::MISDIRECTED_REQUEST, true),
            (StatusCode::BAD_REQUEST, false),
            (StatusCode::SERVICE_UNAVAILABLE, false),
        ] {
            let client = PeerClient::new(Arc::new(Answering(status)));
            let asked: Result<StatesResponse, Error> = client.ask("a:1", STATES, &SessionRequest {}).await;
            let error = asked.unwrap_err();
            assert_eq!(error.nothing_written(), is_certain, "{status}: {error:?}");
        }
    }
}
