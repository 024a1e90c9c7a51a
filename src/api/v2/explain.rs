//! Explanations: why a claim of a queue gets what it gets, and what a message waits for. Zaqar has none.

use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Serialize;
use utoipa::ToSchema;
use uuid::Uuid;

use super::explained_message::MessageExplanation;
use super::holds::HoldView;
use super::subscriptions::WebhookError;
use crate::api::error::{ApiError, ErrorBody, Errors};
use crate::api::extract::{CallerHeaders, CallerRole, MessagePath, Path, QueuePath, QueueRequest};
use crate::api::json::reply;
use crate::api::sqs::ContextLimits;
use angarium_broker::{
    Broker, ClaimRefusal, PoolState, QueueExplanation as BrokerExplanation, ReachedLimit, TransferTarget,
    WebhookStatus,
};
use angarium_core::durability::Durability;
use angarium_core::error::{Error, Resource};
use angarium_core::group::GroupName;
use angarium_core::hold::GroupHold;
use angarium_core::ids::SubscriptionId;
use angarium_core::time::Timestamp;

/// What a claim of a queue would get now, and why.
#[derive(Debug, Serialize, ToSchema)]
pub struct QueueExplanation {
    /// One sentence for a person. Its words may change with each version; programs read the fields.
    #[schema(example = "A claim gets nothing now: 1 message is delayed until 2026-11-21T08:00:00Z.")]
    says: String,
    /// The subscriptions of a topic. Absent for a queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    subscriptions: Option<usize>,
    /// Messages that are ready and under no claim, also those of blocked groups. Absent while the pool does not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    ready: Option<u64>,
    /// Messages whose delay has not ended, also parked ones and those of held groups that are put aside. Absent while the pool does not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    delayed: Option<DelayReport>,
    /// Messages under claims. Absent while the queue cannot be opened.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    claimed: Option<ClaimReport>,
    /// Messages on their way to or from another queue. Absent while the pool does not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    in_transfer: Option<TransferReport>,
    /// Messages that are done or failed and kept. Absent while the pool does not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    kept: Option<u64>,
    /// Groups of a FIFO queue with a message for which any later ones of the group wait, as far as memory knows.
    groups_blocked: usize,
    /// Groups that are served after the others, because they have many messages under claims.
    noisy_groups: GroupReport,
    /// The bounds that the queue has reached, each with its value.
    limit_reached: Vec<LimitReport>,
    /// Ready messages that have expired and are not removed yet. Absent where only the pool knows, as in FIFO queues.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    expired_unremoved: Option<u64>,
    /// The holds in force: of the queue, of its pools and of its project. Absent when there is none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    held: Vec<HoldView>,
    /// Holds of groups, in order of the groups, also those whose messages are being made ready again; at most 16.
    held_groups: Vec<GroupHoldReport>,
    /// Webhooks whose last attempt failed, of the subscriptions of the queue or of the subscription whose queue it is; at
    /// most 16. Absent when there is none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    failing_webhooks: Vec<WebhookReport>,
    /// Claims that wait for messages of the queue.
    waiting_claims: usize,
    /// The last claim that was answered with an error. Absent when there was none since the replica opened the queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    last_claim_error: Option<ClaimErrorReport>,
    /// The pool that takes new messages of the queue.
    pool: PoolReport,
    /// The pool that the queue leaves. Absent when it is in one pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    older_pool: Option<PoolReport>,
    /// The replica that decides about the queue.
    owner: Uuid,
    /// Its session with what holds queues and claims: `connected`, `suspended` or `lost`.
    #[schema(example = "connected")]
    session: &'static str,
}

/// Max holds of groups in an explanation.
const SHOWN_GROUPS: usize = 16;
/// Max failing webhooks in an explanation.
const SHOWN_WEBHOOKS: usize = 16;

/// A webhook whose last attempt failed.
#[derive(Debug, Serialize, ToSchema)]
struct WebhookReport {
    /// Its subscription.
    #[schema(value_type = Uuid)]
    subscription: String,
    /// Its failures, as the subscription shows them.
    failing: WebhookError,
}

impl From<(SubscriptionId, WebhookStatus)> for WebhookReport {
    fn from((subscription, status): (SubscriptionId, WebhookStatus)) -> Self {
        Self { subscription: subscription.to_string(), failing: status.into() }
    }
}

/// The hold of a group.
#[derive(Debug, Serialize, ToSchema)]
struct GroupHoldReport {
    /// The group.
    group: String,
    /// Whether it was released, and messages that it has put aside are being made ready.
    is_releasing: bool,
    /// Its hold.
    hold: HoldView,
}

impl From<(GroupName, GroupHold)> for GroupHoldReport {
    fn from((group, held): (GroupName, GroupHold)) -> Self {
        Self { group: group.to_string(), is_releasing: held.is_releasing, hold: held.hold.into() }
    }
}

/// Delayed messages.
#[derive(Debug, Serialize, ToSchema)]
struct DelayReport {
    /// How many there are.
    messages: u64,
    /// When the first is due, as `YYYY-MM-DDTHH:MM:SSZ`. Absent when there is none, or when none becomes ready by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    next_due: Option<String>,
    /// Seconds until then; 0 when it is about to become ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    next_due_in: Option<u64>,
}

/// Messages under claims.
#[derive(Debug, Serialize, ToSchema)]
struct ClaimReport {
    /// How many there are, those of a claim that is being made included.
    messages: u64,
    /// How many claims there are.
    claims: usize,
    /// Names that holders gave themselves, in order; at most 16.
    by: Vec<String>,
    /// When the next claim expires, as `YYYY-MM-DDTHH:MM:SSZ`. Absent when there is none, or more than 4,096.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    next_expires: Option<String>,
    /// Seconds until then; 0 when it is being ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    next_expires_in: Option<u64>,
}

/// Messages in transfer.
#[derive(Debug, Serialize, ToSchema)]
struct TransferReport {
    /// How many there are.
    messages: u64,
    /// The queues that they leave for, as far as memory knows; at most 16.
    to: Vec<TargetReport>,
}

/// A queue that messages are in transfer to.
#[derive(Debug, Serialize, ToSchema)]
struct TargetReport {
    /// Its name.
    queue: String,
    /// Why the last transfer to it has failed. Absent while the first one is in progress.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    why: Option<String>,
}

/// Noisy groups.
#[derive(Debug, Serialize, ToSchema)]
struct GroupReport {
    /// How many there are.
    count: usize,
    /// Their names, in order; at most 16.
    names: Vec<String>,
}

/// A bound that is reached.
#[derive(Debug, Serialize, ToSchema)]
struct LimitReport {
    /// What it bounds.
    #[schema(example = "messages in flight")]
    what: &'static str,
    /// How many there may be.
    bound: usize,
}

/// The error of a claim.
#[derive(Debug, Serialize, ToSchema)]
struct ClaimErrorReport {
    /// The code of its error.
    #[schema(example = "unavailable")]
    code: &'static str,
    /// The description of its error.
    why: String,
    /// When, as `YYYY-MM-DDTHH:MM:SSZ`.
    at: String,
}

impl From<ClaimRefusal> for ClaimErrorReport {
    fn from(ClaimRefusal { at, code, why }: ClaimRefusal) -> Self {
        Self { code, why, at: at.calendar() }
    }
}

/// A pool of a queue.
#[derive(Debug, Serialize, ToSchema)]
struct PoolReport {
    /// Its name.
    name: String,
    /// Whether it has answered this request.
    up: bool,
    /// Whether it takes new messages.
    writable: bool,
    /// The most durable class it can reach: `sync`, or `relaxed`. Absent when its storage cannot be used.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "sync")]
    class: Option<&'static str>,
    /// Why it has not answered, or takes no new messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    why: Option<String>,
}

/// Explain a queue
///
/// One sentence states whether a claim gets a message now, and why not; the fields have the numbers behind it. It is read
/// from totals and memory, so it costs the same for any number of messages, and it changes nothing. A pool that does not
/// answer within 5 seconds is a part of the explanation, and no error.
#[utoipa::path(
    get, path = "/v2/queues/{queue_name}/explain", operation_id = "queue_explanation_get", tag = "queues",
    params(QueuePath, CallerHeaders),
    responses(
        (status = 200, description = "The explanation.", body = QueueExplanation),
        (status = 404, description = "There is no such queue.", body = ErrorBody),
        Errors
    )
)]
pub async fn queue(
    State(broker): State<Broker>,
    Extension(sqs): Extension<ContextLimits>,
    CallerRole(role): CallerRole,
    asked: QueueRequest,
) -> Result<Response, ApiError> {
    let explained = broker.queue_explain(&asked.queue, sqs.in_flight, role).await?;
    Ok(reply(StatusCode::OK, &QueueExplanation::from(explained)))
}

/// Explain a message
///
/// The answer has the state of the message, since when it is in that state if that is known, and what must happen before
/// a client can claim it. It changes nothing, and shows no claim id.
#[utoipa::path(
    get, path = "/v2/queues/{queue_name}/messages/{message_id}/explain", operation_id = "message_explanation_get",
    tag = "messages",
    params(QueuePath, ("message_id" = uuid::Uuid, Path, description = "The message."), CallerHeaders),
    responses(
        (status = 200, description = "The explanation.", body = MessageExplanation),
        (status = 404, description = "There is no such message.", body = ErrorBody),
        Errors
    )
)]
pub async fn message(
    State(broker): State<Broker>,
    CallerRole(role): CallerRole,
    asked: QueueRequest,
    Path(MessagePath { message_id }): Path<MessagePath>,
) -> Result<Response, ApiError> {
    let missing = |_| Error::NotFound { resource: Resource::Message, name: message_id.clone() };
    let id = message_id.parse().map_err(missing)?;
    let explained = broker.message_explain(&asked.queue, id, role).await?;
    Ok(reply(StatusCode::OK, &MessageExplanation::from(explained)))
}

/// Seconds from `now` until an instant, rounded up.
pub(super) fn seconds_until(at: Timestamp, now: Timestamp) -> u64 {
    at.as_millis().saturating_sub(now.as_millis()).div_ceil(1_000)
}

impl From<BrokerExplanation> for QueueExplanation {
    fn from(explained: BrokerExplanation) -> Self {
        let BrokerExplanation { now, counts, facts, .. } = explained;
        // Parked messages, and those of held groups, are never due by themselves.
        let next_due = explained.next_due.filter(|at| *at != Timestamp::NEVER);
        let delayed = counts.map(|counts| DelayReport {
            messages: counts.delayed,
            next_due: next_due.map(Timestamp::calendar),
            next_due_in: next_due.map(|at| seconds_until(at, now)),
        });
        let in_transfer = counts.map(|counts| TransferReport {
            messages: counts.in_transfer,
            to: explained.targets.into_iter().map(TargetReport::from).collect(),
        });
        let claimed = facts.as_ref().map(|facts| ClaimReport {
            messages: counts.map_or(facts.claimed.all, |counts| counts.claimed),
            claims: facts.claims,
            by: facts.holders.iter().map(ToString::to_string).collect(),
            next_expires: facts.next_expiry.map(Timestamp::calendar),
            next_expires_in: facts.next_expiry.map(|at| seconds_until(at, now)),
        });
        let expired_unremoved = facts.as_ref().and_then(|facts| facts.expired);
        let facts = facts.unwrap_or_default();
        Self {
            says: explained.says,
            subscriptions: explained.subscriptions,
            ready: counts.map(|counts| counts.ready),
            delayed,
            claimed,
            in_transfer,
            kept: counts.map(|counts| counts.kept),
            groups_blocked: facts.groups_blocked,
            noisy_groups: GroupReport {
                count: facts.noisy,
                names: facts.noisy_groups.iter().map(ToString::to_string).collect(),
            },
            limit_reached: explained.limits.iter().map(LimitReport::from).collect(),
            expired_unremoved,
            held: explained.holds.0.into_iter().map(HoldView::from).collect(),
            held_groups: explained
                .group_holds
                .into_iter()
                .take(SHOWN_GROUPS)
                .map(GroupHoldReport::from)
                .collect(),
            failing_webhooks: explained
                .failing_webhooks
                .into_iter()
                .take(SHOWN_WEBHOOKS)
                .map(WebhookReport::from)
                .collect(),
            waiting_claims: explained.waiting_claims,
            last_claim_error: explained.last_refusal.map(ClaimErrorReport::from),
            pool: explained.pool.into(),
            older_pool: explained.older_pool.map(PoolReport::from),
            owner: explained.owner,
            session: explained.session.as_str(),
        }
    }
}

impl From<TransferTarget> for TargetReport {
    fn from(target: TransferTarget) -> Self {
        Self { queue: target.at.name.to_string(), why: target.why }
    }
}

impl From<&ReachedLimit> for LimitReport {
    fn from(limit: &ReachedLimit) -> Self {
        Self { what: limit.what, bound: limit.bound }
    }
}

impl From<PoolState> for PoolReport {
    fn from(pool: PoolState) -> Self {
        let PoolState { name, is_up, is_writable, class, why } = pool;
        let class = class.map(Durability::as_str);
        Self { name: name.to_string(), up: is_up, writable: is_writable, class, why }
    }
}
