//! The queues of subscriptions, which a post to their source needs open.

use angarium_core::error::{Error, Part};
use angarium_core::subscription::Subscription;

use crate::open_queues::OpenQueues;
use crate::slot::queue_handle::QueueHandle;
use crate::slot::subscriptions::{FannedSubscription, KnownSubscription};

impl OpenQueues {
    /// Opens the queues of subscriptions. If one is gone, the source learns its present subscriptions.
    pub(crate) async fn open_subscriptions(
        &self,
        source: &QueueHandle,
        subscriptions: &[FannedSubscription],
    ) -> Result<(), Error> {
        for FannedSubscription { subscription, .. } in subscriptions {
            let queue = source.slot().queue(&source.at().of_subscription(subscription.id));
            if self.open(&queue).await?.is_none() {
                return self.reload_subscriptions(source).await;
            }
        }
        Ok(())
    }

    /// Reads the subscriptions of a queue again.
    pub(crate) async fn reload_subscriptions(&self, source: &QueueHandle) -> Result<(), Error> {
        let named = source.in_slot();
        let _gate = named.hold_gate().await;
        let (catalogue, slot) = (&self.0.replica.catalogue, source.slot());
        let found = catalogue.subscriptions(&slot.owned, source.at(), source.id()).await?;
        source.set_subscriptions(known(found)?);
        Ok(())
    }
}

/// Reads the filters of stored subscriptions. A filter that this version does not understand makes the queue unavailable:
/// whichever messages it took for accepted, it would be wrong about some.
pub(in crate::open_queues) fn known(found: Vec<Subscription>) -> Result<Vec<KnownSubscription>, Error> {
    let damaged = |error| Error::unavailable(Part::Coordination, error);
    found.into_iter().map(|subscription| KnownSubscription::new(subscription).map_err(damaged)).collect()
}
