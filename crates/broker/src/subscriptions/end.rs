//! The end of subscriptions: they are deleted with their queues, on request or when their life has ended.

use tokio::time::Instant;
use tracing::info;

use angarium_core::error::Error;
use angarium_core::ids::SubscriptionId;
use angarium_core::names::QueueRef;
use angarium_core::subscription::Subscriber;
use angarium_core::time::Timestamp;

use crate::limits;
use crate::queues::delete::Forwards;
use crate::slot::slot_queue::SlotQueue;
use crate::subscriptions::Subscriptions;

impl Subscriptions {
    /// Deletes a subscription with the copies in its queue, once the messages that its consumers have forwarded or moved
    /// have left. It is no error when there is none.
    ///
    /// # Errors
    ///
    /// Busy, with nothing changed, when such messages cannot leave.
    pub(crate) async fn delete(&self, at: &QueueRef, id: SubscriptionId) -> Result<(), Error> {
        self.delete_by(at, id, Instant::now() + limits::FORWARDS_LEAVE).await
    }

    /// As `delete`, with a time until which such messages are awaited.
    async fn delete_by(&self, at: &QueueRef, id: SubscriptionId, end: Instant) -> Result<(), Error> {
        let forwards = self.forwards_of(at, id).await?;
        let (subscriptions, at) = (self.clone(), at.clone());
        // Its source forgets it, also when the caller is canceled.
        let delete = async move {
            subscriptions.0.queues.queue_delete_by(&at.of_subscription(id), forwards, end).await?;
            let queue = subscriptions.0.slots.queue(&at).await?;
            let _gate = queue.hold_gate().await;
            if let Some(source) = queue.handle() {
                // The others are not read again: the deletion of all would read all of them each time.
                source.forget_subscription(id);
            }
            Ok(())
        };
        self.0.replica.carry_out(delete).await
    }

    /// Returns the fate of messages on their way out of a subscription that is deleted. Consumers of `pull:` settle, and
    /// what they have forwarded is awaited; in other subscriptions it is the copies for the subscriber.
    async fn forwards_of(&self, at: &QueueRef, id: SubscriptionId) -> Result<Forwards, Error> {
        let queue = self.0.slots.queue(at).await?;
        let Some(source) = self.0.open_queues.open_if_there(&queue).await? else {
            return Ok(Forwards::Discarded);
        };
        let all = source.subscriptions().ok_or_else(|| source.closed())?;
        let known = all.iter().find(|known| known.id() == id);
        let is_pulled =
            known.is_some_and(|known| matches!(known.subscription.subscriber, Subscriber::Pull(_)));
        Ok(if is_pulled { Forwards::Awaited } else { Forwards::Discarded })
    }

    /// Deletes all subscriptions of a queue. One that is busy keeps none of the others, and the time in which forwarded
    /// messages may leave is that of all together.
    ///
    /// # Errors
    ///
    /// Busy when some are, and stay.
    pub(crate) async fn delete_all(&self, at: &QueueRef) -> Result<(), Error> {
        let queue = self.0.slots.queue(at).await?;
        let Some(source) = self.0.open_queues.open(&queue).await? else { return Ok(()) };
        let all = source.subscriptions().ok_or_else(|| source.closed())?;
        let mut deletions = Deletions::new(self);
        for known in all.iter() {
            deletions.delete(at, known.id()).await?;
        }
        deletions.result
    }

    /// Deletes subscriptions whose life has ended, until the service stops.
    pub(crate) async fn delete_ended(&self) {
        while self.0.replica.sleep_tick(limits::SUBSCRIPTIONS_TICK).await {
            self.delete_ended_round().await;
        }
    }

    async fn delete_ended_round(&self) {
        let now = self.0.replica.clock.now();
        for slot in self.0.slots.owned() {
            for at in slot.sources_due(now) {
                if let Err(error) = self.delete_ended_of(&slot.queue(&at), now).await {
                    let subject = format_args!("queue {}", at.name);
                    self.0.replica.task_failed("delete ended subscriptions", subject, &error);
                }
            }
        }
    }

    /// Deletes the subscriptions of a queue that have ended. It opens the queue, which is how their ends are known.
    async fn delete_ended_of(&self, queue: &SlotQueue, now: Timestamp) -> Result<(), Error> {
        let at = queue.at();
        let Some(source) = self.0.open_queues.open_if_there(queue).await? else {
            queue.slot().forget_source(at);
            return Ok(());
        };
        let all = source.subscriptions().ok_or_else(|| source.closed())?;
        let mut deletions = Deletions::new(self);
        for known in all.iter().filter(|known| !known.subscription.is_live(now)) {
            if deletions.delete(at, known.id()).await? {
                let (project, name) = (&at.project, &at.name);
                info!(%project, queue = %name, subscription = %known.id(), "subscription ended");
            }
        }
        deletions.result
    }
}

/// Deletions of subscriptions, one after the other.
struct Deletions<'a> {
    subscriptions: &'a Subscriptions,
    /// Until then they wait for forwarded messages.
    end: Instant,
    /// Busy, once one of them was.
    result: Result<(), Error>,
}

impl<'a> Deletions<'a> {
    fn new(subscriptions: &'a Subscriptions) -> Self {
        Self { subscriptions, end: Instant::now() + limits::FORWARDS_LEAVE, result: Ok(()) }
    }

    /// Deletes a subscription. Returns false when it is busy.
    async fn delete(&mut self, at: &QueueRef, id: SubscriptionId) -> Result<bool, Error> {
        match self.subscriptions.delete_by(at, id, self.end).await {
            Ok(()) => Ok(true),
            Err(error @ Error::Busy(_)) => {
                self.result = Err(error);
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }
}
