//! The protocols behind the pipeline, and the one place that tells them apart. A protocol is a parser (what a request
//! asks for), a resolver (operation, project, queue) and a renderer (how its answer is written).

use axum::extract::Request;
use axum::http::HeaderMap;
use axum::http::request::Parts;
use axum::response::Response;

use super::admission::{AdmissionControl, PlaceKind};
use super::deadline::RequestDeadline;
use super::failures;
use super::forward::RequestTarget;
use super::forward::peer::PeerOrigin;
use super::identity::{Identity, Need, Sender};
use super::refusal::{AdmissionRefusal, RefusalCause};
use crate::api::rest::{self, Rest, RestRenderer};
use crate::api::sqs::{self, Dialect, Endpoint, Fault, SqsCall, SqsRenderer};
use angarium_core::access::Role;
use angarium_core::hosts::WrongHost;
use angarium_metrics::OperationMeter;

/// Which protocol a request speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// OpenStack Zaqar's REST API, with what belongs to no version of it.
    Rest,
    /// Amazon SQS.
    Sqs(Dialect),
}

/// How the answer to a request is written.
pub enum Renderer {
    Rest(RestRenderer),
    Sqs(SqsRenderer),
}

/// What a request asks for, found once.
#[derive(Debug)]
pub enum Call {
    /// It is in the path and the query.
    Rest,
    /// It was in the body, which was read.
    Sqs(Box<SqsCall>),
}

/// A request that was let in.
pub struct AdmittedRequest {
    /// As it came. Of SQS the body is there only for another replica.
    pub http: Request,
    /// Who asks.
    pub identity: Identity,
    /// For what.
    pub call: Call,
}

/// The operation of a request, as far as it is known.
pub struct RequestedOperation<'a> {
    /// What its caller must have.
    pub need: Need,
    /// Where it is measured.
    pub meter: &'a OperationMeter,
}

/// Both protocols.
pub struct Protocols {
    pub rest: Rest,
    pub sqs: Endpoint,
    /// Requests that name no operation, or that were refused before theirs was known.
    pub unknown: OperationMeter,
}

impl Renderer {
    /// The renderer of the protocol that a request speaks. Sets the method to the one that is routed.
    pub fn of(request: &mut Request) -> Self {
        // Who names no host is answered as by REST. Other replicas name none.
        let extensions = request.extensions();
        let is_host_wrong =
            extensions.get::<WrongHost>().is_some() && extensions.get::<PeerOrigin>().is_none();
        match sqs::dialect(request).filter(|_| !is_host_wrong) {
            Some(dialect) => Self::Sqs(SqsRenderer::new(dialect, request.headers())),
            None => Self::Rest(RestRenderer::new(request)),
        }
    }

    /// The protocol of the request.
    pub fn protocol(&self) -> Protocol {
        match self {
            Self::Rest(_) => Protocol::Rest,
            Self::Sqs(renderer) => Protocol::Sqs(renderer.dialect()),
        }
    }

    /// What the ids of requests begin with.
    pub fn id_prefix(&self) -> &'static str {
        match self {
            Self::Rest(_) => "req-",
            Self::Sqs(_) => "",
        }
    }

    /// Whether a refusal is logged.
    pub fn is_logged(&self) -> bool {
        match self {
            Self::Rest(renderer) => renderer.is_logged(),
            Self::Sqs(_) => true,
        }
    }

    /// Writes an answer of this replica to the request with this id.
    pub fn render(&self, response: Response, id: &str) -> Response {
        match self {
            Self::Rest(renderer) => renderer.render(response, id),
            Self::Sqs(renderer) => renderer.render(response, id),
        }
    }

    /// Sets the headers that each answer has, of this or another replica.
    pub fn finish(&self, response: &mut Response, id: &str) {
        match self {
            Self::Rest(renderer) => renderer.finish(response, id),
            Self::Sqs(renderer) => renderer.finish(response),
        }
    }
}

impl Call {
    /// The protocol that an error is written in.
    pub fn protocol(&self) -> Protocol {
        match self {
            Self::Rest => Protocol::Rest,
            Self::Sqs(call) => Protocol::Sqs(call.dialect),
        }
    }

    /// Adds what another replica must know to serve it.
    pub fn add_headers(&self, headers: &mut HeaderMap) {
        match self {
            Self::Rest => {}
            Self::Sqs(call) => call.add_headers(headers),
        }
    }
}

impl Protocols {
    /// Refuses a head that no operation takes.
    pub fn check_head(&self, protocol: Protocol, head: &Parts) -> Result<(), AdmissionRefusal> {
        match protocol {
            Protocol::Rest => Ok(self.rest.check_head(head)?),
            Protocol::Sqs(_) => Ok(sqs::check_head(head)?),
        }
    }

    /// The operation that the head of a request names.
    pub fn operation(&self, protocol: Protocol, head: &Parts) -> RequestedOperation<'_> {
        match protocol {
            Protocol::Rest => {
                let (need, meter) = self.rest.operation(head);
                RequestedOperation { need, meter: meter.unwrap_or(&self.unknown) }
            }
            Protocol::Sqs(dialect) => {
                let meter = sqs::named_operation(head, dialect).and_then(|named| self.sqs.meter(named));
                RequestedOperation { need: Need::Role(Role::Member), meter: meter.unwrap_or(&self.unknown) }
            }
        }
    }

    /// Who sends a request of an operation that has this need. One that waits for Keystone counts in `admission` for its
    /// address.
    pub async fn identify(
        &self,
        protocol: Protocol,
        head: &Parts,
        need: Need,
        admission: &AdmissionControl,
    ) -> Result<Sender, AdmissionRefusal> {
        match protocol {
            Protocol::Rest => self.rest.identify(head, need, admission).await.map(Sender::known),
            Protocol::Sqs(_) => self.sqs.identify(head),
        }
    }

    /// The kind of a path, as the log of failed authentication names it.
    pub fn path_kind(&self, protocol: Protocol, path: &str) -> &'static str {
        match protocol {
            Protocol::Rest => failures::kind(path),
            Protocol::Sqs(_) => failures::SQS,
        }
    }

    /// Where a request counts among those in progress, as far as its head shows.
    pub fn place_kind(&self, protocol: Protocol, head: &Parts) -> PlaceKind {
        match protocol {
            Protocol::Rest => PlaceKind::of_query(head.uri.query().unwrap_or_default()),
            Protocol::Sqs(dialect) => {
                let named = sqs::named_operation(head, dialect);
                named.map_or(PlaceKind::Request, sqs::Operation::place_kind)
            }
        }
    }

    /// The answer to a request that is refused. It is written by the frame.
    pub fn refuse(&self, protocol: Protocol, cause: RefusalCause) -> Response {
        match (protocol, cause) {
            (Protocol::Rest, RefusalCause::Error(error)) => self.rest.refuse(error),
            (Protocol::Sqs(_), RefusalCause::Error(error)) => Fault::from(error).unwritten(),
            (_, RefusalCause::Fault(fault)) => fault.unwritten(),
        }
    }

    /// How long a request may take.
    pub fn deadline(&self, head: &Parts, call: &Call) -> RequestDeadline {
        match call {
            Call::Rest => rest::deadline(head),
            Call::Sqs(call) => call.operation().deadline(),
        }
    }

    /// Serves a request here, once.
    pub async fn serve_once(&self, admitted: AdmittedRequest) -> Response {
        let AdmittedRequest { http, identity, call } = admitted;
        match call {
            Call::Rest => self.rest.serve(http, identity).await,
            // Apart, as every request would carry the room that all operations of SQS need.
            Call::Sqs(call) => Box::pin(self.sqs.serve_once(http, call)).await,
        }
    }

    /// Serves an attempt of a request here that may be made again.
    pub async fn serve_attempt(&self, http: Request, identity: &Identity, call: &Call) -> Response {
        match call {
            Call::Rest => self.rest.serve(http, identity.clone()).await,
            Call::Sqs(call) => Box::pin(self.sqs.serve_attempt(http, call)).await,
        }
    }

    /// What a request is about, for the way to the replica that serves it.
    pub fn target(&self, head: &Parts, identity: &Identity, call: &Call) -> RequestTarget {
        match call {
            Call::Rest => self.rest.target(head, identity),
            Call::Sqs(call) => call.target(),
        }
    }
}
