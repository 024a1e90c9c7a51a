//! The admission pipeline: what each request passes before it is served, whatever protocol it speaks, and what becomes
//! of its answer. A file is a step, and this one is their order.
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
//! One service and not a stack of layers: each layer of axum costs every request a clone of all that is behind it and
//! two boxes, which was a quarter of the CPU of a post. What a step needs of a protocol is a method of `protocol::Protocols`.

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
use axum::http::request::Parts;
use axum::response::Response;
use tokio::time::Instant;
use tracing::Instrument;

use admission::{AdmissionControl, AdmissionPermit};
use angarium_metrics::Meter;
use bodies::{BodyBudget, BodyCharge};
use failures::FailureLog;
use forward::Relay;
use frame::Frame;
use identity::{Identity, Sender};
use protocol::{AdmittedRequest, BodyReader, Call, Protocol, Protocols, RequestedOperation};
use refusal::AdmissionRefusal;

/// What a request passes.
pub struct Pipeline {
    pub protocols: Protocols,
    pub admission: AdmissionControl,
    pub bodies: BodyBudget,
    pub failures: FailureLog,
    /// Passes requests on; none for a service that is alone.
    pub relay: Option<Relay>,
    pub meter: Meter,
}

/// A request whose headers hold, before its body is read.
struct ScreenedRequest<'a> {
    sender: Sender,
    body: Body,
    /// None for requests that are not counted.
    permit: Option<AdmissionPermit<'a>>,
    charge: BodyCharge<'a>,
}

/// What is known of a request that is let in, and what it holds until it is answered.
struct Admission<'a> {
    identity: Identity,
    call: Call,
    body: Body,
    _permit: Option<AdmissionPermit<'a>>,
    /// None when nothing of the body is kept.
    _charge: Option<BodyCharge<'a>>,
}

impl Pipeline {
    /// Answers a request.
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

    /// Lets a request in and serves it, or refuses it; and notes how long its operation took.
    async fn pass(&self, protocol: Protocol, request: Request) -> Response {
        let (head, body) = request.into_parts();
        if let Err(refusal) = self.protocols.check_head(protocol, &head) {
            return self.protocols.refuse(protocol, refusal.cause);
        }
        let began = Instant::now();
        let mut operation = self.protocols.operation(protocol, &head);
        let response = match self.admit(protocol, &head, body, &mut operation).await {
            Ok(admission) => self.serve(head, admission).await,
            Err(refusal) => self.refuse(protocol, &head, refusal),
        };
        operation.meter.note(response.status().as_u16(), began.elapsed());
        response
    }

    /// Learns who asks for what, and refuses who may not and what is too much.
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
        match protocol.body_reader() {
            BodyReader::Handler => Ok(screened.unread()),
            BodyReader::Pipeline(parser) => self.resolve(parser, head, screened, operation).await,
        }
    }

    /// A place for a request among those in progress.
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
            BodyReader::Handler => self.admission.admit(kind, &sender.identity, &head.extensions)?,
            BodyReader::Pipeline(_) => self.admission.screen(kind, sender, &head.extensions)?,
        };
        Ok(Some(permit))
    }

    /// Serves a request within its time.
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

    /// Serves a request here, or where its queue is served.
    async fn serve_somewhere(&self, admitted: AdmittedRequest) -> Response {
        match &self.relay {
            Some(relay) => relay.serve(admitted, &self.protocols).await,
            None => self.protocols.serve_once(admitted).await,
        }
    }

    /// The answer to a request that is refused. A caller who is not known is counted and logged.
    fn refuse(&self, protocol: Protocol, head: &Parts, refusal: AdmissionRefusal) -> Response {
        if let Some(failure) = refusal.failure {
            let kind = self.protocols.path_kind(protocol, head.uri.path());
            self.failures.note(failure, &head.extensions, kind);
        }
        self.protocols.refuse(protocol, refusal.cause)
    }
}

impl<'a> ScreenedRequest<'a> {
    /// Lets the request in. Its handler reads the body.
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
