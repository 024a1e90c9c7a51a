//! Where SQS requests come in and their answers leave: who sends them, whether they may, and where they are served.
//!
//! ```text
//! headers ──▶ who asks? room? ──▶ body ──▶ which operation? is it signed so? ──▶ here, or passed on to the owner of the queue ──▶ answer
//! ```

use std::borrow::Cow;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::Response;
use bytes::Bytes;
use tokio::sync::watch;
use tokio::time::Instant;
use uuid::Uuid;

use super::account::{self, Caller, RegionalQueues};
use super::admission::{AdmissionPermit, ScreenedRequest, Sender};
use super::authorization::authorize;
use super::context::{Context, ContextLimits};
use super::decode::{Arguments, Dialect};
use super::encode::OperationResult;
use super::fault::{Fault, Kind};
use super::incoming::{IncomingRequest, asked, credential, is_plain_json, most_bytes, queue_of_path, target};
use super::operation::{ALL, Operation};
use super::pauses::Pauses;
use super::policy::RequestFacts;
use super::resolution::{Part, Region, ResolvedRequest};
use super::signature;
use crate::api::error::ApiError;
use crate::api::pipeline::admission::{AdmissionControl, LetIn};
use crate::api::pipeline::bodies::{BodyBudget, BodyOwner, client_address};
use crate::api::pipeline::failures::{self, FailureLog};
use crate::api::pipeline::forward::peer::{PeerOrigin, RequestId, WaitedTime};
use crate::api::pipeline::forward::{NamedTarget, PeerResponseMark, Relay, ServeFuture};
use crate::api::pipeline::identity::{Authentication, Identity, RegionalAccess};
use crate::api::pipeline::{deadline, frame, origin, unread};
use crate::api::{json, trace};
use angarium_broker::Broker;
use angarium_clock::Clock;
use angarium_core::access::Role;
use angarium_core::access_keys::AccessKeyTable;
use angarium_core::error::Error;
use angarium_core::hosts::AllowedHosts;
use angarium_core::limits;
use angarium_core::names::{ProjectId, QueueRef};
use angarium_core::region::{Accounts, Regions};
use angarium_core::source::Source;
use angarium_metrics::{AuthenticationFailure, OperationMeter};

/// What one replica tells another beside the request: what URLs begin with.
const BASE: HeaderName = HeaderName::from_static("x-angarium-sqs-base");
const PLAIN_JSON: HeaderValue = HeaderValue::from_static("application/json");
/// The trace of AWS X-Ray that a request is in.
const AWS_TRACE: HeaderName = HeaderName::from_static("x-amzn-trace-id");

/// How the endpoint was set up.
#[derive(Clone, Debug)]
pub struct SqsSettings {
    /// The region of projects that name none.
    pub region: String,
    /// The regions that requests may be for beside it.
    pub regions: Regions,
    /// What the URLs of queues begin with, without a slash at the end; the address that the request was sent to when absent.
    pub public_url: Option<String>,
    /// The scheme of that address.
    pub scheme: &'static str,
    /// The keys that requests must be signed with, which may change while it runs; none: they need no signature.
    pub keys: Option<watch::Receiver<Arc<AccessKeyTable>>>,
    /// What requests may ask for.
    pub most: ContextLimits,
    /// Whether a queue is not purged or made again at once.
    pub pauses: Pauses,
}

impl Default for SqsSettings {
    fn default() -> Self {
        Self {
            region: "us-east-1".to_owned(),
            regions: Regions::Any,
            public_url: None,
            scheme: "http",
            keys: None,
            most: ContextLimits::default(),
            pauses: Pauses::Off,
        }
    }
}

impl SqsSettings {
    /// How projects belong to accounts: by their regions, where a client can choose one.
    pub fn accounts(&self, authentication: &Authentication) -> Accounts {
        match (&self.keys, authentication) {
            // No client is served by SQS.
            (None, Authentication::On(_)) => Accounts::Projects,
            (Some(_), _) | (None, Authentication::Off(_)) => self.regions.accounts(&self.region),
        }
    }

    /// What becomes of callers of REST whose project a key may reach by its region.
    pub fn regional_projects(&self, authentication: &Authentication) -> RegionalAccess {
        let has_others = self.regions.accounts(&self.region) == Accounts::Regions;
        match authentication {
            Authentication::On(_) if self.keys.is_some() && has_others => RegionalAccess::Refused,
            Authentication::On(_) | Authentication::Off(_) => RegionalAccess::Served,
        }
    }
}

/// The endpoint.
pub struct Endpoint {
    broker: Broker,
    settings: SqsSettings,
    places: RegionalQueues,
    /// Whether callers without keys are what they say they are.
    is_open: bool,
    /// The host names that such callers may use.
    hosts: Arc<AllowedHosts>,
    quota: Arc<AdmissionControl>,
    clock: Clock,
    failures: Arc<FailureLog>,
    meters: Vec<(Operation, OperationMeter)>,
}

/// The endpoint, and the way of its requests to where they are served.
pub struct Sqs {
    endpoint: Endpoint,
    bodies: BodyBudget,
    /// Passes requests on; none for a service that is alone.
    relay: Option<Relay>,
}

/// A request on its way to where it is served.
#[derive(Clone, Debug)]
struct Call {
    dialect: Dialect,
    request: ResolvedRequest,
    identity: Identity,
    /// Where it is from.
    source: Option<Source>,
    base: String,
}

/// On an answer in the form of SQS.
#[derive(Clone, Copy, Debug)]
struct SqsResponseMark;

impl Sqs {
    /// `endpoint`, with bodies for which `bodies` has room, and what other replicas serve passed on by `relay`.
    pub fn new(endpoint: Endpoint, bodies: BodyBudget, relay: Option<Relay>) -> Self {
        Self { endpoint, bodies, relay }
    }

    /// Answers a request in its `dialect`.
    pub async fn answer(&self, request: Request, dialect: Dialect) -> Response {
        let id = match request.extensions().get::<RequestId>() {
            Some(RequestId(id)) => id.clone(),
            None => Uuid::new_v4().to_string(),
        };
        let is_plain = dialect == Dialect::Json && is_plain_json(request.headers());
        let (request, unread) = unread::watch(request);
        let mut response = self.answer_as(request, dialect, &id).await;
        // A client that names plain JSON may read no other; the SDKs of AWS name their own form.
        if is_plain {
            response.headers_mut().insert(header::CONTENT_TYPE, PLAIN_JSON);
        }
        // A body that is late already is not waited for again.
        if let Some(unread) = unread.filter(|_| response.status() != StatusCode::REQUEST_TIMEOUT) {
            unread.read().await;
        }
        response.headers_mut().insert(header::SERVER, frame::SERVER);
        response
    }

    async fn answer_as(&self, request: Request, dialect: Dialect, id: &str) -> Response {
        let began = Instant::now();
        let (mut head, body) = request.into_parts();
        let endpoint = &self.endpoint;
        let judged = match endpoint.judge(&head, dialect) {
            Ok(judged) => judged,
            Err(fault) => return endpoint.refuse(fault, dialect, id),
        };
        let (body, charge) = match self.bodies.charge(body, || judged.owner(&head, &endpoint.places)) {
            Ok(charged) => charged,
            Err(error) => return endpoint.refuse(error.into(), dialect, id),
        };
        let bytes = match json::read(judged.paced(body), most_bytes(&head, dialect)).await {
            Ok(bytes) => bytes,
            Err(error) => return endpoint.refuse(error.into(), dialect, id),
        };
        let asked = match asked(&head, dialect, bytes.clone(), &endpoint.settings.most) {
            Ok(asked) => asked,
            Err(fault) => return endpoint.refuse(fault, dialect, id),
        };
        let operation = asked.operation;
        let admitted = endpoint.admit(&head, &bytes, dialect, asked, judged).and_then(|(call, place)| {
            let owner = BodyOwner::Project(call.identity.project.clone());
            Ok((call, place, self.bodies.assign(charge, owner)?))
        });
        let response = match admitted {
            Ok((mut call, _place, charge)) => {
                // A replica that is alone passes nothing on: a receive that waits needs its body no more.
                let may_wait_without = self.relay.is_none() && operation == Operation::ReceiveMessage;
                let (bytes, _charge) = Some((bytes, charge)).filter(|_| !may_wait_without).unzip();
                let served = async {
                    match &self.relay {
                        Some(relay) => {
                            endpoint.address(&mut head, call, id);
                            let request = Request::from_parts(head, Body::from(bytes.unwrap_or_default()));
                            self.pass_on(relay, request, dialect, id).await
                        }
                        None => {
                            let arguments = Cow::Owned(call.request.arguments.take());
                            match endpoint.carry_out(&head, &call, arguments).await {
                                Ok(answer) => answer.into_response(dialect, operation, id),
                                Err(fault) => endpoint.refuse(fault, dialect, id),
                            }
                        }
                    }
                };
                let served = deadline::carry_out(operation, served).await;
                served.unwrap_or_else(|late| endpoint.refuse(late.into(), dialect, id))
            }
            Err(fault) => endpoint.refuse(fault, dialect, id),
        };
        if let Some((_, meter)) = endpoint.meters.iter().find(|(metered, _)| *metered == operation) {
            meter.note(response.status().as_u16(), began.elapsed());
        }
        response
    }

    /// Serves a request, here or elsewhere.
    async fn pass_on(&self, relay: &Relay, request: Request, dialect: Dialect, id: &str) -> Response {
        let response = relay.serve(request, &self.endpoint).await;
        let is_final = response.extensions().get::<SqsResponseMark>().is_some();
        match response.extensions().get::<ApiError>() {
            Some(ApiError(error))
                if !is_final && response.extensions().get::<PeerResponseMark>().is_none() =>
            {
                self.endpoint.refuse(Fault::from(Arc::clone(error)), dialect, id)
            }
            _ => response,
        }
    }
}

impl Endpoint {
    /// The endpoint over `broker`, for callers that are known by its keys or else by `authentication`, which lets in what
    /// `quota` has room for and notes in `failures` who is not known.
    pub fn new(
        broker: Broker,
        authentication: &Authentication,
        settings: SqsSettings,
        quota: Arc<AdmissionControl>,
        clock: Clock,
        failures: Arc<FailureLog>,
    ) -> Self {
        let meter = |operation: Operation| {
            (operation, broker.meter().operation(&format!("sqs_{}", operation.name())))
        };
        let meters = ALL.iter().copied().map(meter).collect();
        let (is_open, hosts) = match authentication {
            Authentication::Off(hosts) => (true, Arc::clone(hosts)),
            Authentication::On(_) => (false, Arc::default()),
        };
        let places = RegionalQueues { region: settings.region.clone(), regions: settings.regions.clone() };
        Self { broker, settings, places, is_open, hosts, quota, clock, failures, meters }
    }

    /// Judges a request by its headers, before anything of its body is read.
    fn judge(&self, head: &Parts, dialect: Dialect) -> Result<ScreenedRequest<'_>, Fault> {
        if head.uri.query().is_some_and(|query| query.len() > limits::QUERY_BYTES) {
            let why = format!("The query is longer than {} bytes: send a form.", limits::QUERY_BYTES);
            return Err(Fault::value(why));
        }
        let is_clients = head.extensions.get::<PeerOrigin>().is_none();
        let by = self.sender(head, is_clients).inspect_err(|fault| self.note_failure(fault, head))?;
        if !is_clients {
            // The replica that passed it on has let it in.
            return Ok(ScreenedRequest { by, place: None });
        }
        let (account, region) = by.account();
        if matches!(by, Sender::Signer(_))
            && self.places.accounts() == Accounts::Regions
            && account.contains('@')
        {
            return Err(Error::RegionalProject.into());
        }
        self.quota.check_rate(&self.places.project(account, region)?)?;
        let waits = dialect == Dialect::Json && target(head) == Some(Operation::ReceiveMessage);
        let address = || client_address(&head.extensions);
        let unproven = (!by.is_proven()).then(|| self.quota.unproven(waits, address())).transpose()?;
        let forwarded = self.quota.forwarded(&head.extensions)?;
        let place = AdmissionPermit { permit: self.quota.place(waits)?, waits, unproven, forwarded };
        Ok(ScreenedRequest { by, place: Some(place) })
    }

    /// Finds out who asks, and refuses who may not and what is too much. What is returned beside the call is held while it is
    /// in progress.
    fn admit<'a>(
        &'a self,
        head: &Parts,
        body: &Bytes,
        dialect: Dialect,
        asked: IncomingRequest,
        ScreenedRequest { by, place }: ScreenedRequest<'a>,
    ) -> Result<(Call, Option<LetIn<'a>>), Fault> {
        let region = if matches!(by, Sender::Signer(_)) { Region::Signed } else { Region::Said };
        let caller = by.verify(head, body).inspect_err(|fault| self.note_failure(fault, head))?;
        let place = match place {
            None => None,
            Some(place) => {
                self.quota.spend(&self.places.project(&caller.account, &caller.region)?)?;
                // A queue may say itself that receives wait.
                let waits = asked.operation == Operation::ReceiveMessage;
                let permit = if waits == place.waits { place.permit } else { self.quota.place(waits)? };
                Some(LetIn::of(permit, place.forwarded))
            }
        };
        if self.is_unproven(head) && asked.operation.is_change() {
            let refused = origin::check_change(head, asked.operation.name()).map_err(Fault::from);
            refused.inspect_err(|fault| self.note_failure(fault, head))?;
        }
        let addressed = queue_of_path(head.uri.path());
        let request = ResolvedRequest::new(asked, caller, region, &addressed, &self.places)?;
        let project = request.project.clone();
        let identity = Identity { project, role: Role::Member, is_anonymous: false };
        let source = head.extensions.get().copied();
        Ok((Call { dialect, request, identity, source, base: self.base(head) }, place))
    }

    /// Puts to a request what the replica that serves it has to know.
    fn address(&self, head: &mut Parts, call: Call, id: &str) {
        head.headers.remove(BASE);
        head.headers.extend(HeaderValue::from_str(&call.base).ok().map(|base| (BASE, base)));
        let slot = call.request.queue(Part::Subject).map(QueueRef::slot);
        let is_repeatable = call.request.operation.may_be_done_twice();
        let (most, deadline) = (limits::SQS_REQUEST_BYTES, deadline::of_operation(call.request.operation));
        head.extensions.insert(NamedTarget { slot, is_repeatable, most, deadline });
        head.extensions.insert(call.identity.clone());
        head.extensions.insert(RequestId(id.to_owned()));
        head.extensions.insert(Arc::new(call));
    }

    /// Who asks, where no signature states it. Without authentication the account and the region are what the request
    /// states.
    fn identify(&self, head: &Parts) -> Result<Caller, Fault> {
        if let Some(PeerOrigin { identity, .. }) = head.extensions.get() {
            let (account, region) = self.places.split(&identity.project);
            return Ok(Caller { account: account.into(), region: region.into() });
        }
        if !self.is_open {
            let why =
                "This service has no keys for SQS: it serves those who have a token through its REST API.";
            return Err(Fault::new(Kind::AccessDenied, why));
        }
        origin::check(&self.hosts, &head.uri, &head.headers)?;
        let (key, region) = credential(head).unwrap_or_default();
        let account = if account::is_account(&key) { key } else { ProjectId::DEFAULT.to_owned() };
        let region = if region.is_empty() { self.places.region.clone() } else { region };
        Ok(Caller { account, region })
    }

    /// Whether nothing was checked of who sends a request: there are no keys, and no other replica vouches for it.
    fn is_unproven(&self, head: &Parts) -> bool {
        self.settings.keys.is_none() && head.extensions.get::<PeerOrigin>().is_none()
    }

    /// Who sends a request, as its headers say.
    fn sender(&self, head: &Parts, is_clients: bool) -> Result<Sender, Fault> {
        match self.settings.keys.as_ref().filter(|_| is_clients) {
            Some(keys) => {
                let keys = Arc::clone(&keys.borrow());
                signature::judge(head, &keys, self.clock.wall()).map(Sender::Signer)
            }
            None => self.identify(head).map(Sender::Caller),
        }
    }

    fn note_failure(&self, fault: &Fault, head: &Parts) {
        self.failures.note(self.failure(fault), &head.extensions, failures::SQS);
    }

    /// Why a caller is not known, by the answer that it gets.
    fn failure(&self, fault: &Fault) -> AuthenticationFailure {
        match fault.kind {
            _ if self.settings.keys.is_none() && self.is_open => AuthenticationFailure::ForeignOrigin,
            _ if self.settings.keys.is_none() => AuthenticationFailure::NoKeys,
            Kind::MissingAuthenticationToken => AuthenticationFailure::MissingSignature,
            Kind::IncompleteSignature => AuthenticationFailure::MalformedSignature,
            Kind::InvalidClientTokenId => AuthenticationFailure::UnknownKey,
            Kind::AccessDenied | Kind::SignatureNotCurrent => AuthenticationFailure::ExpiredSignature,
            _ => AuthenticationFailure::SignatureMismatch,
        }
    }

    /// What the URLs of queues begin with.
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

    fn context<'a>(&'a self, call: &'a Call) -> Context<'a> {
        Context {
            broker: &self.broker,
            request: &call.request,
            places: &self.places,
            base: &call.base,
            trace: None,
            aws_trace: None,
            waited: std::time::Duration::ZERO,
            most: self.settings.most,
            pauses: self.settings.pauses,
        }
    }

    async fn carry_out(
        &self,
        head: &Parts,
        call: &Call,
        arguments: Cow<'_, Arguments>,
    ) -> Result<OperationResult, Fault> {
        // Without keys it is unknown who a client is.
        if self.settings.keys.is_some() {
            let (account, now) = (&call.request.caller.account, self.clock.wall());
            let facts = RequestFacts { account, source: call.source, now };
            authorize(&self.broker, &self.places, &call.request, &facts).await?;
        }
        let waited = head.extensions.get::<WaitedTime>().copied().unwrap_or_default().0;
        let aws_trace = head.headers.get(AWS_TRACE).and_then(|trace| trace.to_str().ok());
        let aws_trace = aws_trace.filter(|trace| (1..=limits::SQS_TRACE_CHARS).contains(&trace.len()));
        let context = Context {
            trace: trace::of_request(&head.headers),
            aws_trace: aws_trace.map(str::to_owned),
            waited,
            ..self.context(call)
        };
        call.request.operation.run(&context, arguments).await
    }

    /// An error stops here, so it is logged and counted here, once.
    fn refuse(&self, fault: Fault, dialect: Dialect, id: &str) -> Response {
        let cause = fault.cause.clone();
        let response = fault.into_response(dialect, id);
        if let Some(cause) = cause {
            frame::log(&cause, id, None);
            frame::count(self.broker.meter(), response.status(), &cause);
        }
        response
    }
}

impl ServeFuture for Endpoint {
    /// Carries a request out that is served here. An error keeps what it stems from: the slot may have moved.
    async fn serve(&self, request: Request) -> Response {
        let (head, _) = request.into_parts();
        let (Some(call), Some(RequestId(id))) = (head.extensions.get::<Arc<Call>>(), head.extensions.get())
        else {
            return Fault::new(Kind::UnknownOperation, "The operation was not resolved.")
                .into_response(Dialect::Json, "");
        };
        let arguments = Cow::Borrowed(&call.request.arguments);
        let mut response = match self.carry_out(&head, call, arguments).await {
            Ok(answer) => answer.into_response(call.dialect, call.request.operation, id),
            Err(Fault { cause: Some(cause), .. }) => {
                let mut response = Response::new(Body::empty());
                response.extensions_mut().insert(ApiError(cause));
                return response;
            }
            Err(fault) => fault.into_response(call.dialect, id),
        };
        response.extensions_mut().insert(SqsResponseMark);
        response
    }
}
