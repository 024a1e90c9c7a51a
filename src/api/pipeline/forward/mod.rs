//! Requests for queues that another replica serves: they are passed on to it, whole, and its answer returns as if it
//! were ours (P13). A client may speak to any replica and cannot tell.
//!
//! ```text
//! client ──▶ gate ──▶ here? ──▶ handler ──▶ answer
//!                       │ no         │ its slot has moved meanwhile, nothing was written
//!                       ▼            ▼
//!                    the owner ──▶ answer, or "moved": once more, where the slot is now
//! ```
//!
//! A request leaves one hop: the owner answers "moved" for what it does not serve. It is made again only when it is
//! certain that nothing was done, or when it may be done twice. Otherwise the client is told that it is unknown.

mod in_flight;
pub mod peer;
mod replayable_body;

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::request::Parts;
use axum::http::{Extensions, HeaderValue, Method, StatusCode, Uri, Version, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use tokio::time::{Instant, sleep, timeout};

use super::admission::is_long_poll;
use super::deadline;
use super::identity::Identity;
use crate::api::delivery::{DeliveryMark, deliver};
use crate::api::error::ApiError;
use angarium_broker::{Broker, SlotLocation};
use angarium_cluster::peers::{PeerFailure, Peers};
use angarium_core::access::PeerSecret;
use angarium_core::error::{Error, Part};
use angarium_core::ids::Slot;
use angarium_core::limits;
use angarium_core::names::{QueueName, QueueRef};
use angarium_core::probe;
use angarium_metrics::{ForwardMeter, ForwardResult};
use in_flight::InFlightForward;
use peer::{MOVED, PeerOrigin, RequestId, WaitedTime, passed_back, passed_on, take_delivery};
use replayable_body::ReplayableBody;

/// On an answer that another replica has made: its form is final.
#[derive(Clone, Copy, Debug)]
pub struct PeerResponseMark;

/// With a request whose path does not say what it means.
#[derive(Clone, Copy, Debug)]
pub struct NamedTarget {
    /// The slot of the queue that it means, if it means one.
    pub slot: Option<Slot>,
    /// Whether doing it twice is as doing it once.
    pub is_repeatable: bool,
    /// Bytes that its body may have.
    pub most: usize,
    /// How long it may take.
    pub deadline: Duration,
}

/// What serves a request at the replica where its queue is.
pub trait ServeFuture: Send + Sync {
    /// Serves it.
    fn serve(&self, request: Request) -> impl Future<Output = Response> + Send;
}

/// Passes requests on.
#[derive(Clone)]
pub struct Relay {
    broker: Broker,
    peers: Arc<Peers>,
    /// Shown to the other replicas.
    secret: PeerSecret,
    meter: ForwardMeter,
}

/// What came of one try.
enum AttemptResult {
    /// This is the answer.
    Done(Response),
    /// It waited for a message, and this replica is about to stop: it is made again without waiting.
    CutShort,
    /// The slot is served elsewhere, and nothing was done. What the client learns if it stays so.
    Moved(Slot, Response),
}

/// A request as it is tried.
struct Attempt {
    parts: Parts,
    body: ReplayableBody,
    began: Instant,
    /// How long it has waited before it came here.
    waited: Duration,
}

impl Relay {
    /// Over these connections to the other replicas.
    pub fn new(broker: Broker, peers: Arc<Peers>, secret: PeerSecret) -> Self {
        let meter = broker.meter().forwards();
        Self { broker, peers, secret, meter }
    }
}

impl Relay {
    /// Serves a request by `local` here, or where its queue is served.
    pub async fn serve(&self, request: Request, local: &impl ServeFuture) -> Response {
        let is_clients = request.extensions().get::<PeerOrigin>().is_none();
        let is_alone = !self.broker.has_others() && is_clients;
        let is_h1 = request.version() <= Version::HTTP_11;
        if is_clients && self.broker.is_leaving() && !probe::is_health(request.uri().path()) {
            self.broker.note_late_client();
        }
        let mut response = match is_alone {
            true => local.serve(request).await,
            // Apart, for the room that it needs.
            false => Box::pin(self.serve_among_others(request, local)).await,
        };
        if is_h1 && self.broker.is_leaving() {
            // Its client speaks to another replica next.
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }

    /// Serves a request of a service of several replicas.
    async fn serve_among_others(&self, request: Request, local: &impl ServeFuture) -> Response {
        if let Some(max_wait) = request.extensions().get::<PeerOrigin>().map(|from| from.max_wait) {
            return self.serve_for_peer(request, local, max_wait).await;
        }
        let (parts, body) = request.into_parts();
        let waited = parts.extensions.get::<WaitedTime>().copied().unwrap_or_default().0;
        let asking = Attempt { parts, body: ReplayableBody::new(body), began: Instant::now(), waited };
        self.serve_anywhere(asking, local).await
    }

    /// The last hop: what is not served here is not done, and is not made again here.
    async fn serve_for_peer(
        &self,
        request: Request,
        local: &impl ServeFuture,
        max_wait: Duration,
    ) -> Response {
        let place = slot_of(request.uri(), request.extensions());
        let place = place.map(|slot| (slot, self.broker.slot_location(slot)));
        match timeout(max_wait, local.serve(request))
            .await
            .map(|response| self.judge_attempt(response, place))
        {
            Ok(AttemptResult::Done(response)) => passed_back(response),
            Ok(AttemptResult::Moved(..) | AttemptResult::CutShort) => {
                (StatusCode::MISDIRECTED_REQUEST, [(MOVED, "1")]).into_response()
            }
            // No client waits for it any more.
            Err(_) => ApiError::from(Error::unknown(Part::Server, "the other replica does not wait"))
                .into_response(),
        }
    }

    /// The first hop: wherever the slot is, as long as it is somewhere soon.
    async fn serve_anywhere(&self, mut asking: Attempt, local: &impl ServeFuture) -> Response {
        let mut slot = asking.slot();
        let mut trouble: Option<Instant> = None;
        loop {
            let place = slot.map(|slot| (slot, self.broker.slot_location(slot)));
            let since = Instant::now();
            let tried = match &place {
                Some((slot, SlotLocation::There(owner))) => {
                    match asking.body.whole(self.most(&asking)).await {
                        Ok(body) => {
                            self.attempt_remote(&asking, body, *slot, owner.address.clone(), &place).await
                        }
                        // The handler finds out what is wrong with the body, and reports it.
                        Err(replayable_body::IncompleteBody) => {
                            AttemptResult::Done(local.serve(asking.again()).await)
                        }
                    }
                }
                _ => self.attempt_local(&asking, local, place.clone()).await,
            };
            let (moved, response) = match tried {
                AttemptResult::Done(response) => return response,
                AttemptResult::Moved(moved, response) => (moved, response),
                AttemptResult::CutShort => {
                    asking.waited = limits::FORWARD_WAITED;
                    continue;
                }
            };
            // One that waited long has found its place, and lost it since.
            let began = *trouble.get_or_insert(since);
            let began = if since.elapsed() > limits::FORWARD_STEP { Instant::now() } else { began };
            trouble = Some(began);
            if began.elapsed() > limits::FORWARD_WAIT {
                return response;
            }
            let before =
                place.filter(|(slot, _)| *slot == moved).map_or(SlotLocation::Nowhere, |(_, place)| place);
            // Who is asked may know less than we do, or more.
            let _ = timeout(limits::FORWARD_PAUSE, self.broker.moved(moved, &before)).await;
            slot = Some(moved);
        }
    }

    /// Tries it here.
    async fn attempt_local(
        &self,
        asking: &Attempt,
        local: &impl ServeFuture,
        place: Option<(Slot, SlotLocation)>,
    ) -> AttemptResult {
        self.judge_attempt(local.serve(asking.again()).await, place)
    }

    /// What came of a try here, when the slot was there.
    fn judge_attempt(&self, response: Response, place: Option<(Slot, SlotLocation)>) -> AttemptResult {
        let Some(ApiError(error)) = response.extensions().get::<ApiError>() else {
            return AttemptResult::Done(response);
        };
        match &**error {
            Error::Moved(slot) if place.as_ref().is_none_or(|(asked, _)| asked == slot) => {
                AttemptResult::Moved(*slot, response)
            }
            // It was closed under the request.
            Error::Unavailable { .. } => match place {
                Some((slot, place)) if self.broker.slot_location(slot) != place => {
                    AttemptResult::Moved(slot, response)
                }
                _ => AttemptResult::Done(response),
            },
            _ => AttemptResult::Done(response),
        }
    }

    /// Passes it on to the owner of its slot.
    async fn attempt_remote(
        &self,
        asking: &Attempt,
        body: Bytes,
        slot: Slot,
        address: String,
        place: &Option<(Slot, SlotLocation)>,
    ) -> AttemptResult {
        let Some(request) = self.passed_on(asking, body) else { return AttemptResult::Done(admit_unnamed()) };
        let replaced = async {
            if let Some((slot, place)) = place {
                self.broker.moved(*slot, place).await;
            }
            // What was under way at the owner before is at its end soon.
            sleep(limits::FORWARD_GRACE).await;
        };
        let ended = async {
            match asking.waits() {
                true => self.broker.await_no_waiters().await,
                false => std::future::pending().await,
            }
        };
        let began = Instant::now();
        let sent = tokio::select! {
            sent = self.send(address.clone(), request, asking.deadline()) => sent,
            () = ended => return AttemptResult::CutShort,
            () = replaced => Err(PeerFailure::Unknown("its owner was replaced".into())),
        };
        let note = |outcome| self.meter.note(outcome, began.elapsed());
        match sent {
            Ok(answer) if answer.headers().contains_key(MOVED) => {
                note(ForwardResult::Moved);
                AttemptResult::Moved(slot, ApiError::from(Error::Moved(slot)).into_response())
            }
            Ok(mut response) => {
                note(ForwardResult::Answered);
                response.extensions_mut().insert(PeerResponseMark);
                AttemptResult::Done(response)
            }
            Err(PeerFailure::NotSent(why)) => {
                note(ForwardResult::NotSent);
                let error = Error::unavailable(Part::Coordination, format!("replica {address}: {why}"));
                AttemptResult::Moved(slot, ApiError::from(error).into_response())
            }
            Err(PeerFailure::Unknown(why)) => {
                note(ForwardResult::Unknown);
                let error = Error::unknown(Part::Coordination, format!("replica {address}: {why}"));
                let response = ApiError::from(error).into_response();
                if asking.may_be_done_twice() {
                    AttemptResult::Moved(slot, response)
                } else {
                    AttemptResult::Done(response)
                }
            }
        }
    }

    /// Sends a request to the replica at `address`. If the answer hands a claim over and never gets to the client, the claim is
    /// given back there.
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
        let (identity, id) = (parts.extensions.get::<Identity>()?, parts.extensions.get::<RequestId>()?);
        let mut request = axum::http::Request::new(body);
        *request.method_mut() = parts.method.clone();
        *request.uri_mut() = parts.uri.path_and_query()?.clone().into();
        let times = (asking.waited(), asking.deadline());
        let caller = (identity, parts.extensions.get().copied());
        *request.headers_mut() = passed_on(&parts.headers, &self.secret, caller, id, times);
        Some(request)
    }

    /// Bytes of the longest body that a handler takes.
    fn most(&self, asking: &Attempt) -> usize {
        if let Some(NamedTarget { most, .. }) = asking.parts.extensions.get() {
            return *most;
        }
        let (parts, limits) = (&asking.parts, self.broker.limits());
        let path = parts.uri.path();
        let is_post = path.ends_with("/messages") || path.ends_with("/messages/batch");
        if parts.method == Method::POST && is_post {
            return limits::SQS_REQUEST_BYTES;
        }
        limits.metadata_bytes.max(limits::ADMIN_BODY_BYTES)
    }
}

impl Attempt {
    /// The request, from the beginning.
    fn again(&self) -> Request {
        let mut parts = self.parts.clone();
        parts.extensions.insert(WaitedTime(self.waited()));
        Request::from_parts(parts, self.body.again())
    }

    fn waited(&self) -> Duration {
        self.waited + self.began.elapsed()
    }

    /// How long it may take, here as at another replica.
    fn deadline(&self) -> Duration {
        match self.parts.extensions.get() {
            Some(NamedTarget { deadline, .. }) => *deadline,
            None => deadline::of_route(&self.parts.method, &self.parts.uri),
        }
    }

    /// The slot of the queue that the request means, if it means one.
    fn slot(&self) -> Option<Slot> {
        slot_of(&self.parts.uri, &self.parts.extensions)
    }

    /// Whether it still waits for a message.
    fn waits(&self) -> bool {
        let query = self.parts.uri.query().unwrap_or_default();
        self.waited < limits::FORWARD_WAITED && is_long_poll(query)
    }

    /// Whether doing it twice is as doing it once: it reads, or ends what has an id.
    fn may_be_done_twice(&self) -> bool {
        if let Some(NamedTarget { is_repeatable, .. }) = self.parts.extensions.get() {
            return *is_repeatable;
        }
        let path = self.parts.uri.path();
        let below = path.strip_prefix("/v2/queues/").and_then(|rest| rest.split_once('/'));
        match (&self.parts.method, below) {
            (&Method::GET, _) => true,
            (&Method::DELETE, Some((_, rest))) => {
                rest.starts_with("messages/") || rest.starts_with("claims/")
            }
            _ => false,
        }
    }
}

/// The slot of the queue that a request means, if it means one.
fn slot_of(uri: &Uri, extensions: &Extensions) -> Option<Slot> {
    if let Some(NamedTarget { slot, .. }) = extensions.get() {
        return *slot;
    }
    let name = uri.path().strip_prefix("/v2/queues/")?.split('/').next()?;
    let project = extensions.get::<Identity>()?.project.clone();
    // Names that need an escape are none.
    let queue = QueueRef { project, name: QueueName::new(name).ok()? };
    Some(queue.slot())
}

/// The gate has let a request through without noting who asks.
fn admit_unnamed() -> Response {
    ApiError::from(Error::Unauthenticated("the caller was not authenticated")).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asking(method: Method, target: &str, meant: Option<NamedTarget>) -> Attempt {
        let mut request = Request::builder().method(method).uri(target).body(Body::empty()).unwrap();
        meant.map(|meant| request.extensions_mut().insert(meant));
        let (parts, body) = request.into_parts();
        Attempt { parts, body: ReplayableBody::new(body), began: Instant::now(), waited: Duration::ZERO }
    }

    #[tokio::test]
    async fn forwarded_request_has_the_deadline_of_its_operation() {
        let purge = asking(Method::POST, "/v2/queues/q/purge", None);
        assert_eq!(purge.deadline(), limits::PURGE_DEADLINE);
        let post = asking(Method::POST, "/v2/queues/q/messages", None);
        assert_eq!(post.deadline(), limits::REQUEST_DEADLINE);
        let deadline = Duration::from_secs(7);
        let meant = NamedTarget { slot: None, is_repeatable: false, most: 1, deadline };
        assert_eq!(asking(Method::POST, "/", Some(meant)).deadline(), deadline);
    }
}
