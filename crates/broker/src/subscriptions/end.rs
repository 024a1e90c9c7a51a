//! The end of subscriptions: they are deleted with their queues, on request or when their life has ended.

use tracing::info;

use angarium_core::error::Error;
use angarium_core::ids::SubscriptionId;
use angarium_core::names::QueueRef;
use angarium_core::time::Timestamp;

use crate::limits;
use crate::queues::delete::Forwards;
use crate::slot::slot_queue::SlotQueue;
use crate::subscriptions::Subscriptions;

impl Subscriptions {
    /// Deletes a subscription with the copies in its queue. It is no error when there is none.
    pub(crate) async fn delete(&self, at: &QueueRef, id: SubscriptionId) -> Result<(), Error> {
        self.0.queues.queue_delete(&at.of_subscription(id), Forwards::Discarded).await?;
        let queue = self.0.slots.queue(at).await?;
        match queue.handle() {
            Some(source) => self.0.open_queues.reload_subscriptions(&source).await,
            None => Ok(()),
        }
    }

    /// Deletes all subscriptions of a queue.
    pub(crate) async fn delete_all(&self, at: &QueueRef) -> Result<(), Error> {
        let queue = self.0.slots.queue(at).await?;
        let Some(source) = self.0.open_queues.open(&queue).await? else { return Ok(()) };
        let all = source.subscriptions().ok_or_else(|| source.closed())?;
        for known in all.iter() {
            self.delete(at, known.id()).await?;
        }
        Ok(())
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
        let Some(source) = self.0.open_queues.open(queue).await? else {
            queue.slot().forget_source(at);
            return Ok(());
        };
        let all = source.subscriptions().ok_or_else(|| source.closed())?;
        for known in all.iter().filter(|known| !known.subscription.is_live(now)) {
            self.delete(at, known.id()).await?;
            let (project, name) = (&at.project, &at.name);
            info!(%project, queue = %name, subscription = %known.id(), "subscription ended");
        }
        Ok(())
    }
}
