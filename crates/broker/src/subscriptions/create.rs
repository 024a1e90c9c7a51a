//! Creating subscriptions, and what their options and subscribers must fit.

use rand::RngCore as _;
use tracing::info;

use angarium_catalogue::{QueueRecord, Schema, SubscriptionRecord};
use angarium_core::error::{Error, InvalidPart, Part};
use angarium_core::ids::{QueueId, SubscriptionId};
use angarium_core::limits as core_limits;
use angarium_core::names::QueueRef;
use angarium_core::overflow::Overflow;
use angarium_core::queue::Metadata;
use angarium_core::quota::Quota;
use angarium_core::subscription::{Subscriber, Subscription, SubscriptionOptions};
use angarium_core::webhook::WebhookSecret;

use crate::open_queues::lookup::PlacedQueue;
use crate::slot::queue_handle::QueueHandle;
use crate::slot::slot_queue::SlotQueue;
use crate::slot::subscriptions::KnownSubscription;
use crate::stores::table::CHANGE_TRIES;
use crate::subscriptions::Subscriptions;

/// The option that names the queue for dead letters.
pub(in crate::subscriptions) const DEAD_LETTERS: &str = "options._dead_letter_queue";

/// A subscription to create.
#[derive(Clone, Debug)]
pub struct NewSubscription {
    /// Who gets the copies.
    pub subscriber: Subscriber,
    /// Its options.
    pub options: SubscriptionOptions,
    /// Seconds of its life.
    pub ttl: u64,
    /// The secrets of a webhook. One is made for a webhook without.
    pub secrets: Vec<WebhookSecret>,
}

/// A subscription that was created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreatedSubscription {
    /// Its id.
    pub id: SubscriptionId,
    /// The secret that was made for it.
    pub secret: Option<WebhookSecret>,
    /// Whether messages are copied for it. A webhook may need the confirmation of its subscriber.
    pub is_confirmed: bool,
}

/// A subscription of a new or of a known subscriber.
struct EnteredSubscription {
    id: SubscriptionId,
    is_new: bool,
    is_confirmed: bool,
}

impl Subscriptions {
    /// Creates a subscription, and its queue when there is none. Each post that begins after this returns is copied for
    /// it.
    ///
    /// # Errors
    ///
    /// [`Error::Conflict`] when the subscriber has a subscription of the queue, unless it has yet to confirm that one: then
    /// it is asked again; [`Error::Invalid`] for a queue that is its own subscriber, and for a topic; [`Error::NotFound`]
    /// below a topic that does not exist; [`Error::TooMany`] when the queue has as many subscriptions as it may.
    pub(crate) async fn create(
        &self,
        at: &QueueRef,
        mut new: NewSubscription,
    ) -> Result<CreatedSubscription, Error> {
        check_other(at, &new.subscriber)?;
        self.check_keeps(at, &new.subscriber).await?;
        let attributes = new.options.metadata(&Metadata::empty())?.attributes().clone();
        self.0.open_queues.check_dead_letters(&at.project, &attributes, DEAD_LETTERS).await?;
        let needs_secret = matches!(new.subscriber, Subscriber::Webhook(_)) && new.secrets.is_empty();
        let secret = needs_secret.then(|| {
            let mut bytes = [0; 32];
            self.0.replica.random.clone().fill_bytes(&mut bytes);
            WebhookSecret::of_bytes(bytes)
        });
        new.secrets.extend(secret.clone());
        let (subscriptions, at) = (self.clone(), at.clone());
        let create = async move {
            let queue = subscriptions.0.slots.queue(&at).await?;
            subscriptions.0.open_queues.open_or_create(&queue).await?;
            let account = subscriptions.0.ledger.account_of(&at.project);
            let quota = subscriptions.0.quotas.counted_quota(&account).await?;
            let gate = queue.hold_gate().await;
            let created = subscriptions.create_gated(&queue, &new, &quota).await;
            drop(gate);
            let entered = subscriptions.0.slots.confirm_refusal(queue.slot(), created)?;
            if entered.is_confirmed {
                subscriptions.begin_fill(&queue, entered.id).await;
            }
            Ok(entered)
        };
        let EnteredSubscription { id, is_new, is_confirmed } = self.0.replica.carry_out(create).await?;
        // That of a known one was shown when it was made.
        Ok(CreatedSubscription { id, secret: secret.filter(|_| is_new), is_confirmed })
    }

    async fn create_gated(
        &self,
        queue: &SlotQueue,
        new: &NewSubscription,
        quota: &Quota,
    ) -> Result<EnteredSubscription, Error> {
        let (slot, at, catalogue) = (queue.slot(), queue.at(), &self.0.replica.catalogue);
        let confirmation = self.new_confirmation(&new.subscriber);
        let needs = confirmation.as_ref().map_or(Schema::SUBSCRIPTIONS, |_| Schema::CONFIRMATIONS);
        catalogue.schema_reach(needs).await?;
        // The copies can do without it.
        self.0.replica.may_store(Schema::SHARED_BODIES).await;
        for _ in 0..CHANGE_TRIES {
            let PlacedQueue { entry, placement } = self.0.open_queues.placed(queue).await?;
            let source = queue.with_id(entry.record.id);
            if let Some(id) = self.ask_again(queue, &source, &new.subscriber).await? {
                return Ok(EnteredSubscription { id, is_new: false, is_confirmed: false });
            }
            self.check_room(&source)?;
            self.check_free(&source, &new.subscriber)?;
            if placement.older.is_some() {
                catalogue.schema_reach(Schema::SUBSCRIBED_MIGRATIONS).await?;
            }
            let pool = self.0.pools.pool_of_record(&placement.pool).await?;
            let id = QueueId::new(slot.owned.slot, &mut self.0.replica.random.clone());
            let now = self.0.replica.clock.now();
            let subscription = Subscription {
                id: SubscriptionId(id),
                source: entry.record.id,
                subscriber: new.subscriber.clone(),
                options: new.options.clone(),
                ttl: new.ttl,
                renewed: now,
                secrets: new.secrets.clone(),
                is_from_oldest: new.options.is_from_oldest()?,
                confirmation: confirmation.clone(),
            };
            self.0.webhooks.check(&subscription)?;
            let known = KnownSubscription::new(at, subscription)?;
            check_fit(&known)?;
            check_options(&source, &known)?;
            let subscription = &known.subscription;
            let metadata = new.options.metadata(&Metadata::stored(entry.record.metadata.clone())?)?;
            check_order(subscription, &metadata)?;
            let record = QueueRecord {
                subscription: Some(SubscriptionRecord::from(&**subscription)),
                ..QueueRecord::new(id, &placement.pool, &metadata, now)
            };
            let roll = slot.roll.lock().await;
            self.0.ledger.add_queue(&self.0.ledger.account_of(&at.project), quota, id, slot.epoch)?;
            let created =
                catalogue.subscription_create(&slot.owned, (at, &entry), &record, &pool.entry).await;
            match &created {
                Ok(true) => slot.note_created(&at.of_subscription(subscription.id)),
                Ok(false) => self.0.ledger.remove_queue(id),
                Err(error) if error.nothing_written() => self.0.ledger.remove_queue(id),
                // The slot is recovered, which reads its queues again.
                Err(_) => {}
            }
            drop(roll);
            if slot.note_placed(created)? {
                let (project, name, subscriber) = (&at.project, &at.name, subscription.subscriber.logged());
                info!(%project, queue = %name, subscription = %subscription.id, %subscriber, "subscription created");
                let (id, is_confirmed) = (known.id(), known.subscription.is_confirmed());
                source.enter_subscription(known)?;
                return Ok(EnteredSubscription { id, is_new: true, is_confirmed });
            }
            self.0.pools.reload_pools().await?;
        }
        Err(Error::unavailable(Part::Coordination, "the queue's record changed each time"))
    }

    /// Checks that a queue which subscribes is no topic.
    pub(in crate::subscriptions) async fn check_keeps(
        &self,
        at: &QueueRef,
        subscriber: &Subscriber,
    ) -> Result<(), Error> {
        let Subscriber::Queue(name) = subscriber else { return Ok(()) };
        let target = QueueRef { project: at.project.clone(), name: name.clone() };
        self.0.open_queues.check_target(&target, "subscriber").await
    }

    fn check_room(&self, source: &QueueHandle) -> Result<(), Error> {
        let all = source.subscriptions().ok_or_else(|| source.closed())?;
        if all.len() >= core_limits::SUBSCRIPTIONS {
            return Err(Error::TooMany {
                what: "subscriptions of one queue",
                bound: core_limits::SUBSCRIPTIONS,
            });
        }
        Ok(())
    }

    /// Checks that a subscriber has no subscription of a queue.
    pub(in crate::subscriptions) fn check_free(
        &self,
        source: &QueueHandle,
        subscriber: &Subscriber,
    ) -> Result<(), Error> {
        let now = self.0.replica.clock.now();
        let all = source.subscriptions().ok_or_else(|| source.closed())?;
        if all
            .iter()
            .any(|known| known.subscription.is_live(now) && known.subscription.subscriber == *subscriber)
        {
            return Err(Error::Conflict(format!("{} has a subscription of the queue", subscriber.logged())));
        }
        Ok(())
    }
}

/// Checks that the options of all subscriptions of a queue, with this new or changed one, are within their bound.
pub(in crate::subscriptions) fn check_options(
    source: &QueueHandle,
    known: &KnownSubscription,
) -> Result<(), Error> {
    let all = source.subscriptions().ok_or_else(|| source.closed())?;
    let bytes = |known: &KnownSubscription| known.subscription.options.as_raw().get().len();
    let others: usize = all.iter().filter(|other| other.id() != known.id()).map(bytes).sum();
    if others + bytes(known) > core_limits::SUBSCRIPTIONS_OPTIONS_BYTES {
        return Err(Error::TooMany {
            what: "bytes of options of the subscriptions of one queue",
            bound: core_limits::SUBSCRIPTIONS_OPTIONS_BYTES,
        });
    }
    Ok(())
}

/// Checks that the options suit the subscriber. The copies for another queue are in transfer from the first moment, so none
/// is dropped, and the service has no part in the pace of consumers.
pub(in crate::subscriptions) fn check_fit(known: &KnownSubscription) -> Result<(), Error> {
    let subscriber = &known.subscription.subscriber;
    if matches!(subscriber, Subscriber::Pull(_)) && known.subscription.options.rate()?.is_some() {
        let why = "it is for webhooks and queue:, to which the service delivers; consumers of pull: have their own pace";
        return Err(Error::invalid(InvalidPart::Limit, "options.rate", why));
    }
    let is_queue = matches!(subscriber, Subscriber::Queue(_));
    if is_queue && known.bounds.overflow == Overflow::DropOldest {
        let why = "copies on their way to a queue are not dropped: use 'suspend' or 'refuse'";
        return Err(Error::invalid(InvalidPart::Limit, "options.overflow", why));
    }
    Ok(())
}

/// Checks that the copies for another queue arrive in order. New ones leave at once, and would be before the messages that
/// wait.
fn check_order(subscription: &Subscription, metadata: &Metadata) -> Result<(), Error> {
    let is_queue = matches!(subscription.subscriber, Subscriber::Queue(_));
    if is_queue && subscription.is_from_oldest && metadata.attributes().is_fifo {
        let why = "in a FIFO queue it is for pull: and webhooks: new messages would arrive in the other queue before the \
                   ones that wait";
        return Err(Error::invalid(InvalidPart::Limit, "options.from", why));
    }
    Ok(())
}

/// Checks that a queue is not its own subscriber.
pub(in crate::subscriptions) fn check_other(at: &QueueRef, subscriber: &Subscriber) -> Result<(), Error> {
    if matches!(subscriber, Subscriber::Queue(name) if *name == at.name) {
        let why = "a queue is no subscriber of itself";
        return Err(Error::invalid(InvalidPart::Limit, "subscriber", why));
    }
    Ok(())
}
