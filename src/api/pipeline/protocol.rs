//! The protocols behind the pipeline, and the one place that tells them apart. A protocol is a parser (what a request
//! asks for), a resolver (operation, project, queue) and a renderer (how its answer is written).

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

/// Who reads the body of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyReader {
    /// The handler: head and path have all that the pipeline must know.
    Handler,
    /// The pipeline: the body proves the sender, and names operation and queues.
    Pipeline(BodyParser),
}

/// The parser of a protocol whose requests are resolved out of their bodies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyParser(Dialect);

/// A request that was parsed out of its body, whose sender is still to be proven.
pub struct ParsedRequest {
    parser: BodyParser,
    incoming: IncomingRequest,
}

/// A request whose sender is proven by its body.
pub struct ProvenRequest {
    parsed: ParsedRequest,
    sender: ProvenSender,
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

/// A request whose queues were found, and its sender.
pub struct ResolvedCall {
    pub identity: Identity,
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
        // Who names no host, or whose header is too long, is answered as by REST. Other replicas name no host.
        let extensions = request.extensions();
        let is_host_wrong =
            extensions.get::<WrongHost>().is_some() && extensions.get::<PeerOrigin>().is_none();
        let is_head_wrong = is_host_wrong || extensions.get::<HeaderExcess>().is_some();
        match sqs::dialect(request).filter(|_| !is_head_wrong) {
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

    /// The code of an error that the protocol alone has words for.
    pub fn own_code(&self, response: &Response) -> Option<String> {
        match self {
            Self::Rest(_) => None,
            Self::Sqs(_) => response.extensions().get::<Fault>().map(Fault::code),
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
    /// A request that is all in the path and the query.
    pub fn of_head() -> Self {
        Self::Rest
    }

    /// The protocol that an error is written in.
    pub fn protocol(&self) -> Protocol {
        match self {
            Self::Rest => Protocol::Rest,
            Self::Sqs(call) => Protocol::Sqs(call.dialect),
        }
    }

    /// Who has read its body, or is to.
    pub fn body_reader(&self) -> BodyReader {
        self.protocol().body_reader()
    }

    /// Adds what another replica must know to serve it.
    pub fn add_headers(&self, headers: &mut HeaderMap) {
        match self {
            Self::Rest => {}
            Self::Sqs(call) => call.add_headers(headers),
        }
    }
}

impl Protocol {
    /// Who reads the bodies of its requests.
    pub fn body_reader(self) -> BodyReader {
        match self {
            Self::Rest => BodyReader::Handler,
            Self::Sqs(dialect) => BodyReader::Pipeline(BodyParser(dialect)),
        }
    }
}

impl BodyParser {
    /// Bytes that the body of a request may have.
    pub fn most_bytes(self, head: &Parts) -> usize {
        sqs::most_bytes(head, self.0)
    }
}

impl ParsedRequest {
    /// Where the request counts among those in progress.
    pub fn place_kind(&self) -> PlaceKind {
        self.incoming.operation.place_kind()
    }

    /// Whether the memory of its body is charged until the answer. A request that waits keeps nothing of it.
    pub fn keeps_body(&self) -> bool {
        self.incoming.operation != Operation::ReceiveMessage
    }
}

impl ProvenRequest {
    /// The project that the request counts for.
    pub fn project(&self) -> &ProjectId {
        &self.sender.project
    }
}

impl Protocols {
    /// Parses a request out of its body.
    pub fn parse(
        &self,
        parser: BodyParser,
        head: &Parts,
        body: Bytes,
    ) -> Result<ParsedRequest, AdmissionRefusal> {
        Ok(ParsedRequest { parser, incoming: self.sqs.parse(head, parser.0, body)? })
    }

    /// Where the operation of a parsed request is measured, if it has a place of its own.
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

    /// Finds the queues of a request.
    pub fn resolve(&self, head: &Parts, proven: ProvenRequest) -> Result<ResolvedCall, AdmissionRefusal> {
        let ProvenRequest { parsed: ParsedRequest { parser, incoming }, sender } = proven;
        let call = self.sqs.resolve(parser.0, head, incoming, sender)?;
        Ok(ResolvedCall { identity: call.identity(), call: Call::Sqs(Box::new(call)) })
    }

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
            (_, RefusalCause::Answer(answer)) => *answer,
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
