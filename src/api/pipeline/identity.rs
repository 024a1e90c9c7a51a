//! Who asks, and whether they may: before any handler runs, for every route alike.
//!
//! What a route needs is in its part of the OpenAPI document and is read from there, so that what is said and what is
//! done are one: an operation needs a token unless its `security` states that none will do, and an administrator's if
//! it names the role. A route that states nothing needs a token.

use std::sync::Arc;

use axum::extract::Request;
use axum::http::{Extensions, HeaderMap, Method, Uri, header};
use axum::response::{IntoResponse, Response};
use serde_json::Value;
use tokio::time::Instant;
use utoipa::openapi::OpenApi;

use super::admission::AdmissionControl;
use super::bodies::{BodyBudget, BodyCharge, BodyOwner};
use super::credentials::{Credentials, named_project};
use super::failures::{self, FailureLog};
use super::forward::peer::PeerOrigin;
use super::origin;
use crate::api::error::{ApiError, refusals};
use crate::api::versions;
use angarium_core::access::Role;
use angarium_core::error::Error;
use angarium_core::hosts::AllowedHosts;
use angarium_core::names::ProjectId;
use angarium_metrics::{AuthenticationFailure, Meter, OperationMeter};

const ROLES: &str = "x-roles";

/// The name of requests that are none of the operations.
const UNKNOWN: &str = "unknown";

/// How the service learns who asks.
#[derive(Clone, Debug)]
pub enum Authentication {
    /// It does not: callers are what they say they are, as in Zaqar without Keystone.
    /// What a page makes a browser send is refused, and so is a host that is not among these.
    Off(Arc<AllowedHosts>),
    /// By their tokens.
    On(Credentials),
}

/// Who asks: it is with every request that reaches a handler.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The project whose queues are meant.
    pub project: ProjectId,
    /// What the caller may do.
    pub role: Role,
    /// Whether the project is only what a client without a token states: nothing may be done in its name.
    pub is_anonymous: bool,
}

/// What an operation needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Need {
    /// Nothing: it tells nothing about any client's queues.
    Nothing,
    /// A role.
    Role(Role),
}

impl Need {
    /// The need of an operation that has this method: a reader may see all that a member may change.
    fn of_method(self, method: &Method) -> Self {
        if self == Self::Role(Role::Member) && method.is_safe() { Self::Role(Role::Reader) } else { self }
    }
}

/// An operation as the gate knows it.
#[derive(Clone, Debug)]
struct Operation {
    method: Method,
    need: Need,
    meter: OperationMeter,
}

/// Lets through who may pass, and notes how long each operation took: it is where every one of them is known by name.
#[derive(Debug)]
pub struct Gate {
    authentication: Authentication,
    /// The operations of each path, found as axum finds its routes.
    operations: matchit::Router<Vec<Operation>>,
    /// Requests for what is not there.
    unknown: OperationMeter,
    /// How much is let in.
    quota: Arc<AdmissionControl>,
    /// How much of it is in memory.
    bodies: BodyBudget,
    regional: RegionalAccess,
    failures: Arc<FailureLog>,
}

/// Whether a caller of REST may have a project `ACCOUNT@REGION`, which a key of SQS reaches by choosing its region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegionalAccess {
    /// No client signs for other regions, or it is unknown who callers are.
    Served,
    /// A project with an `@` may be that of a key's account.
    Refused,
}

/// Why a request is not let in.
#[derive(Debug)]
pub struct AuthRefusal {
    error: Error,
    /// What failed, if the caller is not known.
    pub failure: Option<AuthenticationFailure>,
}

impl From<Error> for AuthRefusal {
    fn from(error: Error) -> Self {
        Self { error, failure: None }
    }
}

impl AuthRefusal {
    /// The caller is not known.
    pub fn of(failure: AuthenticationFailure, error: Error) -> Self {
        Self { error, failure: Some(failure) }
    }
}

impl Gate {
    /// A gate before the operations of `document`, measured by `meter`, which lets in what `quota` and `bodies` have room for
    /// and notes in `failures` who is not known.
    pub fn new(
        authentication: Authentication,
        document: &OpenApi,
        meter: &Meter,
        quota: Arc<AdmissionControl>,
        bodies: BodyBudget,
        regional: RegionalAccess,
        failures: Arc<FailureLog>,
    ) -> Self {
        let document = serde_json::to_value(document).expect("a document has text keys and no failing parts");
        let (operations, unknown) = (operations(&document, meter), meter.operation(UNKNOWN));
        Self { authentication, operations, unknown, quota, bodies, regional, failures }
    }

    /// What a request needs, and where it is noted.
    fn operation(&self, request: &Request) -> (Need, &OperationMeter) {
        let Ok(matchit::Match { value: operations, .. }) = self.operations.at(request.uri().path()) else {
            return (Need::Role(Role::Reader), &self.unknown);
        };
        match operations.iter().find(|operation| operation.method == request.method()) {
            Some(operation) => (operation.need, &operation.meter),
            // A method that is not there: the answer states which are, to a client that may use one.
            None => {
                let least = operations.iter().map(|operation| operation.need).min();
                (least.unwrap_or(Need::Role(Role::Reader)), &self.unknown)
            }
        }
    }

    /// Learns who asks, and refuses who may not and what is too much.
    pub async fn admit<F: Future<Output = Response>>(
        &self,
        request: Request,
        serve: impl FnOnce(Request) -> F,
    ) -> Response {
        let began = Instant::now();
        let (need, meter) = self.operation(&request);
        let asking = self.identify(request.uri(), request.headers(), request.extensions(), need).await;
        let identified = asking.map_err(|AuthRefusal { error, failure }| {
            if let Some(failure) = failure {
                self.failures.note(failure, request.extensions(), failures::kind(request.uri().path()));
            }
            error
        });
        let admitted = identified.and_then(|identity| {
            let place = self.quota.admit(&request, &identity)?;
            let (request, charge) = self.charge(request, &identity)?;
            Ok((request, identity, place, charge))
        });
        let answer = match admitted {
            Ok((mut request, identity, _place, _charge)) => {
                request.extensions_mut().insert(identity);
                serve(request).await
            }
            Err(error) => self.refuse(error),
        };
        meter.note(answer.status().as_u16(), began.elapsed());
        answer
    }

    /// Answers a request that is not let in. An unknown caller learns how to authenticate.
    fn refuse(&self, error: Error) -> Response {
        let mut answer = ApiError::from(error).into_response();
        if let Authentication::On(credentials) = &self.authentication
            && answer.headers_mut().remove(header::WWW_AUTHENTICATE).is_some()
        {
            for challenge in credentials.challenges() {
                answer.headers_mut().append(header::WWW_AUTHENTICATE, challenge.clone());
            }
        }
        answer
    }

    /// Has the body of a request count for its project, or for its client when only the client names the project.
    fn charge(&self, request: Request, identity: &Identity) -> Result<(Request, BodyCharge<'_>), Error> {
        let (head, body) = request.into_parts();
        let owner = || match identity.is_anonymous {
            true => BodyOwner::client(&head.extensions),
            false => BodyOwner::Project(identity.project.clone()),
        };
        let (body, charge) = self.bodies.charge(body, owner)?;
        Ok((Request::from_parts(head, body), charge))
    }

    async fn identify(
        &self,
        uri: &Uri,
        headers: &HeaderMap,
        extensions: &Extensions,
        need: Need,
    ) -> Result<Identity, AuthRefusal> {
        // The replica that passed it on has looked, and its quota has let it in.
        if let Some(from) = extensions.get::<PeerOrigin>() {
            return Ok(from.identity.clone());
        }
        let identity = match &self.authentication {
            Authentication::Off(hosts) => {
                origin::check(hosts, uri, headers)
                    .map_err(|error| AuthRefusal::of(AuthenticationFailure::ForeignOrigin, error))?;
                Identity {
                    project: ProjectId::new(named_project(headers)?.unwrap_or_default())?,
                    role: claimed_role(headers),
                    is_anonymous: false,
                }
            }
            Authentication::On(_) if need == Need::Nothing => Identity {
                project: ProjectId::new(named_project(headers)?.unwrap_or_default())?,
                role: Role::Member,
                is_anonymous: true,
            },
            Authentication::On(credentials) => credentials.identify(headers, extensions, &self.quota).await?,
        };
        let may_be_of_key = identity.project.as_str().contains('@') && !identity.is_anonymous;
        if self.regional == RegionalAccess::Refused && may_be_of_key {
            return Err(Error::RegionalProject.into());
        }
        match need {
            Need::Role(role) if identity.role < role => Err(Error::NotAuthorized(role.as_str()).into()),
            Need::Role(_) | Need::Nothing => Ok(identity),
        }
    }
}

/// Adds to each operation what the gate may answer in its place.
pub fn describe(document: &mut OpenApi) {
    for item in document.paths.paths.values_mut() {
        let operations = [&mut item.get, &mut item.put, &mut item.post, &mut item.patch, &mut item.delete];
        for operation in operations.into_iter().flatten() {
            let security = serde_json::to_value(&operation.security).unwrap_or_default();
            if need(&security) == Need::Nothing {
                continue;
            }
            for (status, response) in refusals() {
                operation.responses.responses.entry(status).or_insert(response);
            }
        }
    }
}

/// The role that a caller states it has, for want of authentication. Zaqar's policies see the same header; who sends
/// none is the user that started the service.
fn claimed_role(headers: &HeaderMap) -> Role {
    let lists = || headers.get_all(ROLES).iter();
    let roles = || lists().flat_map(|list| list.to_str().unwrap_or_default().split(',').map(str::trim));
    let is = |role: Role| move |name: &str| name.eq_ignore_ascii_case(role.as_str());
    match lists().next() {
        None => Role::Admin,
        Some(_) if roles().any(is(Role::Admin)) => Role::Admin,
        Some(_) if roles().all(is(Role::Reader)) => Role::Reader,
        Some(_) => Role::Member,
    }
}

fn operations(document: &Value, meter: &Meter) -> matchit::Router<Vec<Operation>> {
    let mut routes = matchit::Router::new();
    for (path, operations) in document["paths"].as_object().into_iter().flatten() {
        let operations = operations.as_object().into_iter().flatten();
        // Beside its operations a path may have parameters and a summary, which are no methods.
        let operations = operations.filter_map(|(method, operation)| {
            let method = Method::from_bytes(method.to_ascii_uppercase().as_bytes()).ok()?;
            let meter = meter.operation(operation["operationId"].as_str()?);
            let need = need(&operation["security"]).of_method(&method);
            Some(Operation { method, need, meter })
        });
        let operations: Vec<Operation> = operations.collect();
        if path == versions::HOME {
            insert(&mut routes, versions::HOME_WITHOUT_SLASH, operations.clone());
        }
        insert(&mut routes, path, operations);
    }
    routes
}

fn insert(routes: &mut matchit::Router<Vec<Operation>>, path: &str, operations: Vec<Operation>) {
    routes.insert(path, operations).expect("the routes are known by these paths already");
}

/// What one operation needs: the least of its alternatives. An empty one lets every client in; the names behind a
/// scheme are roles (OpenAPI 3.1, Security Requirement Object).
fn need(security: &Value) -> Need {
    // Absent it is that of the whole document: any token.
    let Some(alternatives) = security.as_array() else { return Need::Role(Role::Member) };
    let least = alternatives.iter().filter_map(Value::as_object).map(|schemes| {
        let mut roles = schemes.values().filter_map(Value::as_array).flatten();
        match schemes.is_empty() {
            true => Need::Nothing,
            false if roles.any(|role| role == Role::Admin.as_str()) => Need::Role(Role::Admin),
            false => Need::Role(Role::Member),
        }
    });
    least.min().unwrap_or(Need::Nothing)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn undocumented_route_needs_token() {
        assert_eq!(need(&Value::Null), Need::Role(Role::Member));
        assert_eq!(need(&json!([])), Need::Nothing);
        assert_eq!(need(&json!([{}])), Need::Nothing);
        assert_eq!(need(&json!([{"bearer": []}])), Need::Role(Role::Member));
        assert_eq!(
            need(&json!([{"bearer": ["admin"]}, {"x_auth_token": ["admin"]}])),
            Need::Role(Role::Admin)
        );
    }

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn unauthenticated_caller_chooses_its_roles() {
        for (pairs, role) in [
            (&[][..], Role::Admin),
            (&[("x-roles", "admin")], Role::Admin),
            (&[("x-roles", "reader, Admin")], Role::Admin),
            (&[("x-roles", "")], Role::Member),
            (&[("x-roles", "member")], Role::Member),
            (&[("x-roles", "reader")], Role::Reader),
            (&[("x-roles", "reader,member")], Role::Member),
            (&[("x-roles", "reader,operator")], Role::Member),
            (&[("x-roles", "administrator")], Role::Member),
        ] {
            assert_eq!(claimed_role(&headers(pairs)), role, "{pairs:?}");
        }
    }
}
