//! The totals that a slot enters in the ledger after its batches.

use std::sync::Arc;

use futures_util::future::join_all;
use tokio_util::task::TaskTracker;

use angarium_catalogue::Placement;
use angarium_core::error::Error;
use angarium_core::ids::QueueId;
use angarium_core::maps::HashSet;
use angarium_core::names::{PoolName, QueueRef};

use crate::ledger::quota_ledger::{Ledger, PoolCount};
use crate::slot::state::Slot;
use crate::stores::queue_store::QueueStore;

impl Slot {
    /// Writes into the ledger, if this object still serves the slot.
    pub(crate) fn enter(self: &Arc<Self>, write: impl FnOnce(&Ledger)) {
        let _state = self.lock();
        if !self.closed.is_cancelled() {
            write(&self.around.ledger);
        }
    }

    /// Reads the totals of the counted queues whose amounts a batch to the pool `at` has changed. The totals are none
    /// when a read fails.
    pub(crate) async fn count_after(
        self: &Arc<Self>,
        at: &PoolName,
        changed: impl Iterator<Item = (QueueId, Option<&QueueRef>)>,
    ) -> Vec<PoolCount> {
        let mut seen = HashSet::default();
        let rule = self.around.ledger.quotas.borrow().accounts();
        let account = |at: Option<&QueueRef>| at.map(|at| rule.of(&at.project));
        let counted = changed.filter(|(queue, at)| self.around.ledger.keeps(account(*at).as_ref(), *queue));
        let counted: Vec<_> = counted.filter(|(queue, _)| seen.insert(*queue)).collect();
        let asked = counted.into_iter().map(|(queue, name)| async move {
            let account = account(name);
            let settles = self.around.ledger.settles(queue);
            let totals = match self.store_counted(at, queue, name) {
                Ok(store) => store.totals(queue).await,
                Err(error) => Err(error),
            };
            if let Err(error) = &totals {
                self.around.replica.task_failed("read totals", format_args!("queue {queue}"), error);
            }
            PoolCount { queue, account, totals: totals.ok(), settles }
        });
        join_all(asked).await
    }

    /// Returns the store for counting a queue. A queue that is not open is in the pool of the batch.
    pub(crate) fn store_counted(
        self: &Arc<Self>,
        pool: &PoolName,
        queue: QueueId,
        name: Option<&QueueRef>,
    ) -> Result<QueueStore, Error> {
        let mut state = self.lock();
        match name.and_then(|name| state.queue_mut(name, queue)) {
            Some(open) => self.store_of(open),
            None => self.around.stores.store_at(&Placement::one(pool.clone()), TaskTracker::new().token()),
        }
    }
}
