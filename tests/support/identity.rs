//! Owns a stand-in of Keystone: the Identity API v3 as far as services and clients need it, on the loopback, with faults to order. It
//! knows its users and projects by name, and counts what it is asked.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use angarium_clock::Clock;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio_rustls::TlsAcceptor;

/// The user as whom the service asks, in the project `service`.
pub const SERVICE_USER: &str = "angarium";
pub const SERVICE_PASSWORD: &str = "very-secret-of-the-service";
/// The id and the secret of the service's application credential.
pub const SERVICE_CREDENTIAL: (&str, &str) = ("21dced0fd20347869b93710d2b98aae0", "very-secret-credential");

/// Users with their passwords, their projects and their roles.
const USERS: [(&str, &str, &str, &[&str]); 6] = [
    (SERVICE_USER, SERVICE_PASSWORD, "service", &["service"]),
    ("alice", "alice-password", "demo", &["member", "reader"]),
    ("bob", "bob-password", "other", &["member", "reader"]),
    ("rita", "rita-password", "demo", &["reader"]),
    ("root", "root-password", "demo", &["admin", "member", "reader"]),
    ("nemo", "nemo-password", "demo", &["stranger"]),
];

/// What it does when it is asked about a token.
#[derive(Clone, Debug, Default)]
pub enum Behaviour {
    /// Answers.
    #[default]
    Well,
    /// Answers after a while.
    Slow(Duration),
    /// Never answers.
    Hanging,
    /// Answers with this status, these headers and this body.
    Canned(u16, Vec<(&'static str, String)>, String),
    /// Begins an answer and never ends it.
    Endless,
}

/// What a token is for.
#[derive(Clone, Debug)]
pub enum Scope {
    Project(String),
    Domain,
    System,
    Nothing,
}

/// A token that it has issued.
#[derive(Clone, Debug)]
pub struct Issued {
    pub scope: Scope,
    pub roles: Vec<String>,
    /// Milliseconds since the Unix epoch.
    pub expires: u64,
    pub user: String,
}

/// How much it was asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestCounts {
    /// Validations of tokens.
    pub validations: usize,
    /// The most of them at one time.
    pub at_once: usize,
    /// Requests for tokens.
    pub logins: usize,
}

#[derive(Default)]
struct Book {
    tokens: HashMap<String, Issued>,
    behaviour: Behaviour,
    asked: RequestCounts,
    now: usize,
    /// How long tokens of the service live.
    service_life: Option<Duration>,
    password_refused: bool,
    /// Whether requests for tokens are answered never.
    logins_hang: bool,
    messaging: String,
    base: String,
    /// All tokens that it was asked about.
    shown: Vec<String>,
}

type Shared = Arc<Mutex<Book>>;

/// A running stand-in.
pub struct IdentityService {
    book: Shared,
    address: SocketAddr,
    tls: Option<TlsAcceptor>,
    running: Option<Runtime>,
}

impl IdentityService {
    pub fn start() -> Self {
        Self::start_with(None)
    }

    /// One that serves TLS.
    pub fn start_with(tls: Option<TlsAcceptor>) -> Self {
        let address = (Ipv4Addr::LOCALHOST, 0).into();
        let mut service = Self { book: Shared::default(), address, tls, running: None };
        service.start_again();
        service
    }

    /// Starts it where it was, with all that it knew.
    pub fn start_again(&mut self) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.expect("there are threads");
        let listener = runtime.block_on(TcpListener::bind(self.address)).expect("the address is free");
        self.address = listener.local_addr().expect("it is bound");
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        self.book.lock().base = format!("{scheme}://{}", self.address);
        runtime.spawn(accept(
            listener,
            self.tls.clone(),
            routes(Arc::clone(&self.book)),
            runtime.handle().clone(),
        ));
        self.running = Some(runtime);
    }

    /// Ends it with its connections.
    pub fn stop(&mut self) {
        if let Some(runtime) = self.running.take() {
            runtime.shutdown_timeout(Duration::from_secs(1));
        }
    }

    pub fn url(&self) -> String {
        self.book.lock().base.clone()
    }

    /// Has the catalogue name the service at `base` for messaging.
    pub fn offer_messaging(&self, base: &str) {
        self.book.lock().messaging = base.to_owned();
    }

    pub fn set_behaviour(&self, behaviour: Behaviour) {
        self.book.lock().behaviour = behaviour;
    }

    /// Refuses the service's credentials, or takes them again.
    pub fn refuse_password(&self, is_refused: bool) {
        self.book.lock().password_refused = is_refused;
    }

    /// Answers no request for a token, or all again.
    pub fn hang_logins(&self, hang: bool) {
        self.book.lock().logins_hang = hang;
    }

    /// How long tokens of the service live from here on.
    pub fn set_service_life(&self, life: Duration) {
        self.book.lock().service_life = Some(life);
    }

    /// A token of a project, for an hour.
    pub fn token(&self, project: &str, roles: &[&str]) -> String {
        self.token_of(Scope::Project(project.to_owned()), roles, Duration::from_secs(3_600))
    }

    pub fn token_of(&self, scope: Scope, roles: &[&str], life: Duration) -> String {
        let roles = roles.iter().map(|role| (*role).to_owned()).collect();
        let expires = now() + u64::try_from(life.as_millis()).expect("it is short");
        let issued = Issued { scope, roles, expires, user: "issued".to_owned() };
        self.book.lock().issue(issued)
    }

    pub fn revoke(&self, token: &str) {
        self.book.lock().tokens.remove(token);
    }

    /// Forgets the tokens of the service, as a change of keys does.
    pub fn forget_service_tokens(&self) {
        self.book.lock().tokens.retain(|_, issued| issued.user != SERVICE_USER);
    }

    pub fn asked(&self) -> RequestCounts {
        self.book.lock().asked
    }

    /// Whether it was asked about a token.
    pub fn was_shown(&self, token: &str) -> bool {
        self.book.lock().shown.iter().any(|shown| shown == token)
    }
}

impl Drop for IdentityService {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The id of a project, as Keystone writes one.
pub fn project_id(name: &str) -> String {
    let digits: String = name.bytes().map(|byte| format!("{byte:02x}")).collect();
    format!("{digits:0<32}")
}

fn now() -> u64 {
    Clock::system().wall().as_millis()
}

fn calendar(millis: u64) -> String {
    let text = angarium_core::time::Timestamp::from_millis(millis).calendar();
    text.replace('Z', &format!(".{:06}Z", millis % 1_000 * 1_000))
}

impl Book {
    fn issue(&mut self, issued: Issued) -> String {
        let token = format!("gAAAAAB{:032x}{:032x}-_=", rand::random::<u128>(), rand::random::<u128>());
        self.tokens.insert(token.clone(), issued);
        token
    }

    /// The body that describes a token.
    fn body(&self, issued: &Issued, with_catalog: bool) -> Value {
        let domain = json!({"id": "default", "name": "Default"});
        let roles: Vec<_> =
            issued.roles.iter().map(|role| json!({"id": project_id(role), "name": role})).collect();
        let mut token = json!({
            "methods": ["password"], "audit_ids": ["3T2dc1CGQxyJsHdDu1xkcw"], "issued_at": calendar(now()),
            "expires_at": calendar(issued.expires), "is_domain": false,
            "user": {"id": project_id(&issued.user), "name": issued.user, "domain": domain, "password_expires_at": null},
        });
        match &issued.scope {
            Scope::Project(name) => {
                token["project"] = json!({"id": project_id(name), "name": name, "domain": domain});
            }
            Scope::Domain => token["domain"] = domain,
            Scope::System => token["system"] = json!({"all": true}),
            Scope::Nothing => return json!({ "token": token }),
        }
        token["roles"] = roles.into();
        if with_catalog {
            token["catalog"] = json!([
                catalog_entry("identity", "keystone", &format!("{}/v3", self.base)),
                catalog_entry("messaging", "zaqar", &self.messaging),
            ]);
        }
        json!({ "token": token })
    }

    /// Whose credentials the body of a request for a token holds.
    fn known(&self, body: &Value) -> Option<Issued> {
        let identity = &body["auth"]["identity"];
        let user = &identity["password"]["user"];
        let credential = &identity["application_credential"];
        let by_credential = (credential["id"].as_str(), credential["secret"].as_str())
            == (Some(SERVICE_CREDENTIAL.0), Some(SERVICE_CREDENTIAL.1));
        let found = USERS.iter().find(|(name, password, ..)| {
            let by_password =
                user["name"] == *name && user["password"] == *password && user["domain"]["name"] == "Default";
            by_password || (by_credential && *name == SERVICE_USER)
        });
        let (name, _, project, roles) =
            found.filter(|(name, ..)| *name != SERVICE_USER || !self.password_refused)?;
        let scope = &body["auth"]["scope"]["project"];
        let is_own =
            scope["name"] == *project || scope["id"] == project_id(project).as_str() || by_credential;
        let scope = match scope.is_null() && !by_credential {
            true => Scope::Nothing,
            false if is_own => Scope::Project((*project).to_owned()),
            false => return None,
        };
        let life = match self.service_life {
            Some(life) if *name == SERVICE_USER => life,
            _ => Duration::from_secs(3_600),
        };
        let expires = now() + u64::try_from(life.as_millis()).expect("it is short");
        let roles = roles.iter().map(|role| (*role).to_owned()).collect();
        Some(Issued { scope, roles, expires, user: (*name).to_owned() })
    }
}

fn catalog_entry(kind: &str, name: &str, url: &str) -> Value {
    let endpoints: Vec<_> = ["public", "internal", "admin"]
        .iter()
        .map(|interface| {
            json!({"id": project_id(interface), "interface": interface, "region": "RegionOne",
                "region_id": "RegionOne", "url": url})
        })
        .collect();
    json!({"id": project_id(name), "type": kind, "name": name, "endpoints": endpoints})
}

async fn accept(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    routes: Router,
    handle: tokio::runtime::Handle,
) {
    while let Ok((stream, _)) = listener.accept().await {
        let (tls, service) = (tls.clone(), TowerToHyperService::new(routes.clone()));
        // What becomes of a connection is for its client to see.
        handle.spawn(async move {
            match tls {
                None => _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await,
                Some(tls) => {
                    let Ok(stream) = tls.accept(stream).await else { return };
                    _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
                }
            }
        });
    }
}

fn routes(book: Shared) -> Router {
    let tokens = get(validate).head(validate).post(issue).delete(revoke);
    Router::new()
        .route("/", get(versions))
        .route("/v3", get(version))
        .route("/v3/", get(version))
        .route("/v3/auth/tokens", tokens)
        .with_state(book)
}

fn described(base: &str) -> Value {
    json!({"id": "v3.14", "status": "stable", "updated": "2020-04-07T00:00:00Z", "media-types": [],
        "links": [{"rel": "self", "href": format!("{base}/v3/")}]})
}

async fn versions(State(book): State<Shared>) -> Response {
    let body = json!({"versions": {"values": [described(&book.lock().base)]}});
    (StatusCode::MULTIPLE_CHOICES, axum::Json(body)).into_response()
}

async fn version(State(book): State<Shared>) -> Response {
    axum::Json(json!({"version": described(&book.lock().base)})).into_response()
}

fn refused(status: StatusCode) -> Response {
    let error = json!({"code": status.as_u16(), "title": status.canonical_reason(), "message": "refused"});
    (status, axum::Json(json!({ "error": error }))).into_response()
}

async fn issue(State(book): State<Shared>, RawQuery(query): RawQuery, body: Bytes) -> Response {
    let hangs = {
        let mut book = book.lock();
        book.asked.logins += 1;
        book.logins_hang
    };
    if hangs {
        std::future::pending::<()>().await;
    }
    let mut book = book.lock();
    let body = serde_json::from_slice(&body).unwrap_or_default();
    let Some(issued) = book.known(&body) else { return refused(StatusCode::UNAUTHORIZED) };
    let description = book.body(&issued, query.is_none());
    let token = book.issue(issued);
    (StatusCode::CREATED, [("x-subject-token", token)], axum::Json(description)).into_response()
}

/// The token in a header.
fn named(headers: &HeaderMap, name: &str) -> String {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
}

async fn validate(State(book): State<Shared>, RawQuery(query): RawQuery, headers: HeaderMap) -> Response {
    let subject = named(&headers, "x-subject-token");
    let behaviour = {
        let mut book = book.lock();
        book.now += 1;
        book.asked.validations += 1;
        book.asked.at_once = book.asked.at_once.max(book.now);
        book.shown.push(subject.clone());
        book.behaviour.clone()
    };
    let _asking = LookupGuard(Arc::clone(&book));
    match behaviour {
        Behaviour::Well => {}
        Behaviour::Slow(time) => tokio::time::sleep(time).await,
        Behaviour::Hanging => std::future::pending().await,
        Behaviour::Canned(status, headers, body) => {
            let mut answer = (StatusCode::from_u16(status).expect("it is one"), body).into_response();
            for (name, value) in headers {
                answer.headers_mut().insert(name, value.parse().expect("it is one"));
            }
            return answer;
        }
        Behaviour::Endless => {
            let begun =
                futures_util::stream::once(async { Ok::<_, std::io::Error>(Bytes::from_static(b"{")) });
            let rest = futures_util::stream::pending();
            return Body::from_stream(futures_util::StreamExt::chain(begun, rest)).into_response();
        }
    }
    let book = book.lock();
    let is_live = |issued: &&Issued| issued.expires > now();
    let Some(asker) = book.tokens.get(&named(&headers, "x-auth-token")).filter(is_live) else {
        return refused(StatusCode::UNAUTHORIZED);
    };
    if !asker.roles.iter().any(|role| role == "service" || role == "admin") {
        return refused(StatusCode::FORBIDDEN);
    }
    let Some(issued) = book.tokens.get(&subject).filter(is_live) else {
        return refused(StatusCode::NOT_FOUND);
    };
    let description = book.body(issued, query.is_none());
    ([("x-subject-token", subject)], axum::Json(description)).into_response()
}

/// A validation, until it is answered or given up.
struct LookupGuard(Shared);

impl Drop for LookupGuard {
    fn drop(&mut self) {
        self.0.lock().now -= 1;
    }
}

async fn revoke(State(book): State<Shared>, headers: HeaderMap) -> Response {
    let subject = named(&headers, "x-subject-token");
    match book.lock().tokens.remove(&subject) {
        Some(_) => StatusCode::NO_CONTENT.into_response(),
        None => refused(StatusCode::NOT_FOUND),
    }
}
