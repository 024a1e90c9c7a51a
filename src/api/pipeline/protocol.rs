//! The protocols behind the pipeline; only this file distinguishes them. A protocol has a parser (of requests), a
//! resolver (operation, project, queue) and a renderer (of answers).

use axum::extract::Request;
use axum::http::HeaderMap;
use axum::http::request::Parts;
use axum::response::Response;
use bytes::Bytes;

use super::admission::{AdmissionControl, PlaceKind};
use super::deadline::RequestDeadline;
use super::failures;
use super::forward::RequestTarget;
use super::forward::peer::PeerOrigin;
use super::identity::{Identity, Need, Sender};
use super::refusal::{AdmissionRefusal, RefusalCause};
use crate::api::rest::{self, Rest, RestRenderer};
use crate::api::sqs::{
    self, Dialect, Endpoint, Fault, IncomingRequest, Operation, ProvenSender, SqsCall, SqsRenderer,
};
use angarium_core::access::Role;
use angarium_core::hosts::WrongHost;
use angarium_core::names::ProjectId;
use angarium_core::request_header::HeaderExcess;
use angarium_metrics::OperationMeter;

/// The protocol of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// OpenStack Zaqar's REST API, and the paths without a version.
    Rest,
    /// Amazon SQS.
    Sqs(Dialect),
}

/// The renderer of an answer.
pub enum Renderer {
    Rest(RestRenderer),
    Sqs(SqsRenderer),
}

/// The operation of a request, resolved once.
#[derive(Debug)]
pub enum Call {
    /// The path and the query have the operation.
    Rest,
    /// The body had the operation, and was read.
    Sqs(Box<SqsCall>),
}

/// The reader of a request body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyReader {
    /// The handler: head and path have everything that the pipeline needs.
    Handler,
    /// The pipeline: the body proves the sender, and names the operation and the queues.
    Pipeline(BodyParser),
}

/// The parser of a protocol whose requests are resolved from their bodies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyParser(Dialect);

/// A request that was parsed from its body, before its sender is authenticated.
pub struct ParsedRequest {
    parser: BodyParser,
    incoming: IncomingRequest,
}

/// A request whose body has proven its sender.
pub struct ProvenRequest {
    parsed: ParsedRequest,
    sender: ProvenSender,
}

/// A request that the pipeline has admitted.
pub struct AdmittedRequest {
    /// The HTTP request. For SQS its body is kept only for another replica.
    pub http: Request,
    /// The caller.
    pub identity: Identity,
    /// The operation of the request.
    pub call: Call,
}

/// A request with its resolved queues, and its sender.
pub struct ResolvedCall {
    pub identity: Identity,
    pub call: Call,
}

/// The operation of a request, as far as it is known.
pub struct RequestedOperation<'a> {
    /// The permission that the operation requires.
    pub need: Need,
    /// The meter of the operation.
    pub meter: &'a OperationMeter,
}

/// Both protocols.
pub struct Protocols {
    pub rest: Rest,
    pub sqs: Endpoint,
    /// Meter of requests without an operation, or refused before it was known.
    pub unknown: OperationMeter,
}

impl Renderer {
    /// Returns the renderer of the request's protocol. For REST, sets the method that routing uses.
    pub fn of(request: &mut Request) -> Self {
        // A request with a wrong host or with too long headers gets an answer of REST. Replicas send no host.
        let extensions = request.extensions();
        let is_host_wrong =
            extensions.get::<WrongHost>().is_some() && extensions.get::<PeerOrigin>().is_none();
        let is_head_wrong = is_host_wrong || extensions.get::<HeaderExcess>().is_some();
        match sqs::dialect(request).filter(|_| !is_head_wrong) {
            Some(dialect) => Self::Sqs(SqsRenderer::new(dialect, request.headers())),
            None => Self::Rest(RestRenderer::new(request)),
        }
    }

    /// Returns the protocol of the request.
    pub fn protocol(&self) -> Protocol {
        match self {
            Self::Rest(_) => Protocol::Rest,
            Self::Sqs(renderer) => Protocol::Sqs(renderer.dialect()),
        }
    }

    /// Returns the prefix of request ids.
    pub fn id_prefix(&self) -> &'static str {
        match self {
            Self::Rest(_) => "req-",
            Self::Sqs(_) => "",
        }
    }

    /// Whether refusals of this request are logged.
    pub fn is_logged(&self) -> bool {
        match self {
            Self::Rest(renderer) => renderer.is_logged(),
            Self::Sqs(_) => true,
        }
    }

    /// Returns the code of an error that exists only in this protocol.
    pub fn own_code(&self, response: &Response) -> Option<String> {
        match self {
            Self::Rest(_) => None,
            Self::Sqs(_) => response.extensions().get::<Fault>().map(Fault::code),
        }
    }

    /// Renders an answer of this replica to the request with this id.
    pub fn render(&self, response: Response, id: &str) -> Response {
        match self {
            Self::Rest(renderer) => renderer.render(response, id),
            Self::Sqs(renderer) => renderer.render(response, id),
        }
    }

    /// Sets the headers of every answer, of this replica or of another one.
    pub fn finish(&self, response: &mut Response, id: &str) {
        match self {
            Self::Rest(renderer) => renderer.finish(response, id),
            Self::Sqs(renderer) => renderer.finish(response),
        }
    }
}

impl Call {
    /// Creates the call of a request whose path and query have everything.
    pub fn of_head() -> Self {
        Self::Rest
    }

    /// Returns the protocol in which an error is rendered.
    pub fn protocol(&self) -> Protocol {
        match self {
            Self::Rest => Protocol::Rest,
            Self::Sqs(call) => Protocol::Sqs(call.dialect),
        }
    }

    /// Returns the reader of the request body.
    pub fn body_reader(&self) -> BodyReader {
        self.protocol().body_reader()
    }

    /// Adds the headers that another replica needs to serve the request.
    pub fn add_headers(&self, headers: &mut HeaderMap) {
        match self {
            Self::Rest => {}
            Self::Sqs(call) => call.add_headers(headers),
        }
    }
}

impl Protocol {
    /// Returns the reader of the request bodies of this protocol.
    pub fn body_reader(self) -> BodyReader {
        match self {
            Self::Rest => BodyReader::Handler,
            Self::Sqs(dialect) => BodyReader::Pipeline(BodyParser(dialect)),
        }
    }
}

impl BodyParser {
    /// Returns the max bytes of a request body.
    pub fn most_bytes(self, head: &Parts) -> usize {
        sqs::most_bytes(head, self.0)
    }
}

impl ParsedRequest {
    /// Returns the kind of the request for admission control.
    pub fn place_kind(&self) -> PlaceKind {
        self.incoming.operation.place_kind()
    }

    /// Whether the body is charged until the answer. A receive keeps nothing of its body, so its charge ends before it
    /// waits.
    pub fn keeps_body(&self) -> bool {
        self.incoming.operation != Operation::ReceiveMessage
    }
}

impl ProvenRequest {
    /// Returns the project that the request counts for.
    pub fn project(&self) -> &ProjectId {
        &self.sender.project
    }
}

impl Protocols {
    /// Parses a request from its body.
    pub fn parse(
        &self,
        parser: BodyParser,
        head: &Parts,
        body: Bytes,
    ) -> Result<ParsedRequest, AdmissionRefusal> {
        Ok(ParsedRequest { parser, incoming: self.sqs.parse(head, parser.0, body)? })
    }

    /// Returns the meter of the operation of a parsed request, if it has its own.
    pub fn meter(&self, parsed: &ParsedRequest) -> Option<&OperationMeter> {
        self.sqs.meter(parsed.incoming.operation)
    }

    /// Completes the proof of a sender with the body.
    pub fn prove(
        &self,
        parsed: ParsedRequest,
        sender: Sender,
        head: &Parts,
        body: &[u8],
    ) -> Result<ProvenRequest, AdmissionRefusal> {
        let sender = self.sqs.prove(sender, head, body)?;
        Ok(ProvenRequest { parsed, sender })
    }

    /// Resolves the queues of a request.
    pub fn resolve(&self, head: &Parts, proven: ProvenRequest) -> Result<ResolvedCall, AdmissionRefusal> {
        let ProvenRequest { parsed: ParsedRequest { parser, incoming }, sender } = proven;
        let call = self.sqs.resolve(parser.0, head, incoming, sender)?;
        Ok(ResolvedCall { identity: call.identity(), call: Call::Sqs(Box::new(call)) })
    }

    /// Refuses a head that is invalid for every operation.
    pub fn check_head(&self, protocol: Protocol, head: &Parts) -> Result<(), AdmissionRefusal> {
        match protocol {
            Protocol::Rest => Ok(self.rest.check_head(head)?),
            Protocol::Sqs(_) => Ok(sqs::check_head(head)?),
        }
    }

    /// Returns the operation that the head of a request names.
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

    /// Returns the sender of a request whose operation has this need. While a request waits for Keystone, it counts in
    /// `admission` for its address.
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

    /// Returns the kind of a path for the log of failed authentication.
    pub fn path_kind(&self, protocol: Protocol, path: &str) -> &'static str {
        match protocol {
            Protocol::Rest => failures::kind(path),
            Protocol::Sqs(_) => failures::SQS,
        }
    }

    /// Returns the kind of a request for admission control, as far as its head shows it.
    pub fn place_kind(&self, protocol: Protocol, head: &Parts) -> PlaceKind {
        match protocol {
            Protocol::Rest => PlaceKind::of_query(head.uri.query().unwrap_or_default()),
            Protocol::Sqs(dialect) => {
                let named = sqs::named_operation(head, dialect);
                named.map_or(PlaceKind::Request, sqs::Operation::place_kind)
            }
        }
    }

    /// Returns the answer to a refused request. The frame renders it.
    pub fn refuse(&self, protocol: Protocol, cause: RefusalCause) -> Response {
        match (protocol, cause) {
            (Protocol::Rest, RefusalCause::Error(error)) => self.rest.refuse(error),
            (Protocol::Sqs(_), RefusalCause::Error(error)) => Fault::from(error).unwritten(),
            (_, RefusalCause::Answer(answer)) => *answer,
        }
    }

    /// Returns the deadline of a request.
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
            // Boxed, because the future of all SQS operations is large and would enlarge that of every request.
            Call::Sqs(call) => Box::pin(self.sqs.serve_once(http, call)).await,
        }
    }

    /// Serves one attempt of a request here; the request may be made again.
    pub async fn serve_attempt(&self, http: Request, identity: &Identity, call: &Call) -> Response {
        match call {
            Call::Rest => self.rest.serve(http, identity.clone()).await,
            Call::Sqs(call) => Box::pin(self.sqs.serve_attempt(http, call)).await,
        }
    }

    /// Returns the facts about a request that forwarding needs.
    pub fn target(&self, head: &Parts, identity: &Identity, call: &Call) -> RequestTarget {
        match call {
            Call::Rest => self.rest.target(head, identity),
            Call::Sqs(call) => call.target(),
        }
    }
}
