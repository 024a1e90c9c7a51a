//! The common bound of the ready caches of all queues.

use std::sync::Arc;

use crate::limits;
use crate::slot::ready_caches::bound_ready_caches;
use crate::slot::state::Slot;
use crate::sweeps::Sweeps;

impl Sweeps {
    /// Keeps the ready caches of all queues within their common bound until the service stops.
    pub(crate) async fn bound_ready_caches(&self) {
        while self.0.replica.sleep_tick(limits::READY_CACHES_TICK).await {
            let slots: Vec<Arc<Slot>> = self.0.slots.owned().collect();
            bound_ready_caches(&slots, limits::READY_CACHES_BYTES);
            self.0.dedup.recount(&slots);
        }
    }
}
