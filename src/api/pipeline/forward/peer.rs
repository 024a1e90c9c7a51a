//! The headers that replicas add to forwarded requests and their answers, and the check of the sender.
//!
//! | header | content |
//! |---|---|
//! | `x-angarium-secret` | shows that the sender is a replica; in clear text only, which programs without certificates use |
//! | `x-angarium-project`, `x-angarium-role` | the caller, as the first replica has authenticated it; the project form-encoded |
//! | `x-angarium-caller` | the name of the caller's token, form-encoded; absent without one, and from older versions |
//! | `x-angarium-source` | the client's address and whether it uses TLS, as the first replica has found; ignored in clear text, because a program without certificates forwards such a header of a client |
//! | `x-angarium-request-id` | the id of the request |
//! | `x-angarium-waited` | milliseconds that a long poll has waited already |
//! | `x-angarium-patience` | milliseconds after which the sender no longer waits |
//! | `x-angarium-doubt` | an earlier attempt of the same request has no answer, and may have been carried out; on an answer: it takes that into account |
//! | `x-angarium-moved` | on an answer: the replica does not serve the slot, and has done nothing |
//! | `x-angarium-hands` | on an answer: the project, the queue and the claim that it delivers, form-encoded |

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::response::Response;

use super::earlier::EarlierAttempts;
use crate::api::delivery::DeliveryMark;
use crate::api::pipeline::identity::Identity;
use angarium_cluster::peers;
use angarium_cluster::trust::{PeerProof, PeerTrust};
use angarium_core::names::{ProjectId, QueueName, QueueRef};
use angarium_core::source::Source;

const SECRET: HeaderName = HeaderName::from_static(peers::SECRET);
const PROJECT: HeaderName = HeaderName::from_static("x-angarium-project");
const ROLE: HeaderName = HeaderName::from_static("x-angarium-role");
const CALLER: HeaderName = HeaderName::from_static("x-angarium-caller");
const SOURCE: HeaderName = HeaderName::from_static("x-angarium-source");
const REQUEST_ID: HeaderName = HeaderName::from_static("x-angarium-request-id");
const WAITED: HeaderName = HeaderName::from_static("x-angarium-waited");
const MAX_WAIT: HeaderName = HeaderName::from_static("x-angarium-patience");
const DOUBT: HeaderName = HeaderName::from_static("x-angarium-doubt");

/// Prefix of the headers between replicas. Such headers of a client are not forwarded.
const OURS: &str = "x-angarium-";

/// On an answer: the replica does not serve the slot and has done nothing.
pub const MOVED: HeaderName = HeaderName::from_static(peers::MOVED);

/// On an answer: the claim that it delivers to the client.
const HANDS: HeaderName = HeaderName::from_static("x-angarium-hands");

/// Headers of a connection; they are removed from a forwarded answer.
const NOT_PASSED_BACK: [HeaderName; 3] =
    [header::CONNECTION, HeaderName::from_static("keep-alive"), header::TRANSFER_ENCODING];

/// Headers of a connection, of the credentials or of the body's encoding; they are not forwarded.
const NOT_PASSED_ON: [HeaderName; 13] = [
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
    HeaderName::from_static("x-service-token"),
    header::ORIGIN,
];

/// The id of a request. The frame adds it to every request.
#[derive(Clone, Debug)]
pub struct RequestId(pub Arc<str>);

/// Time that a request has waited already at other replicas, or here before its slot moved.
#[derive(Clone, Copy, Debug, Default)]
pub struct WaitedTime(pub Duration);

impl<S: Send + Sync> FromRequestParts<S> for WaitedTime {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(parts.extensions.get().copied().unwrap_or_default())
    }
}

/// Added to every request that another replica forwards.
#[derive(Clone, Debug)]
pub struct PeerOrigin {
    /// The caller, as the other replica has authenticated it.
    pub identity: Identity,
    /// How long the other replica waits for the answer.
    pub max_wait: Duration,
}

/// Whether a header of a client is forwarded.
fn is_passed_on(name: &HeaderName) -> bool {
    !name.as_str().starts_with(OURS) && !NOT_PASSED_ON.contains(name)
}

/// The facts of a forwarded request that its headers carry to the other replica.
pub struct ForwardedRequest<'a> {
    /// The caller.
    pub identity: &'a Identity,
    /// The address and the connection type of the client.
    pub source: Option<Source>,
    pub id: &'a RequestId,
    /// Time that the request has waited already.
    pub waited: Duration,
    /// How long this replica waits for the answer.
    pub max_wait: Duration,
    /// The attempts before.
    pub earlier: EarlierAttempts,
}

/// Builds the headers of a forwarded request.
pub fn passed_on(headers: &HeaderMap, request: &ForwardedRequest<'_>) -> HeaderMap {
    let ForwardedRequest { identity, source, id, waited, max_wait, earlier } = *request;
    let mut passed = HeaderMap::with_capacity(headers.len() + 8);
    for (name, value) in headers.iter().filter(|(name, _)| is_passed_on(name)) {
        passed.append(name.clone(), value.clone());
    }
    let encoded = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
    let visible = |text: &str| HeaderValue::try_from(text).expect("ids and encoded text are visible ASCII");
    let millis = |time: Duration| HeaderValue::from(u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
    passed.insert(PROJECT, visible(&encoded(identity.project.as_str())));
    passed.extend(identity.name.as_ref().map(|name| (CALLER, visible(&encoded(name)))));
    passed.insert(ROLE, HeaderValue::from_static(identity.role.as_str()));
    passed.extend(source.map(|source| (SOURCE, visible(&source.to_string()))));
    passed.insert(REQUEST_ID, visible(&id.0));
    passed.insert(WAITED, millis(waited));
    passed.insert(MAX_WAIT, millis(max_wait));
    if earlier.are_in_doubt {
        passed.insert(DOUBT, HeaderValue::from_static("1"));
    }
    passed
}

/// Prepares an answer for the replica that forwards it, and adds the claim that it delivers.
pub fn passed_back(mut response: Response) -> Response {
    if let Some(DeliveryMark { queue, claim }) = response.extensions_mut().remove() {
        let hands = form_urlencoded::Serializer::new(String::new())
            .append_pair("project", queue.project.as_str())
            .append_pair("queue", queue.name.as_str())
            .append_pair("claim", &claim.to_string())
            .finish();
        let hands = HeaderValue::try_from(hands).expect("encoded text is visible ASCII");
        response.headers_mut().insert(HANDS, hands);
    }
    response
}

/// Removes the headers for this replica and those of the connection from an answer. Returns the claim that the answer
/// delivers.
pub fn take_delivery(headers: &mut HeaderMap) -> Option<DeliveryMark> {
    NOT_PASSED_BACK.iter().for_each(|name| drop(headers.remove(name)));
    let hands = headers.remove(HANDS)?;
    let (mut project, mut queue, mut claim) = (None, None, None);
    for (name, text) in form_urlencoded::parse(hands.as_bytes()) {
        match &*name {
            "project" => project = ProjectId::new(&text).ok(),
            "queue" => queue = QueueName::stored(&text).ok(),
            "claim" => claim = text.parse().ok(),
            _ => {}
        }
    }
    Some(DeliveryMark { queue: QueueRef { project: project?, name: queue? }, claim: claim? })
}

/// Marks an answer that was given in the knowledge of earlier attempts.
pub fn with_earlier(mut response: Response, earlier: EarlierAttempts) -> Response {
    if earlier.are_in_doubt {
        response.headers_mut().insert(DOUBT, HeaderValue::from_static("1"));
    }
    response
}

/// Removes the mark of [`with_earlier`] from an answer, and returns the earlier attempts that its sender knew of.
pub fn take_earlier(headers: &mut HeaderMap) -> EarlierAttempts {
    EarlierAttempts { are_in_doubt: headers.remove(DOUBT).is_some() }
}

/// How the connection of a request has shown that its sender is a replica.
fn proof(request: &Request) -> Option<PeerProof> {
    request.extensions().get().copied()
}

/// Whether the sender of a request is a replica.
pub fn is_admitted(trust: &PeerTrust, request: &Request) -> bool {
    let shown = request.headers().get(SECRET).map(HeaderValue::as_bytes);
    proof(request).is_some_and(|proof| trust.admits_request(proof, shown))
}

/// Adds the facts from the headers of a replica to its forwarded request. Returns whether all required headers are
/// present.
pub fn note(request: &mut Request) -> bool {
    let Some((id, from, waited)) = error_body(request.headers()) else { return false };
    let is_told = matches!(proof(request), Some(PeerProof::Certificate(_)));
    let source = request.headers().get(SOURCE).filter(|_| is_told);
    let source: Option<Source> = source.and_then(|source| source.to_str().ok()?.parse().ok());
    let earlier = EarlierAttempts { are_in_doubt: request.headers().contains_key(DOUBT) };
    let extensions = request.extensions_mut();
    // The source of this connection is the other replica, not the client.
    extensions.remove::<Source>();
    source.map(|source| extensions.insert(source));
    extensions.insert(id);
    extensions.insert(from);
    extensions.insert(waited);
    extensions.insert(earlier);
    true
}

fn error_body(headers: &HeaderMap) -> Option<(RequestId, PeerOrigin, WaitedTime)> {
    let text = |name: HeaderName| headers.get(name)?.to_str().ok();
    let millis = |name: HeaderName| text(name)?.parse().ok().map(Duration::from_millis);
    let decoded =
        |text: &str| form_urlencoded::parse(text.as_bytes()).next().map(|(text, _)| text.into_owned());
    let project = decoded(text(PROJECT)?)?;
    let identity = Identity {
        project: ProjectId::new(&project).ok()?,
        role: text(ROLE)?.parse().ok()?,
        name: text(CALLER).and_then(decoded).map(Arc::from),
        is_anonymous: false,
    };
    let from = PeerOrigin { identity, max_wait: millis(MAX_WAIT)? };
    Some((RequestId(text(REQUEST_ID)?.into()), from, WaitedTime(millis(WAITED)?)))
}

#[cfg(test)]
mod tests {
    use angarium_cluster::identity::Fingerprint;
    use angarium_core::access::PeerSecret;
    use axum::body::Body;

    use super::*;
    use angarium_core::access::Role;

    fn forwarded<'a>(identity: &'a Identity, id: &'a RequestId) -> ForwardedRequest<'a> {
        let (waited, max_wait) = (Duration::ZERO, Duration::ZERO);
        ForwardedRequest { identity, source: None, id, waited, max_wait, earlier: EarlierAttempts::default() }
    }

    fn certificate() -> PeerProof {
        PeerProof::Certificate(Fingerprint::parse(&"0f".repeat(32)).unwrap())
    }

    #[test]
    fn earlier_attempts_are_told_and_acknowledged() {
        for are_in_doubt in [false, true] {
            let earlier = EarlierAttempts { are_in_doubt };
            let project = ProjectId::new("p").unwrap();
            let identity = Identity { project, role: Role::Admin, name: None, is_anonymous: false };
            let id = RequestId("req-1".into());
            let facts = ForwardedRequest { earlier, ..forwarded(&identity, &id) };
            let mut request = Request::new(Body::empty());
            *request.headers_mut() = passed_on(&HeaderMap::new(), &facts);
            assert!(note(&mut request));
            assert_eq!(request.extensions().get(), Some(&earlier));
            let mut answer = with_earlier(Response::new(Body::empty()), earlier);
            assert_eq!(take_earlier(answer.headers_mut()), earlier);
            assert!(answer.headers().is_empty());
        }
    }

    #[test]
    fn forwarded_headers_arrive_unchanged() {
        let mut headers = HeaderMap::new();
        headers.insert("client-id", HeaderValue::from_static("c"));
        headers.insert(header::AUTHORIZATION, HeaderValue::from_static("Bearer token"));
        headers.insert(WAITED, HeaderValue::from_static("999"));
        headers.insert("x-angarium-other", HeaderValue::from_static("forged"));
        for project in ["000000000000", "a b/ü=&+%", "x@eu-west-1"] {
            let project = ProjectId::new(project).unwrap();
            let identity = Identity {
                project: project.clone(),
                role: Role::Admin,
                name: Some("ärger & \n".into()),
                is_anonymous: false,
            };
            let id = RequestId("req-1".into());
            let origin = ForwardedRequest {
                waited: Duration::from_millis(7),
                max_wait: Duration::from_secs(20),
                ..forwarded(&identity, &id)
            };
            let passed = passed_on(&headers, &origin);
            assert_eq!(passed.get("client-id").unwrap(), "c");
            assert!(!passed.contains_key(header::AUTHORIZATION) && !passed.contains_key("x-angarium-other"));
            let (id, from, waited) = error_body(&passed).unwrap();
            assert_eq!((&*id.0, waited.0, from.max_wait), ("req-1", origin.waited, origin.max_wait));
            assert_eq!((from.identity.project, from.identity.role), (project, Role::Admin));
            assert_eq!(from.identity.name.as_deref(), Some("ärger & \n"));
        }
        assert!(error_body(&HeaderMap::new()).is_none());
    }

    #[test]
    fn forwarded_source_is_the_entry_replica_source() {
        let identity = Identity {
            project: ProjectId::new("p").unwrap(),
            role: Role::Member,
            name: None,
            is_anonymous: false,
        };
        let mut forged = HeaderMap::new();
        forged.insert(SOURCE, HeaderValue::from_static("https 192.0.2.66"));
        for told in [Some("https 203.0.113.9"), Some("http unknown"), None] {
            let source: Option<Source> = told.map(|source| source.parse().unwrap());
            let id = RequestId("req-1".into());
            let origin = ForwardedRequest { source, ..forwarded(&identity, &id) };
            let passed = passed_on(&forged, &origin);
            let mut request = Request::new(Body::empty());
            *request.headers_mut() = passed;
            request.extensions_mut().insert(Source::new([10, 0, 0, 1].into(), true));
            request.extensions_mut().insert(certificate());
            assert!(note(&mut request));
            assert_eq!(request.extensions().get::<Source>().copied(), source);
        }
    }

    /// A program without certificates adds no source, and forwards the header of its client.
    #[test]
    fn source_in_clear_text_is_unknown() {
        let identity = Identity {
            project: ProjectId::new("p").unwrap(),
            role: Role::Member,
            name: None,
            is_anonymous: false,
        };
        let id = RequestId("req-1".into());
        for (proof, told, source) in [
            (Some(PeerProof::ClearText), "https 192.0.2.66", None),
            (None, "https 192.0.2.66", None),
            (Some(certificate()), "no source", None),
            (Some(certificate()), "https 192.0.2.66", Some("https 192.0.2.66")),
        ] {
            let mut request = Request::new(Body::empty());
            *request.headers_mut() = passed_on(&HeaderMap::new(), &forwarded(&identity, &id));
            request.headers_mut().insert(SOURCE, told.parse().unwrap());
            proof.map(|proof| request.extensions_mut().insert(proof));
            assert!(note(&mut request));
            let found = request.extensions().get::<Source>().map(Source::to_string);
            assert_eq!(found.as_deref(), source, "{proof:?}");
        }
    }

    #[test]
    fn request_is_admitted_by_its_connection_alone() {
        let trust = PeerTrust::default();
        let request = |proof: Option<PeerProof>| {
            let mut request = Request::new(Body::empty());
            request.headers_mut().insert(SECRET, HeaderValue::from_static("s"));
            proof.map(|proof| request.extensions_mut().insert(proof));
            request
        };
        assert!(is_admitted(&trust, &request(Some(certificate()))));
        assert!(!is_admitted(&trust, &request(None)));
        trust.learn_secret(PeerSecret::new("s"));
        assert!(!is_admitted(&trust, &request(Some(PeerProof::ClearText))), "no program needs it");
    }

    #[test]
    fn delivery_header_is_removed_before_the_client() {
        let queue = QueueRef {
            project: ProjectId::new("a b/ü=&+%").unwrap(),
            name: QueueName::new("q.1_-").unwrap(),
        };
        let hands = DeliveryMark { queue, claim: "4f6f1c0e-9d7a-4a52-b1b3-6f0d2c9e8a17".parse().unwrap() };
        let mut response = Response::new(Body::empty());
        response.extensions_mut().insert(hands.clone());
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        response.headers_mut().insert(header::LOCATION, HeaderValue::from_static("/there"));
        let mut headers = passed_back(response).into_parts().0.headers;
        assert_eq!(take_delivery(&mut headers), Some(hands));
        assert_eq!(headers.keys().map(HeaderName::as_str).collect::<Vec<_>>(), ["location"]);
        assert_eq!(take_delivery(&mut HeaderMap::new()), None);
    }
}
