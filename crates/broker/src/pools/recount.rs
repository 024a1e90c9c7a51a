//! Background recount of the totals of pools that a crash may have left wrong, at a bounded rate.

use tracing::warn;

use angarium_storage::Recount;

use crate::limits;
use crate::pools::Pools;

impl Pools {
    /// Makes pools recount totals that may be wrong, until the service stops.
    pub(crate) async fn recount_pools(&self) {
        let mut pause = limits::RECOUNT_STEP;
        while self.0.replica.sleep_tick(pause).await {
            pause = limits::RECOUNT_REST;
            for pool in self.0.stores.all() {
                let name = &pool.entry.name;
                // Unavailable pools are reported elsewhere.
                let Ok(store) = pool.store() else { continue };
                match store.recount().await {
                    Ok(Recount::Done) => {}
                    Ok(Recount::More(corrections)) => {
                        pause = limits::RECOUNT_STEP;
                        for found in corrections {
                            let (before, after) = (found.before, found.after);
                            warn!(
                                pool = %name,
                                queue = %found.queue,
                                messages_before = before.messages,
                                messages_after = after.messages,
                                bytes_before = before.bytes,
                                bytes_after = after.bytes,
                                "totals corrected"
                            );
                            if let Some(slot) = self.0.slots.get(found.queue.slot()) {
                                slot.note_corrected(found.queue);
                            }
                        }
                    }
                    Err(error) => {
                        self.0.replica.task_failed(
                            "recount totals",
                            format_args!("pool {name}"),
                            &store.failed(error),
                        );
                    }
                }
            }
        }
    }
}
