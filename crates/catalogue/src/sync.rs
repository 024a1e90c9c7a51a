//! Catching up with changes of other replicas. Concurrent callers share one sync of the tree.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Mutex;

use super::{Catalogue, failed};
use angarium_core::error::Error;

/// The syncs of a catalogue.
#[derive(Default)]
pub(super) struct Syncs {
    /// Number of syncs that were started.
    started: AtomicU64,
    /// Number of the last successful sync. Locked during a sync, so that waiting callers share the next one.
    finished: Mutex<u64>,
}

impl Catalogue {
    /// Waits until reads show every change that was acknowledged before the call, by any replica.
    pub async fn catch_up(&self) -> Result<(), Error> {
        let before = self.syncs.started.load(Ordering::Acquire);
        let mut finished = self.syncs.finished.lock().await;
        if *finished > before {
            return Ok(());
        }
        let number = self.syncs.started.fetch_add(1, Ordering::AcqRel) + 1;
        self.tree.sync().await.map_err(failed)?;
        *finished = number;
        Ok(())
    }
}
