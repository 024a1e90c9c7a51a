//! Forwarding: this replica sends a whole request to the owner of its queue and returns the owner's answer as its own
//! (P13). A client may use any replica and sees no difference.
//!
//! ```text
//! client ──▶ admitted ──▶ here? ──▶ handler ──▶ answer
//!                           │ no         │ its slot has moved meanwhile, nothing was written
//!                           ▼            ▼
//!                        the owner ──▶ answer, or "moved": once more, where the slot is now
//! ```
//!
//! There is one hop: the owner answers "moved" when it does not serve the slot. The first replica makes the request
//! again only if it is certain that nothing was written, or if the request is repeatable. Otherwise the client is told
//! that the outcome is unknown.

pub mod earlier;
mod in_flight;
pub mod peer;
mod replayable_body;

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode, Version, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use tokio::time::{Instant, sleep, timeout};

use super::identity::Identity;
use super::protocol::{AdmittedRequest, Call, Protocols};
use crate::api::delivery::{DeliveryMark, deliver};
use crate::api::error::ApiError;
use angarium_broker::{Broker, SlotLocation};
use angarium_cluster::peers::{PeerFailure, PeerTransport};
use angarium_core::error::{Error, Part};
use angarium_core::ids::Slot;
use angarium_core::limits;
use angarium_core::mutation::{Mutation, is_on};
use angarium_core::probe;
use angarium_metrics::{ForwardMeter, ForwardResult};
use earlier::EarlierAttempts;
use in_flight::InFlightForward;
use peer::{ForwardedRequest, MOVED, PeerOrigin, WaitedTime, passed_back, passed_on, take_delivery};
use replayable_body::ReplayableBody;

/// Marks an answer that another replica has rendered; it is not rendered again.
#[derive(Clone, Copy, Debug)]
pub struct PeerResponseMark;

/// The slot, the bounds and the repeatability of a request, as forwarding needs them.
#[derive(Clone, Copy, Debug)]
pub struct RequestTarget {
    /// The slot of the queue that the request is for, if it is for one.
    pub slot: Option<Slot>,
    /// Whether the request may be made twice with the same effect as once.
    pub is_repeatable: bool,
    /// Whether the request changes nothing.
    pub is_read: bool,
    /// Whether the request may wait for a message.
    pub may_wait: bool,
    /// Max bytes of the request body.
    pub most_bytes: usize,
    /// Max time of the request.
    pub deadline: Duration,
}

/// Serves requests here or forwards them to the owner of their slot.
#[derive(Clone)]
pub struct Relay {
    broker: Broker,
    peers: Arc<dyn PeerTransport>,
    meter: ForwardMeter,
}

/// The location of a slot when an attempt began.
#[derive(Clone)]
struct SlotSighting {
    slot: Slot,
    location: SlotLocation,
}

/// The result of one attempt.
enum AttemptResult {
    /// The answer for the client.
    Done(Response),
    /// The request waited for a message at another replica while this replica is about to stop: it is made again
    /// without waiting.
    CutShort,
    /// Another replica serves the slot, or there is no answer of it and the request is repeatable.
    Moved(MovedAttempt),
}

/// An attempt that another one may follow.
struct MovedAttempt {
    slot: Slot,
    /// The client's answer if no attempt succeeds in time.
    response: Response,
    /// Whether this attempt may have been carried out.
    is_in_doubt: bool,
}

impl MovedAttempt {
    fn not_done(slot: Slot, response: Response) -> Self {
        Self { slot, response, is_in_doubt: false }
    }
}

/// A request that may be made more than once.
struct Attempt {
    parts: Parts,
    body: ReplayableBody,
    identity: Identity,
    call: Call,
    target: RequestTarget,
    began: Instant,
    /// Time that the request waited before it reached this replica.
    waited: Duration,
    /// The attempts before.
    earlier: EarlierAttempts,
}

impl Relay {
    /// Creates a relay over `peers`.
    pub fn new(broker: Broker, peers: Arc<dyn PeerTransport>) -> Self {
        let meter = broker.meter().forwards();
        Self { broker, peers, meter }
    }

    /// Serves a request by `local` here, or at the owner of its queue.
    pub async fn serve(&self, admitted: AdmittedRequest, local: &Protocols) -> Response {
        let http = &admitted.http;
        let is_clients = http.extensions().get::<PeerOrigin>().is_none();
        let is_alone = !self.broker.has_others() && is_clients;
        let is_h1 = http.version() <= Version::HTTP_11;
        if is_clients && self.broker.is_leaving() && !probe::is_health(http.uri().path()) {
            self.broker.note_late_client();
        }
        let mut response = if is_alone {
            local.serve_once(admitted).await
        } else {
            // Boxed, because its state is large.
            Box::pin(self.serve_among_others(admitted, local)).await
        };
        if is_h1 && self.broker.is_leaving() {
            // The next request of the client then uses a connection to another replica.
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }

    /// Serves a request of a service with several replicas.
    async fn serve_among_others(&self, admitted: AdmittedRequest, local: &Protocols) -> Response {
        let AdmittedRequest { http, identity, call } = admitted;
        let (parts, body) = http.into_parts();
        let target = local.target(&parts, &identity, &call);
        if let Some(max_wait) = parts.extensions.get::<PeerOrigin>().map(|from| from.max_wait) {
            let earlier = parts.extensions.get::<EarlierAttempts>().copied().unwrap_or_default();
            let admitted = AdmittedRequest { http: Request::from_parts(parts, body), identity, call };
            let response = self.serve_for_peer(local.serve_once(admitted), target.slot, max_wait).await;
            return peer::with_earlier(earlier.judge(response), earlier);
        }
        let waited = parts.extensions.get::<WaitedTime>().copied().unwrap_or_default().0;
        let (body, began) = (ReplayableBody::new(body), Instant::now());
        let earlier = EarlierAttempts::default();
        self.serve_anywhere(Attempt { parts, body, identity, call, target, began, waited, earlier }, local)
            .await
    }

    /// Serves a forwarded request, at the last hop: when another replica owns the slot, it answers "moved" and does not
    /// forward.
    async fn serve_for_peer(
        &self,
        serving: impl Future<Output = Response>,
        slot: Option<Slot>,
        max_wait: Duration,
    ) -> Response {
        let seen = slot.map(|slot| self.sight(slot));
        match timeout(max_wait, serving).await.map(|response| self.judge_attempt(response, seen)) {
            Ok(AttemptResult::Done(response)) => passed_back(response),
            Ok(AttemptResult::Moved(..) | AttemptResult::CutShort) => {
                (StatusCode::MISDIRECTED_REQUEST, [(MOVED, "1")]).into_response()
            }
            // The forwarding replica no longer waits for the answer.
            Err(_) => ApiError::from(Error::unknown(Part::Server, "the other replica does not wait"))
                .into_response(),
        }
    }

    /// Returns the current location of a slot.
    fn sight(&self, slot: Slot) -> SlotSighting {
        SlotSighting { slot, location: self.broker.slot_location(slot) }
    }

    /// Serves a client's request, at the first hop: follows its slot until an owner answers, at most
    /// [`limits::FORWARD_WAIT`].
    async fn serve_anywhere(&self, mut asking: Attempt, local: &Protocols) -> Response {
        let mut slot = asking.target.slot;
        let mut trouble: Option<Instant> = None;
        loop {
            let seen = slot.map(|slot| self.sight(slot));
            let since = Instant::now();
            let moved = match self.attempt(&asking, local, seen.clone()).await {
                AttemptResult::Done(response) => return asking.earlier.judge(response),
                AttemptResult::Moved(moved) => moved,
                AttemptResult::CutShort => {
                    asking.earlier.are_in_doubt |= !asking.target.is_read;
                    asking.waited = limits::FORWARD_WAITED;
                    continue;
                }
            };
            // An attempt that took long had found the owner, and the slot has moved since: the time begins again.
            let began = *trouble.get_or_insert(since);
            let began = if since.elapsed() > limits::FORWARD_STEP { Instant::now() } else { began };
            trouble = Some(began);
            let MovedAttempt { slot: moved, response, is_in_doubt } = moved;
            if began.elapsed() > limits::FORWARD_WAIT || is_on(Mutation::StopAtMove) {
                return asking.earlier.judge(response);
            }
            let is_in_doubt = is_in_doubt && !is_on(Mutation::ForgetAttemptInDoubt);
            asking.earlier.are_in_doubt |= is_in_doubt && !asking.target.is_read;
            let before = seen.filter(|seen| seen.slot == moved);
            let before = before.map_or(SlotLocation::Nowhere, |seen| seen.location);
            // The replica that answered may have an older or a newer slot table than this one.
            let _ = timeout(limits::FORWARD_PAUSE, self.broker.moved(moved, &before)).await;
            slot = Some(moved);
        }
    }

    /// Makes one attempt, here or at the owner of the slot.
    async fn attempt(
        &self,
        asking: &Attempt,
        local: &Protocols,
        seen: Option<SlotSighting>,
    ) -> AttemptResult {
        if let Some(SlotSighting { location: SlotLocation::There(owner), .. }) = &seen {
            let address = owner.address.clone();
            return match (asking.body.whole(asking.target.most_bytes).await, seen) {
                (Ok(body), Some(seen)) => self.attempt_remote(asking, body, address, seen).await,
                // The handler reports the error of the body.
                _ => AttemptResult::Done(asking.serve_here(local).await),
            };
        }
        self.judge_attempt(asking.serve_here(local).await, seen)
    }

    /// Classifies the answer of an attempt on this replica, given the location of the slot when it began.
    fn judge_attempt(&self, response: Response, seen: Option<SlotSighting>) -> AttemptResult {
        let Some(ApiError(error)) = response.extensions().get::<ApiError>() else {
            return AttemptResult::Done(response);
        };
        match &**error {
            Error::Moved(slot) if seen.as_ref().is_none_or(|seen| seen.slot == *slot) => {
                AttemptResult::Moved(MovedAttempt::not_done(*slot, response))
            }
            // The queue may have been closed while the request ran.
            Error::Unavailable { .. } | Error::Busy(_) => match seen {
                Some(SlotSighting { slot, location }) if self.broker.slot_location(slot) != location => {
                    AttemptResult::Moved(MovedAttempt::not_done(slot, response))
                }
                _ => AttemptResult::Done(response),
            },
            _ => AttemptResult::Done(response),
        }
    }

    /// Forwards the request to the owner of its slot.
    async fn attempt_remote(
        &self,
        asking: &Attempt,
        body: Bytes,
        address: String,
        seen: SlotSighting,
    ) -> AttemptResult {
        let slot = seen.slot;
        let Some(request) = self.passed_on(asking, body) else { return AttemptResult::Done(unaddressed()) };
        let replaced = async {
            self.broker.moved(slot, &seen.location).await;
            // Requests that the previous owner still serves end soon.
            sleep(limits::FORWARD_GRACE).await;
        };
        let ended = async {
            if asking.waits() {
                self.broker.await_no_waiters().await;
            } else {
                std::future::pending::<()>().await;
            }
        };
        let began = Instant::now();
        let sent = tokio::select! {
            biased;
            sent = self.send(address.clone(), request, asking.target.deadline) => sent,
            () = ended => return AttemptResult::CutShort,
            () = replaced => Err(PeerFailure::Unknown("its owner was replaced".into())),
        };
        self.meter.note(result_of(&sent), began.elapsed());
        match sent {
            Ok(answer) if answer.headers().contains_key(MOVED) => {
                let response = ApiError::from(Error::Moved(slot)).into_response();
                AttemptResult::Moved(MovedAttempt::not_done(slot, response))
            }
            Ok(mut response) => {
                let judged = peer::take_earlier(response.headers_mut());
                if asking.earlier.are_in_doubt && judged != asking.earlier && is_failure(response.status()) {
                    // An older version does not know of the earlier attempts.
                    let error = Error::unknown(Part::Coordination, "an earlier attempt has no answer");
                    return AttemptResult::Done(ApiError::from(error).into_response());
                }
                response.extensions_mut().insert(PeerResponseMark);
                AttemptResult::Done(response)
            }
            Err(PeerFailure::NotSent(why)) => {
                let error = Error::unavailable(Part::Coordination, format!("replica {address}: {why}"));
                AttemptResult::Moved(MovedAttempt::not_done(slot, ApiError::from(error).into_response()))
            }
            Err(PeerFailure::Unknown(why)) => {
                let why = format!("replica {address}: {why}");
                let make =
                    if is_on(Mutation::RefuseForwardInDoubt) { Error::unavailable } else { Error::unknown };
                let error = make(Part::Coordination, why);
                let response = ApiError::from(error).into_response();
                if asking.target.is_repeatable || is_on(Mutation::RepeatForwardInDoubt) {
                    AttemptResult::Moved(MovedAttempt { slot, response, is_in_doubt: true })
                } else {
                    AttemptResult::Done(response)
                }
            }
        }
    }

    /// Sends a request to the replica at `address`. If the answer carries a claim and does not reach the client, that
    /// replica releases the claim.
    fn send(
        &self,
        address: String,
        request: axum::http::Request<Bytes>,
        deadline: Duration,
    ) -> InFlightForward {
        let (peers, broker) = (Arc::clone(&self.peers), self.broker.clone());
        InFlightForward::new(self.broker.clone(), async move {
            let mut answer = peers.pass_on(&address, request, deadline).await?.map(Body::new);
            Ok(match take_delivery(answer.headers_mut()) {
                Some(DeliveryMark { queue, claim }) => {
                    deliver(answer, broker.handover_from(address, queue, claim))
                }
                None => answer,
            })
        })
    }

    fn passed_on(&self, asking: &Attempt, body: Bytes) -> Option<axum::http::Request<Bytes>> {
        let parts = &asking.parts;
        let mut request = axum::http::Request::new(body);
        *request.method_mut() = parts.method.clone();
        *request.uri_mut() = parts.uri.path_and_query()?.clone().into();
        let origin = ForwardedRequest {
            identity: &asking.identity,
            source: parts.extensions.get().copied(),
            id: parts.extensions.get()?,
            waited: asking.waited(),
            max_wait: asking.target.deadline,
            earlier: asking.earlier,
        };
        *request.headers_mut() = passed_on(&parts.headers, &origin);
        asking.call.add_headers(request.headers_mut());
        Some(request)
    }
}

impl Attempt {
    /// Serves the request on this replica, with its body from the beginning.
    async fn serve_here(&self, local: &Protocols) -> Response {
        let mut parts = self.parts.clone();
        parts.extensions.insert(WaitedTime(self.waited()));
        parts.extensions.insert(self.earlier);
        let http = Request::from_parts(parts, self.body.again());
        local.serve_attempt(http, &self.identity, &self.call).await
    }

    fn waited(&self) -> Duration {
        self.waited + self.began.elapsed()
    }

    /// Whether the request may still wait for a message.
    fn waits(&self) -> bool {
        self.waited < limits::FORWARD_WAITED && self.target.may_wait
    }
}

fn is_failure(status: StatusCode) -> bool {
    status.is_client_error() || status.is_server_error()
}

/// Returns the result of an exchange with another replica, for the metrics.
fn result_of(sent: &Result<Response, PeerFailure>) -> ForwardResult {
    match sent {
        Ok(answer) if answer.headers().contains_key(MOVED) => ForwardResult::Moved,
        Ok(_) => ForwardResult::Answered,
        Err(PeerFailure::NotSent(_)) => ForwardResult::NotSent,
        Err(PeerFailure::Unknown(_)) => ForwardResult::Unknown,
    }
}

/// Answers a request that has no path to forward.
fn unaddressed() -> Response {
    ApiError::from(Error::unavailable(Part::Server, "the request has no path to pass on")).into_response()
}
