//! SQS as a protocol of the pipeline: resolves the operation and the queues of a request, and carries it out. `sender`
//! has the authentication, `renderer` the form of answers.

use std::borrow::Cow;
use std::sync::Arc;

use axum::extract::Request;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::response::Response;
use bytes::Bytes;

use super::account::RegionalQueues;
use super::authorization::authorize;
use super::context::Context;
use super::decode::{Arguments, Dialect};
use super::encode::OperationResult;
use super::fault::Fault;
use super::incoming::{IncomingRequest, incoming, queue_of_path};
use super::operation::{ALL, Operation};
use super::policy::RequestFacts;
use super::resolution::{Part, ResolvedRequest};
use super::sender::ProvenSender;
use super::settings::SqsSettings;
use crate::api::pipeline::forward::RequestTarget;
use crate::api::pipeline::forward::earlier::EarlierAttempts;
use crate::api::pipeline::forward::peer::{PeerOrigin, RequestId, WaitedTime};
use crate::api::pipeline::identity::{Authentication, Identity};
use crate::api::pipeline::refusal::AdmissionRefusal;
use angarium_broker::Broker;
use angarium_clock::Clock;
use angarium_core::access::Role;
use angarium_core::hosts::AllowedHosts;
use angarium_core::limits;
use angarium_core::names::QueueRef;
use angarium_core::source::Source;
use angarium_core::trace::TraceContext;
use angarium_metrics::OperationMeter;

/// The header in which one replica sends another the prefix of queue URLs.
const BASE: HeaderName = HeaderName::from_static("x-angarium-sqs-base");
/// The header with the AWS X-Ray trace of a request.
const AWS_TRACE: HeaderName = HeaderName::from_static("x-amzn-trace-id");

pub struct Endpoint {
    broker: Broker,
    pub(super) settings: SqsSettings,
    pub(super) places: RegionalQueues,
    /// Host names for callers without keys, who state their identity without proof; none: such callers are refused.
    pub(super) open_hosts: Option<Arc<AllowedHosts>>,
    pub(super) clock: Clock,
    meters: Vec<OperationMeter>,
}

/// A request with its operation, its caller and its queues.
#[derive(Debug)]
pub struct SqsCall {
    /// The dialect of the answer.
    pub dialect: Dialect,
    request: ResolvedRequest,
    /// The address and the connection type of the client.
    source: Option<Source>,
    /// Prefix of queue URLs.
    base: String,
}

impl SqsCall {
    /// Returns the operation of the request.
    pub fn operation(&self) -> Operation {
        self.request.operation
    }

    /// Returns the identity of the caller.
    pub fn identity(&self) -> Identity {
        Identity {
            project: self.request.project.clone(),
            role: Role::Member,
            name: None,
            is_anonymous: false,
        }
    }

    /// Returns the facts about the request that forwarding needs.
    pub fn target(&self) -> RequestTarget {
        let operation = self.request.operation;
        RequestTarget {
            slot: self.request.queue(Part::Subject).map(QueueRef::slot),
            is_repeatable: operation.may_be_done_twice(),
            is_read: !operation.is_change(),
            may_wait: operation == Operation::ReceiveMessage,
            most_bytes: limits::SQS_REQUEST_BYTES,
            deadline: operation.deadline().time,
        }
    }

    /// Adds the headers that the serving replica needs.
    pub fn add_headers(&self, headers: &mut HeaderMap) {
        if let Ok(base) = HeaderValue::from_str(&self.base) {
            headers.insert(BASE, base);
        }
    }
}

/// Refuses a head that is invalid for every operation.
pub fn check_head(head: &Parts) -> Result<(), Fault> {
    if head.uri.query().is_some_and(|query| query.len() > limits::QUERY_BYTES) {
        let why = format!("The query is longer than {} bytes: send a form.", limits::QUERY_BYTES);
        return Err(Fault::value(why));
    }
    Ok(())
}

impl Endpoint {
    /// Creates the endpoint over `broker`. It authenticates callers by its keys, or else as `authentication`
    /// prescribes.
    pub fn new(broker: Broker, authentication: &Authentication, settings: SqsSettings, clock: Clock) -> Self {
        let meter = |operation: &Operation| broker.meter().operation(&format!("sqs_{}", operation.name()));
        let meters = ALL.iter().map(meter).collect();
        let open_hosts = match authentication {
            Authentication::Off(hosts) => Some(Arc::clone(hosts)),
            Authentication::On(_) => None,
        };
        let places = RegionalQueues { region: settings.region.clone(), regions: settings.regions.clone() };
        Self { broker, settings, places, open_hosts, clock, meters }
    }

    /// Returns the meter of an operation.
    pub fn meter(&self, operation: Operation) -> Option<&OperationMeter> {
        self.meters.get(operation as usize)
    }

    /// Parses the operation of a request and its arguments.
    pub fn parse(&self, head: &Parts, dialect: Dialect, body: Bytes) -> Result<IncomingRequest, Fault> {
        incoming(head, dialect, body, &self.settings.most)
    }

    /// Resolves the queues of a request. Refuses a change that any web page can have a browser send.
    pub fn resolve(
        &self,
        dialect: Dialect,
        head: &Parts,
        incoming: IncomingRequest,
        sender: ProvenSender,
    ) -> Result<SqsCall, AdmissionRefusal> {
        self.check_change(head, incoming.operation)?;
        let addressed = queue_of_path(head.uri.path());
        let ProvenSender { caller, region, .. } = sender;
        let request = ResolvedRequest::new(incoming, caller, region, &addressed, &self.places)?;
        let source = head.extensions.get().copied();
        Ok(SqsCall { dialect, request, source, base: self.base(head) })
    }

    /// Returns the prefix of queue URLs.
    fn base(&self, head: &Parts) -> String {
        let told = head.headers.get(BASE).filter(|_| head.extensions.get::<PeerOrigin>().is_some());
        if let Some(told) = told.and_then(|told| told.to_str().ok()) {
            return told.to_owned();
        }
        if let Some(url) = &self.settings.public_url {
            return url.clone();
        }
        let host = head.headers.get(header::HOST).and_then(|host| host.to_str().ok());
        let host = head.uri.authority().map(|authority| authority.as_str()).or(host).unwrap_or("localhost");
        format!("{}://{host}", self.settings.scheme)
    }

    /// Serves a request here, once. A receive that waits keeps nothing of its body.
    pub async fn serve_once(&self, http: Request, mut call: Box<SqsCall>) -> Response {
        let arguments = Cow::Owned(call.request.arguments.take());
        self.serve(&http.into_parts().0, &call, arguments).await
    }

    /// Serves one attempt of a request here; the request may be made again.
    pub async fn serve_attempt(&self, http: Request, call: &SqsCall) -> Response {
        self.serve(&http.into_parts().0, call, Cow::Borrowed(&call.request.arguments)).await
    }

    async fn serve(&self, head: &Parts, call: &SqsCall, arguments: Cow<'_, Arguments>) -> Response {
        let id = head.extensions.get::<RequestId>().map(|id| &*id.0).unwrap_or_default();
        match self.carry_out(head, call, arguments).await {
            Ok(result) => result.into_response(call.dialect, call.request.operation, id),
            Err(fault) => fault.unwritten(),
        }
    }

    async fn carry_out(
        &self,
        head: &Parts,
        call: &SqsCall,
        arguments: Cow<'_, Arguments>,
    ) -> Result<OperationResult, Fault> {
        // Without keys the identity of a client is unknown, so policies are not checked.
        if self.settings.keys.is_some() {
            let (account, now) = (&call.request.caller.account, self.clock.wall());
            let facts = RequestFacts { account, source: call.source, now };
            authorize(&self.broker, &self.places, &call.request, &facts).await?;
        }
        let aws_trace = head.headers.get(AWS_TRACE).and_then(|trace| trace.to_str().ok());
        let aws_trace = aws_trace.filter(|trace| (1..=limits::SQS_TRACE_CHARS).contains(&trace.len()));
        let context = Context {
            broker: &self.broker,
            dialect: call.dialect,
            request: &call.request,
            places: &self.places,
            base: &call.base,
            trace: head.extensions.get::<TraceContext>().cloned(),
            aws_trace: aws_trace.map(str::to_owned),
            waited: head.extensions.get::<WaitedTime>().copied().unwrap_or_default().0,
            earlier: head.extensions.get::<EarlierAttempts>().copied().unwrap_or_default(),
            most: self.settings.most,
            pauses: self.settings.pauses,
        };
        call.request.operation.run(&context, arguments).await
    }
}
