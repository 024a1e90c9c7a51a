//! Explanation of a queue: its counts from the totals of its pool, and the rest from the memory of its owner.

use tokio::time::timeout;
use uuid::Uuid;

use angarium_catalogue::Placement;
use angarium_core::access::Role;
use angarium_core::error::Error;
use angarium_core::group::GroupName;
use angarium_core::hold::{AppliedHolds, GroupHold};
use angarium_core::ids::SubscriptionId;
use angarium_core::limits as core_limits;
use angarium_core::names::{QueueName, QueueRef};
use angarium_core::overflow::Gap;
use angarium_core::time::Timestamp;
use angarium_engine::QueueFacts;
use angarium_metrics::SessionState;
use angarium_storage::{Direction, Order};

use crate::explain::Explanations;
use crate::explain::pool_state::{PoolFault, PoolState};
use crate::explain::queue_text;
use crate::limits;
use crate::open_queues::lookup::no_queue;
use crate::slot::explain::{ClaimRefusal, QueueMoment, SlotLoad};
use crate::slot::figure_sums::Contents;
use crate::slot::migration::still;
use crate::slot::queue_handle::{EngineReading, QueueHandle};
use crate::slot::slot_queue::SlotQueue;
use crate::slot::transfer_targets::TransferTarget;
use crate::stores::queue_store::{PageBound, QueueStore};
use crate::stores::read_failure::ReadFailure;
use crate::webhooks::WebhookStatus;

/// What a claim of a queue would get now, and why.
#[derive(Clone, Debug)]
pub struct QueueExplanation {
    /// One sentence for a person.
    pub says: String,
    /// The time that the instants are to be compared with.
    pub now: Timestamp,
    /// The subscriptions of a topic. None for a queue, and when the topic cannot be opened.
    pub subscriptions: Option<usize>,
    /// Numbers of messages. None when a pool of the queue does not answer.
    pub counts: Option<ExplainedCounts>,
    /// When the next delayed message is due. None when there is none, or when that is not known.
    pub next_due: Option<Timestamp>,
    /// Facts from memory. None when the queue cannot be opened, because a pool does not answer.
    pub facts: Option<QueueFacts>,
    /// Where dead letters of the queue go.
    pub dead_letter_queue: Option<QueueName>,
    /// Queues that its messages are in transfer to, as far as memory knows.
    pub targets: Vec<TransferTarget>,
    /// The holds in force: of the queue, of its pools and of its project.
    pub holds: AppliedHolds,
    /// The holds of its groups in order of their names, also those whose messages are being made ready again.
    pub group_holds: Vec<(GroupName, GroupHold)>,
    /// Claims that wait for messages of the queue.
    pub waiting_claims: usize,
    /// The bounds that it has reached.
    pub limits: Vec<ReachedLimit>,
    /// The pool that takes new messages.
    pub pool: PoolState,
    /// The pool that the queue leaves, during a migration.
    pub older_pool: Option<PoolState>,
    /// Whether the last page of waiting messages could not be read.
    pub has_read_failure: bool,
    /// The last claim that was refused since the queue was opened at its owner.
    pub last_refusal: Option<ClaimRefusal>,
    /// The messages that the subscription did not get whose queue it is, while that is suspended.
    pub gap: Option<Gap>,
    /// The subscription whose queue it is. None for another queue.
    pub subscription: Option<SubscriptionId>,
    /// Its webhooks whose last attempt failed; of the queue of a subscription, the one whose queue it is.
    pub failing_webhooks: Vec<(SubscriptionId, WebhookStatus)>,
    /// Its suspended subscriptions, as far as memory knows.
    pub suspended: Vec<SubscriptionId>,
    /// Its subscriptions that are not confirmed; of the queue of a subscription, that one.
    pub unconfirmed: Vec<SubscriptionId>,
    /// Whether messages that wait in the source are still to be copied to the subscription whose queue it is.
    pub is_filling: bool,
    /// Whether claims get nothing until then.
    pub is_barred_by_fill: bool,
    /// The replica that owns the slot of the queue.
    pub owner: Uuid,
    /// The state of its session.
    pub session: SessionState,
}

/// Numbers of messages of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExplainedCounts {
    /// Ready and under no claim, blocked or not.
    pub ready: u64,
    /// Delayed.
    pub delayed: u64,
    /// Under claims.
    pub claimed: u64,
    /// In transfer to or from another queue.
    pub in_transfer: u64,
    /// Done or failed, and kept.
    pub kept: u64,
}

/// A bound that a queue or its slot has reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReachedLimit {
    /// The counted things.
    pub what: &'static str,
    /// The max number of them.
    pub bound: usize,
    /// The consequence, until there are fewer.
    pub effect: LimitEffect,
}

/// The consequence of a reached bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitEffect {
    /// All claims are refused.
    Claims,
    /// Receives of SQS are refused.
    Receives,
    /// Claims that wait are refused.
    WaitingClaims,
    /// Posts with an id of deduplication are refused.
    Posts,
}

/// What the pools have of a queue.
struct StoredContents {
    contents: Contents,
    next_due: Option<Timestamp>,
}

impl Explanations {
    /// Explains a queue; see [`crate::Broker::queue_explain`].
    pub(crate) async fn queue_explain(
        &self,
        at: &QueueRef,
        in_flight: usize,
        role: Role,
    ) -> Result<QueueExplanation, Error> {
        let queue = self.0.slots.queue(at).await?;
        let explained = self.explain_queue(&queue, in_flight, role).await;
        self.0.slots.confirm(queue.slot(), explained)
    }

    async fn explain_queue(
        &self,
        queue: &SlotQueue,
        in_flight: usize,
        role: Role,
    ) -> Result<QueueExplanation, Error> {
        let opened = timeout(limits::HEALTH_DEADLINE, self.0.open_queues.open(queue)).await;
        let fault = match opened {
            Ok(Ok(Some(open))) => return self.explain_open(&open, in_flight, role).await,
            Ok(Ok(None)) => return Err(no_queue(queue.at())),
            Ok(Err(error)) => PoolFault::of(error)?,
            Err(_) => PoolFault::late(),
        };
        let record = queue.record().await?.ok_or_else(|| no_queue(queue.at()))?;
        Ok(self.explained(queue, &record.placement()?, Some(&fault), role))
    }

    async fn explain_open(
        &self,
        queue: &QueueHandle,
        in_flight: usize,
        role: Role,
    ) -> Result<QueueExplanation, Error> {
        let stored = match timeout(limits::HEALTH_DEADLINE, self.read_stored(queue)).await {
            Ok(Ok(stored)) => Ok(stored),
            Ok(Err(error)) => Err(PoolFault::of(error)?),
            Err(_) => Err(PoolFault::late()),
        };
        if let Some(source) = queue.at().source() {
            // It knows the state of the subscription.
            let source = queue.slot().queue(&source);
            drop(timeout(limits::HEALTH_DEADLINE, self.0.open_queues.open_if_there(&source)).await);
        }
        let now = self.0.replica.clock.now();
        let QueueMoment {
            placement,
            facts,
            dead_letter_queue,
            read_failure,
            targets,
            dedup_ids,
            claim_refusal,
            gap,
            suspended,
            unconfirmed,
            is_filling,
            is_barred_by_fill,
        } = queue.moment(now)?;
        let mut explained = self.explained(&queue.in_slot(), &placement, stored.as_ref().err(), role);
        if let Ok(StoredContents { contents, next_due }) = stored {
            let Contents { ready, claimed, delayed, in_transfer, kept, .. } = contents;
            explained.counts = Some(ExplainedCounts { ready, delayed, claimed, in_transfer, kept });
            explained.next_due = next_due;
        }
        explained.subscriptions = queue.live_subscriptions(now).filter(|_| queue.at().name.is_topic());
        let claimed = usize::try_from(facts.claimed.all).unwrap_or(usize::MAX);
        explained.limits.extend(reached("messages in flight", claimed, in_flight, LimitEffect::Receives));
        let dedup_bound = core_limits::DEDUP_KNOWN;
        explained.limits.extend(reached("ids of deduplication", dedup_ids, dedup_bound, LimitEffect::Posts));
        explained.facts = Some(facts);
        explained.dead_letter_queue = dead_letter_queue;
        explained.targets = targets;
        explained.last_refusal = claim_refusal;
        (explained.gap, explained.suspended, explained.unconfirmed) = (gap, suspended, unconfirmed);
        (explained.is_filling, explained.is_barred_by_fill) = (is_filling, is_barred_by_fill);
        explained.has_read_failure =
            matches!(read_failure, Some(ReadFailure::Passing | ReadFailure::Damaged(_)));
        explained.says = queue_text::sentence(&explained);
        Ok(explained)
    }

    /// Returns what is known of every queue, open or not, with the sentence for one that is not.
    fn explained(
        &self,
        queue: &SlotQueue,
        placement: &Placement,
        fault: Option<&PoolFault>,
        role: Role,
    ) -> QueueExplanation {
        let load = queue.slot().load(queue.at());
        let Placement { pool, older } = placement;
        let mut explained = QueueExplanation {
            says: String::new(),
            subscriptions: None,
            now: self.0.replica.clock.now(),
            counts: None,
            next_due: None,
            facts: None,
            dead_letter_queue: None,
            targets: Vec::new(),
            holds: queue.slot().holds_in(queue.at(), placement).shown_to(role),
            group_holds: queue.slot().group_holds(queue.at()).into_iter().collect(),
            waiting_claims: load.queue_waiters,
            limits: slot_limits(load),
            pool: self.pool_state(pool, older.as_ref(), fault),
            older_pool: older.as_ref().map(|older| self.pool_state(older, Some(pool), fault)),
            has_read_failure: false,
            last_refusal: None,
            gap: None,
            subscription: queue.at().name.subscription(),
            failing_webhooks: self.0.webhooks.failing(queue),
            suspended: Vec::new(),
            unconfirmed: Vec::new(),
            is_filling: false,
            is_barred_by_fill: false,
            owner: self.0.replica.owner.instance,
            session: self.0.replica.session_state(),
        };
        explained.says = queue_text::sentence(&explained);
        explained
    }

    /// Reads the totals of a queue, and its first delayed message if it has one.
    async fn read_stored(&self, queue: &QueueHandle) -> Result<StoredContents, Error> {
        let migration = queue.migration();
        let _still = still(migration.as_deref()).await;
        let EngineReading { store, shown: claimed } = queue.read(|engine| engine.claimed_counts())?;
        let totals = store.totals(queue.id()).await?;
        let contents = Contents::of(&totals, claimed);
        let next_due = if contents.delayed > 0 { next_due(&store, queue).await? } else { None };
        Ok(StoredContents { contents, next_due })
    }
}

/// Returns when the first delayed message of a queue is due. None when that one is under a claim, whose release with a
/// delay was cut short.
async fn next_due(store: &QueueStore, queue: &QueueHandle) -> Result<Option<Timestamp>, Error> {
    let page = store.scan(queue.id(), Order::Schedule, Direction::Up, None, PageBound::FIRST).await?;
    let Some(first) = page.messages.into_iter().next().map(|message| message.header) else { return Ok(None) };
    let is_held = queue.decide(|engine| engine.hold(first.id).is_some()).unwrap_or(false);
    Ok((!is_held).then_some(first.ready))
}

fn reached(what: &'static str, count: usize, bound: usize, effect: LimitEffect) -> Option<ReachedLimit> {
    (count >= bound).then_some(ReachedLimit { what, bound, effect })
}

/// Returns the bounds of a slot that are reached.
pub(super) fn slot_limits(load: SlotLoad) -> Vec<ReachedLimit> {
    let SlotLoad { claims, queue_waiters, slot_waiters } = load;
    let claims =
        reached("claims in the slot of the queue", claims, core_limits::SLOT_CLAIMS, LimitEffect::Claims);
    let waits = LimitEffect::WaitingClaims;
    let queue = reached("claims that wait for the queue", queue_waiters, core_limits::QUEUE_WAITERS, waits);
    let slot = reached(
        "claims that wait behind others in the slot of the queue",
        slot_waiters,
        core_limits::SLOT_WAITERS,
        waits,
    );
    claims.into_iter().chain(queue).chain(slot).collect()
}
