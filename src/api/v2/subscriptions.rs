//! Subscriptions of a queue: each gets a copy of every message that is posted to the queue. The copies of a subscription
//! are read below it ([`super::subscription_queue`]).

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::{IntoParams, ToSchema};

use super::page::{Link, links};
use super::queues;
use crate::api::error::{ApiError, ErrorBody, Errors};
use crate::api::extract::{
    CallerHeaders, ConfirmationRequest, QueuePath, QueueRequest, SignatureHeaders, SubscriptionPath,
    SubscriptionRequest,
};
use crate::api::json::{Json, RequestBody, not_null, reply};
use crate::api::query::{Query, integer};
use angarium_broker::{BacklogView, Broker, NewSubscription, SubscriptionView, WebhookStatus};
use angarium_core::error::{Error, InvalidPart, Resource};
use angarium_core::ids::SubscriptionId;
use angarium_core::limits::{self, Limits};
use angarium_core::names::{QueueName, QueueRef};
use angarium_core::overflow::{CopyBounds, Gap, Omissions};
use angarium_core::page::PageLimit;
use angarium_core::subscription::{Subscriber, SubscriptionChange, SubscriptionOptions, check_ttl};
use angarium_core::time::Timestamp;
use angarium_core::webhook::WebhookSecret;

/// Which subscriptions to list.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct SubscriptionsQuery {
    /// Only subscriptions behind this one: the marker of a page's link.
    #[param(value_type = Option<uuid::Uuid>, nullable = false)]
    marker: Option<String>,
    /// At most this many; 10 when absent.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 20, nullable = false)]
    limit: Option<String>,
}

impl SubscriptionsQuery {
    fn after(&self) -> Result<Option<SubscriptionId>, Error> {
        let wrong = |_| Error::invalid(InvalidPart::Query, "marker", "it is no id of a subscription");
        self.marker.as_deref().map(str::parse).transpose().map_err(wrong)
    }
}

/// A page of subscriptions.
#[derive(Debug, Serialize, ToSchema)]
pub struct SubscriptionPage {
    /// In order of their ids.
    subscriptions: Vec<Subscription>,
    /// The next page. Empty when there is nothing on this one.
    links: Vec<Link>,
}

/// A subscription.
#[derive(Debug, Serialize, ToSchema)]
pub struct Subscription {
    /// Its id.
    #[schema(value_type = uuid::Uuid)]
    id: String,
    /// The queue whose messages it copies.
    source: String,
    /// Who gets the copies: `pull:NAME`, `queue:NAME` or the address of a webhook.
    #[schema(example = "pull:billing")]
    subscriber: String,
    /// Seconds that it lives from its creation, or from the last change of its `ttl`.
    ttl: u64,
    /// Seconds since then.
    age: u64,
    /// Its options, as they were given.
    #[schema(value_type = serde_json::Value)]
    options: Box<RawValue>,
    /// Whether copies are made for it. A webhook may need the confirmation of its subscriber.
    confirmed: bool,
    /// The bounds of the copies that wait in it.
    bounds: SubscriptionBounds,
    /// The messages that it did not get because of its bounds. Absent while its pool cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    backlog: Option<SubscriptionBacklog>,
    /// The state of a webhook whose last attempt failed, at the replica that serves the queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    failing: Option<WebhookError>,
}

/// The bounds of the copies that wait in a subscription.
#[derive(Debug, Serialize, ToSchema)]
pub struct SubscriptionBounds {
    /// Max messages, in any state.
    max_messages: u64,
    /// Max bytes of their bodies.
    max_bytes: u64,
    /// The effect of a post whose copies do not fit: `suspend`, `drop_oldest` or `refuse`.
    #[schema(example = "suspend")]
    overflow: &'static str,
}

impl From<CopyBounds> for SubscriptionBounds {
    fn from(CopyBounds { most, overflow }: CopyBounds) -> Self {
        Self { max_messages: most.messages, max_bytes: most.bytes, overflow: overflow.as_str() }
    }
}

/// The messages that a subscription did not get because of its bounds.
#[derive(Debug, Serialize, ToSchema)]
pub struct SubscriptionBacklog {
    /// Whether it gets no copies of new messages at present.
    suspended: bool,
    /// Whether messages that wait in the queue are still to be copied: the ones that waited when it was created
    /// (`from: oldest`), or the ones that a suspension left out.
    filling: bool,
    /// Messages that were not copied, since it was created: without the ones that were copied later.
    left_out: u64,
    /// Copies that were removed because of `drop_oldest`, likewise.
    dropped: u64,
    /// The messages that the last suspension left out, also when it has ended. Absent when there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    gap: Option<SubscriptionGap>,
}

/// Messages that were not copied, one after the other.
#[derive(Debug, Serialize, ToSchema)]
pub struct SubscriptionGap {
    /// When the first one was posted.
    #[schema(format = DateTime)]
    since: String,
    /// Its id in the queue.
    #[schema(value_type = uuid::Uuid)]
    first: String,
    /// The id of the last one.
    #[schema(value_type = uuid::Uuid)]
    last: String,
    /// Number of them that were not copied later.
    messages: u64,
}

impl From<BacklogView> for SubscriptionBacklog {
    fn from(BacklogView { is_suspended, omissions, is_filling }: BacklogView) -> Self {
        let Omissions { left_out, dropped, gap } = omissions;
        let gap = gap.map(|Gap { since, first, last, messages }| SubscriptionGap {
            since: since.calendar(),
            first: first.to_string(),
            last: last.to_string(),
            messages,
        });
        Self { suspended: is_suspended, filling: is_filling, left_out, dropped, gap }
    }
}

/// A webhook whose last attempt failed.
#[derive(Debug, Serialize, ToSchema)]
pub struct WebhookError {
    /// Failures of the subscriber since the last success; 0 when it has refused messages alone.
    failures: u32,
    /// When the first attempt since the last success failed.
    #[schema(format = DateTime)]
    since: String,
    /// Why the last attempt failed.
    #[schema(example = "the subscriber answered with status 503: closed")]
    reason: String,
    /// Before this time nothing is sent. Absent while there is no pause.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, format = DateTime)]
    paused_until: Option<String>,
}

impl From<WebhookStatus> for WebhookError {
    fn from(WebhookStatus { failures, since, reason, paused_until }: WebhookStatus) -> Self {
        Self {
            failures,
            since: since.calendar(),
            reason: reason.as_str().to_owned(),
            paused_until: paused_until.map(Timestamp::calendar),
        }
    }
}

impl Subscription {
    fn new(
        broker: &Broker,
        source: &QueueName,
        SubscriptionView { subscription, age, bounds, backlog }: SubscriptionView,
    ) -> Self {
        Self {
            id: subscription.id.to_string(),
            source: source.to_string(),
            subscriber: subscription.subscriber.to_string(),
            ttl: subscription.ttl,
            age,
            options: subscription.options.as_raw().to_owned(),
            confirmed: subscription.is_confirmed(),
            bounds: bounds.into(),
            backlog: backlog.map(SubscriptionBacklog::from),
            failing: broker.webhook_status(subscription.id).map(WebhookError::from),
        }
    }
}

/// List the subscriptions of a queue
///
/// The page has those whose life has not ended, in order of their ids.
#[utoipa::path(
    get, path = "/v2/queues/{queue_name}/subscriptions", operation_id = "subscriptions_list", tag = "subscriptions",
    params(QueuePath, SubscriptionsQuery, CallerHeaders),
    responses(
        (status = 200, description = "A page of them; none when there is no such queue.", body = SubscriptionPage),
        Errors
    )
)]
pub async fn list(
    State(broker): State<Broker>,
    asked: QueueRequest,
    Query(query): Query<SubscriptionsQuery>,
) -> Result<Response, ApiError> {
    let limit = PageLimit::new(integer("limit", query.limit.as_deref())?, broker.limits().messages_page)?;
    let source = &asked.queue;
    let page = broker.subscriptions_list(source, query.after()?, limit).await?;
    let last = page.last().map(|view| view.subscription.id.to_string());
    let subscriptions = page.into_iter().map(|view| Subscription::new(&broker, &source.name, view)).collect();
    let links = links(&collection(source), last, &[("limit", query.limit.as_deref())]);
    Ok(reply(StatusCode::OK, &SubscriptionPage { subscriptions, links }))
}

/// Returns the path of the subscriptions of a queue.
fn collection(source: &QueueRef) -> String {
    format!("{}/subscriptions", queues::path(source))
}

/// A new subscription. Unknown keys are dropped.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = SubscriptionRequest)]
pub struct NewSubscriptionBody {
    /// Who gets the copies: `pull:NAME` for consumers that read them here, `queue:NAME` for another queue of the
    /// project, or an address `https://…` or `http://…` to which the service sends them. The `NAME` of `pull:` has at
    /// most 64 of the ASCII letters, digits, `_`, `-` and `.`, and may be empty.
    #[schema(example = "pull:billing")]
    subscriber: String,
    /// Seconds that it lives; 3600 when absent.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(minimum = 60, nullable = false)]
    ttl: Option<u64>,
    /// Any keys, of at most 65,536 bytes. Reserved keys of queues apply to the queue of the subscription, as `_max_claim_count`
    /// does. `max_messages`, `max_bytes` and `overflow` bound the copies that wait. Empty when absent.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(value_type = Option<std::collections::BTreeMap<String, serde_json::Value>>, nullable = false)]
    options: Option<Box<RawValue>>,
    /// Secrets with which the requests to a webhook are signed, at most two: `whsec_` and the Base64 form of 24 to 64
    /// bytes. No answer shows them. When absent one is made, which the answer shows once.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(nullable = false, min_items = 1, max_items = 2)]
    secrets: Option<Vec<String>>,
}

impl RequestBody for NewSubscriptionBody {
    fn most(_: &Limits) -> usize {
        limits::SUBSCRIPTION_BODY_BYTES
    }
}

impl NewSubscriptionBody {
    fn check(self, bounds: &Limits) -> Result<NewSubscription, Error> {
        let options = self.options.map(|text| SubscriptionOptions::new(text, bounds)).transpose()?;
        Ok(NewSubscription {
            subscriber: Subscriber::new(&self.subscriber)?,
            options: options.unwrap_or_else(SubscriptionOptions::empty),
            ttl: check_ttl(self.ttl.unwrap_or(limits::SUBSCRIPTION_TTL_DEFAULT))?,
            secrets: self.secrets.map(secrets).transpose()?.unwrap_or_default(),
        })
    }
}

/// Checks the secrets of a webhook.
fn secrets(texts: Vec<String>) -> Result<Vec<WebhookSecret>, Error> {
    if !(1..=limits::WEBHOOK_SECRETS).contains(&texts.len()) {
        let why = format!("there are 1 to {}", limits::WEBHOOK_SECRETS);
        return Err(Error::invalid(InvalidPart::Limit, "secrets", why));
    }
    texts.iter().map(|text| WebhookSecret::new(text)).collect()
}

/// A subscription that was created.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SubscriptionResult)]
pub struct CreatedSubscription {
    /// Its id.
    #[schema(value_type = uuid::Uuid)]
    subscription_id: String,
    /// The secret that was made for a webhook. No later answer shows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    secret: Option<String>,
    /// False for a webhook that gets no messages before it is confirmed. Absent otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = false)]
    confirmed: Option<bool>,
}

/// Create a subscription
///
/// Each message that is posted after the answer is copied for the subscriber, in the same step that stores it in the
/// queue. A queue that does not exist is created. When its life ends the subscription is deleted, with the messages in
/// its queue. A webhook that has not confirmed its subscription is asked again.
#[utoipa::path(
    post, path = "/v2/queues/{queue_name}/subscriptions", operation_id = "subscription_create", tag = "subscriptions",
    params(QueuePath, CallerHeaders), request_body = NewSubscriptionBody,
    responses(
        (status = 201, description = "It was created, or is to be confirmed.", body = CreatedSubscription,
            headers(("Location" = String, description = "The path of the subscriptions of the queue."))),
        (status = 409, description = "The subscriber has a subscription of the queue, or a topic has the name of a queue \
            to create.", body = ErrorBody),
        Errors
    )
)]
pub async fn post(
    State(broker): State<Broker>,
    asked: QueueRequest,
    Json(body): Json<NewSubscriptionBody>,
) -> Result<Response, ApiError> {
    let source = &asked.queue;
    let new = broker.subscription_create(source, body.check(broker.limits())?).await?;
    let secret = new.secret.map(|secret| secret.as_str().to_owned());
    let confirmed = (!new.is_confirmed).then_some(false);
    let created = CreatedSubscription { subscription_id: new.id.to_string(), secret, confirmed };
    Ok(([(header::LOCATION, collection(source))], reply(StatusCode::CREATED, &created)).into_response())
}

/// Get a subscription
///
/// The answer has its subscriber, its options and its age.
#[utoipa::path(
    get, path = "/v2/queues/{queue_name}/subscriptions/{subscription_id}", operation_id = "subscription_get",
    tag = "subscriptions", params(SubscriptionPath, CallerHeaders),
    responses(
        (status = 200, description = "The subscription.", body = Subscription),
        (status = 404, description = "There is no such subscription.", body = ErrorBody),
        Errors
    )
)]
pub async fn get(
    State(broker): State<Broker>,
    SubscriptionRequest { source, id }: SubscriptionRequest,
) -> Result<Response, ApiError> {
    let view = broker.subscription_get(&source, id?).await?;
    Ok(reply(StatusCode::OK, &Subscription::new(&broker, &source.name, view)))
}

/// A change of a subscription. Absent keys stay as they are, and so do those with null, which Zaqar's command line sends; one
/// must be given. Unknown keys are dropped.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = SubscriptionUpdate)]
pub struct SubscriptionChangeBody {
    /// The new subscriber, of the same kind. Copies of a `queue:` that have not left yet are sent to the former one.
    #[schema(example = "pull:billing")]
    subscriber: Option<String>,
    /// Seconds that it lives from now on.
    #[schema(minimum = 60)]
    ttl: Option<u64>,
    /// Its options, in place of those before.
    #[schema(value_type = Option<std::collections::BTreeMap<String, serde_json::Value>>)]
    options: Option<Box<RawValue>>,
    /// The secrets of a webhook, in place of those before. To change a secret without a gap, give the new one and the
    /// former one, and later the new one alone.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(nullable = false, min_items = 1, max_items = 2)]
    secrets: Option<Vec<String>>,
}

impl RequestBody for SubscriptionChangeBody {
    fn most(_: &Limits) -> usize {
        limits::SUBSCRIPTION_BODY_BYTES
    }
}

impl SubscriptionChangeBody {
    fn check(self, limits: &Limits) -> Result<SubscriptionChange, Error> {
        let is_empty = self.subscriber.is_none()
            && self.ttl.is_none()
            && self.options.is_none()
            && self.secrets.is_none();
        if is_empty {
            let why = "it has none of subscriber, ttl, options and secrets: there is nothing to change";
            return Err(Error::invalid(InvalidPart::Limit, "", why));
        }
        Ok(SubscriptionChange {
            subscriber: self.subscriber.as_deref().map(Subscriber::new).transpose()?,
            ttl: self.ttl.map(check_ttl).transpose()?,
            options: self.options.map(|text| SubscriptionOptions::new(text, limits)).transpose()?,
            secrets: self.secrets.map(secrets).transpose()?,
        })
    }
}

/// Change a subscription
///
/// Its messages stay. A new `ttl` begins with the change.
#[utoipa::path(
    patch, path = "/v2/queues/{queue_name}/subscriptions/{subscription_id}", operation_id = "subscription_update",
    tag = "subscriptions", params(SubscriptionPath, CallerHeaders), request_body = SubscriptionChangeBody,
    responses(
        (status = 204, description = "It is changed."),
        (status = 404, description = "There is no such subscription.", body = ErrorBody),
        (status = 409, description = "The subscriber has another subscription of the queue.", body = ErrorBody),
        Errors
    )
)]
pub async fn patch(
    State(broker): State<Broker>,
    SubscriptionRequest { source, id }: SubscriptionRequest,
    Json(body): Json<SubscriptionChangeBody>,
) -> Result<StatusCode, ApiError> {
    broker.subscription_change(&source, id?, body.check(broker.limits())?).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Delete a subscription
///
/// The messages of its queue are deleted too, also those under claims; the messages of its source stay. Messages that
/// its consumers have forwarded or moved leave first. While they cannot, because their queue is unavailable, the answer is
/// 503 and the subscription stays. A subscription that does not exist counts as deleted.
#[utoipa::path(
    delete, path = "/v2/queues/{queue_name}/subscriptions/{subscription_id}", operation_id = "subscription_delete",
    tag = "subscriptions", params(SubscriptionPath, CallerHeaders),
    responses((status = 204, description = "There is no such subscription any more."), Errors)
)]
pub async fn delete(
    State(broker): State<Broker>,
    SubscriptionRequest { source, id }: SubscriptionRequest,
) -> Result<StatusCode, ApiError> {
    // Text that is no valid id belongs to no subscription, and such a subscription counts as deleted.
    let Ok(id) = id else { return Ok(StatusCode::NO_CONTENT) };
    broker.subscription_delete(&source, id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Whether the subscriber wants the messages. Unknown keys are dropped.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = SubscriptionConfirmation)]
pub struct ConfirmationBody {
    /// False ends the copies for a webhook until it is confirmed again. Other subscribers are always confirmed.
    confirmed: bool,
}

impl RequestBody for ConfirmationBody {
    fn most(_: &Limits) -> usize {
        limits::SMALL_BODY_BYTES
    }
}

/// Confirm a subscription
///
/// A webhook that needs a confirmation gets the messages that are posted from then on. The service has sent the headers of a
/// signature to it, with which it needs no token. By its settings also a member of the project may confirm, or only an
/// administrator. Without a confirmation nothing is copied and sent; the copies that wait stay.
#[utoipa::path(
    put, path = "/v2/queues/{queue_name}/subscriptions/{subscription_id}/confirm",
    operation_id = "subscription_confirmation_put", tag = "subscriptions",
    security(("bearer" = []), ("x_auth_token" = []), ("url_signature" = [])),
    params(SubscriptionPath, CallerHeaders, SignatureHeaders), request_body = ConfirmationBody,
    responses(
        (status = 204, description = "It is as the body says."),
        (status = 404, description = "There is no such subscription, or the signature is not valid for it.", body = ErrorBody),
        Errors
    )
)]
pub async fn confirm(
    State(broker): State<Broker>,
    ConfirmationRequest(sender): ConfirmationRequest,
    SubscriptionRequest { source, id }: SubscriptionRequest,
    Json(ConfirmationBody { confirmed }): Json<ConfirmationBody>,
) -> Result<StatusCode, ApiError> {
    let id = id?;
    let sender = sender.ok_or(Error::NotFound { resource: Resource::Subscription, name: id.to_string() })?;
    broker.subscription_confirm(&source, id, confirmed, sender).await?;
    Ok(StatusCode::NO_CONTENT)
}
