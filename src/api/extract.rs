//! Common parts of requests: their project, and the queue, message or claim in the path.

use std::convert::Infallible;

use axum::extract::FromRequestParts;
use axum::http::HeaderMap;
use axum::http::request::Parts;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use utoipa::IntoParams;
use uuid::Uuid;

use super::error::ApiError;
use super::pipeline::identity::Identity;
use super::query::boolean;
use angarium_broker::{Broker, ConfirmationSender};
use angarium_core::access::Role;
use angarium_core::confirmation::UrlSignature;
use angarium_core::error::{Error, InvalidPart, Resource};
use angarium_core::ids::SubscriptionId;
use angarium_core::names::{ProjectId, QueueName, QueueRef};
use angarium_core::trace::TraceContext;

/// The header with the project.
pub const PROJECT: &str = "x-project-id";
const CLIENT: &str = "client-id";

/// The variable parts of a path. Invalid text is an error in the form of the API instead of axum's.
#[derive(Debug)]
pub struct Path<T>(pub T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Path<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Self::Rejection> {
        let path = axum::extract::Path::from_request_parts(parts, state).await;
        let axum::extract::Path(value) =
            path.map_err(|rejection| Error::invalid(InvalidPart::Name, "path", rejection.body_text()))?;
        Ok(Self(value))
    }
}

/// Documents the headers that every request under `/v2` may have.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "only its description is used: the headers are read by name")]
pub struct CallerHeaders {
    /// The tenant. With authentication on it is that of the token, and only administrators by the service's own tokens may name
    /// another; with authentication off it is `000000000000` when absent or empty. At most 256 bytes.
    #[param(rename = "X-Project-Id", max_length = 256, nullable = false)]
    project: Option<String>,
    /// A UUID that the client gives itself, with dashes or without. A listing leaves out what was posted under the same one, and
    /// messages are deleted in bulk by who claimed them under it.
    #[param(
        rename = "Client-ID",
        nullable = false,
        example = "30387f00d4ba4c12ac0ea31e6e5e0bc1",
        pattern = r"^([0-9A-Fa-f]{32}|[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12})$"
    )]
    client: Option<String>,
}

const DETAILS: &str = "x-message-details";

/// Documents the header by which messages are shown with what Zaqar does not know.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "only its description is used: the header is read by name")]
pub struct DetailsHeader {
    /// Whether to show of each message its `details`, which Zaqar does not have. Not shown when absent.
    #[param(rename = "X-Message-Details", nullable = false)]
    details: Option<bool>,
}

/// Documents the queue in a path.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "only its description is used: it is read with the subscription")]
pub struct QueuePath {
    /// 1 to 80 of the ASCII letters, digits, `_`, `-` and `.`, but neither `.` nor `..`. A queue that is created here has at most 64.
    #[param(min_length = 1, max_length = 80, pattern = r"^[A-Za-z0-9_.\-]+$")]
    queue_name: String,
}

/// Documents the topic in a path.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "only its description is used: it is read with the subscription")]
pub struct TopicPath {
    /// 1 to 64 of the ASCII letters, digits, `_`, `-` and `.`, but neither `.` nor `..`.
    #[param(min_length = 1, max_length = 64, pattern = r"^[A-Za-z0-9_.\-]+$")]
    topic_name: String,
}

/// Documents the subscription in a path, with its source.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "only its description is used: it is read with the topics")]
pub struct SubscriptionPath {
    /// The queue that the subscription is of: 1 to 80 of the ASCII letters, digits, `_`, `-` and `.`, but neither `.` nor `..`.
    #[param(min_length = 1, max_length = 80, pattern = r"^[A-Za-z0-9_.\-]+$")]
    queue_name: String,
    /// The subscription.
    #[param(value_type = uuid::Uuid)]
    subscription_id: String,
}

/// The parts of a path that name the queue of a request: its name or that of a topic, and perhaps a subscription that is
/// read as a queue.
#[derive(Deserialize)]
struct QueueNames {
    queue_name: Option<String>,
    topic_name: Option<String>,
    subscription_id: Option<String>,
}

impl QueueNames {
    /// The queue or the topic.
    fn source(&self, project: ProjectId) -> Result<QueueRef, Error> {
        let name = match (&self.queue_name, &self.topic_name) {
            (_, Some(topic)) => QueueName::topic(topic)?,
            (queue, None) => QueueName::new(queue.as_deref().unwrap_or_default())?,
        };
        Ok(QueueRef { project, name })
    }
}

/// The queue of a request, and its caller. Below a subscription it is the queue of that subscription, which exists.
#[derive(Debug)]
pub struct QueueRequest {
    pub queue: QueueRef,
    /// The `Client-ID`, if there is one.
    pub client: Option<Uuid>,
    /// The trace of the request, if it has one.
    pub trace: Option<TraceContext>,
    /// Whether messages are returned with the details that Zaqar does not have.
    pub is_detailed: bool,
}

impl FromRequestParts<Broker> for QueueRequest {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, broker: &Broker) -> Result<Self, Self::Rejection> {
        let Caller { project, client } = Caller::from_request_parts(parts, broker).await?;
        let Path(names) = Path::<QueueNames>::from_request_parts(parts, broker).await?;
        let trace = parts.extensions.remove::<TraceContext>();
        let is_detailed = boolean("X-Message-Details", text(&parts.headers, DETAILS)?)?.unwrap_or(false);
        let mut queue = names.source(project)?;
        if let Some(id) = names.subscription_id {
            let id = subscription(&id)?;
            broker.subscription_get(&queue, id).await?;
            queue = queue.of_subscription(id);
        }
        Ok(Self { queue, client, trace, is_detailed })
    }
}

/// A subscription in a path, with its source. It need not exist.
#[derive(Debug)]
pub struct SubscriptionRequest {
    pub source: QueueRef,
    /// Not found when the text is no valid id: such text belongs to no subscription.
    pub id: Result<SubscriptionId, Error>,
}

impl FromRequestParts<Broker> for SubscriptionRequest {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, broker: &Broker) -> Result<Self, Self::Rejection> {
        let Caller { project, .. } = Caller::from_request_parts(parts, broker).await?;
        let Path(names) = Path::<QueueNames>::from_request_parts(parts, broker).await?;
        let source = names.source(project)?;
        Ok(Self { source, id: subscription(names.subscription_id.as_deref().unwrap_or_default()) })
    }
}

/// Reads the id of a subscription.
fn subscription(text: &str) -> Result<SubscriptionId, Error> {
    text.parse().map_err(|_| Error::NotFound { resource: Resource::Subscription, name: text.to_owned() })
}

/// The caller of a request without a queue.
#[derive(Debug)]
pub struct Caller {
    pub project: ProjectId,
    /// The `Client-ID`, if there is one.
    pub client: Option<Uuid>,
}

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        // A route outside the pipeline has no authenticated callers.
        let identity = parts.extensions.get::<Identity>();
        let identity = identity.ok_or(Error::Unauthenticated("the caller was not authenticated"))?;
        Ok(Self { project: identity.project.clone(), client: client(&parts.headers)? })
    }
}

/// The name of the caller's token or of its user in Keystone, if there is one.
#[derive(Debug)]
pub struct CallerName(pub Option<String>);

impl<S: Send + Sync> FromRequestParts<S> for CallerName {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        let name = parts.extensions.get::<Identity>().and_then(|identity| identity.name.as_ref());
        Ok(Self(name.map(ToString::to_string)))
    }
}

/// The rights of the caller.
#[derive(Debug)]
pub struct CallerRole(pub Role);

impl<S: Send + Sync> FromRequestParts<S> for CallerRole {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        let role = parts.extensions.get::<Identity>().map(|identity| identity.role);
        Ok(Self(role.unwrap_or(Role::Reader)))
    }
}

/// The header with a signature of the service, in place of a token.
pub const SIGNATURE: &str = "url-signature";

/// Documents the headers of a confirmation by the subscriber.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "only its description is used: the headers are read by name")]
pub struct SignatureHeaders {
    /// The signature that the service has sent to the webhook. With it no token is needed, and `X-Project-Id` names the project.
    #[param(rename = "URL-Signature", nullable = false)]
    signature: Option<String>,
    /// The time that came with it.
    #[param(rename = "URL-Expires", nullable = false, example = "2026-12-31T12:00:00")]
    expires: Option<String>,
    /// The method that came with it.
    #[param(rename = "URL-Methods", nullable = false, example = "PUT")]
    methods: Option<String>,
    /// The path that came with it.
    #[param(rename = "URL-Paths", nullable = false)]
    paths: Option<String>,
}

/// The sender of a confirmation. Headers of a signature count also beside a token, and no signature has others: not found
/// then, as for a signature that proves nothing.
#[derive(Debug)]
pub struct ConfirmationRequest(pub Option<ConfirmationSender>);

impl<S: Send + Sync> FromRequestParts<S> for ConfirmationRequest {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Self::Rejection> {
        if !parts.headers.contains_key(SIGNATURE) {
            let CallerRole(role) = CallerRole::from_request_parts(parts, state).await?;
            return Ok(Self(Some(ConfirmationSender::Caller(role))));
        }
        let only = |name: &str| {
            let mut values = parts.headers.get_all(name).iter();
            values.next().filter(|_| values.next().is_none())?.to_str().ok()
        };
        let read = || {
            let (methods, paths) = (only("url-methods")?, only("url-paths")?);
            UrlSignature::read(only(SIGNATURE)?, only("url-expires")?, methods, paths)
        };
        Ok(Self(read().map(ConfirmationSender::Signed)))
    }
}

fn client(headers: &HeaderMap) -> Result<Option<Uuid>, Error> {
    let Some(text) = text(headers, CLIENT)? else { return Ok(None) };
    let id = Uuid::parse_str(text);
    id.map(Some).map_err(|_| Error::invalid(InvalidPart::Header, "Client-ID", "it is not a UUID"))
}

/// Returns a header with any text; none when it is absent.
pub fn text<'h>(headers: &'h HeaderMap, name: &'static str) -> Result<Option<&'h str>, Error> {
    let Some(value) = headers.get(name) else { return Ok(None) };
    let text = std::str::from_utf8(value.as_bytes());
    text.map(Some).map_err(|_| Error::invalid(InvalidPart::Header, name, "it is not UTF-8 text"))
}

/// The last part of a path.
#[derive(Debug, Deserialize)]
pub struct MessagePath {
    pub message_id: String,
}

/// The last part of a path.
#[derive(Debug, Deserialize)]
pub struct TaskPath {
    pub task_id: String,
}

/// The last part of a path.
#[derive(Debug, Deserialize)]
pub struct ClaimPath {
    pub claim_id: String,
}
