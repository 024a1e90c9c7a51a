//! Copies that wait in the subscriptions of a queue, counted for the log when they end with it.

use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use angarium_catalogue::{Placement, QueueRecord};

use crate::limits;
use crate::open_queues::OpenQueues;
use crate::slot::slot_queue::SlotQueue;

/// Number of copies in the subscriptions of a queue.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WaitingCopies {
    pub(crate) messages: u64,
    /// Those of `messages` on their way to another queue.
    pub(crate) in_transfer: u64,
}

impl OpenQueues {
    /// Counts the copies in the subscriptions of a queue that are in these of its pools, at the cost of one read for each
    /// subscription and pool. None when a pool does not answer in time.
    pub(crate) async fn count_copies(
        &self,
        queue: &SlotQueue,
        record: &QueueRecord,
        pools: &Placement,
    ) -> Option<WaitingCopies> {
        let mut copies = WaitingCopies::default();
        if !record.has_subscriptions {
            return Some(copies);
        }
        let store = self.0.stores.store_at(pools, TaskTracker::new().token()).ok()?;
        let count = async {
            let (catalogue, slot) = (&self.0.replica.catalogue, queue.slot());
            for subscription in catalogue.subscriptions(&slot.owned, queue.at(), record.id).await.ok()? {
                let totals = store.totals(subscription.id.0).await.ok()?;
                copies.messages += totals.messages;
                copies.in_transfer += totals.in_transfer;
            }
            Some(copies)
        };
        timeout(limits::LEAVE_READ, count).await.ok()?
    }
}
