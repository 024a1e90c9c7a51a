//! Catching up with what other replicas have changed. Many who ask at the same time share one question to the tree.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Mutex;

use super::{Catalogue, failed};
use angarium_core::error::Error;

/// The questions that were asked.
#[derive(Default)]
pub(super) struct Syncs {
    /// How many have begun.
    begun: AtomicU64,
    /// The number of the last one that succeeded. Held while one is under way, so that those who wait share the next.
    done: Mutex<u64>,
}

impl Catalogue {
    /// From its return on, reads show every change that was acknowledged before the call, no matter which replica made
    /// it.
    pub async fn catch_up(&self) -> Result<(), Error> {
        let before = self.syncs.begun.load(Ordering::Acquire);
        let mut done = self.syncs.done.lock().await;
        if *done > before {
            return Ok(());
        }
        let number = self.syncs.begun.fetch_add(1, Ordering::AcqRel) + 1;
        self.tree.sync().await.map_err(failed)?;
        *done = number;
        Ok(())
    }
}
