//! Totals of pools that a crash may have left wrong are counted again in the background, at a bounded rate.

use std::collections::HashSet;

use tracing::{debug, warn};

use super::Broker;
use crate::domain::limits;
use crate::storage::Recount;

impl Broker {
    /// Has pools count again what they are not sure of, until the service stops.
    pub(super) async fn recount_pools(&self) {
        let (mut pause, mut told) = (limits::RECOUNT_STEP, HashSet::new());
        while self.next_turn(pause).await {
            pause = limits::RECOUNT_REST;
            for pool in self.0.pools.all() {
                let name = &pool.entry.name;
                // A pool that is unavailable was complained of already.
                let Ok(store) = pool.store() else { continue };
                match store.recount().await {
                    Ok(Recount::Done) => {}
                    Ok(Recount::More(corrections)) => {
                        pause = limits::RECOUNT_STEP;
                        for found in corrections {
                            let (before, after) = (found.before, found.after);
                            warn!(pool = %name, queue = %found.queue, ?before, ?after, "totals corrected");
                            if let Some(slot) = self.0.cells.get(found.queue.slot()) {
                                slot.state.lock().note_corrected(found.queue);
                            }
                        }
                    }
                    Err(error) if told.insert(name.clone()) => {
                        warn!(pool = %name, %error, "totals could not be counted again");
                    }
                    Err(error) => debug!(pool = %name, %error, "totals could not be counted again"),
                }
            }
        }
    }
}
