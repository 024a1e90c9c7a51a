//! How replicas speak to each other: what goes along with a forwarded request, and who may send one.
//!
//! | header | what it says |
//! |---|---|
//! | `x-angarium-secret` | that the sender is a replica of this installation |
//! | `x-angarium-project`, `x-angarium-role` | who asks, as the replica found out that the client spoke to; the project form-encoded |
//! | `x-angarium-request-id` | the id of the request |
//! | `x-angarium-waited` | milliseconds of a long poll that are over |
//! | `x-angarium-patience` | milliseconds after which the sender does not wait any more |

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::{FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::api::auth::Identity;
use crate::cluster::questions;
use crate::domain::access::PeerSecret;
use crate::domain::names::ProjectId;

const SECRET: HeaderName = HeaderName::from_static(questions::SECRET);
const PROJECT: HeaderName = HeaderName::from_static("x-angarium-project");
const ROLE: HeaderName = HeaderName::from_static("x-angarium-role");
const REQUEST_ID: HeaderName = HeaderName::from_static("x-angarium-request-id");
const WAITED: HeaderName = HeaderName::from_static("x-angarium-waited");
const PATIENCE: HeaderName = HeaderName::from_static("x-angarium-patience");

/// On an answer: the replica does not serve the slot, and has done nothing.
pub const MOVED: HeaderName = HeaderName::from_static("x-angarium-moved");

/// What is of a connection, of the credentials or of the body's form, and is not passed on.
const NOT_PASSED_ON: [HeaderName; 12] = [
    header::HOST,
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::CONTENT_LENGTH,
    header::EXPECT,
    header::AUTHORIZATION,
    HeaderName::from_static("x-auth-token"),
    header::ORIGIN,
];

/// The id of a request. With every request that the frame has seen.
#[derive(Clone, Debug)]
pub struct RequestId(pub String);

/// How long a request has waited already at other replicas, or here before its slot moved.
#[derive(Clone, Copy, Debug, Default)]
pub struct Waited(pub Duration);

impl<S: Send + Sync> FromRequestParts<S> for Waited {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(parts.extensions.get().copied().unwrap_or_default())
    }
}

/// With every request that another replica has passed on.
#[derive(Clone, Debug)]
pub struct FromPeer {
    /// Who asks, as the other replica found out.
    pub identity: Identity,
    /// How long the other replica waits for the answer.
    pub patience: Duration,
}

/// The headers of a request on its way to another replica.
pub fn passed_on(
    headers: &HeaderMap,
    secret: &PeerSecret,
    identity: &Identity,
    id: &RequestId,
    (waited, patience): (Duration, Duration),
) -> HeaderMap {
    let mut passed = headers.clone();
    NOT_PASSED_ON.iter().for_each(|name| drop(passed.remove(name)));
    let project: String = form_urlencoded::byte_serialize(identity.project.as_str().as_bytes()).collect();
    let texts = [
        (SECRET, secret.as_str().to_owned()),
        (PROJECT, project),
        (ROLE, identity.role.as_str().to_owned()),
        (REQUEST_ID, id.0.clone()),
        (WAITED, waited.as_millis().to_string()),
        (PATIENCE, patience.as_millis().to_string()),
    ];
    for (name, text) in texts {
        let value = HeaderValue::try_from(text).expect("ids, numbers and encoded text are visible ASCII");
        passed.insert(name, value);
    }
    passed
}

/// Lets only replicas in.
pub async fn admit(State(secret): State<PeerSecret>, request: Request, next: Next) -> Response {
    let shown = request.headers().get(SECRET).map(HeaderValue::as_bytes).unwrap_or_default();
    if !secret.is(shown) {
        return StatusCode::FORBIDDEN.into_response();
    }
    next.run(request).await
}

/// Notes what a replica says of a request that it passes on.
pub async fn note(mut request: Request, next: Next) -> Response {
    let Some((id, from, waited)) = said(request.headers()) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let extensions = request.extensions_mut();
    extensions.insert(id);
    extensions.insert(from);
    extensions.insert(waited);
    next.run(request).await
}

fn said(headers: &HeaderMap) -> Option<(RequestId, FromPeer, Waited)> {
    let text = |name: HeaderName| headers.get(name)?.to_str().ok();
    let millis = |name: HeaderName| text(name)?.parse().ok().map(Duration::from_millis);
    let project = form_urlencoded::parse(text(PROJECT)?.as_bytes()).next().map(|(project, _)| project)?;
    let identity = Identity {
        project: ProjectId::new(&project).ok()?,
        role: text(ROLE)?.parse().ok()?,
        is_anonymous: false,
    };
    let from = FromPeer { identity, patience: millis(PATIENCE)? };
    Some((RequestId(text(REQUEST_ID)?.to_owned()), from, Waited(millis(WAITED)?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::access::Role;

    #[test]
    fn what_goes_along_arrives_as_it_was() {
        let mut headers = HeaderMap::new();
        headers.insert("client-id", HeaderValue::from_static("c"));
        headers.insert(header::AUTHORIZATION, HeaderValue::from_static("Bearer token"));
        headers.insert(WAITED, HeaderValue::from_static("999"));
        let secret = PeerSecret::new("s");
        for project in ["000000000000", "a b/ü=&+%", "x@eu-west-1"] {
            let project = ProjectId::new(project).unwrap();
            let identity = Identity { project: project.clone(), role: Role::Admin, is_anonymous: false };
            let times = (Duration::from_millis(7), Duration::from_secs(20));
            let passed = passed_on(&headers, &secret, &identity, &RequestId("req-1".into()), times);
            assert_eq!(passed.get("client-id").unwrap(), "c");
            assert!(!passed.contains_key(header::AUTHORIZATION));
            let (id, from, waited) = said(&passed).unwrap();
            assert_eq!((id.0.as_str(), waited.0, from.patience), ("req-1", times.0, times.1));
            assert_eq!((from.identity.project, from.identity.role), (project, Role::Admin));
        }
        assert!(said(&HeaderMap::new()).is_none());
    }
}
