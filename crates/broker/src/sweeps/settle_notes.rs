//! Removal of the notes of settles that have expired.

use std::sync::Arc;

use tokio::time::timeout;

use angarium_core::error::{Error, Part};
use angarium_core::maps::HashSet;

use crate::limits;
use crate::slot::queue_handle::QueueHandle;
use crate::slot::state::Slot;
use crate::sweeps::Sweeps;

impl Sweeps {
    /// Removes the expired notes of a slot's open queues, and begins to search their pools for further ones: a page of
    /// each queue.
    pub(crate) fn expire_settle_notes(&self, slot: &Arc<Slot>) {
        let searched = slot.expire_settle_notes();
        if !searched.is_empty() {
            let (sweeps, slot) = (self.clone(), Arc::clone(slot));
            self.0.replica.tasks.spawn(async move { sweeps.search_settle_notes(&slot, searched).await });
        }
    }

    /// Reads a page of each queue. After a failure the other queues of its pool wait for the next sweep of the slot.
    async fn search_settle_notes(&self, slot: &Slot, queues: Vec<QueueHandle>) {
        let mut failed = HashSet::default();
        for queue in queues {
            if self.0.replica.stop.is_cancelled() || slot.closed.is_cancelled() {
                return;
            }
            let Some(terms) = queue.transfer_terms() else { continue };
            if terms.placement.pools().any(|pool| failed.contains(pool)) {
                continue;
            }
            let late = |_| Err(Error::unavailable(Part::Storage, "the pool does not answer"));
            let read = timeout(limits::COUNTING_WAIT, queue.search_settle_notes()).await;
            if let Err(error) = read.unwrap_or_else(late) {
                failed.extend(terms.placement.pools().cloned());
                self.0.replica.task_failed(
                    "remove notes of settles",
                    format_args!("queue {}", queue.at().name),
                    &error,
                );
            }
        }
    }
}
