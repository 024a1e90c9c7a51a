//! Changing subscriptions.

use angarium_catalogue::{Schema, SubscriptionRecord};
use angarium_core::error::{Error, InvalidPart};
use angarium_core::ids::SubscriptionId;
use angarium_core::names::QueueRef;
use angarium_core::queue::Metadata;
use angarium_core::subscription::{Subscriber, Subscription, SubscriptionChange};
use angarium_core::time::Timestamp;

use crate::open_queues::subscriptions::{RecordedSubscription, changed_each_time};
use crate::slot::queue_handle::QueueHandle;
use crate::slot::slot_queue::SlotQueue;
use crate::slot::subscriptions::KnownSubscription;
use crate::stores::table::CHANGE_TRIES;
use crate::subscriptions::Subscriptions;
use crate::subscriptions::create::{DEAD_LETTERS, check_fit, check_options, check_other};
use crate::subscriptions::lookup::no_subscription;

impl Subscriptions {
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
            if change.subscriber.as_ref().is_some_and(|new| subscriptions.new_confirmation(new).is_some()) {
                subscriptions.0.replica.catalogue.schema_reach(Schema::CONFIRMATIONS).await?;
            }
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
        for _ in 0..CHANGE_TRIES {
            let recorded = self.0.open_queues.recorded_subscription(queue, &own).await?;
            let recorded = recorded.ok_or_else(|| no_subscription(id))?;
            let RecordedSubscription { source, mut entry, mut subscription, now } = recorded;
            let Some(above) = queue.record().await? else { return Err(no_subscription(id)) };
            if let Some(subscriber) =
                change.subscriber.as_ref().filter(|new| **new != subscription.subscriber)
            {
                self.move_to(&source, &mut subscription, subscriber).await?;
            }
            apply(&change, &mut subscription, now);
            // A longer life is possible also when the settings do not allow its address any more.
            if change.subscriber.is_some() || change.options.is_some() || change.secrets.is_some() {
                self.0.webhooks.check(&subscription)?;
            }
            let known = KnownSubscription::new(queue.at(), subscription)?;
            check_fit(&known)?;
            if change.options.is_some() {
                check_options(&source, &known)?;
            }
            let subscription = &known.subscription;
            let metadata = subscription.options.metadata(&Metadata::stored(above.metadata)?)?;
            if change.options.is_some() {
                let (open_queues, project) = (&self.0.open_queues, &queue.at().project);
                open_queues.check_dead_letters(project, metadata.attributes(), DEAD_LETTERS).await?;
            }
            entry.record.metadata = metadata.as_raw().to_owned();
            entry.record.modified = Some(now.as_millis());
            entry.record.subscription = Some(SubscriptionRecord::from(&**subscription));
            let set = catalogue.queue_set(&slot.owned, own.at(), &entry).await;
            if slot.note_placed(set)? {
                slot.set_attributes(own.at(), entry.record.id, metadata.attributes());
                slot.set_bounds(own.at(), known.bounds);
                slot.set_delivery_pace(own.at(), &known.subscription);
                let subscriber = known.subscription.subscriber.clone();
                source.enter_subscription(known)?;
                self.0.webhooks.follow(id, &subscriber);
                return Ok(());
            }
        }
        Err(changed_each_time())
    }

    /// Gives a subscription another subscriber of the same kind.
    async fn move_to(
        &self,
        source: &QueueHandle,
        subscription: &mut Subscription,
        subscriber: &Subscriber,
    ) -> Result<(), Error> {
        check_other(source.at(), subscriber)?;
        check_kind(&subscription.subscriber, subscriber)?;
        self.check_keeps(source.at(), subscriber).await?;
        self.check_free(source, subscriber)?;
        subscription.subscriber = subscriber.clone();
        subscription.confirmation = self.confirmation_at_new_address(subscription);
        Ok(())
    }
}

/// Applies what a change states beside the subscriber.
fn apply(change: &SubscriptionChange, subscription: &mut Subscription, now: Timestamp) {
    if let Some(ttl) = change.ttl {
        (subscription.ttl, subscription.renewed) = (ttl, now);
    }
    if let Some(options) = &change.options {
        subscription.options = options.clone();
    }
    if let Some(secrets) = &change.secrets {
        subscription.secrets = secrets.clone();
    }
}

fn check_kind(old: &Subscriber, new: &Subscriber) -> Result<(), Error> {
    if std::mem::discriminant(old) != std::mem::discriminant(new) {
        let old = old.logged();
        let why = format!("it is {old}, and stays of this kind: create another subscription");
        return Err(Error::invalid(InvalidPart::Limit, "subscriber", why));
    }
    Ok(())
}
