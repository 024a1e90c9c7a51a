//! Being told that records have changed which every replica keeps in memory: those of the pools. Flavors are read when
//! they are needed, and queues are nobody's but their owner's.

use super::{Catalogue, failed, layout};
use crate::coordination::{Event, Watch};
use crate::error::Error;

/// A watch of the records of all pools. Dropping it ends it.
pub struct PoolWatch(Watch);

impl Catalogue {
    /// Watches the records of pools, whoever changes them.
    pub fn watch_pools(&self) -> Result<PoolWatch, Error> {
        self.tree.watch_tree(layout::POOLS).map(PoolWatch).map_err(failed)
    }
}

impl PoolWatch {
    /// Waits until some of the records may have changed; at first they may have. False when the tree is closed. May be
    /// dropped at any time.
    pub async fn changed(&mut self) -> bool {
        loop {
            match self.0.next().await {
                Some(Event::Changed { .. } | Event::Resync) => return true,
                // When there is another session everything is looked at again.
                Some(Event::Lost) => {}
                None => return false,
            }
        }
    }
}
