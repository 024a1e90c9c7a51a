//! The totals that a slot enters in the ledger after its batches.
//!
//! A batch that changes the queue of a subscription may change the totals of its source too, in which a body that they
//! share counts until its last reader is removed. So these are read after it, also when the batch has nothing of the
//! source. The source of a closed queue is not in memory: when such a queue loses shared bodies, the ledger has the
//! slot read again. Nor are its pools: while it may be in two, the slot is read again too.

use std::sync::Arc;

use futures_util::future::join_all;
use tokio_util::task::TaskTracker;

use angarium_catalogue::Placement;
use angarium_core::error::Error;
use angarium_core::ids::QueueId;
use angarium_core::maps::HashSet;
use angarium_core::names::{PoolName, ProjectId, QueueRef};

use crate::ledger::quota_ledger::{Ledger, PoolCount};
use crate::slot::state::Slot;
use crate::stores::queue_store::QueueStore;

/// A queue whose totals are read for the ledger.
struct CountedQueue {
    id: QueueId,
    /// None for a queue that is not open, and for the source of a changed subscription.
    account: Option<ProjectId>,
    store: Result<QueueStore, Error>,
    /// Whether the store has all its pools, as far as known.
    is_whole: bool,
}

impl Slot {
    /// Writes into the ledger, if this object still serves the slot.
    pub(crate) fn enter(self: &Arc<Self>, write: impl FnOnce(&Ledger)) {
        let _state = self.lock();
        if !self.closed.is_cancelled() {
            write(&self.around.ledger);
        }
    }

    /// Reads the totals of the counted queues whose amounts a batch to the pool `at` has changed, each once. The totals
    /// are none when a read fails.
    pub(crate) async fn count_after(
        self: &Arc<Self>,
        at: &PoolName,
        changed: impl Iterator<Item = (QueueId, Option<&QueueRef>)>,
    ) -> Vec<PoolCount> {
        let mut seen = HashSet::default();
        let rule = self.around.ledger.quotas.borrow().accounts();
        let (mut counted, mut open) = (Vec::new(), Vec::new());
        for (id, name) in changed {
            let account = name.map(|name| rule.of(&name.project));
            if self.around.ledger.keeps(account.as_ref(), id) && seen.insert(id) {
                let (store, is_whole) = (self.store_counted(at, id, name), name.is_some());
                counted.push(CountedQueue { id, account, store, is_whole });
                open.extend(name.map(|name| (id, name)));
            }
        }
        counted.extend(self.lenders(&open, &mut seen));
        let read = counted.into_iter().map(|one| async move {
            let CountedQueue { id: queue, account, store, is_whole } = one;
            let settles = self.around.ledger.settles(queue);
            let totals = match store {
                Ok(store) => store.totals(queue).await,
                Err(error) => Err(error),
            };
            if let Err(error) = &totals {
                self.around.replica.task_failed("read totals", format_args!("queue {queue}"), error);
            }
            PoolCount { queue, account, totals: totals.ok(), settles, is_whole }
        });
        join_all(read).await
    }

    /// Returns the sources of changed subscriptions, except those in `seen` and those without an entry in the ledger. A
    /// source that is not open has the pools of its subscription, also during a migration. The source of a subscription
    /// that is being deleted is not known any more: then the ledger has the slot read again.
    fn lenders(
        self: &Arc<Self>,
        changed: &[(QueueId, &QueueRef)],
        seen: &mut HashSet<QueueId>,
    ) -> Vec<CountedQueue> {
        let mut lenders = Vec::new();
        if changed.iter().all(|(_, name)| name.name.subscription().is_none()) {
            return lenders;
        }
        let (state, mut has_unknown) = (self.lock(), false);
        for (queue, name) in changed {
            let Some(subscription) = state.queue(name, *queue) else {
                has_unknown |= name.name.subscription().is_some();
                continue;
            };
            let Some(id) = subscription.source.filter(|source| !seen.contains(source)) else { continue };
            let Some(at) = name.source().filter(|_| self.around.ledger.keeps(None, id)) else { continue };
            let store = self.store_of(state.queue(&at, id).unwrap_or(subscription));
            seen.insert(id);
            lenders.push(CountedQueue { id, account: None, store, is_whole: true });
        }
        // Once for all of them: it passes over the entries of the slot.
        if has_unknown && !self.closed.is_cancelled() {
            self.around.ledger.make_lenders_stale(self.owned.slot, self.epoch);
        }
        lenders
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
