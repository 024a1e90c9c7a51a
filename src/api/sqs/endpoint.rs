//! Where SQS requests come in: which they are, who sends them, what they want; and how their answers leave.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, header};
use axum::middleware::Next;
use axum::response::Response;
use bytes::Bytes;
use serde_json::{Map, Value};
use tokio::time::Instant;
use uuid::Uuid;

use super::account::{self, Caller, Places};
use super::decode::{Arguments, Protocol, parameters};
use super::fault::{Fault, Kind};
use super::operation::{ALL, Operation};
use crate::api::auth::{Authentication, Identity};
use crate::api::quota::Quota;
use crate::api::{json, layers, origin, trace};
use crate::broker::Broker;
use crate::domain::access::Role;
use crate::domain::limits;
use crate::domain::names::{ProjectId, QueueRef};
use crate::domain::trace::TraceContext;
use crate::metrics::OperationMeter;

const TARGET: &str = "x-amz-target";
const SERVICE: &str = "AmazonSQS.";
const FORM: &str = "application/x-www-form-urlencoded";
/// What the paths of REST begin with; `/` alone is both.
const REST: [&str; 4] = ["v2", "livez", "readyz", "metrics"];

/// How the endpoint was set up.
#[derive(Clone, Debug)]
pub struct SqsSettings {
    /// The region of projects that name none.
    pub region: String,
    /// What the URLs of queues begin with, without a slash at the end; the address that the request was sent to when absent.
    pub public_url: Option<String>,
    /// The scheme of that address.
    pub scheme: &'static str,
}

impl Default for SqsSettings {
    fn default() -> Self {
        Self { region: "us-east-1".to_owned(), public_url: None, scheme: "http" }
    }
}

/// The endpoint.
pub struct Endpoint {
    broker: Broker,
    settings: SqsSettings,
    places: Places,
    /// Whether callers are what they say they are.
    is_open: bool,
    quota: Arc<Quota>,
    meters: Vec<(Operation, OperationMeter)>,
}

/// What a request is carried out with.
pub struct Context<'a> {
    /// What the product does.
    pub broker: &'a Broker,
    /// Who asks.
    pub caller: Caller,
    /// How queues are named.
    pub places: &'a Places,
    /// What the URLs of queues begin with.
    pub base: String,
    /// The account and the name in the path of the request, if it was sent to the URL of a queue.
    pub addressed: Option<(String, String)>,
    /// The trace of the request.
    pub trace: Option<TraceContext>,
}

/// A request whose operation is known.
struct Asked {
    operation: Operation,
    arguments: Arguments,
    /// Whether it may wait for a message.
    waits: bool,
}

impl Endpoint {
    /// The endpoint over `broker`, for callers that are known by `authentication`, which lets in what `quota` has room for.
    pub fn new(
        broker: Broker,
        authentication: &Authentication,
        settings: SqsSettings,
        quota: Arc<Quota>,
    ) -> Self {
        let meter = |operation: Operation| {
            (operation, broker.meter().operation(&format!("sqs_{}", operation.name())))
        };
        let meters = ALL.into_iter().map(meter).collect();
        let is_open = matches!(authentication, Authentication::Off);
        let places = Places { region: settings.region.clone() };
        Self { broker, settings, places, is_open, quota, meters }
    }

    async fn answer(&self, request: Request, protocol: Protocol, id: &str) -> Response {
        let began = Instant::now();
        let (head, body) = request.into_parts();
        let bytes = match json::read(body, limits::SQS_REQUEST_BYTES).await {
            Ok(bytes) => bytes,
            Err(error) => return self.refuse(error.into(), protocol, id),
        };
        let asked = match asked(&head, protocol, bytes) {
            Ok(asked) => asked,
            Err(fault) => return self.refuse(fault, protocol, id),
        };
        let operation = asked.operation;
        let response = match self.carry_out(&head, asked).await {
            Ok(answer) => answer.into_response(protocol, operation, id),
            Err(fault) => self.refuse(fault, protocol, id),
        };
        if let Some((_, meter)) = self.meters.iter().find(|(metered, _)| *metered == operation) {
            meter.note(response.status().as_u16(), began.elapsed());
        }
        response
    }

    async fn carry_out(&self, head: &Parts, asked: Asked) -> Result<super::encode::Answer, Fault> {
        let caller = self.identify(head)?;
        let project = self.places.project(&caller.account, &caller.region)?;
        let identity = Identity { project, role: Role::Member, is_anonymous: false };
        let _place = self.quota.let_in_as(asked.waits, &identity)?;
        let context = Context {
            broker: &self.broker,
            caller,
            places: &self.places,
            base: self.base(head),
            addressed: queue_of_path(head.uri.path()),
            trace: trace::of_request(&head.headers),
        };
        asked.operation.run(&context, asked.arguments).await
    }

    /// Who asks. Without authentication the account and the region are what the request says.
    fn identify(&self, head: &Parts) -> Result<Caller, Fault> {
        if !self.is_open {
            let why =
                "This service has no keys for SQS: it serves those who have a token through its REST API.";
            return Err(Fault::new(Kind::AccessDenied, why));
        }
        origin::check(&head.uri, &head.headers)?;
        let (key, region) = credential(head).unwrap_or_default();
        let account = if account::is_account(&key) { key.clone() } else { ProjectId::DEFAULT.to_owned() };
        let region = if region.is_empty() { self.places.region.clone() } else { region };
        let sender = if key.is_empty() { account.clone() } else { key };
        Ok(Caller { account, region, sender })
    }

    /// What the URLs of queues begin with.
    fn base(&self, head: &Parts) -> String {
        if let Some(url) = &self.settings.public_url {
            return url.clone();
        }
        let host = head.headers.get(header::HOST).and_then(|host| host.to_str().ok());
        let host = head.uri.authority().map(|authority| authority.as_str()).or(host).unwrap_or("localhost");
        format!("{}://{host}", self.settings.scheme)
    }

    /// An error stops here, so it is logged and counted here, once.
    fn refuse(&self, fault: Fault, protocol: Protocol, id: &str) -> Response {
        let cause = fault.cause.clone();
        let response = fault.into_response(protocol, id);
        if let Some(cause) = cause {
            layers::log(&cause, id, None);
            layers::count(self.broker.meter(), response.status(), &cause);
        }
        response
    }
}

impl Context<'_> {
    /// The queue that a request means: by its parameter, or else by the URL it was sent to.
    pub fn queue(&self, url: Option<String>) -> Result<QueueRef, Fault> {
        let (account, name) = match (url.filter(|url| !url.is_empty()), &self.addressed) {
            (Some(url), _) => account::of_url(&url).ok_or_else(Fault::no_queue)?,
            (None, Some((account, name))) => (Some(account.clone()), name.clone()),
            (None, None) => return Err(Fault::missing("QueueUrl")),
        };
        let account = account.unwrap_or_else(|| self.caller.account.clone());
        let project = self.places.project(&account, &self.caller.region)?;
        let name = account::name(&name).map_err(|_| Fault::no_queue())?;
        Ok(QueueRef { project, name })
    }

    /// A queue of the caller's by its name.
    pub fn own(&self, name: &str) -> Result<QueueRef, Fault> {
        let project = self.places.project(&self.caller.account, &self.caller.region)?;
        Ok(QueueRef { project, name: account::name(name)? })
    }

    /// The URL of a queue.
    pub fn url(&self, queue: &QueueRef) -> String {
        let (account, _) = self.places.split(&queue.project);
        account::url(&self.base, account, &queue.name)
    }
}

/// Takes the requests that are for SQS out of the way of the others.
pub async fn divert(State(endpoint): State<Arc<Endpoint>>, request: Request, next: Next) -> Response {
    let Some(protocol) = protocol(&request) else { return next.run(request).await };
    let id = Uuid::new_v4().to_string();
    let mut response = endpoint.answer(request, protocol, &id).await;
    response.headers_mut().insert(header::SERVER, layers::SERVER);
    response
}

/// Which protocol of SQS a request speaks; none when it is not for SQS.
fn protocol(request: &Request) -> Option<Protocol> {
    let path = request.uri().path();
    let first = path.trim_start_matches('/').split('/').next().unwrap_or_default();
    if REST.contains(&first) {
        return None;
    }
    let target = request.headers().get(TARGET).map(HeaderValue::as_bytes).unwrap_or_default();
    if request.method() == Method::POST && target.starts_with(SERVICE.as_bytes()) {
        return Some(Protocol::Json);
    }
    let is_form = header_text(request.headers(), header::CONTENT_TYPE).starts_with(FORM);
    let has_action = || {
        let mut names = form_urlencoded::parse(request.uri().query().unwrap_or_default().as_bytes());
        names.any(|(name, _)| name == "Action")
    };
    let is_query = match *request.method() {
        Method::GET => queue_of_path(path).is_some() || (path == "/" && has_action()),
        Method::POST => queue_of_path(path).is_some() || (path == "/" && (is_form || has_action())),
        _ => false,
    };
    let wants_json = header_text(request.headers(), header::ACCEPT).starts_with("application/json");
    is_query.then_some(if wants_json { Protocol::QueryJson } else { Protocol::Query })
}

fn header_text(headers: &HeaderMap, name: header::HeaderName) -> &str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// The account and the name of the queue whose URL has this path: one whose account is a number, so that no other path is
/// taken for one.
fn queue_of_path(path: &str) -> Option<(String, String)> {
    let (account, name) = account::of_url(path)?;
    let account = account.filter(|account| account::is_account(account))?;
    Some((account, name))
}

/// The operation of a request, and what it is to be done with.
fn asked(head: &Parts, protocol: Protocol, body: Bytes) -> Result<Asked, Fault> {
    if protocol == Protocol::Json {
        let target = head.headers.get(TARGET).and_then(|target| target.to_str().ok()).unwrap_or_default();
        let name = target.strip_prefix(SERVICE).unwrap_or_default();
        let unknown = || Fault::new(Kind::UnknownOperation, format!("There is no operation {name:?}."));
        let operation = Operation::named(name).ok_or_else(unknown)?;
        // A queue may say itself that receives wait, so only who says not to does not.
        let waits = operation == Operation::ReceiveMessage;
        return Ok(Asked { operation, arguments: Arguments::Json(body), waits });
    }
    let query = head.uri.query().unwrap_or_default();
    let body = if head.method == Method::POST { &body[..] } else { &[] };
    let pairs = form_urlencoded::parse(query.as_bytes()).chain(form_urlencoded::parse(body));
    let parameters = parameters(pairs.map(|(name, value)| (name.into_owned(), value.into_owned())))?;
    let operation = action(&parameters, queue_of_path(head.uri.path()).is_some())?;
    let waits = operation == Operation::ReceiveMessage;
    Ok(Asked { operation, arguments: Arguments::Query(Value::Object(parameters)), waits })
}

/// The operation that the parameters of a query name. On the URL of a queue those that mean no queue are unknown.
fn action(parameters: &Map<String, Value>, is_queue: bool) -> Result<Operation, Fault> {
    let Some(name) = parameters.get("Action").and_then(Value::as_str) else {
        let kind = if is_queue { Kind::UnknownOperation } else { Kind::InvalidAction };
        return Err(Fault::new(kind, "The request names no action."));
    };
    match Operation::named(name) {
        Some(Operation::ListQueues | Operation::CreateQueue) if is_queue => {}
        Some(operation) => return Ok(operation),
        None => {}
    }
    Err(Fault::new(Kind::InvalidAction, format!("The action {name} is not valid for this endpoint.")))
}

/// The key and the region that a request says it is signed with.
fn credential(head: &Parts) -> Option<(String, String)> {
    let authorization = header_text(&head.headers, header::AUTHORIZATION);
    let scope = match authorization.split_once("Credential=") {
        Some((_, rest)) => rest.split([',', ' ']).next()?.to_owned(),
        None => {
            let query = head.uri.query().unwrap_or_default();
            let mut pairs = form_urlencoded::parse(query.as_bytes());
            pairs.find(|(name, _)| name == "X-Amz-Credential")?.1.into_owned()
        }
    };
    // KEY/DATE/REGION/sqs/aws4_request, where the key may have slashes.
    let mut parts = scope.rsplitn(5, '/').skip(2);
    let region = parts.next()?.to_owned();
    Some((parts.nth(1)?.to_owned(), region))
}
