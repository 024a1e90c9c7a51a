//! The admission pipeline: the steps of each request before its handler, and of its answer, for both protocols. Each
//! file is one step; this file has their order.
//!
//! ```text
//! request ──▶ frame (id, trace, unread body) ──▶ identity ──▶ admission (rate, places) ──▶ bodies (byte budget)
//!                                                                                            │
//!             ┌── the head has all: the handler reads the body ──────────────────────────────┤
//!             │          the body has it: resolution (body, signature, operation, queues) ◀──┘
//!             ▼                                             │
//!         deadline ◀────────────────────────────────────────┘
//!             │
//!             ▼
//!         forward ──▶ here or at the owner of the queue ──▶ metered ──▶ logged, counted, rendered, finished
//! ```
//!
//! The pipeline is one service and not a stack of layers: for each request, each layer of axum clones everything behind
//! it and allocates two boxes, which took a quarter of the CPU time of a post. If a step needs something of a protocol,
//! it calls a method of `protocol::Protocols`.

pub mod admission;
pub mod bodies;
pub mod credentials;
pub mod deadline;
pub mod failures;
pub mod forward;
mod frame;
pub mod identity;
pub mod origin;
pub mod protocol;
pub mod refusal;
mod resolution;
mod unread;

use axum::body::Body;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;
use tokio::time::Instant;
use tracing::Instrument;

use crate::api::extract::SIGNATURE;
use admission::{AdmissionControl, AdmissionPermit};
use angarium_metrics::{AuthenticationFailure, Meter};
use bodies::{BodyBudget, BodyCharge};
use failures::FailureLog;
use forward::Relay;
use frame::Frame;
use identity::{Identity, Sender};
use protocol::{AdmittedRequest, BodyReader, Call, Protocol, Protocols, RequestedOperation};
use refusal::AdmissionRefusal;

/// The admission pipeline, with the state of its steps.
pub struct Pipeline {
    pub protocols: Protocols,
    pub admission: AdmissionControl,
    pub bodies: BodyBudget,
    pub failures: FailureLog,
    /// Forwards requests to other replicas; none for a service with one replica.
    pub relay: Option<Relay>,
    pub meter: Meter,
}

/// A request whose headers were checked and whose body was not read.
struct ScreenedRequest<'a> {
    sender: Sender,
    body: Body,
    /// None for requests that admission control does not count.
    permit: Option<AdmissionPermit<'a>>,
    charge: BodyCharge<'a>,
}

/// An admitted request, with the permit and the charge that it holds until its answer is sent.
struct Admission<'a> {
    identity: Identity,
    call: Call,
    body: Body,
    _permit: Option<AdmissionPermit<'a>>,
    /// None when the service keeps nothing of the body.
    _charge: Option<BodyCharge<'a>>,
}

impl Pipeline {
    /// Returns the final answer to a request.
    pub async fn answer(&self, request: Request) -> Response {
        let (frame, request) = Frame::open(request);
        let protocol = frame.protocol();
        let response = if frame.span.is_disabled() {
            self.pass(protocol, request).await
        } else {
            self.pass(protocol, request).instrument(frame.span.clone()).await
        };
        frame.close(response, &self.meter).await
    }

    /// Admits and serves a request, or refuses it, and records the duration of its operation.
    async fn pass(&self, protocol: Protocol, request: Request) -> Response {
        let (head, body) = request.into_parts();
        if let Err(refusal) = self.protocols.check_head(protocol, &head) {
            return self.protocols.refuse(protocol, refusal.cause);
        }
        let began = Instant::now();
        let mut operation = self.protocols.operation(protocol, &head);
        let response = match self.admit(protocol, &head, body, &mut operation).await {
            Ok(admission) => {
                let signed = is_signed(&head, &admission.identity).then(|| head.extensions.clone());
                let kind = self.protocols.path_kind(protocol, head.uri.path());
                let response = self.serve(head, admission).await;
                // The handler answers a signature that proves nothing as a resource that does not exist.
                if let Some(extensions) = signed.filter(|_| response.status() == StatusCode::NOT_FOUND) {
                    self.failures.note(AuthenticationFailure::SignatureMismatch, &extensions, kind);
                }
                response
            }
            Err(refusal) => self.refuse(protocol, &head, refusal),
        };
        operation.meter.note(response.status().as_u16(), began.elapsed());
        response
    }

    /// Authenticates the sender and checks its role, the limits of requests and the budget of bodies.
    async fn admit<'a>(
        &'a self,
        protocol: Protocol,
        head: &Parts,
        body: Body,
        operation: &mut RequestedOperation<'a>,
    ) -> Result<Admission<'a>, AdmissionRefusal> {
        let sender = self.protocols.identify(protocol, head, operation.need, &self.admission).await?;
        let permit = self.permit(protocol, head, &sender)?;
        let (body, charge) = self.bodies.charge(body, || sender.body_owner(&head.extensions))?;
        let screened = ScreenedRequest { sender, body, permit, charge };
        let screened = screened.paced();
        match protocol.body_reader() {
            BodyReader::Handler => Ok(screened.unread()),
            BodyReader::Pipeline(parser) => self.resolve(parser, head, screened, operation).await,
        }
    }

    /// Reserves a place among the requests in progress.
    fn permit(
        &self,
        protocol: Protocol,
        head: &Parts,
        sender: &Sender,
    ) -> Result<Option<AdmissionPermit<'_>>, AdmissionRefusal> {
        if !admission::is_counted(head) {
            return Ok(None);
        }
        let kind = self.protocols.place_kind(protocol, head);
        let permit = match protocol.body_reader() {
            BodyReader::Handler => {
                let is_signed = is_signed(head, &sender.identity);
                self.admission.admit(kind, &sender.identity, is_signed, &head.extensions)?
            }
            BodyReader::Pipeline(_) => self.admission.screen(kind, sender, &head.extensions)?,
        };
        Ok(Some(permit))
    }

    /// Serves a request within its deadline.
    async fn serve(&self, head: Parts, admission: Admission<'_>) -> Response {
        let Admission { identity, call, body, _permit, _charge } = admission;
        let (protocol, deadline) = (call.protocol(), self.protocols.deadline(&head, &call));
        let http = Request::from_parts(head, body);
        let served = match call.body_reader() {
            BodyReader::Handler => {
                let serve = |http| self.serve_somewhere(AdmittedRequest { http, identity, call });
                deadline.serve(http, serve).await
            }
            BodyReader::Pipeline(_) => {
                deadline.within(self.serve_somewhere(AdmittedRequest { http, identity, call })).await
            }
        };
        served.unwrap_or_else(|late| self.protocols.refuse(protocol, late.into()))
    }

    /// Serves a request on this replica, or on the owner of its queue.
    async fn serve_somewhere(&self, admitted: AdmittedRequest) -> Response {
        match &self.relay {
            Some(relay) => relay.serve(admitted, &self.protocols).await,
            None => self.protocols.serve_once(admitted).await,
        }
    }

    /// Returns the answer to a refused request. A failed authentication is counted and logged.
    fn refuse(&self, protocol: Protocol, head: &Parts, refusal: AdmissionRefusal) -> Response {
        if let Some(failure) = refusal.failure {
            let kind = self.protocols.path_kind(protocol, head.uri.path());
            self.failures.note(failure, &head.extensions, kind);
        }
        self.protocols.refuse(protocol, refusal.cause)
    }
}

/// Whether a request has a signature of the service in place of a token.
fn is_signed(head: &Parts, identity: &Identity) -> bool {
    identity.is_anonymous && head.headers.contains_key(SIGNATURE)
}

impl<'a> ScreenedRequest<'a> {
    /// Bounds the time of the body of an unauthenticated sender: it must not hold the place of a request for long.
    fn paced(self) -> Self {
        let is_unproven = self.permit.as_ref().is_some_and(AdmissionPermit::is_unproven);
        let body = if is_unproven { bodies::paced(self.body) } else { self.body };
        Self { body, ..self }
    }

    /// Admits the request without reading its body, which the handler reads.
    fn unread(self) -> Admission<'a> {
        Admission {
            identity: self.sender.identity,
            call: Call::of_head(),
            body: self.body,
            _permit: self.permit,
            _charge: Some(self.charge),
        }
    }
}
