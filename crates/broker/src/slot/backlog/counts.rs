//! Reading the totals of the queues of subscriptions that are near their bounds.

use std::sync::Arc;

use futures_util::future::join_all;

use angarium_core::error::Error;
use angarium_core::ids::QueueId;
use angarium_core::names::{PoolName, QueueRef};
use angarium_core::quota::Amount;

use crate::slot::backlog::two_pools::ends_copy;
use crate::slot::queue_handle::QueueHandle;
use crate::slot::state::{Slot, SlotState};
use crate::writer::pending::Write;

/// The totals of the queue of a subscription after a batch.
pub(crate) struct BacklogCount {
    pub(crate) queue: NearQueue,
    /// None when they could not be read.
    pub(crate) stored: Option<Amount>,
}

/// The queue of a subscription whose totals are to be read.
pub(crate) struct NearQueue {
    at: QueueRef,
    id: QueueId,
    /// Number of the steps that have copied it to another pool by then: with another number, or during one, a message may be
    /// read in two pools.
    pool_copies: u64,
}

impl SlotState {
    /// Enters the totals of queues of subscriptions.
    pub(in crate::slot) fn learn_backlogs(&mut self, counts: Vec<BacklogCount>) {
        for BacklogCount { queue: NearQueue { at, id, pool_copies }, stored } in counts {
            let Some(backlog) = self.queue_mut(&at, id).and_then(|queue| queue.backlog.as_mut()) else {
                continue;
            };
            let before = backlog.is_suspended();
            match stored {
                Some(_) if !backlog.is_read_once(pool_copies) => continue,
                Some(stored) => backlog.learn(stored),
                None => backlog.is_uncounted = true,
            }
            if before && !backlog.is_suspended() {
                backlog.log_resumed(&at);
            }
            if backlog.is_uncounted || backlog.may_catch_up() {
                self.note_fill(&at);
            }
        }
    }
}

impl Slot {
    /// Reads the totals of the subscriptions' queues that a batch has changed and that are near their bounds.
    pub(in crate::slot) async fn count_backlogs(
        self: &Arc<Self>,
        pool: &PoolName,
        writes: &[Write],
    ) -> Vec<BacklogCount> {
        let near = self.near_bounds(writes);
        let read = near.into_iter().map(|near| async move {
            let NearQueue { at, id, .. } = &near;
            let totals = match self.store_counted(pool, *id, Some(at)) {
                Ok(store) => store.totals(*id).await,
                Err(error) => Err(error),
            };
            let failed = |error: &Error| {
                self.around.replica.task_failed("read totals", format_args!("queue {id}"), error);
            };
            let totals = totals.inspect_err(failed).ok();
            let stored = totals.map(|totals| Amount { messages: totals.messages, bytes: totals.bytes });
            BacklogCount { queue: near, stored }
        });
        join_all(read).await
    }

    fn near_bounds(self: &Arc<Self>, writes: &[Write]) -> Vec<NearQueue> {
        let parts = writes.iter().flat_map(Write::parts);
        let of_subscriptions = parts.filter(|(at, _, change)| {
            change.purpose().changes_totals() && at.is_some_and(|at| at.name.subscription().is_some())
        });
        let mut changed: Vec<(&QueueRef, QueueId)> =
            of_subscriptions.filter_map(|(at, queue, _)| Some((at?, queue))).collect();
        if changed.is_empty() {
            return Vec::new();
        }
        changed.sort_unstable_by_key(|(_, queue)| *queue);
        changed.dedup_by_key(|(_, queue)| *queue);
        let state = self.lock();
        let near = |(at, id): (&QueueRef, QueueId)| {
            let backlog = state.queue(at, id).and_then(|queue| queue.backlog.as_deref());
            let backlog = backlog.filter(|backlog| backlog.is_near())?;
            let mut own = writes.iter().flat_map(Write::parts).filter(|(_, queue, _)| *queue == id);
            if backlog.in_two_pools && !own.any(|(_, _, change)| ends_copy(change)) {
                return None;
            }
            Some(NearQueue { at: at.clone(), id, pool_copies: backlog.pool_copies })
        };
        changed.into_iter().filter_map(near).collect()
    }
}

impl QueueHandle {
    /// Enters the totals of the queue of a subscription, which were read while no message of it was in two pools.
    pub(crate) fn learn_backlog(&self, stored: Amount) {
        self.lock_queue(|queue| queue.backlog.as_mut().map(|backlog| backlog.learn(stored)));
    }
}
