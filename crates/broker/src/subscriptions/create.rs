//! Creating and changing subscriptions.

use rand::RngCore as _;
use tracing::info;

use angarium_catalogue::{PoolEntry, QueueRecord, Schema, SubscriptionRecord};
use angarium_core::error::{Error, InvalidPart, Part};
use angarium_core::ids::{QueueId, SubscriptionId};
use angarium_core::limits as core_limits;
use angarium_core::names::QueueRef;
use angarium_core::queue::Metadata;
use angarium_core::quota::Quota;
use angarium_core::subscription::{Subscriber, Subscription, SubscriptionChange, SubscriptionOptions};
use angarium_core::webhook::WebhookSecret;

use crate::open_queues::lookup::PlacedQueue;
use crate::slot::queue_handle::QueueHandle;
use crate::slot::slot_queue::SlotQueue;
use crate::slot::subscriptions::KnownSubscription;
use crate::subscriptions::Subscriptions;
use crate::subscriptions::lookup::no_subscription;

/// Attempts of a change when a record changes meanwhile.
const TRIES: usize = 8;

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
}

impl Subscriptions {
    /// Creates a subscription, and its queue when there is none. Each post that begins after this returns is copied for
    /// it.
    ///
    /// # Errors
    ///
    /// [`Error::Conflict`] when the subscriber has a subscription of the queue, and while the queue is being migrated or
    /// its pool is drained; [`Error::Invalid`] for a queue that is its own subscriber; [`Error::TooMany`] when the queue has
    /// as many subscriptions as it may.
    pub(crate) async fn create(
        &self,
        at: &QueueRef,
        mut new: NewSubscription,
    ) -> Result<CreatedSubscription, Error> {
        check_other(at, &new.subscriber)?;
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
            let _gate = queue.hold_gate().await;
            let created = subscriptions.create_gated(&queue, &new, &quota).await;
            subscriptions.0.slots.confirm_refusal(queue.slot(), created)
        };
        let id = self.0.replica.carry_out(create).await?;
        Ok(CreatedSubscription { id, secret })
    }

    async fn create_gated(
        &self,
        queue: &SlotQueue,
        new: &NewSubscription,
        quota: &Quota,
    ) -> Result<SubscriptionId, Error> {
        let (slot, at, catalogue) = (queue.slot(), queue.at(), &self.0.replica.catalogue);
        catalogue.schema_reach(Schema::SUBSCRIPTIONS).await?;
        for _ in 0..TRIES {
            let PlacedQueue { entry, placement } = self.0.open_queues.placed(queue).await?;
            let source = queue.with_id(entry.record.id);
            self.check_room(&source)?;
            self.check_free(&source, &new.subscriber)?;
            if placement.older.is_some() {
                return Err(Error::Conflict(
                    "the queue is being migrated: subscribe when it has arrived".into(),
                ));
            }
            let pool = self.0.pools.pool_of_record(&placement.pool).await?;
            check_stays(&pool.entry)?;
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
            };
            self.0.webhooks.check(&subscription)?;
            let known = KnownSubscription::new(subscription)?;
            let subscription = &known.subscription;
            let metadata = new.options.metadata(&Metadata::stored(entry.record.metadata.clone())?)?;
            let record = QueueRecord {
                subscription: Some(SubscriptionRecord::from(subscription)),
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
                let id = known.id();
                self.enter(&source, known)?;
                return Ok(id);
            }
            self.0.pools.reload_pools().await?;
        }
        Err(Error::unavailable(Part::Coordination, "the queue's record changed each time"))
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
    fn check_free(&self, source: &QueueHandle, subscriber: &Subscriber) -> Result<(), Error> {
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

    /// Enters a subscription at its source, in place of its former state.
    fn enter(&self, source: &QueueHandle, subscription: KnownSubscription) -> Result<(), Error> {
        let known = source.subscriptions().ok_or_else(|| source.closed().into_unknown())?;
        let mut all: Vec<KnownSubscription> = known.to_vec();
        all.retain(|known| known.id() != subscription.id());
        all.push(subscription);
        source.set_subscriptions(all);
        Ok(())
    }

    /// Changes a subscription.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] when there is none; [`Error::Conflict`] when the new subscriber has a subscription of the
    /// queue; [`Error::Invalid`] when it is of another kind, or the queue itself.
    pub(crate) async fn change(
        &self,
        at: &QueueRef,
        id: SubscriptionId,
        change: SubscriptionChange,
    ) -> Result<(), Error> {
        let (subscriptions, at) = (self.clone(), at.clone());
        let change = async move {
            let queue = subscriptions.0.slots.queue(&at).await?;
            let _gate = queue.hold_gate().await;
            let changed = subscriptions.change_gated(&queue, id, change).await;
            subscriptions.0.slots.confirm_refusal(queue.slot(), changed)
        };
        self.0.replica.carry_out(change).await
    }

    async fn change_gated(
        &self,
        queue: &SlotQueue,
        id: SubscriptionId,
        change: SubscriptionChange,
    ) -> Result<(), Error> {
        let (slot, catalogue) = (queue.slot(), &self.0.replica.catalogue);
        let own = slot.queue(&queue.at().of_subscription(id));
        let _own_gate = own.hold_gate().await;
        for _ in 0..TRIES {
            let Some(source) = self.0.open_queues.open_gated(queue).await? else {
                return Err(no_subscription(id));
            };
            let (Some(mut entry), Some(above)) = (own.entry().await?, queue.record().await?) else {
                return Err(no_subscription(id));
            };
            let now = self.0.replica.clock.now();
            let found = entry.record.as_subscription(&own.at().name)?;
            let live = found.filter(|found| found.source == source.id() && found.is_live(now));
            let mut subscription = live.ok_or_else(|| no_subscription(id))?;
            if let Some(subscriber) =
                change.subscriber.as_ref().filter(|new| **new != subscription.subscriber)
            {
                check_other(queue.at(), subscriber)?;
                check_kind(&subscription.subscriber, subscriber)?;
                self.check_free(&source, subscriber)?;
                subscription.subscriber = subscriber.clone();
            }
            if let Some(ttl) = change.ttl {
                (subscription.ttl, subscription.renewed) = (ttl, now);
            }
            if let Some(options) = &change.options {
                subscription.options = options.clone();
            }
            if let Some(secrets) = &change.secrets {
                subscription.secrets = secrets.clone();
            }
            // A longer life is possible also when the settings do not allow its address any more.
            if change.subscriber.is_some() || change.options.is_some() || change.secrets.is_some() {
                self.0.webhooks.check(&subscription)?;
            }
            let known = KnownSubscription::new(subscription)?;
            let subscription = &known.subscription;
            let metadata = subscription.options.metadata(&Metadata::stored(above.metadata)?)?;
            entry.record.metadata = metadata.as_raw().to_owned();
            entry.record.modified = Some(now.as_millis());
            entry.record.subscription = Some(SubscriptionRecord::from(subscription));
            let set = catalogue.queue_set(&slot.owned, own.at(), &entry).await;
            if slot.note_placed(set)? {
                slot.set_attributes(own.at(), entry.record.id, metadata.attributes());
                return self.enter(&source, known);
            }
        }
        Err(Error::unavailable(Part::Coordination, "the subscription changed each time"))
    }
}

/// Checks that a pool keeps its queues: a queue with subscriptions does not migrate, and would hold up a drain.
fn check_stays(pool: &PoolEntry) -> Result<(), Error> {
    if pool.pool.drain.is_none() {
        return Ok(());
    }
    let name = &pool.name;
    Err(Error::Conflict(format!(
        "pool {name} of the queue is drained, and a queue with subscriptions does not migrate: subscribe when the queue is in \
         another pool"
    )))
}

/// Checks that a queue is not its own subscriber.
fn check_other(at: &QueueRef, subscriber: &Subscriber) -> Result<(), Error> {
    if matches!(subscriber, Subscriber::Queue(name) if *name == at.name) {
        let why = "a queue is no subscriber of itself";
        return Err(Error::invalid(InvalidPart::Limit, "subscriber", why));
    }
    Ok(())
}

fn check_kind(old: &Subscriber, new: &Subscriber) -> Result<(), Error> {
    if std::mem::discriminant(old) != std::mem::discriminant(new) {
        let old = old.logged();
        let why = format!("it is {old}, and stays of this kind: create another subscription");
        return Err(Error::invalid(InvalidPart::Limit, "subscriber", why));
    }
    Ok(())
}
